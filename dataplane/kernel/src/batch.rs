//! Batches of messages: the whole of a table, and changes of elements and chains.

use std::collections::BTreeMap;

use crate::attributes::Attributes;
use crate::encoding::{
    Extent, LIST_ELEMENTS, LIST_SET, LIST_TABLE, hairpin_key, set_of, write, write_key, write_state,
};
use crate::expressions::{LIST_ELEMENT, Rule, protocol_family};
use crate::netlink::{APPEND, Batch, CREATE};
use crate::rules::{self, FIXED, FORWARD, FixedChain};
use crate::ruleset::{Chain, Changes, Element, Family};
use crate::sets::{AFFINITY, HAIRPIN, SETS, STATE, STATE_SET};

/// From linux/netfilter/nf_tables.h: NFT_MSG_NEWTABLE and the other messages.
pub(crate) const NEW_TABLE: u16 = 0;
pub(crate) const GET_TABLE: u16 = 1;
const DELETE_TABLE: u16 = 2;
const NEW_CHAIN: u16 = 3;
pub(crate) const GET_CHAIN: u16 = 4;
const DELETE_CHAIN: u16 = 5;
const NEW_RULE: u16 = 6;
const DELETE_RULE: u16 = 8;
const NEW_SET: u16 = 9;
const NEW_ELEMENTS: u16 = 12;
pub(crate) const GET_ELEMENTS: u16 = 13;
const DELETE_ELEMENTS: u16 = 14;
pub(crate) const GET_GENERATION: u16 = 16;
/// NFTA_TABLE_NAME, NFTA_TABLE_FLAGS and NFTA_TABLE_OWNER.
pub(crate) const TABLE_NAME: u16 = 1;
pub(crate) const TABLE_FLAGS: u16 = 2;
pub(crate) const TABLE_OWNER: u16 = 7;
/// NFTA_CHAIN_TABLE, NFTA_CHAIN_NAME, NFTA_CHAIN_HOOK, NFTA_CHAIN_POLICY and NFTA_CHAIN_TYPE; NFTA_HOOK_HOOKNUM and
/// NFTA_HOOK_PRIORITY.
pub(crate) const CHAIN_TABLE: u16 = 1;
pub(crate) const CHAIN_NAME: u16 = 3;
pub(crate) const CHAIN_HOOK: u16 = 4;
pub(crate) const CHAIN_POLICY: u16 = 5;
pub(crate) const CHAIN_TYPE: u16 = 7;
pub(crate) const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
/// NFTA_RULE_TABLE, NFTA_RULE_CHAIN and NFTA_RULE_EXPRESSIONS.
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;

/// An attribute has up to 65,535 bytes.
const LONGEST_LIST: usize = 60_000;

/// Options of a new table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Making {
    /// NFTA_TABLE_FLAGS.
    pub(crate) flags: u32,
    /// Room in each set for elements that rules add, by family.
    pub(crate) learnt: u32,
    /// Whether connection tracking takes segments outside the window.
    pub(crate) liberal: bool,
}

