//! The tables `ip sheave` and `ip6 sheave` in the kernel: made, taken over from an earlier process, changed, read and removed.
//!
//! A table that has an owner can be changed by that socket alone, also by `nft flush ruleset`; with `persist` it outlives the socket and
//! has no owner then, until the next process takes possession (Linux 6.9). On older kernels a table has neither, and anybody may
//! change it: [`KernelTable::verify`] notices.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;
use std::{fs, io};

use nix::libc;
use nix::net::if_::if_nameindex;
use sheave_model::FrontendAddr;
use tracing::{debug, info};

use crate::attributes::{Attributes, Walk};
use crate::batch::{
    CHAIN_NAME, CHAIN_TABLE, GET_CHAIN, GET_ELEMENTS, GET_GENERATION, GET_TABLE, Making, TABLE_FLAGS,
    TABLE_NAME, TABLE_OWNER, Transaction,
};
use crate::encoding::{Dumped, LIST_SET, LIST_TABLE, intervals};
use crate::error::Error;
use crate::expressions::protocol_family;
use crate::netlink::{NFTABLES, Netfilter};
use crate::rules::{self, FIXED};
use crate::ruleset::{Chain, Changes, Element, Family};
use crate::sets::{AFFINITY, ENDPOINT, EXTERNAL_ONLY, FAILED, HAIRPIN, INTERNAL, INTERNAL_ONLY, SETS, STATE};
use crate::stale::{StaleRecords, changes_classes};
use crate::table_state::{FORMAT, TableState, shown};

/// Name of the tables.
pub(crate) const NAME: &str = "sheave";
/// NFT_TABLE_F_OWNER and NFT_TABLE_F_PERSIST (linux/netfilter/nf_tables.h).
const OWNER: u32 = 2;
const PERSIST: u32 = 4;
/// NFTA_GEN_ID.
const GENERATION_ID: u16 = 1;
const FAMILIES: [Family; 2] = [Family::Ipv4, Family::Ipv6];
/// How often a batch is tried that a change of nf_tables by somebody else came before.
const ATTEMPTS: usize = 5;
/// Whether connection tracking takes segments outside the window.
const LIBERAL: &str = "/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal";

/// Making and owner of the tables.
#[derive(Clone, Debug)]
pub struct Options {
    /// Room in each family for affinity records, and as much for endpoints that fail; further clients and endpoints are not remembered.
    pub learnt: u32,
    /// Name of the installation. Tables with the name of another one stay as they are.
    pub installation: String,
}

impl Default for Options {
    fn default() -> Self {
        Self { learnt: 65_536, installation: String::new() }
    }
}

/// Content that an earlier process left in the tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Present {
    /// Elements of both families.
    pub elements: BTreeSet<Element>,
    /// Chains whose number of users varies.
    pub chains: BTreeSet<(Family, Chain)>,
}

/// Side effects of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Number of changes of the tables so far, also by earlier processes.
    pub generation: u64,
    /// Affinity records that were deleted, as they do not count any more.
    pub forgotten: usize,
}

/// Tables of earlier processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum LeftOver {
    /// No tables, or none of ours.
    Nothing,
    /// Tables that nobody owns.
    Tables,
    /// Tables that another process owns, which may leave them yet.
    Owned,
}

/// The tables, for as long as this process has them. They stay in the kernel when this value goes.
#[derive(Debug)]
pub struct KernelTable {
    netfilter: Netfilter,
    making: Making,
    installation: String,
    generation: u64,
    /// Whether the tables in the kernel are those that this value describes; otherwise the next change replaces them.
    current: bool,
    /// Elements of `hairpin`.
    interfaces: BTreeSet<String>,
    /// Frontends with affinity.
    sticky: HashSet<FrontendAddr>,
}

/// A table of our name, as it was found.
struct Found {
    flags: u32,
    state: TableState,
}

