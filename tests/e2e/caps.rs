//! Tests of the limits of a Service on a gateway, for connections and flows, in total and per client, and of its
//! timeouts.

use std::io::{self, ErrorKind, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::support::gateway::{Gateway, Settings};
use crate::support::manifest::{App, at};
use crate::support::patience::{eventually, eventually_within, let_pass, patience};
use crate::support::tcp::{self, Conversation};
use crate::support::udp;
use crate::support::world::{Family, World};

for_both_families!(
    a_service_has_no_more_open_than_it_may,
    new_ones_come_no_faster_than_they_may,
    a_client_has_no_more_than_it_may_and_others_are_served,
    clients_that_a_proxy_names_count_as_themselves,
    limits_of_the_configuration_hold_where_a_service_says_nothing,
    a_service_may_have_timeouts_of_its_own,
);

/// The clients of these cases are in one network, which counts as a single client over IPv6 by default.
const EACH_ADDRESS: &str = "limits: {perClient: {ipv6Prefix: 128}}\n";

fn web(family: Family) -> SocketAddr {
    at(family.vip(0), 80)
}

fn dns(family: Family) -> SocketAddr {
    at(family.vip(0), 53)
}

/// A Service with these annotations, on both protocols.
fn app(family: Family, annotations: &[(&'static str, &str)]) -> App {
    let app = App::new("capped", &[family.vip(0)]).tcp(80, 9000).udp(53, 9053).ready(family.backend(0));
    annotations.iter().fold(app, |app, (name, value)| app.annotation(name, value))
}

/// Another Service without annotations.
fn other(family: Family) -> App {
    App::new("other", &[family.vip(1)]).tcp(80, 9000).udp(53, 9053).ready(family.backend(0))
}

fn servers(world: &World, family: Family) -> (tcp::Server, udp::Server) {
    let tcp = tcp::Server::who_am_i(world.backend(0), at(family.backend(0), 9000), "tcp");
    (tcp, udp::Server::who_am_i(world.backend(0), at(family.backend(0), 9053), "udp"))
}

fn open(world: &World, from: IpAddr, to: SocketAddr) -> io::Result<Conversation> {
    world.client.run(|| Conversation::open_from(from, to))
}

fn expect_reset(outcome: io::Result<Conversation>) {
    let error = outcome.err().expect("one too many is served");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
}

fn expect_other_served(world: &World, family: Family) {
    world.client.run(|| tcp::ask(at(family.vip(1), 80))).expect("another Service is served");
    udp::Client::new(&world.client, family.client(0), at(family.vip(1), 53)).ask().expect("of UDP, too");
}

fn shed(gateway: &Gateway<'_>, reason: &str) -> f64 {
    gateway.metric("sheave_shed_total", &["service=\"e2e/capped", &format!("reason=\"{reason}\"")])
}

/// Checks that the Problem exists while connections are refused, and disappears by itself.
fn expect_problem_while_it_lasts(gateway: &Gateway<'_>, text: &str) {
    let told = || gateway.problems().into_iter().filter(|problem| problem.contains("LimitReached")).collect();
    eventually("those who are refused are told", || {
        let told: Vec<String> = told();
        if told.iter().any(|problem| problem.contains(text)) { Ok(()) } else { Err(told.join("\n")) }
    });
    eventually_within(patience(30.0), "the Problem is gone", || {
        let told: Vec<String> = told();
        if told.is_empty() { Ok(()) } else { Err(told.join("\n")) }
    });
}

fn a_service_has_no_more_open_than_it_may(family: Family) {
    let world = World::new(1);
    let _servers = servers(&world, family);
    let apps = [app(family, &[("sheave.dev/max-connections", "5")]), other(family)];
    let gateway = Gateway::start(&world, &apps);
    let mut talks: Vec<Conversation> =
        (0..4).map(|_| open(&world, family.client(0), web(family)).unwrap()).collect();
    let flow = udp::Client::new(&world.client, family.client(0), dns(family));
    flow.ask().expect("the fifth is a flow");
    expect_reset(open(&world, family.client(1), web(family)));
    let late = udp::Client::new(&world.client, family.client(1), dns(family));
    late.expect_silence(patience(0.2));
    talks.iter_mut().for_each(|talk| talk.say("still there?").unwrap());
    flow.ask().expect("what is open goes on");
    expect_other_served(&world, family);
    assert_eq!(shed(&gateway, "max_connections"), 2.0);
    assert_eq!(gateway.metric("sheave_udp_dropped_total", &["reason=\"max_connections\""]), 1.0);

    drop(talks.pop());
    eventually("another may come in its place", || {
        late.ask_briefly().map(drop).and_then(|()| flow.ask_briefly().map(drop))
    });
    expect_reset(open(&world, family.client(0), web(family)));
    expect_problem_while_it_lasts(&gateway, "the Service has 5 open, which is its limit");
    let limits = &gateway.routes()["frontends"][0]["limits"];
    assert_eq!(limits["connections"], 5, "{limits}");

    gateway.apply(&[app(family, &[("sheave.dev/max-connections", "6")]), other(family)]);
    eventually("a higher limit holds at once", || open(&world, family.client(0), web(family)));
}

const RATE: usize = 10;

fn new_ones_come_no_faster_than_they_may(family: Family) {
    let world = World::new(1);
    let _servers = servers(&world, family);
    let apps = [app(family, &[("sheave.dev/max-connection-rate", "10")]), other(family)];
    let gateway = Gateway::start(&world, &apps);
    let ask = |_| world.client.run(|| tcp::ask(web(family)));
    let served = (0..20 * RATE).map(ask).filter(Result::is_ok).count();
    let refused = shed(&gateway, "max_connection_rate");
    assert!(served >= RATE && refused >= RATE as f64, "{served} served, {refused} refused");
    assert_eq!(served as f64 + refused, 20.0 * RATE as f64);
    expect_other_served(&world, family);
    expect_problem_while_it_lasts(&gateway, "more than 10 were opened within a second");
    // The full limit again, shared by flows.
    let flows = (0..RATE / 2).map(|_| udp::Client::new(&world.client, family.client(0), dns(family)));
    flows.for_each(|flow| drop(flow.ask().expect("half of them are flows")));
    (0..RATE / 2).map(ask).for_each(|asked| drop(asked.expect("half of them are connections")));
}

fn a_client_has_no_more_than_it_may_and_others_are_served(family: Family) {
    let world = World::new(1);
    let _servers = servers(&world, family);
    let limits =
        [("sheave.dev/max-connections-per-client", "3"), ("sheave.dev/max-connection-rate-per-client", "7")];
    let settings = Settings { config: EACH_ADDRESS, ..Settings::default() };
    let gateway = Gateway::start_with(&world, &[app(family, &limits), other(family)], &settings);
    for client in [family.client(0), family.client(1)] {
        let mut talks: Vec<Conversation> =
            (0..2).map(|_| open(&world, client, web(family)).unwrap()).collect();
        udp::Client::new(&world.client, client, dns(family)).ask().expect("the third is a flow");
        expect_reset(open(&world, client, web(family)));
        udp::Client::new(&world.client, client, dns(family)).expect_silence(patience(0.2));
        talks.iter_mut().for_each(|talk| talk.say("still there?").unwrap());
    }
    assert_eq!(shed(&gateway, "max_connections_per_client"), 4.0);
    let hasty = |_| world.client.run(|| tcp::ask_from(family.client(2), web(family)));
    let served = (0..70).map(hasty).filter(Result::is_ok).count();
    assert!((7..70).contains(&served), "{served}");
    assert!(shed(&gateway, "max_connection_rate_per_client") > 0.0);
    open(&world, family.client(3), web(family)).expect("another client is served");
    expect_other_served(&world, family);
    expect_problem_while_it_lasts(&gateway, "a client");
}

fn clients_that_a_proxy_names_count_as_themselves(family: Family) {
    let world = World::new(1);
    let _servers = servers(&world, family);
    let proxy = format!("{}/{}", family.client(0), family.host_prefix());
    let limits = [("sheave.dev/accept-proxy", &*proxy), ("sheave.dev/max-connections-per-client", "1")];
    let config = concat!(
        "acceptProxy: {allow: [\"0.0.0.0/0\", \"::/0\"]}\n",
        "limits: {perClient: {ipv6Prefix: 128}}\n"
    );
    let settings = Settings { config, ..Settings::default() };
    let gateway = Gateway::start_with(&world, &[app(family, &limits)], &settings);
    let named = |number: u16| {
        let mut stream =
            world.client.run(|| tcp::connect_from(Some(family.client(0)), web(family), patience(5.0)))?;
        let kind = if family == Family::V4 { "TCP4" } else { "TCP6" };
        let (client, vip) = (family.client(number), family.vip(0));
        stream.write_all(format!("PROXY {kind} {client} {vip} 1000 80\r\n").as_bytes())?;
        Conversation::on(stream)
    };
    let _talks = [named(7).unwrap(), named(8).unwrap()];
    expect_reset(named(7));
    assert_eq!(shed(&gateway, "max_connections_per_client"), 1.0);
    assert_eq!(gateway.metric("sheave_tcp_closed_total", &["reason=\"over_limit\""]), 1.0);
    named(9).expect("another client of the same proxy is served");
}

fn limits_of_the_configuration_hold_where_a_service_says_nothing(family: Family) {
    let world = World::new(1);
    let _servers = servers(&world, family);
    let settings = Settings { config: "limits: {perService: {connections: 1}}\n", ..Settings::default() };
    let apps = [app(family, &[("sheave.dev/max-connections", "2")]), other(family)];
    let gateway = Gateway::start_with(&world, &apps, &settings);
    let own = [(); 2].map(|()| open(&world, family.client(0), web(family)).unwrap());
    expect_reset(open(&world, family.client(0), web(family)));
    let by_default = open(&world, family.client(0), at(family.vip(1), 80)).unwrap();
    expect_reset(open(&world, family.client(0), at(family.vip(1), 80)));

    // An invalid limit is reported, and the default applies.
    drop((own, by_default));
    gateway.apply(&[app(family, &[("sheave.dev/max-connections", "0")]), other(family)]);
    eventually("the mistake is told", || {
        let problems = gateway.problems().join("\n");
        if problems.contains("InvalidValue") { Ok(()) } else { Err(problems) }
    });
    let _one = eventually("one may come", || open(&world, family.client(0), web(family)));
    expect_reset(open(&world, family.client(0), web(family)));
}

fn a_service_may_have_timeouts_of_its_own(family: Family) {
    let world = World::new(1);
    let _servers = servers(&world, family);
    let settings = Settings { connect: "50s", ..Settings::default() };
    let apps = [app(family, &[("sheave.dev/idle-timeout", "1s")]), other(family)];
    let gateway = Gateway::start_with(&world, &apps, &settings);
    let mut idle = open(&world, family.client(0), web(family)).unwrap();
    let mut long = open(&world, family.client(0), at(family.vip(1), 80)).unwrap();
    udp::Client::new(&world.client, family.client(0), dns(family)).ask().unwrap();
    udp::Client::new(&world.client, family.client(0), at(family.vip(1), 53)).ask().unwrap();
    match idle.ended() {
        Ok(()) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
    eventually("the flow has ended, too", || match gateway.metric("sheave_udp_flows", &["capped"]) {
        0.0 => Ok(()),
        flows => Err(flows.to_string()),
    });
    let_pass(Duration::from_millis(500));
    long.say("still there?").unwrap();
    assert_eq!(gateway.metric("sheave_udp_flows", &["other"]), 1.0);

    let silent = App::new("capped", &[family.vip(0)]).tcp(80, 9000).ready(family.black_hole());
    gateway.apply(&[silent.annotation("sheave.dev/connect-timeout", "100ms"), other(family)]);
    eventually("a silent endpoint is given up soon", || match open(&world, family.client(0), web(family)) {
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(()),
        outcome => Err(format!("{:?}", outcome.map(|talk| talk.with))),
    });
    assert!(gateway.metric("sheave_tcp_closed_total", &["capped", "reason=\"connect_failed\""]) > 0.0);
}
