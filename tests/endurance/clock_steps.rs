//! Test of clock steps by an hour or two.

use std::collections::BTreeSet;

use crate::clients::{Clients, apps, new_connections, servers};
use crate::support::clock::Clock;
use crate::support::gateway::{Gateway, Settings};
use crate::support::manifest::App;
use crate::support::manifest::at;
use crate::support::process::Process;
use crate::support::tcp;
use crate::support::world::{Family, World};

const HOUR: i64 = 3600;

#[test]
fn steps_of_the_clock_are_noticed_by_nobody() {
    let (family, clock) = (Family::V4, Clock::new());
    let world = World::new(3);
    let _servers = servers(&world, family);
    let [web, sticky] = apps(&world, family);
    let settings = Settings { behind: clock.prefix(), ..Settings::default() };
    let mut gateway = Gateway::start_with(&world, &[web.clone(), sticky.clone()], &settings);
    let mut clients = Clients::open(&world, family);
    let load = new_connections(&world, family);
    let mut former = Vec::new();
    for (step, hours) in (0..).zip([1, -1, 2, 0]) {
        clock.set(hours * HOUR);
        load.wait_for(100);
        clients.expect_undisturbed();
        // Changes still take effect, and upgrades work.
        let later =
            App::new(&format!("later-{step}"), &[family.vip(2)]).tcp(80, 9000).ready(family.backend(0));
        gateway.apply(&[web.clone(), sticky.clone(), later]);
        world.client.run(|| tcp::ask(at(family.vip(2), 80))).expect("the new Service is served");
        former.push(gateway.upgrade());
        clients.expect_undisturbed();
        assert_eq!(gateway.ask("/readyz").status, 200);
    }
    load.expect_no_failure();
    let lines = former.iter().map(Process::stderr).collect::<String>();
    let hours: BTreeSet<&str> = lines.lines().filter_map(|line| line.get(..13)).collect();
    assert!(hours.len() > 2, "its log has the times of this clock: {hours:?}");
}
