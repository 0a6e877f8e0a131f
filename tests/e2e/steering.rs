//! Tests of frontends without sockets of their own: more than the limit of open files allows, and the messages if the kernel
//! does not allow steering. That steered frontends behave like others is tested by all other cases, which run in that mode,
//! too.

use std::io::ErrorKind;
use std::net::SocketAddr;

use serde_json::Value;

use crate::policies::expect_dropped_at;
use crate::support::gateway::{Gateway, Settings};
use crate::support::manifest::{App, at};
use crate::support::patience::eventually;
use crate::support::world::{Family, World};
use crate::support::{tcp, udp};

for_both_families!(
    thousands_of_frontends_serve_under_a_small_limit_of_open_files,
    without_the_privilege_frontends_beyond_the_limit_are_problems_and_it_is_said_why,
    nobody_takes_a_steered_frontend_and_it_takes_nothing_else,
);

/// Fewer than the frontends need, each of which would take two sockets.
const OPEN_FILES: u32 = 1000;
/// Number of ports per protocol.
const PORTS: u16 = 1500;
const PORTS_OF_A_SERVICE: u16 = 50;
/// First port.
const FIRST: u16 = 10_000;

/// Services with this many frontends on one address, of both protocols.
fn many(family: Family) -> Vec<App> {
    let service = |number: u16| {
        let ports = (0..PORTS_OF_A_SERVICE).map(|port| FIRST + number * PORTS_OF_A_SERVICE + port);
        let app = App::new(&format!("web-{number}"), &[family.vip(0)]).ready(family.backend(0));
        ports.fold(app, |app, port| app.tcp(port, 9000).udp(port, 9000))
    };
    (0..PORTS / PORTS_OF_A_SERVICE).map(service).collect()
}

/// A Service of both protocols that is opened after all others.
fn last(name: &str, family: Family, port: u16) -> App {
    App::new(name, &[family.vip(1)]).tcp(port, 9000).udp(port, 9000)
}

fn servers(world: &World, family: Family) -> (Vec<tcp::Server>, Vec<udp::Server>) {
    (tcp::Server::on_every_backend(world, family, 9000), udp::Server::on_every_backend(world, family, 9000))
}

fn count(steering: &Value, key: &str) -> u64 {
    steering.get(key).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {key}: {steering}"))
}

/// Whether the gateway may steer. In a user namespace it may not, which is fine for local runs, but not for CI.
fn may_steer(gateway: &Gateway<'_>) -> bool {
    let steering = gateway.steering();
    let may = steering["unavailable"].is_null();
    assert!(
        may || std::env::var_os("CI").is_none(),
        "steering needs root outside of user namespaces: {steering}"
    );
    may
}

fn expect_served(world: &World, family: Family, to: SocketAddr) {
    world.client.run(|| tcp::ask(to)).unwrap_or_else(|error| panic!("{to}: {error}"));
    udp::Client::new(&world.client, family.client(0), to)
        .ask()
        .unwrap_or_else(|error| panic!("{to}: {error}"));
}

fn expect_refused(world: &World, family: Family, to: SocketAddr) {
    let error = world.client.run(|| tcp::connect(to)).expect_err("nobody is there");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{to}: {error}");
    let error = udp::Client::new(&world.client, family.client(0), to).ask().expect_err("nobody is there");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{to}: {error}");
}

fn thousands_of_frontends_serve_under_a_small_limit_of_open_files(family: Family) {
    let world = World::new(1);
    let _servers = servers(&world, family);
    let mut apps = many(family);
    let listed = format!("{}/{}", family.client(1), family.host_prefix());
    apps.extend([
        last("refusing", family, 80),
        last("dropping", family, 81).local_policy().ready(family.backend(0)),
        last("choosy", family, 82).source_ranges(&[listed]).ready(family.backend(0)),
    ]);
    let settings =
        Settings { open_files: Some(OPEN_FILES), config: "steering: auto\n", ..Settings::default() };
    let gateway = Gateway::start_with(&world, &apps, &settings);
    if !may_steer(&gateway) {
        return;
    }
    assert_eq!(gateway.problems(), Vec::<String>::new());
    let steering = gateway.steering();
    // Two sockets for each frontend, out of three quarters of what the process does not reserve for itself. Frontends that
    // refuse have none.
    let (sockets, frontends) = (count(&steering, "sockets"), u64::from(2 * PORTS + 4));
    assert_eq!(steering["mode"], Value::from("auto"), "{steering}");
    assert!((OPEN_FILES / 4..=OPEN_FILES * 3 / 8).contains(&(sockets as u32)), "{steering}");
    assert_eq!(count(&steering, "steered"), frontends - sockets, "{steering}");
    for port in (0..PORTS).step_by(59).chain([PORTS - 1]) {
        expect_served(&world, family, at(family.vip(0), FIRST + port));
    }
    expect_refused(&world, family, at(family.vip(0), FIRST + PORTS));
    expect_refused(&world, family, at(family.vip(1), 80));
    expect_dropped_at(&world, at(family.vip(1), 81), family.client(1));
    expect_dropped_at(&world, at(family.vip(1), 82), family.client(2));
    let admitted = world.client.run(|| tcp::ask_from(family.client(1), at(family.vip(1), 82)));
    admitted.expect("a listed client is served");
    expect_told(&world, &gateway, sockets, frontends - sockets);

    apps[0] = apps[0].clone().without_endpoints();
    let opened = last("refusing", family, 80).ready(family.backend(0));
    apps[usize::from(PORTS / PORTS_OF_A_SERVICE)] = opened;
    gateway.apply(&apps);
    eventually("what was refused is served", || world.client.run(|| tcp::ask(at(family.vip(1), 80))));
    expect_served(&world, family, at(family.vip(1), 80));
    expect_refused(&world, family, at(family.vip(0), FIRST));
}

