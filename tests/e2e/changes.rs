//! Tests of changes while traffic flows: what changed takes effect, and other traffic is not affected.

use std::collections::BTreeSet;

use crate::support::gateway::{APPS, Gateway, steers};
use crate::support::length::by_length;
use crate::support::load::Load;
use crate::support::manifest::{App, at, file, vip};
use crate::support::patience::{eventually, patience};
use crate::support::tcp::{self, Conversation};
use crate::support::world::{Family, World};
use crate::support::{sockets, udp};

for_both_families!(
    swapping_all_endpoints_under_load_fails_no_request,
    very_many_tables_under_load_fail_no_request,
    an_unchanged_frontend_keeps_its_sockets,
    a_removed_frontend_refuses_at_once_and_finishes_its_connections,
    connections_outlive_their_endpoints_removal,
    an_address_may_arrive_after_the_gateway,
    a_bad_manifest_keeps_the_last_good_one,
    a_bad_manifest_leaves_the_others_alone,
    one_edit_among_hundreds_of_services_touches_one,
);

/// Threads of load, each of which is a client with its own address.
const THREADS: u16 = 4;

fn web(family: Family) -> App {
    App::new("web", &[family.vip(0)]).tcp(80, 9000)
}

fn load(world: &World, family: Family) -> Load {
    Load::start(&world.client, usize::from(THREADS), move |thread| {
        let client = family.client(u16::try_from(thread).expect("few threads"));
        tcp::ask_from(client, vip(family)).map(drop)
    })
}

fn swapping_all_endpoints_under_load_fails_no_request(family: Family) {
    let world = World::new(4);
    let servers = tcp::Server::on_every_backend(&world, family, 9000);
    let pair = |first| web(family).all_ready([family.backend(first), family.backend(first + 1)]);
    let gateway = Gateway::start(&world, &[pair(0)]);
    let load = load(&world, family);
    for round in 0..20 {
        load.wait_for(20);
        gateway.apply(&[pair(if round % 2 == 0 { 2 } else { 0 })]);
    }
    load.expect_no_failure();
    assert!(servers.iter().all(|server| server.accepted() > 10), "every pair had its turns");
}

fn very_many_tables_under_load_fail_no_request(family: Family) {
    let rounds: u16 = by_length(250, 1000);
    let world = World::new(3);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let _datagrams = udp::Server::on_every_backend(&world, family, 5300);
    let steady = App::new("steady", &[family.vip(1)]).tcp(80, 9000).udp(53, 5300).ready(family.backend(2));
    let tables = [
        [web(family).all_ready([family.backend(0), family.backend(1)]), steady.clone()],
        [web(family).all_ready([family.backend(1), family.backend(2)]), steady.clone()],
    ];
    let gateway = Gateway::start(&world, &tables[0]);
    let (first, to) = (gateway.generation(), at(family.vip(1), 80));
    let load = load(&world, family);
    let mut talk = world.client.run(|| Conversation::open(to)).unwrap();
    let flow = udp::Client::new(&world.client, family.client(0), at(family.vip(1), 53));
    let peer = flow.ask().unwrap();
    for table in tables.iter().cycle().skip(1).take(rounds.into()) {
        gateway.apply(table);
        talk.say("still there?").unwrap();
        assert_eq!(flow.ask().unwrap(), peer, "the flow of another Service is untouched");
    }
    assert!(gateway.generation() >= first + u64::from(rounds));
    load.expect_no_failure();
}

