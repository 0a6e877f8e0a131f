//! Tests of tables as older kernels have them, which nobody owns.

use std::process::Command;

use super::*;

/// As on a kernel that cannot protect tables. Each test has a network namespace of its own.
fn open_unprotected() -> (KernelTable, Present) {
    let making = Making { flags: 0, learnt: 16, liberal: false };
    KernelTable::open_with(Netfilter::open().unwrap(), making, "").unwrap()
}

fn nft(arguments: &str) {
    assert!(Command::new("nft").args(arguments.split(' ')).status().unwrap().success());
}

fn address(last: u8) -> Changes {
    Changes { added: vec![Element::Address([192, 0, 2, last].into())], ..Changes::default() }
}

#[test]
fn what_somebody_else_flushed_is_noticed_and_loaded_anew() {
    let (mut table, _) = open_unprotected();
    table.apply(&address(1)).unwrap();
    table.verify().unwrap();
    // Changes of others do not matter.
    nft("add table ip other");
    table.apply(&address(2)).unwrap();
    nft("flush ruleset");
    assert!(matches!(table.verify(), Err(Error::Changed)));
    assert!(matches!(table.apply(&address(3)), Err(Error::Changed)));
    table.reload(&address(3).added, &[]).unwrap();
    table.verify().unwrap();
    drop(table);
    let (_, present) = open_unprotected();
    assert_eq!(Vec::from_iter(present.elements), address(3).added);
}

/// After an upgrade of the kernel or of a listing that was loaded.
#[test]
fn a_table_that_cannot_get_an_owner_is_replaced() {
    let (mut table, _) = open_unprotected();
    table.apply(&address(1)).unwrap();
    drop(table);
    let (mut table, present) = KernelTable::open(&Options::default(), || Ok(())).unwrap();
    assert_eq!(present, Present::default());
    table.apply(&address(2)).unwrap();
    drop(table);
    let (table, present) = KernelTable::open(&Options::default(), || Ok(())).unwrap();
    assert_eq!((Vec::from_iter(present.elements), table.generation), (address(2).added, 3));
}
