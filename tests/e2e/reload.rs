//! Tests of SIGHUP, which reloads the configuration. What can change does so while traffic continues, what cannot is logged, and a
//! file with a mistake changes nothing.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::gateway::{Gateway, Settings};
use crate::support::load::Load;
use crate::support::manifest::{App, GATEWAY_NODE, at};
use crate::support::patience::{eventually, let_pass};
use crate::support::tcp::{self, Conversation, Server};
use crate::support::udp;
use crate::support::world::{Family, World};

for_both_families!(
    what_can_change_does_under_load_and_no_connection_fails,
    a_limit_may_be_lower_than_what_is_open,
    a_broken_file_changes_nothing,
    what_cannot_change_is_named,
    signals_in_rapid_succession_harm_nobody,
    a_service_manager_is_told,
    a_gateway_that_drains_reads_nothing,
);

fn web(family: Family) -> SocketAddr {
    at(family.vip(0), 80)
}

fn apps(family: Family) -> [App; 3] {
    let app = |name: &str, vip| App::new(name, &[family.vip(vip)]).tcp(80, 9000).udp(53, 9053);
    [
        app("web", 0).ready(family.backend(0)),
        app("other", 1).ready(family.backend(0)),
        // Its endpoint is on another node.
        app("inside", 2).ready(family.backend(0)).local_policy(),
    ]
}

fn clients_of_web(world: &World, family: Family) -> Load {
    Load::start(&world.client, 3, move |_| tcp::ask(web(family)).map(drop))
}

fn what_can_change_does_under_load_and_no_connection_fails(family: Family) {
    let world = World::new(1);
    let _servers = Server::on_every_backend(&world, family, 9000);
    let _resolvers = udp::Server::on_every_backend(&world, family, 9053);
    let gateway = Gateway::start(&world, &apps(family));
    let load = clients_of_web(&world, family);
    let mut old = world.client.run(|| Conversation::open(web(family))).unwrap();

    // The level of the log.
    assert!(!gateway.log().contains("DEBUG"));
    let settings = |config| Settings { config, ..Settings::default() };
    let detailed = "logging: {format: text, level: debug}\n";
    let file = |config: &str| {
        let usual = fs::read_to_string(gateway.config_file()).unwrap();
        let without = usual.lines().filter(|line| !line.starts_with("logging:"));
        without.map(|line| format!("{line}\n")).collect::<String>() + config
    };
    gateway.write_config(&file(detailed));
    assert!(gateway.read_again().contains("in_force=\"logging.level\""), "{}", gateway.log());
    load.wait_for(20);
    eventually("connections are logged", || {
        if gateway.log().contains("DEBUG") { Ok(()) } else { Err(gateway.log()) }
    });
    gateway.reconfigure(&settings(""));

    // In-cluster clients.
    let inside = at(family.vip(2), 80);
    world.client.run(|| tcp::connect_from(None, inside, Duration::from_millis(300))).unwrap_err();
    let config = match family {
        Family::V4 => "internalCIDRs: [0.0.0.0/0]\n",
        Family::V6 => "internalCIDRs: ['::/0']\n",
    };
    let log = gateway.reconfigure(&settings(config));
    assert!(log.contains("in_force=\"internalCIDRs\""), "{log}");
    world.client.run(|| tcp::ask(inside)).unwrap();

    // Timeouts: open flows use the new ones, open connections their old ones.
    let client = udp::Client::new(&world.client, family.client(1), at(family.vip(0), 53));
    client.ask().unwrap();
    assert_eq!(gateway.metric("sheave_udp_flows", &["e2e/web"]), 1.0);
    let quick = Settings { idle: "1s", udp_idle: "1s", ..Settings::default() };
    let log = gateway.reconfigure(&quick);
    assert!(log.contains("in_force=\"internalCIDRs, timeouts.idle, timeouts.udpIdle\""), "{log}");
    eventually("the flow ends", || match gateway.metric("sheave_udp_flows", &["e2e/web"]) {
        0.0 => Ok(()),
        flows => Err(flows),
    });
    let mut new = world.client.run(|| Conversation::open(web(family))).unwrap();
    new.ended().unwrap();
    old.say("still there?").unwrap();
    assert!(load.expect_no_failure() > 50);
}

fn a_limit_may_be_lower_than_what_is_open(family: Family) {
    let world = World::new(1);
    let _servers = Server::on_every_backend(&world, family, 9000);
    let limited = |config| Settings { config, ..Settings::default() };
    let wide = limited("limits: {perService: {connections: 40}}\n");
    let gateway = Gateway::start_with(&world, &apps(family), &wide);
    let load = clients_of_web(&world, family);
    let other = at(family.vip(1), 80);
    let open = || world.client.run(|| Conversation::open(other));
    let mut talks: Vec<Conversation> = (0..30).map(|_| open().unwrap()).collect();
    let log = gateway.reconfigure(&limited("limits: {perService: {connections: 25}}\n"));
    assert!(log.contains("in_force=\"limits.perService.connections\""), "{log}");
    open().err().expect("no more are taken");
    talks.iter_mut().for_each(|talk| talk.say("still there?").unwrap());
    gateway.reconfigure(&wide);
    eventually("more are taken again", || open().map(|talk| talks.push(talk)));
    load.expect_no_failure();
    // The limit of all Services is exceeded now.
    gateway.reconfigure(&limited("limits: {connections: 20, perService: {connections: 40}}\n"));
    open().err().expect("no more are taken");
    talks.iter_mut().for_each(|talk| talk.say("still there?").unwrap());
    gateway.reconfigure(&wide);
    eventually("more are taken again", || open().map(drop));
}