fn an_unchanged_frontend_keeps_its_sockets(family: Family) {
    let world = World::new(2);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let kept = web(family).udp(80, 9000).ready(family.backend(0));
    let gateway = Gateway::start(&world, std::slice::from_ref(&kept));
    let identity = || {
        let tcp = sockets::listening(&world.gateway, vip(family));
        (tcp, sockets::udp_bound(&world.gateway, vip(family)))
    };
    let before = identity();
    if steers() {
        assert!(before.0.is_empty() && before.1.is_empty(), "the frontend is steered: {before:?}");
    } else {
        assert!(!before.0.is_empty() && !before.1.is_empty(), "the frontend is bound: {before:?}");
    }
    let mut talk = world.client.run(|| Conversation::open(vip(family))).unwrap();

    let other = App::new("other", &[family.vip(1)]).tcp(80, 9000).ready(family.backend(0));
    gateway.apply(&[kept.clone(), other.clone()]);
    eventually("the new frontend serves", || world.client.run(|| tcp::ask(at(family.vip(1), 80))));
    assert_eq!(identity(), before, "after another frontend came");
    gateway.apply(std::slice::from_ref(&kept));
    tcp::until_refused(&world.client, at(family.vip(1), 80));
    assert_eq!(identity(), before, "after another frontend left");
    // New endpoints change the frontend's backends, not its sockets.
    gateway.apply(&[kept.clone().without_endpoints().ready(family.backend(1))]);
    eventually("the new endpoint serves", || match world.client.run(|| tcp::ask(vip(family))) {
        Ok(answer) if answer.name == "backend-1" => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert_eq!(identity(), before, "after its endpoints changed");
    // Other source ranges change the sockets' filter, not the sockets.
    let nobody = [format!("{}/{}", family.client(9), family.host_prefix())];
    gateway.apply(&[kept.clone().source_ranges(&nobody)]);
    assert_eq!(identity(), before, "after its source ranges changed");
    gateway.apply(std::slice::from_ref(&kept));
    assert_eq!(identity(), before, "after it lost its source ranges");
    talk.say("still there?").unwrap();
}

fn a_removed_frontend_refuses_at_once_and_finishes_its_connections(family: Family) {
    let world = World::new(1);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let gateway = Gateway::start(&world, &[web(family).ready(family.backend(0))]);
    let mut talk = world.client.run(|| Conversation::open(vip(family))).unwrap();
    gateway.apply(&[]);
    tcp::until_refused(&world.client, vip(family));
    assert_eq!(sockets::listening(&world.gateway, vip(family)), BTreeSet::new());
    for _ in 0..10 {
        talk.say("still there?").unwrap();
    }
}

fn connections_outlive_their_endpoints_removal(family: Family) {
    let world = World::new(2);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let gateway = Gateway::start(&world, &[web(family).ready(family.backend(0))]);
    let mut talk = world.client.run(|| Conversation::open(vip(family))).unwrap();
    gateway.apply(&[web(family).ready(family.backend(1))]);
    eventually("new connections have moved", || match world.client.run(|| tcp::ask(vip(family))) {
        Ok(answer) if answer.name == "backend-1" => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert_eq!(talk.with.name, "backend-0");
    talk.say("still there?").unwrap();
}

fn an_address_may_arrive_after_the_gateway(family: Family) {
    let world = World::without_vips(1);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let _datagrams = udp::Server::on_every_backend(&world, family, 9000);
    let app = web(family).udp(80, 9000).ready(family.backend(0));
    let _gateway = Gateway::start(&world, &[app]);
    let early = world.client.run(|| tcp::connect_from(None, vip(family), patience(0.5)));
    early.expect_err("the gateway does not have the address yet");
    world.add_vips();
    world.client.run(|| tcp::ask(vip(family))).expect("the address is served as soon as it is there");
    udp::Client::new(&world.client, family.client(0), vip(family)).ask().expect("and for datagrams");
}

/// Typical leftovers of editors and scripts: invalid YAML, half a file, and YAML that is not a Service.
const BROKEN: [&str; 4] = [
    "apiVersion: v1\nkind: Service\nmetadata: {name: web\n",
    "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: e2e}\nspec:\n  ports: [{port: eighty}]\n",
    "apiVersion: v1\nkind: Service\nmetadata: [web]\n",
    "\t- :",
];

fn a_bad_manifest_keeps_the_last_good_one(family: Family) {
    let world = World::new(2);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let good = web(family).ready(family.backend(0));
    let gateway = Gateway::start(&world, std::slice::from_ref(&good));
    let load = load(&world, family);
    for broken in BROKEN {
        gateway.write(APPS, broken);
        eventually("the file is named as a problem", || named(&gateway, APPS));
        load.wait_for(20);
        gateway.write(APPS, &file(std::slice::from_ref(&good)));
        eventually("the problem is gone", || match named(&gateway, APPS) {
            Ok(()) => Err(gateway.problems().join("\n")),
            Err(_) => Ok(()),
        });
    }
    load.expect_no_failure();
    gateway.apply(&[web(family).ready(family.backend(1))]);
    eventually("edits count again", || match world.client.run(|| tcp::ask(vip(family))) {
        Ok(answer) if answer.name == "backend-1" => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

fn a_bad_manifest_leaves_the_others_alone(family: Family) {
    let world = World::new(1);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let gateway = Gateway::start(&world, &[]);
    for (number, broken) in BROKEN.iter().enumerate() {
        let name = format!("broken-{number}.yaml");
        gateway.write(&name, broken);
        eventually("the file is named as a problem", || named(&gateway, &name));
    }
    gateway.apply(&[web(family).ready(family.backend(0))]);
    eventually("the good file serves", || world.client.run(|| tcp::ask(vip(family))));
}

/// Whether a Problem names the file.
fn named(gateway: &Gateway<'_>, file: &str) -> Result<(), String> {
    let problems = gateway.problems();
    if problems.iter().any(|problem| problem.contains(file)) { Ok(()) } else { Err(problems.join("\n")) }
}

/// More listening sockets than the usual soft limit of 1,024 descriptors allows.
const SERVICES: u16 = 600;

fn one_edit_among_hundreds_of_services_touches_one(family: Family) {
    let world = World::new(2);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let app = |n: u16, endpoint| {
        App::new(&format!("web-{n}"), &[family.vip(0)]).tcp(10_000 + n, 9000).ready(family.backend(endpoint))
    };
    let port = |n: u16| at(family.vip(0), 10_000 + n);
    let mut apps: Vec<App> = (0..SERVICES).map(|n| app(n, 0)).collect();
    let gateway = Gateway::start(&world, &apps);
    let ask = |n| world.client.run(|| tcp::ask(port(n))).expect("every Service is served").name;
    assert!((0..SERVICES).all(|n| ask(n) == "backend-0"));
    let sockets: Vec<_> =
        (0..SERVICES).step_by(50).map(|n| sockets::listening(&world.gateway, port(n))).collect();

    apps[7] = app(7, 1);
    gateway.apply(&apps);
    eventually("the edited one has moved", || match ask(7).as_str() {
        "backend-1" => Ok(()),
        other => Err(other.to_owned()),
    });
    assert!((0..SERVICES).filter(|&n| n != 7).all(|n| ask(n) == "backend-0"));
    for (n, before) in (0..SERVICES).step_by(50).zip(sockets) {
        assert_eq!(sockets::listening(&world.gateway, port(n)), before, "port {}", port(n));
    }
}
