//! Tests of what is reported about the client: location, admission, and what endpoints see of it.

use sheave_model::{ClientSource, ClientSources};

use sheave_control::projection::Options;

use super::{Fixture, reason, web, web_with};

#[test]
fn clients_say_why_they_are_inside_or_outside() {
    let fixture = Fixture::new(&web(""));
    let origin = |ip: &str| {
        let view = fixture.ask(&format!("port=80&client={ip}"));
        (view.origin.unwrap(), view.reasons[0].clone())
    };
    let inside = |why: &str| ("internal".to_owned(), why.to_owned());
    assert_eq!(
        origin("10.1.200.1"),
        inside("10.1.200.1 counts as inside the cluster: it is in pod CIDR 10.1.0.0/16 of Node gw-1")
    );
    assert_eq!(
        origin("192.0.2.1"),
        inside("192.0.2.1 counts as inside the cluster: it is an address of Node gw-1")
    );
    assert_eq!(
        origin("203.0.113.10"),
        inside(
            "203.0.113.10 counts as inside the cluster: it is the frontend's own address, so the client is on this machine"
        )
    );
    assert_eq!(origin("192.0.2.2").0, "external");
}

#[test]
fn source_ranges_admit_or_not_and_say_which() {
    let ranges = (0..12).map(|n| format!("198.51.{n}.0/24")).collect::<Vec<_>>().join(", ");
    let fixture = Fixture::new(&web(&format!("loadBalancerSourceRanges: [192.0.2.0/24, {ranges}]")));
    let admitted = fixture.ask("port=80&client=198.51.1.7");
    assert_eq!((admitted.allowed, admitted.action.as_deref()), (true, Some("Forward")));
    reason(&admitted, "198.51.1.7 is admitted: 198.51.1.0/24 of loadBalancerSourceRanges has it");
    let refused = fixture.ask("port=80&client=8.8.8.8");
    assert_eq!(
        (refused.allowed, refused.action.as_deref(), refused.endpoint.clone()),
        (false, Some("Drop"), None)
    );
    let why = reason(&refused, "8.8.8.8 is not admitted");
    assert!(why.contains("198.51.6.0/24, and 5 more); its packets are silently dropped"), "{why}");
    assert!(
        super::super::text::render(&refused)
            .contains("8.8.8.8, outside the cluster, may not use it: its packets are silently dropped")
    );
    // The ranges contain the node's address, so the frontend's own address is admitted as well.
    let own = fixture.ask("port=80&client=203.0.113.10");
    assert!(own.allowed);
    reason(&own, "203.0.113.10 is admitted: loadBalancerSourceRanges admit this node, whose address it is");
    let anyone = fixture.ask("port=80");
    assert!(anyone.allowed);
    reason(&anyone, "only clients in loadBalancerSourceRanges are admitted");
}

#[test]
fn without_a_client_it_is_for_outside_ones_and_the_inside_ones_are_mentioned() {
    let local = Fixture::new(&web("externalTrafficPolicy: Local")).ask("port=80");
    assert_eq!((local.client.clone(), local.origin.as_deref()), (None, Some("external")));
    reason(&local, "clients inside the cluster may get 10.1.0.7:8080, 10.1.0.8:8080");
    reason(&Fixture::new(&web("")).ask("port=80"), "clients inside the cluster get the same");
}

#[test]
fn what_the_endpoint_sees_is_said_for_every_source() {
    let said = |source: ClientSource, query: &str| {
        let sources = ClientSources { external: source, internal: source };
        let fixture = Fixture::new(&web("externalTrafficPolicy: Local"));
        let fixture = fixture.in_force(|frontend| frontend.client_sources = sources);
        reason(&fixture.ask(query), "the endpoint sees").to_owned()
    };
    let tcp = "port=80&client=198.51.100.7";
    assert_eq!(said(ClientSource::Gateway, tcp), "the endpoint sees the gateway's address, not the client's");
    assert_eq!(
        said(ClientSource::Transparent, tcp),
        "the endpoint sees the client's own address (transparent)"
    );
    let mut lost = Fixture::new(&web("externalTrafficPolicy: Local"));
    lost.no_client_addresses = Some("no CAP_NET_ADMIN");
    assert_eq!(
        reason(&lost.ask(tcp), "the endpoint sees"),
        "the endpoint sees the gateway's address, in place of the client's own: no CAP_NET_ADMIN"
    );
    let header = "the endpoint sees the gateway's address, and a PROXY protocol header";
    assert_eq!(
        said(ClientSource::ProxyV1, tcp),
        format!("{header} (version 1) at the beginning of the connection names the client")
    );
    assert_eq!(
        said(ClientSource::ProxyV2, "protocol=UDP&client=198.51.100.7"),
        format!("{header} (version 2) at the beginning of each datagram names the client")
    );
    let alone = Fixture::new(&web("").replace("- {addresses: [10.1.0.8], nodeName: n2, zone: b}\n", ""));
    let transparent =
        ClientSources { external: ClientSource::Transparent, internal: ClientSource::Transparent };
    let alone = alone.in_force(|frontend| frontend.client_sources = transparent);
    let own = alone.ask("port=80&client=203.0.113.10");
    assert!(reason(&own, "the endpoint sees").contains("the client has the frontend's own"));
    let itself = alone.ask("port=80&client=10.1.0.7");
    assert!(reason(&itself, "the endpoint sees").contains("the client is the endpoint itself"));
}

#[test]
fn trusted_proxies_are_told_apart_from_clients() {
    let options = Options {
        node: "gw-1".to_owned(),
        accept_proxy_allow: vec!["198.51.100.0/24".parse().unwrap()],
        ..Options::default()
    };
    let web = web_with("annotations: {sheave.dev/accept-proxy: 198.51.100.0/24}", "");
    let fixture = Fixture::with(&web, options);
    let proxy = fixture.ask("port=80&client=198.51.100.7");
    reason(
        &proxy,
        "198.51.100.7 is trusted by sheave.dev/accept-proxy: its connections must begin with a PROXY",
    );
    let other = fixture.ask("port=80&client=8.8.8.8");
    reason(&other, "connections from peers in sheave.dev/accept-proxy go by the client");
}
