//! Tests of which gateway a client reaches according to all answers, and of the text.

use sheave_control::projection::explain::ExplainedEndpoint;

use super::*;

fn known(node: &str, address: &str) -> KnownGateway {
    KnownGateway {
        node: node.to_owned(),
        addresses: vec![address.parse().unwrap()],
        listeners: Vec::new(),
        ready: true,
    }
}

fn explained(endpoint: &str, announced_here: Option<bool>) -> ExplainView {
    ExplainView {
        service: "shop/web".to_owned(),
        source: "Service".to_owned(),
        frontend: Some("203.0.113.10:80/TCP".to_owned()),
        kind: Some("LoadBalancer".to_owned()),
        client: Some("192.0.2.1".to_owned()),
        allowed: true,
        action: Some("Forward".to_owned()),
        endpoint: Some(endpoint.to_owned()),
        announced_here,
        reasons: vec![format!("it goes to {endpoint}")],
        ..ExplainView::default()
    }
}

fn view(answers: Vec<(&str, GatewayExplanation)>) -> ExplanationsView {
    let mut view = ExplanationsView::default();
    for (index, (node, answer)) in answers.into_iter().enumerate().rev() {
        view.add(known(node, &format!("192.0.2.{index}")), answer);
    }
    view.sorted()
}