impl KernelTable {
    /// Makes the tables, or takes possession of those of an earlier process, with what they have. Tables of another format stay as they
    /// are until the first change, which replaces them. `lock` is called where the kernel gives tables no owner, and keeps other processes
    /// away for as long as the caller has them.
    pub fn open(
        options: &Options,
        lock: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(Self, Present), Error> {
        let mut netfilter = Netfilter::open()?;
        let making = Making { flags: 0, learnt: options.learnt, liberal: is_liberal() };
        let flags = probe(&mut netfilter, making)?;
        if flags & OWNER == 0 {
            lock()?;
        }
        Self::open_with(netfilter, Making { flags, ..making }, &options.installation)
    }

    fn open_with(netfilter: Netfilter, making: Making, installation: &str) -> Result<(Self, Present), Error> {
        let mut table = Self {
            netfilter,
            making,
            installation: shown(installation),
            generation: 0,
            current: false,
            interfaces: BTreeSet::new(),
            sticky: HashSet::new(),
        };
        match table.find()? {
            [None, None] => {
                table.load(&[], &[])?;
                Ok((table, Present::default()))
            }
            [Some(v4), Some(v6)]
                if v4.state == v6.state
                    && table.can_adopt(&v4)
                    && table.can_adopt(&v6)
                    && table.has_fixed_chains()? =>
            {
                let present = table.adopt(&v4.state)?;
                Ok((table, present))
            }
            found => {
                let generations = found.iter().flatten().map(|found| found.state.generation);
                table.generation = generations.max().unwrap_or_default();
                Ok((table, Present::default()))
            }
        }
    }

    /// Whether a table can be changed to what is wanted.
    fn can_adopt(&self, found: &Found) -> bool {
        // The kernel gives no owner to a table that is not persistent (`nf_tables_updtable`).
        found.state.has_our_format() && found.flags & PERSIST == self.making.flags & PERSIST
    }

    fn has_fixed_chains(&mut self) -> Result<bool, Error> {
        for family in FAMILIES {
            let chains = self.chains(family)?;
            if FIXED.iter().any(|fixed| !chains.contains(fixed.name)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes possession of tables, and reads them.
    fn adopt(&mut self, state: &TableState) -> Result<Present, Error> {
        self.generation = state.generation;
        let mut transaction = Transaction::new(NAME, None);
        for family in FAMILIES {
            transaction.table(family, self.making.flags);
            transaction.forward(family, self.making.liberal);
        }
        self.netfilter.transact(transaction.finish())?;
        self.current = true;
        for family in FAMILIES {
            let interfaces = self.read(family, HAIRPIN, |found: &mut BTreeSet<String>, element| {
                found.extend(element.interface());
            })?;
            self.interfaces.extend(interfaces);
        }
        let mut present = self.present()?;
        // A dump misses elements of a table that the kernel resizes meanwhile, as after a load (`rhashtable_walk_next`).
        for _ in 0..ATTEMPTS {
            let again = self.present()?;
            let same = again == present;
            present = again;
            if same {
                break;
            }
        }
        self.sticky = sticky(&present.elements);
        self.follow_interfaces()?;
        Ok(present)
    }

    /// Content of the tables.
    fn present(&mut self) -> io::Result<Present> {
        let mut present = Present::default();
        for family in FAMILIES {
            for set in &SETS {
                let elements = self.read(family, set.name, |found: &mut Vec<Element>, element| {
                    found.extend(element.element(set.name));
                })?;
                present.elements.extend(elements);
            }
            let bounds =
                self.read(family, INTERNAL, |found: &mut Vec<_>, element| found.extend(element.bound()))?;
            present.elements.extend(intervals(bounds));
            let chains = self.chains(family)?;
            present.chains.extend(chains.iter().filter_map(|name| Some((family, rules::named(name)?))));
        }
        Ok(present)
    }

    /// Carries out changes, in one transaction: all of them or none. After an error the caller may [`reload`](Self::reload).
    pub fn apply(&mut self, changes: &Changes) -> Result<Applied, Error> {
        if !self.current {
            return self.load(&changes.new_chains, &changes.added);
        }
        if changes.is_empty() {
            return Ok(Applied { generation: self.generation, forgotten: 0 });
        }
        let next = self.generation + 1;
        let comment = self.state_of(next).comment();
        self.change(|transaction| {
            for family in FAMILIES {
                transaction.state(family, true, &comment);
            }
            transaction.changes(changes);
        })?;
        self.generation = next;
        let gone = sticky(&changes.removed);
        self.sticky.retain(|frontend| !gone.contains(frontend));
        self.sticky.extend(sticky(&changes.added));
        let forgotten = self.forget_records(changes)?;
        Ok(Applied { generation: next, forgotten })
    }

    /// Replaces the tables, whatever they are, by ones with these elements and chains, in one transaction. Affinity records stay.
    pub fn reload<'a>(
        &mut self,
        elements: impl IntoIterator<Item = &'a Element>,
        chains: impl IntoIterator<Item = &'a (Family, Chain)>,
    ) -> Result<Applied, Error> {
        self.load(chains, elements)
    }

    fn load<'a>(
        &mut self,
        chains: impl IntoIterator<Item = &'a (Family, Chain)>,
        elements: impl IntoIterator<Item = &'a Element>,
    ) -> Result<Applied, Error> {
        let found = self.find()?;
        let next = self.generation + 1;
        let interfaces = interfaces()?;
        let elements: Vec<&Element> = elements.into_iter().collect();
        let sticky = sticky(elements.iter().copied());
        let mut records = [Vec::new(), Vec::new()];
        for ((family, found), records) in FAMILIES.into_iter().zip(&found).zip(&mut records) {
            if found.as_ref().is_some_and(|found| found.state.has_our_records()) {
                *records = self.records(family, &sticky)?;
            }
        }
        let mut transaction = Transaction::new(NAME, None);
        for (family, found) in FAMILIES.into_iter().zip(&found) {
            if found.is_some() {
                transaction.delete_table(family);
            }
            transaction.make(family, self.making);
            transaction.state(family, false, &self.state_of(next).comment());
            transaction.hairpin(family, [].iter(), interfaces.iter());
        }
        for &(family, chain) in chains {
            transaction.new_chain(family, chain);
        }
        transaction.add(elements.iter().copied());
        for (family, records) in FAMILIES.into_iter().zip(&records) {
            transaction.records(family, records);
        }
        self.netfilter.transact(transaction.finish())?;
        self.current = true;
        self.generation = next;
        self.interfaces = interfaces;
        self.sticky = sticky;
        Ok(Applied { generation: next, forgotten: 0 })
    }

    /// The affinity records of these frontends.
    fn records(&mut self, family: Family, sticky: &HashSet<FrontendAddr>) -> io::Result<Vec<Attributes>> {
        self.read(family, AFFINITY, |records: &mut Vec<Attributes>, element| {
            if element.record().is_some_and(|it| sticky.contains(&it.frontend)) {
                records.push(element.whole_record());
            }
        })
    }

    /// Carries out a batch upon tables that are as this value describes them. Where anybody may change them, the batch is only valid for
    /// the generation of nf_tables in which they were seen so.
    fn change(&mut self, fill: impl Fn(&mut Transaction<'_>)) -> Result<(), Error> {
        let owned = self.making.flags & OWNER != 0;
        for _ in 0..ATTEMPTS {
            let generation = if owned { None } else { Some(self.nf_tables_generation()?) };
            if !owned {
                self.verify()?;
            }
            let mut transaction = Transaction::new(NAME, generation);
            fill(&mut transaction);
            match self.netfilter.transact(transaction.finish()) {
                Err(Error::Refused { number: 0, error }) if is(&error, libc::ERESTART) => {}
                outcome => return outcome,
            }
        }
        Err(Error::Changed)
    }

    /// Deletes the affinity records that do not count after the change. Without that, the first packet of such a client would be dropped.
    fn forget_records(&mut self, changes: &Changes) -> Result<usize, Error> {
        let mut forgotten = 0;
        for family in FAMILIES {
            let mut stale = StaleRecords::of_endpoints(changes, family, &self.sticky);
            if changes_classes(changes) {
                self.read_classes(family, &mut stale)?;
            }
            if !stale.is_empty() {
                forgotten += self.forget_records_of(family, &stale)?;
            }
        }
        Ok(forgotten)
    }

    /// Reads which endpoints clients inside the cluster, or those outside, do not get.
    fn read_classes(&mut self, family: Family, stale: &mut StaleRecords) -> io::Result<()> {
        for set in [EXTERNAL_ONLY, INTERNAL_ONLY] {
            let pairs = self.read(family, set, |found: &mut Vec<Element>, element| {
                found.extend(element.element(set));
            })?;
            stale.add_classes(pairs);
        }
        let bounds =
            self.read(family, INTERNAL, |found: &mut Vec<_>, element| found.extend(element.bound()))?;
        stale.add_classes(intervals(bounds));
        Ok(())
    }

    fn forget_records_of(&mut self, family: Family, stale: &StaleRecords) -> Result<usize, Error> {
        for _ in 0..ATTEMPTS {
            let keys = self.read(family, AFFINITY, |keys: &mut Vec<Vec<u8>>, element| {
                keys.extend(element.record().filter(|it| stale.has(it)).map(|it| it.key.to_vec()));
            })?;
            let mut transaction = Transaction::new(NAME, None);
            transaction.remove_keys(family, AFFINITY, &keys);
            match self.netfilter.transact(transaction.finish()) {
                // One ended by itself in between.
                Err(Error::Refused { error, .. }) if is(&error, libc::ENOENT) => {}
                outcome => return outcome.map(|()| keys.len()),
            }
        }
        // The rules that learn delete what is left.
        debug!("affinity records end faster than they can be deleted");
        Ok(0)
    }

    /// Connections that the kernel forwarded, by frontend and endpoint. A count begins at zero with its element, also when that changes.
    pub fn counts(&mut self) -> Result<HashMap<(FrontendAddr, SocketAddr), u64>, Error> {
        let mut counts = HashMap::new();
        for family in FAMILIES {
            let counted = self.read(family, ENDPOINT, |found: &mut Vec<_>, element| {
                found.extend(element.endpoint().zip(element.packets()));
            })?;
            counts.extend(counted);
        }
        Ok(counts)
    }

    /// Frontends with endpoints that a client could not reach within the last 3 s: the endpoint refused, could not be reached, or did not
    /// answer within the second after which the client sent its SYN again. One failure says little: a client can send what it likes.
    pub fn failed(&mut self) -> Result<Vec<(FrontendAddr, SocketAddr)>, Error> {
        let mut failed = Vec::new();
        for family in FAMILIES {
            failed.extend(self.read(family, FAILED, |found: &mut Vec<_>, element| {
                found.extend(element.endpoint());
            })?);
        }
        Ok(failed)
    }

    /// Whether the tables are still there as the last change left them; [`Error::Changed`] if not. Changes of single elements by others
    /// are not seen; a table with an owner has none.
    pub fn verify(&mut self) -> Result<(), Error> {
        for family in FAMILIES {
            if !self.current || self.state(family)? != Some(self.state_of(self.generation)) {
                return Err(Error::Changed);
            }
        }
        if self.has_fixed_chains()? { Ok(()) } else { Err(Error::Changed) }
    }

    /// Follows the interfaces of the machine, which the rules for hairpin connections name; returns whether one came or went.
    pub fn follow_interfaces(&mut self) -> Result<bool, Error> {
        let present = interfaces()?;
        if !self.current || present == self.interfaces {
            return Ok(false);
        }
        let before = std::mem::take(&mut self.interfaces);
        let outcome = self.change(|transaction| {
            for family in FAMILIES {
                transaction.hairpin(family, before.difference(&present), present.difference(&before));
            }
        });
        self.interfaces = if outcome.is_ok() { present } else { before };
        outcome.map(|()| true)
    }

    /// Follows `nf_conntrack_tcp_be_liberal`: where it is set, no rule drops replies outside the window; returns whether it changed.
    pub fn follow_liberal(&mut self) -> Result<bool, Error> {
        let liberal = is_liberal();
        if !self.current || liberal == self.making.liberal {
            return Ok(false);
        }
        self.change(|transaction| {
            FAMILIES.into_iter().for_each(|family| transaction.forward(family, liberal));
        })?;
        self.making.liberal = liberal;
        Ok(true)
    }

    /// Removes the tables. Where no other program has chains of the type nat, the kernel then no longer translates what is open.
    pub fn remove(mut self) -> Result<(), Error> {
        remove(&mut self.netfilter, &self.installation).map(|_| ())
    }

    /// Whether an earlier process has left tables.
    pub fn left_over(installation: &str) -> Result<LeftOver, Error> {
        match find(&mut Netfilter::open()?, &shown(installation)) {
            Ok(found) if found.iter().any(Option::is_some) => Ok(LeftOver::Tables),
            Ok(_) | Err(Error::Foreign) => Ok(LeftOver::Nothing),
            Err(error @ Error::OfAnother { .. }) => {
                info!(%error, "left alone");
                Ok(LeftOver::Nothing)
            }
            Err(Error::OwnedBy { .. }) => Ok(LeftOver::Owned),
            Err(error) => Err(error),
        }
    }

    /// Both tables of our name, as they are.
    fn find(&mut self) -> Result<[Option<Found>; 2], Error> {
        find(&mut self.netfilter, &self.installation)
    }

    fn state(&mut self, family: Family) -> io::Result<Option<TableState>> {
        state(&mut self.netfilter, family)
    }

    /// State after a change of this number.
    fn state_of(&self, generation: u64) -> TableState {
        TableState { format: FORMAT, generation, installation: Some(self.installation.clone()) }
    }

    fn chains(&mut self, family: Family) -> io::Result<BTreeSet<String>> {
        let each = |found: &mut BTreeSet<String>, chain: Walk<'_>| {
            if chain.text(CHAIN_TABLE) == Some(NAME) {
                found.extend(chain.text(CHAIN_NAME).map(str::to_owned));
            }
        };
        let family = [protocol_family(family), 0];
        self.netfilter.dump(NFTABLES | GET_CHAIN, family, &Attributes::new(), each, BTreeSet::new)
    }

    fn read<T: Default>(
        &mut self,
        family: Family,
        set: &str,
        each: impl FnMut(&mut T, Dumped<'_>),
    ) -> io::Result<T> {
        read(&mut self.netfilter, family, set, each)
    }

    fn nf_tables_generation(&mut self) -> io::Result<u32> {
        let found =
            self.netfilter.find(NFTABLES | GET_GENERATION, [0, 0], &Attributes::new(), |generation| {
                generation.number(GENERATION_ID)
            })?;
        found.ok_or_else(|| io::Error::other("the kernel did not tell the generation of nf_tables"))
    }
}

/// Abilities of the kernel: the flags with which it makes tables. A table of another name is made and removed in one batch.
fn probe(netfilter: &mut Netfilter, making: Making) -> Result<u32, Error> {
    let name = format!("{NAME}-probe-{}", std::process::id());
    let mut attempt = |flags| {
        let mut transaction = Transaction::new(&name, None);
        for family in FAMILIES {
            transaction.make(family, Making { flags, ..making });
            transaction.delete_table(family);
        }
        netfilter.transact(transaction.finish())
    };
    match attempt(OWNER | PERSIST) {
        Ok(()) => return Ok(OWNER | PERSIST),
        // The first message, which has the flags.
        Err(Error::Refused { number: 1, .. }) => {}
        Err(error) => return Err(unsupported(error)),
    }
    attempt(0).map(|()| 0).map_err(unsupported)
}

fn unsupported(error: Error) -> Error {
    match error {
        Error::Refused { number, error } => Error::NotSupported { number, error },
        error => error,
    }
}

fn find(netfilter: &mut Netfilter, installation: &str) -> Result<[Option<Found>; 2], Error> {
    let mut both = [None, None];
    for (family, place) in FAMILIES.into_iter().zip(&mut both) {
        let each = |found: &mut Option<(u32, Option<u32>)>, table: Walk<'_>| {
            if table.text(TABLE_NAME) == Some(NAME) {
                *found = Some((table.number(TABLE_FLAGS).unwrap_or_default(), table.number(TABLE_OWNER)));
            }
        };
        let of = [protocol_family(family), 0];
        let table = netfilter.dump(NFTABLES | GET_TABLE, of, &Attributes::new(), each, || None)?;
        let Some((flags, owner)) = table else { continue };
        if let Some(port) = owner.filter(|&port| port != netfilter.port()) {
            return Err(Error::OwnedBy { port });
        }
        let state = state(netfilter, family)?.ok_or(Error::Foreign)?;
        if let Some(other) = state.installation.as_ref().filter(|other| *other != installation) {
            return Err(Error::OfAnother { installation: other.clone() });
        }
        *place = Some(Found { flags, state });
    }
    Ok(both)
}

fn remove(netfilter: &mut Netfilter, installation: &str) -> Result<bool, Error> {
    let found = find(netfilter, installation)?;
    let mut transaction = Transaction::new(NAME, None);
    for (family, found) in FAMILIES.into_iter().zip(&found) {
        if found.is_some() {
            transaction.delete_table(family);
        }
    }
    netfilter.transact(transaction.finish())?;
    Ok(found.iter().any(Option::is_some))
}

/// State of a table; `None`: it is not there, or is none of ours.
fn state(netfilter: &mut Netfilter, family: Family) -> io::Result<Option<TableState>> {
    let comment = read(netfilter, family, STATE, |found: &mut Option<TableState>, element| {
        *found = element.comment().and_then(TableState::parse);
    });
    match comment {
        Err(error) if is(&error, libc::ENOENT) => Ok(None),
        outcome => outcome,
    }
}

/// The elements of a set.
fn read<T: Default>(
    netfilter: &mut Netfilter,
    family: Family,
    set: &str,
    mut each: impl FnMut(&mut T, Dumped<'_>),
) -> io::Result<T> {
    let mut which = Attributes::new();
    which.text(LIST_TABLE, NAME).text(LIST_SET, set);
    let each = |found: &mut T, message: Walk<'_>| {
        Dumped::list(family, message).for_each(|element| each(found, element));
    };
    netfilter.dump(NFTABLES | GET_ELEMENTS, [protocol_family(family), 0], &which, each, T::default)
}

fn sticky<'a>(elements: impl IntoIterator<Item = &'a Element>) -> HashSet<FrontendAddr> {
    let frontend = |element: &Element| match *element {
        Element::Learn(frontend, _) => Some(frontend),
        _ => None,
    };
    elements.into_iter().filter_map(frontend).collect()
}

fn is_liberal() -> bool {
    fs::read_to_string(LIBERAL).is_ok_and(|value| value.trim() == "1")
}

fn interfaces() -> io::Result<BTreeSet<String>> {
    let all = if_nameindex()?;
    Ok(all.iter().map(|one| one.name().to_string_lossy().into_owned()).collect())
}

fn is(error: &io::Error, code: i32) -> bool {
    error.raw_os_error() == Some(code)
}

#[cfg(test)]
mod tests;