/// A batch about the tables of one name.
pub(crate) struct Transaction<'a> {
    table: &'a str,
    batch: Batch,
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(table: &'a str, generation: Option<u32>) -> Self {
        Self { table, batch: Batch::new(generation) }
    }

    pub(crate) fn finish(self) -> Batch {
        self.batch
    }

    fn push(&mut self, kind: u16, flags: u16, family: Family, attributes: &Attributes) {
        self.batch.push(kind, flags, protocol_family(family), attributes);
    }

    /// Makes a table, or takes possession of one that is there.
    pub(crate) fn table(&mut self, family: Family, flags: u32) {
        let mut table = Attributes::new();
        table.text(TABLE_NAME, self.table).number(TABLE_FLAGS, flags);
        self.push(NEW_TABLE, CREATE, family, &table);
    }

    pub(crate) fn delete_table(&mut self, family: Family) {
        let mut table = Attributes::new();
        table.text(TABLE_NAME, self.table);
        self.push(DELETE_TABLE, 0, family, &table);
    }

    /// Makes a table with its sets, fixed chains and rules.
    pub(crate) fn make(&mut self, family: Family, making: Making) {
        self.table(family, making.flags);
        for set in SETS.iter().chain([&STATE_SET]) {
            let definition = set.definition(self.table, family, making.learnt);
            self.push(NEW_SET, CREATE, family, &definition);
        }
        for chain in &FIXED {
            self.fixed_chain(family, chain);
        }
        for chain in &FIXED {
            for rule in rules::fixed(family, chain.name, making.liberal) {
                self.rule(family, chain.name, &rule);
            }
        }
    }

    fn fixed_chain(&mut self, family: Family, chain: &FixedChain) {
        let mut attributes = self.chain_named(chain.name);
        if let Some((kind, number, priority)) = chain.hook {
            attributes.text(CHAIN_TYPE, kind).nested(CHAIN_HOOK, |hook| {
                hook.number(HOOK_NUMBER, number).number(HOOK_PRIORITY, priority.cast_unsigned());
            });
        }
        self.push(NEW_CHAIN, CREATE, family, &attributes);
    }

    fn chain_named(&self, name: &str) -> Attributes {
        let mut chain = Attributes::new();
        chain.text(CHAIN_TABLE, self.table).text(CHAIN_NAME, name);
        chain
    }

    fn rule(&mut self, family: Family, chain: &str, rule: &Rule) {
        let mut attributes = Attributes::new();
        attributes.text(RULE_TABLE, self.table).text(RULE_CHAIN, chain);
        attributes.nested(RULE_EXPRESSIONS, |list| list.append(rule.expressions()));
        self.push(NEW_RULE, CREATE | APPEND, family, &attributes);
    }

    /// Replaces the rules of `forward`.
    pub(crate) fn forward(&mut self, family: Family, liberal: bool) {
        let mut chain = Attributes::new();
        chain.text(RULE_TABLE, self.table).text(RULE_CHAIN, FORWARD);
        self.push(DELETE_RULE, 0, family, &chain);
        for rule in rules::fixed(family, FORWARD, liberal) {
            self.rule(family, FORWARD, &rule);
        }
    }

    /// Writes what the table is into it, in place of what it was.
    pub(crate) fn state(&mut self, family: Family, replaces: bool, comment: &str) {
        let mut list = Attributes::new();
        write_state(&mut list, comment);
        if replaces {
            self.list(DELETE_ELEMENTS, 0, family, STATE, &list);
        }
        self.list(NEW_ELEMENTS, CREATE, family, STATE, &list);
    }

    /// Carries out changes: chains come before the elements that name them, and go after those.
    pub(crate) fn changes(&mut self, changes: &Changes) {
        for &(family, chain) in &changes.new_chains {
            self.new_chain(family, chain);
        }
        self.elements(DELETE_ELEMENTS, 0, Extent::Key, &changes.removed);
        self.add(&changes.added);
        for &(family, chain) in &changes.old_chains {
            let attributes = self.chain_named(&rules::name(chain));
            self.push(DELETE_CHAIN, 0, family, &attributes);
        }
    }

    pub(crate) fn new_chain(&mut self, family: Family, chain: Chain) {
        let name = rules::name(chain);
        let attributes = self.chain_named(&name);
        self.push(NEW_CHAIN, CREATE, family, &attributes);
        for rule in rules::varying(family, chain) {
            self.rule(family, &name, &rule);
        }
    }

    pub(crate) fn add<'e>(&mut self, elements: impl IntoIterator<Item = &'e Element>) {
        self.elements(NEW_ELEMENTS, CREATE, Extent::Whole, elements);
    }

    fn elements<'e>(
        &mut self,
        kind: u16,
        flags: u16,
        extent: Extent,
        elements: impl IntoIterator<Item = &'e Element>,
    ) {
        let mut lists: BTreeMap<(Family, &str), Attributes> = BTreeMap::new();
        for element in elements {
            let place = (element.family(), set_of(element));
            let list = lists.entry(place).or_default();
            write(element, extent, list);
            if list.len() >= LONGEST_LIST {
                let list = std::mem::take(list);
                self.list(kind, flags, place.0, place.1, &list);
            }
        }
        for ((family, set), list) in lists {
            if !list.is_empty() {
                self.list(kind, flags, family, set, &list);
            }
        }
    }

    /// Removes elements by their keys.
    pub(crate) fn remove_keys(&mut self, family: Family, set: &str, keys: &[Vec<u8>]) {
        self.keys(DELETE_ELEMENTS, 0, family, set, keys);
    }

    /// Adds affinity records as they were read.
    pub(crate) fn records(&mut self, family: Family, records: &[Attributes]) {
        self.lists(NEW_ELEMENTS, CREATE, family, AFFINITY, records, |list, record| {
            list.nested(LIST_ELEMENT, |element| element.append(record));
        });
    }

    /// Changes the interfaces whose packets may leave where they came from.
    pub(crate) fn hairpin<'e>(
        &mut self,
        family: Family,
        gone: impl Iterator<Item = &'e String>,
        new: impl Iterator<Item = &'e String>,
    ) {
        let keys = |names: &mut dyn Iterator<Item = &'e String>| -> Vec<Vec<u8>> {
            names.map(|name| hairpin_key(name)).collect()
        };
        let (mut gone, mut new) = (gone, new);
        self.keys(DELETE_ELEMENTS, 0, family, HAIRPIN, &keys(&mut gone));
        self.keys(NEW_ELEMENTS, CREATE, family, HAIRPIN, &keys(&mut new));
    }

    fn keys(&mut self, kind: u16, flags: u16, family: Family, set: &str, keys: &[Vec<u8>]) {
        self.lists(kind, flags, family, set, keys, |list, key| write_key(list, key));
    }

    fn lists<T>(
        &mut self,
        kind: u16,
        flags: u16,
        family: Family,
        set: &str,
        elements: &[T],
        write: impl Fn(&mut Attributes, &T),
    ) {
        // 500 of the longest are far below the limit.
        for some in elements.chunks(500) {
            let mut list = Attributes::new();
            some.iter().for_each(|element| write(&mut list, element));
            self.list(kind, flags, family, set, &list);
        }
    }

    fn list(&mut self, kind: u16, flags: u16, family: Family, set: &str, list: &Attributes) {
        let mut attributes = Attributes::new();
        attributes.text(LIST_TABLE, self.table).text(LIST_SET, set);
        attributes.nested(LIST_ELEMENTS, |all| all.append(list));
        self.push(kind, flags, family, &attributes);
    }
}