#[test]
fn the_gateway_that_announces_comes_first_and_others_that_differ_are_told() {
    let ok = |endpoint, here| Ok(Answer::Explained(explained(endpoint, here)));
    let view = view(vec![
        ("gw-1", ok("10.1.0.7:80", Some(false))),
        ("gw-2", ok("10.1.0.8:80", Some(true))),
        ("gw-3", ok("10.1.0.7:80", Some(false))),
        ("gw-4", Err("no answer within 2 s".to_owned())),
    ]);
    assert_eq!(
        (view.comes_to.as_slice(), view.known_by.as_deref()),
        (&["gw-2".to_owned()][..], Some("announced"))
    );
    let text = view.to_text();
    for part in [
        "gw-2 announces the address of 203.0.113.10:80/TCP, so the client comes to gw-2.\n",
        "192.0.2.1, outside the cluster, goes to 10.1.0.8:80.\n",
        "Other gateways\n  - on gw-1, gw-3, the client goes to 10.1.0.7:80\n      it goes to 10.1.0.7:80\n",
        "  - gw-4 does not answer: no answer within 2 s\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn gateways_that_do_the_same_are_one_group_whose_answer_is_that_of_the_one_that_announces() {
    let same = |why: &str, here| {
        Ok(Answer::Explained(ExplainView {
            reasons: vec![why.to_owned()],
            ..explained("10.1.0.7:80", Some(here))
        }))
    };
    let view = view(vec![("gw-1", same("as gw-1", false)), ("gw-2", same("as gw-2", true))]);
    assert_eq!(view.groups.len(), 1);
    assert_eq!(view.groups[0].gateways, ["gw-2", "gw-1"]);
    let text = view.to_text();
    assert!(
        text.contains("comes to gw-2. All 2 gateways that answer do the same.\n") && text.contains("as gw-2"),
        "{text}"
    );
}

/// For example, with `externalTrafficPolicy: Local`.
#[test]
fn five_hundred_gateways_that_all_differ_make_a_short_answer() {
    let endpoint = |gateway: usize, index: usize| ExplainedEndpoint {
        address: format!("10.1.{}.{}:80", index / 250, index % 250),
        addr: None,
        cluster: String::new(),
        slice: "web-1".to_owned(),
        node: format!("gw-{:03}", index % 500),
        zone: String::new(),
        state: "Ready".to_owned(),
        unhealthy: None,
        local: index % 500 == gateway,
        used: index % 500 == gateway,
        weight: None,
        share: None,
        reason: "it is on another Node".to_owned(),
    };
    let mut view = ExplanationsView::default();
    for gateway in (0..500).rev() {
        let endpoints = (0..1000).map(|index| endpoint(gateway, index)).collect();
        let explanation = ExplainView { endpoint: None, endpoints, ..explained("", Some(gateway == 250)) };
        view.add(known(&format!("gw-{gateway:03}"), "192.0.2.1"), Ok(Answer::Explained(explanation)));
        let kept = view.groups.iter().filter(|group| !group.explanation.endpoints.is_empty()).count();
        assert!(kept <= 2 * WITH_ENDPOINTS, "{kept}");
    }
    let view = view.sorted();
    assert_eq!((view.groups.len(), view.groups[0].gateways[0].as_str()), (500, "gw-250"));
    let told: Vec<usize> = view.groups.iter().map(|group| group.explanation.endpoints.len()).collect();
    assert_eq!((&told[..8], told[8..].iter().sum::<usize>()), (&[500; 8][..], 0));
    let text = view.to_text();
    for part in [
        "goes to one of 2 endpoints.\n",
        "  and 500 more, which `sheave explain` on the gateway lists\n",
        "  - on gw-499, the client goes to one of 2 endpoints\n",
    ] {
        assert!(text.contains(part), "{part}");
    }
}

#[test]
fn an_address_that_nobody_or_several_announce_says_so() {
    let ok = |here| Ok(Answer::Explained(explained("10.1.0.7:80", Some(here))));
    let none = view(vec![("gw-1", ok(false)), ("gw-2", ok(false))]).to_text();
    let expected = "No gateway announces the address of 203.0.113.10:80/TCP: no gateway receives its packets. On gw-1:\n";
    assert!(none.starts_with(expected), "{none}");
    let both = view(vec![("gw-1", ok(true)), ("gw-2", ok(true))]).to_text();
    assert!(both.starts_with("gw-1, gw-2 announce the address"), "{both}");
}

#[test]
fn a_gateway_that_announces_the_address_and_does_not_answer_is_named() {
    let not_here = |owner: Option<&str>| {
        let announced_by = owner.map(str::to_owned);
        Ok(Answer::Explained(ExplainView { announced_by, ..explained("10.1.0.7:80", Some(false)) }))
    };
    let silent = || Err("no answer within 2 s".to_owned());
    let owner = view(vec![("gw-1", not_here(Some("gw-2"))), ("gw-2", silent()), ("gw-3", silent())]);
    assert_eq!((&owner.comes_to, &owner.owners), (&vec!["gw-2".to_owned()], &vec!["gw-2".to_owned()]));
    let text = owner.to_text();
    let expected = "gw-2 announces the address of 203.0.113.10:80/TCP, but does not answer. On gw-1:\n";
    assert!(text.starts_with(expected), "{text}");
    let unknown = view(vec![("gw-1", not_here(None)), ("gw-2", silent())]).to_text();
    let expected = "No gateway that answers announces the address of 203.0.113.10:80/TCP; gw-2 does not answer, and may announce it. On \
                    gw-1:\n";
    assert!(unknown.starts_with(expected), "{unknown}");
    let owner = Some("gw-2");
    let fails = view(vec![("gw-1", not_here(owner)), ("gw-2", not_here(owner))]).to_text();
    let expected = "The address of 203.0.113.10:80/TCP belongs to gw-2, which does not announce it at the moment. On gw-1:\n";
    assert!(fails.starts_with(expected), "{fails}");
}

#[test]
fn a_silent_gateway_whose_own_address_it_is_is_named() {
    let at_node =
        ExplainView { frontend: Some("192.0.2.1:80/TCP".to_owned()), ..explained("10.1.0.7:80", None) };
    let silent = Err("no answer within 2 s".to_owned());
    let view = view(vec![("gw-0", Ok(Answer::Explained(at_node))), ("gw-1", silent)]);
    assert_eq!(
        (view.comes_to.as_slice(), view.known_by.as_deref()),
        (&["gw-1".to_owned()][..], Some("nodeAddress"))
    );
    let text = view.to_text();
    let expected = "192.0.2.1:80/TCP is at an address of gw-1, but gw-1 does not answer. On gw-0:\n";
    assert!(text.starts_with(expected), "{text}");
}

/// For example, with node ports, or while a gateway has an older table.
#[test]
fn arrivals_are_those_of_one_frontend_which_most_gateways_answer_for() {
    let at = |frontend: &str, kind: &str, here| {
        let (frontend, kind) = (Some(frontend.to_owned()), Some(kind.to_owned()));
        Ok(Answer::Explained(ExplainView { frontend, kind, ..explained("10.1.0.7:80", here) }))
    };
    let node_ports = |index: usize| at(&format!("192.0.2.{index}:30080/TCP"), "NodePort", None);
    let each = view(vec![("gw-0", node_ports(0)), ("gw-1", node_ports(1))]);
    assert_eq!(each.comes_to, ["gw-0"]);
    let text = each.to_text();
    for part in [
        "192.0.2.0:30080/TCP is at an address of gw-0, so the client comes there.\n",
        "  - on gw-1, the client at 192.0.2.1:30080/TCP goes to 10.1.0.7:80\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let newer = || at("203.0.113.10:80/TCP", "LoadBalancer", Some(false));
    let older = at("203.0.113.9:80/TCP", "LoadBalancer", Some(true));
    let mixed = view(vec![("gw-0", older), ("gw-1", newer()), ("gw-2", newer())]);
    assert_eq!(
        (mixed.comes_to.len(), &mixed.groups[0].gateways[..]),
        (0, &["gw-1", "gw-2"].map(str::to_owned)[..])
    );
    let shared =
        view(vec![("gw-0", node_ports(0)), ("gw-1", at("203.0.113.10:80/TCP", "LoadBalancer", None))]);
    assert_eq!(shared.groups[0].gateways, ["gw-1"]);
}

#[test]
fn without_announcements_a_node_address_leads_to_its_node() {
    let at_node =
        ExplainView { frontend: Some("192.0.2.1:80/TCP".to_owned()), ..explained("10.1.0.7:80", None) };
    let here = view(vec![
        ("gw-0", Ok(Answer::Explained(at_node.clone()))),
        ("gw-1", Ok(Answer::Explained(at_node))),
    ]);
    assert_eq!(
        (here.comes_to.as_slice(), here.known_by.as_deref()),
        (&["gw-1".to_owned()][..], Some("nodeAddress"))
    );
    let any = view(vec![("gw-0", Ok(Answer::Explained(explained("10.1.0.7:80", None))))]);
    assert!(any.to_text().starts_with("Any gateway may get the client."), "{}", any.to_text());
}

#[test]
fn a_service_that_none_knows_is_not_found() {
    let unknown =
        || Ok(Answer::NotFound(ExplainView { service: "shop/web".to_owned(), ..ExplainView::default() }));
    let none = view(vec![("gw-1", unknown()), ("gw-2", unknown())]);
    assert!(
        !none.is_found() && none.to_text().starts_with("No gateway serves shop/web.\n"),
        "{}",
        none.to_text()
    );
    let nobody = view(vec![("gw-1", Err("x".to_owned()))]);
    assert!(!nobody.is_found() && nobody.to_text() == "No gateway answers.\n  - gw-1 does not answer: x\n");
}