/// Checks the output of commands, and metrics.
fn expect_told(world: &World, gateway: &Gateway<'_>, sockets: u64, steered: u64) {
    for command in ["status", "routes"] {
        let arguments = [command, "--admin", "http://127.0.0.1:9841"];
        // `status` does not exit with 0, since one Service has no endpoints.
        let text = world.gateway.finish(sheave_test_support::program::path(), &arguments).stdout;
        let line = format!("{sockets} by sockets of their own, {steered} by steering (mode auto)");
        assert!(text.contains(&line), "{command}: {}", text.lines().take(5).collect::<Vec<_>>().join("\n"));
    }
    for (label, expected) in [("by=\"sockets\"", sockets), ("by=\"steering\"", steered)] {
        assert_eq!(gateway.metric("sheave_frontends_open", &[label]), expected as f64, "{label}");
    }
}

fn without_the_privilege_frontends_beyond_the_limit_are_problems_and_it_is_said_why(family: Family) {
    let world = World::new(1);
    let _servers = servers(&world, family);
    let settings = Settings {
        open_files: Some(OPEN_FILES),
        without: &["bpf", "sys_admin"],
        config: "steering: auto\n",
        ..Settings::default()
    };
    let gateway = Gateway::start_with(&world, &many(family)[..5], &settings);
    let steering = gateway.steering();
    assert_eq!(count(&steering, "steered"), 0, "{steering}");
    let why = steering["unavailable"].as_str().unwrap_or_default();
    assert!(why.contains("CAP_NET_ADMIN and CAP_BPF"), "{steering}");
    gateway.wait_for_log("no frontend can be steered", 1..=1);
    let problems = gateway.problems();
    let closed = 5 * 2 * u64::from(PORTS_OF_A_SERVICE) - count(&steering, "sockets");
    assert_eq!(problems.len() as u64, closed);
    assert!(problems.iter().all(|problem| problem.contains("steering: auto")), "{}", problems[0]);
    expect_served(&world, family, at(family.vip(0), FIRST));
}

fn nobody_takes_a_steered_frontend_and_it_takes_nothing_else(family: Family) {
    let world = World::new(1);
    let _servers = servers(&world, family);
    let web = |port: u16| App::new("web", &[family.vip(0)]).tcp(port, 9000).ready(family.backend(0));
    let settings =
        Settings { config: "steering: always\nreport: {listen: \"[::]:9842\"}\n", ..Settings::default() };
    let _squatter = tcp::Server::who_am_i(&world.gateway, at(family.vip(0), 80), "squatter");
    let _neighbour = tcp::Server::who_am_i(&world.gateway, at(family.vip(0), 79), "neighbour");
    let gateway = Gateway::start_with(&world, &[web(80)], &settings);
    if !may_steer(&gateway) {
        return;
    }
    let name = |port: u16| world.client.run(|| tcp::ask(at(family.vip(0), port))).map(|answer| answer.name);
    assert_eq!((name(80).unwrap(), name(79).unwrap()), ("backend-0".to_owned(), "neighbour".to_owned()));
    // The gateway's own other server is not replaced either.
    gateway.apply(&[web(9842)]);
    eventually("the frontend in the way is a problem", || match gateway.problems() {
        problems if problems.concat().contains("9842") => Ok(()),
        problems => Err(problems.concat()),
    });
    eventually("the frontend that left is gone", || match name(80) {
        Ok(name) if name == "squatter" => Ok(()),
        other => Err(format!("{other:?}")),
    });
    drop(gateway);
    assert_eq!(name(80).unwrap(), "squatter", "nothing is left in the kernel");
}