fn a_broken_file_changes_nothing(family: Family) {
    let world = World::new(1);
    let _servers = Server::on_every_backend(&world, family, 9000);
    let gateway = Gateway::start(&world, &apps(family));
    let load = clients_of_web(&world, family);
    let good = fs::read_to_string(gateway.config_file()).unwrap();
    let mistakes = "timeouts: {idle: soon}\nlogging: {level: loud}\n";
    for (text, why) in [
        (
            mistakes,
            ["timeouts.idle: \\\"soon\\\" is not a duration", "logging.level: \\\"loud\\\" is not one of"],
        ),
        ("{", ["not readable as YAML", "the former one stays in force"]),
        ("", ["has no key, as if it were being written", "write {}"]),
    ] {
        gateway.write_config(text);
        let log = gateway.read_again();
        assert!(log.contains("ERROR") && why.iter().all(|why| log.contains(why)), "{log}");
    }
    fs::remove_file(gateway.config_file()).unwrap();
    let log = gateway.read_again();
    assert!(log.contains("No such file or directory"), "{log}");
    gateway.write_config(&good);
    let log = gateway.read_again();
    assert!(log.contains("nothing has changed"), "{log}");
    assert!(load.expect_no_failure() > 0);
}

fn what_cannot_change_is_named(family: Family) {
    let world = World::new(1);
    let _servers = Server::on_every_backend(&world, family, 9000);
    let mut gateway = Gateway::start(&world, &apps(family));
    let load = clients_of_web(&world, family);
    let config =
        "node: other\nlogging: {format: json}\nmetrics: {maxEndpoints: 5}\nleaderElection: {lease: a/b}\n";
    let usual = fs::read_to_string(gateway.config_file()).unwrap();
    let rest = usual.lines().filter(|line| !line.starts_with("logging:") && !line.starts_with("workers:"));
    let rest: String = rest.map(|line| format!("{line}\n")).collect();
    gateway.write_config(&format!("{rest}workers: 3\n{config}"));
    for _ in 0..2 {
        let log = gateway.read_again();
        // The name of the node is that of the flag.
        let named = ["needs_upgrade=\"logging.format\"", "needs_restart=\"workers\"", "WARN", "SIGUSR2"];
        assert!(named.iter().all(|named| log.contains(named)), "{log}");
        assert!(!log.contains("node"), "{log}");
    }
    let first = gateway.log();
    let first = first.lines().find(|line| line.contains("read the configuration again")).unwrap();
    assert!(first.contains("in_force=\"metrics.maxEndpoints\" unused=\"leaderElection.lease\""), "{first}");
    assert!(gateway.metric("sheave_endpoint_picks_total", &["e2e/web"]) > 0.0);
    let _former = gateway.upgrade();
    gateway.wait_for_log("\"message\":\"took over\"", 1..);
    assert!(load.expect_no_failure() > 0);
}

fn signals_in_rapid_succession_harm_nobody(family: Family) {
    let world = World::new(1);
    let _servers = Server::on_every_backend(&world, family, 9000);
    let mut gateway = Gateway::start(&world, &apps(family));
    let load = clients_of_web(&world, family);
    let files_before = gateway.open_files();
    for round in 0..10_000_u32 {
        if round % 100 == 0 {
            // Not replaced atomically, so that it is also read half-written.
            let idle = ["1h", "2h"][(round / 100 % 2) as usize];
            fs::write(gateway.config_file(), format!("workers: 2\ntimeouts: {{idle: {idle}}}\n")).unwrap();
        }
        gateway.hang_up();
    }
    // Lines about earlier files may appear until then.
    eventually("the last file is in force", || {
        let log = gateway.reconfigure(&Settings::default());
        if log.contains("nothing has changed") { Ok(()) } else { Err(log) }
    });
    gateway.expect_running();
    assert!(load.expect_no_failure() > 0);
    eventually("no descriptor is left", || {
        let files = gateway.open_files();
        if files <= files_before + 10 { Ok(()) } else { Err(files) }
    });
}

fn a_service_manager_is_told(family: Family) {
    let world = World::new(1);
    let gateway =
        Gateway::start_with(&world, &apps(family), &Settings { managed: true, ..Settings::default() });
    assert_eq!(gateway.notification(), "READY=1");
    gateway.read_again();
    let reloading = gateway.notification();
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(gateway.notification(), "READY=1");
}

fn a_gateway_that_drains_reads_nothing(family: Family) {
    let world = World::new(1);
    let _servers = Server::on_every_backend(&world, family, 9000);
    let gateway = Gateway::start(&world, &apps(family));
    let mut talk = world.client.run(|| Conversation::open(web(family))).unwrap();
    gateway.interrupt();
    gateway.wait_for_status("draining");
    gateway.hang_up();
    eventually("it says so", || {
        let log = gateway.log();
        if log.contains("does not serve any more") { Ok(()) } else { Err(log) }
    });
    talk.say("still there?").unwrap();
}

#[test]
fn a_process_without_a_configuration_says_so() {
    let world = World::new(1);
    let folder = tempfile::tempdir().unwrap();
    let manifests = folder.path().display().to_string();
    let arguments = ["run", "--manifests", &manifests, "--node", GATEWAY_NODE];
    let mut process = world.gateway.start(sheave_test_support::program::path(), &arguments);
    let logged = |process: &crate::support::process::Process, text: &str| {
        let log = process.stderr();
        if log.contains(text) { Ok(()) } else { Err(log) }
    };
    eventually("it is ready", || logged(&process, "the first objects are in force"));
    process.signal(Signal::SIGHUP);
    eventually("it says so", || logged(&process, "--config was not given"));
    let_pass(Duration::from_millis(100));
    process.expect_running();
}
