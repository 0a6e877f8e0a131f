//! HAProxy under the same load, for comparison: reloads with sockets handed over (`-x`), reloads without, and upgrades of Sheave, in
//! turn. Failures of HAProxy are counted, but do not fail the test.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;

use crate::load::{Mixed, Targets};
use crate::scale::Amount;
use crate::support::gateway::{Gateway, Settings};
use crate::support::length::by_length;
use crate::support::manifest::at;
use crate::support::patience::{eventually, let_pass};
use crate::support::process::Process;
use crate::support::tcp;
use crate::support::world::{Family, World};
use crate::timeline::{Tally, Timeline};
use crate::upgrades::{ADDRESSES, BACKENDS, apps, endpoints, serve, targets};

/// Index of its address, which the gateway does not serve.
const VIP: u16 = 2;

struct HaProxy<'w> {
    world: &'w World,
    folder: TempDir,
    hands_over: bool,
    process: Process,
    former: Vec<Process>,
}

impl<'w> HaProxy<'w> {
    fn start(world: &'w World, family: Family, hands_over: bool) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (socket, file) = (folder.path().join("stats"), folder.path().join("haproxy.cfg"));
        let servers = endpoints(family)
            .iter()
            .enumerate()
            .map(|(n, addr)| format!("  server s{n} {addr}\n"))
            .collect::<String>();
        let text = format!(
            "global\n  maxconn 4000\n  nbthread 2\n  stats socket {} level admin expose-fd listeners\ndefaults\n  mode tcp\n  \
             option splice-auto\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\nlisten web\n  bind {}\n{servers}",
            socket.display(),
            at(family.vip(VIP), 80)
        );
        fs::write(&file, text).expect("a file is written");
        let process = world.gateway.start("haproxy", &["-db", "-q", "-f", &file.display().to_string()]);
        eventually("HAProxy listens", || {
            world.client.run(|| tcp::connect(at(family.vip(VIP), 80)).map(drop))
        });
        Self { world, folder, hands_over, process, former: Vec::new() }
    }

    fn path(&self, name: &str) -> String {
        let path: PathBuf = self.folder.path().join(name);
        path.display().to_string()
    }

    /// Starts a new process that binds or takes the sockets, and makes the old one end after its connections.
    fn reload(&mut self) {
        let (file, socket, former) =
            (self.path("haproxy.cfg"), self.path("stats"), self.process.id().to_string());
        let mut arguments = vec!["-db", "-q", "-f", &file];
        if self.hands_over {
            arguments.extend(["-x", &socket]);
        }
        arguments.extend(["-sf", &former]);
        let next = self.world.gateway.start("haproxy", &arguments);
        self.former.push(std::mem::replace(&mut self.process, next));
    }
}

fn under_load(
    world: &World,
    amount: Amount,
    targets: Targets,
    count: usize,
    mut reload: impl FnMut(),
) -> Vec<Tally> {
    let load = Mixed::start(&world.client, amount, targets);
    for _ in 0..count {
        let_pass(Duration::from_millis(by_length(100, 800)));
        reload();
        load.renew(amount.long_lived / 10);
    }
    let_pass(Duration::from_millis(by_length(100, 800)));
    load.stop()
}

#[test]
fn haproxy_is_reloaded_under_the_same_load() {
    let (world, family) = (World::with_addresses(BACKENDS, ADDRESSES), Family::V4);
    let amount = Amount { flows: 0, affinity_clients: 0, ..Amount::full() };
    let _servers = serve(&world, family);
    let sheave = Targets { dns: None, sticky: None, ..targets(&world, family, amount) };
    let haproxy = Targets { web: at(family.vip(VIP), 80), ..sheave.clone() };
    let settings = Settings { drain: "1h", ..Settings::default() };
    let (rounds, reloads) = (by_length(1, 3), by_length(1, 10));
    for round in 1..=rounds {
        let mut gateway = Gateway::start_with(&world, &apps(family, &endpoints(family), false), &settings);
        let mut former = Vec::new();
        let tallies = under_load(&world, amount, sheave.clone(), reloads, || former.push(gateway.upgrade()));
        Timeline::default().expect_no_failure(&tallies);
        let figures =
            |tallies: &[Tally]| tallies.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        println!("round {round}: {reloads} upgrades of Sheave: {}", figures(&tallies));
        drop((gateway, former));
        for (hands_over, with) in [(true, "with"), (false, "without")] {
            let mut subject = HaProxy::start(&world, family, hands_over);
            let tallies = under_load(&world, amount, haproxy.clone(), reloads, || subject.reload());
            println!("round {round}: {reloads} reloads of HAProxy {with} -x: {}", figures(&tallies));
        }
    }
}
