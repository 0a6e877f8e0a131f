//! What the tables have in the kernel is what was sent, and nft(8) can list and load it.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use sheave_kernel::ruleset::{Action, Chain, Changes, Element, Family};
use sheave_kernel::{Error, KernelTable, Method, Options, Present};
use sheave_model::{FrontendAddr, Protocol};

use crate::ruleset::{Ruleset, chooser, frontend, of_every_kind};
use crate::support::host::Host;
use crate::support::patience::eventually;

fn present(ruleset: &Ruleset) -> Present {
    Present {
        elements: ruleset.elements.iter().copied().collect(),
        chains: ruleset.chains.iter().copied().collect(),
    }
}

/// Lets go of the table, and reads it as the next process does.
fn read_back(host: &Host, table: KernelTable) -> (KernelTable, Present) {
    drop(table);
    host.run(|| KernelTable::open(&Options::default(), || Ok(()))).unwrap()
}

#[test]
fn the_next_process_reads_what_was_sent() {
    let host = Host::new("gateway");
    let (mut table, nothing) = host.run(|| KernelTable::open(&Options::default(), || Ok(()))).unwrap();
    assert_eq!(nothing, Present::default());
    let ruleset = of_every_kind(true);
    table.apply(&ruleset.whole()).unwrap();
    let (_, found) = read_back(&host, table);
    assert_eq!(found, present(&ruleset));
}

#[test]
fn changes_are_carried_out_and_nothing_else() {
    let host = Host::new("gateway");
    let (mut table, _) = host.run(|| KernelTable::open(&Options::default(), || Ok(()))).unwrap();
    let whole = of_every_kind(true);
    table.apply(&whole.whole()).unwrap();
    // Every element and chain goes and comes, and every third alone.
    let third = Ruleset {
        elements: whole.elements.iter().copied().step_by(3).collect(),
        chains: whole.chains.clone(),
    };
    let mut before = &whole;
    for after in [&third, &whole, &Ruleset::default(), &whole] {
        let applied = table.apply(&before.changes_to(after)).unwrap();
        let (next, found) = read_back(&host, table);
        assert_eq!(found, present(after), "generation {}", applied.generation);
        table = next;
        before = after;
    }
}

#[test]
fn a_refused_change_has_no_effect_and_tells_which_message() {
    let host = Host::new("gateway");
    let (mut table, _) = host.run(|| KernelTable::open(&Options::default(), || Ok(()))).unwrap();
    let ruleset = of_every_kind(true);
    table.apply(&ruleset.whole()).unwrap();
    let gone = |element: &Element| matches!(element, Element::Slot(..));
    let mut twice = ruleset.changes_to(&Ruleset::default());
    twice.old_chains.clear();
    twice.removed.extend(ruleset.elements.iter().copied().filter(gone));
    let error = table.apply(&twice).unwrap_err().to_string();
    assert!(error.starts_with("the kernel refused message "), "{error}");
    let (_, found) = read_back(&host, table);
    assert_eq!(found, present(&ruleset));
}

#[test]
fn more_errors_than_the_socket_holds_are_one_error() {
    let host = Host::new("gateway");
    let (mut table, _) = host.run(|| KernelTable::open(&Options::default(), || Ok(()))).unwrap();
    let old_chains = (0..6_000).map(|seconds| (Family::Ipv4, Chain::Learn(seconds))).collect();
    let error = table.apply(&Changes { old_chains, ..Changes::default() }).unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    table.apply(&of_every_kind(true).whole()).unwrap();
}

/// Frontends with two endpoints each; the larger batch has 17 MiB.
#[test]
fn a_large_table_is_loaded_at_once() {
    let host = Host::new("gateway");
    let (mut table, _) = host.run(|| KernelTable::open(&Options::default(), || Ok(()))).unwrap();
    let two = chooser(Method::Random, 2, false);
    let chains = [(Family::Ipv4, Chain::Choose(two))];
    for frontends in [10_000, 50_000] {
        let elements = Vec::from_iter((0..frontends).map(many).flat_map(|(frontend, endpoints)| {
            let slots =
                (0..).zip(endpoints).map(move |(slot, endpoint)| Element::Slot(frontend, slot, endpoint));
            let endpoints = endpoints.map(|endpoint| Element::Endpoint(frontend, endpoint));
            slots.chain(endpoints).chain([Element::Service(frontend, Action::Choose(two))])
        }));
        let (loaded, _) = time(|| table.reload(&elements, &chains).unwrap());
        let ((frontend, [first, _]), other) = (many(17), many(frontends).1[0]);
        let change = Changes {
            removed: vec![Element::Slot(frontend, 0, first), Element::Endpoint(frontend, first)],
            added: vec![Element::Slot(frontend, 0, other), Element::Endpoint(frontend, other)],
            ..Changes::default()
        };
        let (changed, _) = time(|| table.apply(&change).unwrap());
        let (read, counts) = time(|| table.counts().unwrap());
        println!(
            "{frontends} frontends: loaded in {loaded:?}, an endpoint changed in {changed:?}, counters read in {read:?}"
        );
        let expected = 2 * usize::try_from(frontends).unwrap();
        assert!(counts.len() <= expected, "{}", counts.len());
        // A dump misses elements while the kernel resizes what it has just loaded.
        eventually("all counters are read", || {
            let read = table.counts().unwrap().len();
            if read == expected { Ok(()) } else { Err(read) }
        });
    }
}

fn many(number: u32) -> (FrontendAddr, [SocketAddr; 2]) {
    let ip = |base: [u8; 4]| IpAddr::from((u32::from_be_bytes(base) + number).to_be_bytes());
    let endpoints = [[10, 10, 0, 0], [10, 20, 0, 0]].map(|base| SocketAddr::new(ip(base), 8080));
    (frontend(ip([172, 16, 0, 0]), 80, Protocol::Tcp), endpoints)
}

fn time<T>(action: impl FnOnce() -> T) -> (Duration, T) {
    let started = Instant::now();
    let outcome = action();
    (started.elapsed(), outcome)
}

#[test]
fn nft_lists_the_tables_and_loads_its_listing() {
    let host = Host::new("gateway");
    let (mut table, _) = host.run(|| KernelTable::open(&Options::default(), || Ok(()))).unwrap();
    // nft 1.0.6 lists rules that learn IPv6 affinity, but aborts when it loads them.
    table.apply(&of_every_kind(true).whole()).unwrap();
    host.finish("nft", &["list", "ruleset"]).expect_success();
    table.reload(&of_every_kind(false).elements, &of_every_kind(false).chains).unwrap();
    drop(table);
    // It does not know the flag persist either, and lists its line without a word.
    let list = || host.finish("nft", &["-s", "list", "ruleset"]).expect_success().replace("\tflags \n", "");
    let listing = list();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    write!(file, "flush ruleset\n{listing}").unwrap();
    host.finish("nft", &["-f", file.path().to_str().unwrap()]).expect_success();
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    assert_eq!(lines(&list()), lines(&listing));
    assert!(listing.contains("numgen random mod 3 map @slot"), "{listing}");
}
