//! What chains do with the first packet of a client: their rules, run as the kernel runs them, with what is known of the packet.
//!
//! Where a rule depends on what is not known, both ways are followed. A verdict is certain if all of them end with it.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use super::expression::{Registers, Sets, run};
use super::first_packet::{FirstPacket, PartialPacket};
use super::set::Set;
use super::verdict::{Effect, Verdict};
use super::{
    BaseChain, GET_RULE, Hook, RULE_CHAIN, RULE_EXPRESSIONS, RULE_TABLE, TableFamily, expressions,
    legacy_tables, named, split,
};
use crate::netlink::Netlink;
use nix::libc;

/// NFTA_RULE_HANDLE (linux/netfilter/nf_tables.h).
const RULE_HANDLE: u16 = 3;
/// NF_IP_PRI_CONNTRACK and NF_IP_PRI_NAT_DST (linux/netfilter_ipv4.h), the same for IPv6: all chains of type nat before routing run at the
/// latter, whatever their own priority is (net/netfilter/nf_nat_core.c).
const TRACKING: (Hook, i32) = (Hook::Prerouting, -200);
const TRANSLATION: (Hook, i32) = (Hook::Prerouting, -100);
/// Those on the way to this machine run at NF_IP_PRI_NAT_SRC.
const SOURCE_TRANSLATION: i32 = 100;
/// NFT_JUMP_STACK_SIZE (net/netfilter/nf_tables.h of the kernel).
const DEEPEST: usize = 16;
/// Limit of the expressions that are run for one packet, and of the bytes of rules that are kept.
const MOST_STEPS: u32 = 1_000_000;
const MOST_BYTES: usize = 16 << 20;

/// The way of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To a program of this machine.
    ToThisMachine,
    /// Through it, after the kernel path has redirected it to an endpoint, if only one is possible.
    Through(Option<SocketAddr>),
}

/// What a chain does with a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainVerdict {
    /// The packet goes on, for certain.
    Accepts,
    /// It is dropped or rejected, for certain.
    Drops(DroppedBy),
    /// It may be dropped.
    Unknown {
        /// How many rules with a verdict could not be decided; none if the chain could not be read to its end.
        rules: usize,
    },
}

/// What drops a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedBy {
    /// The chain of the rule: the base chain, or one that it leads to.
    pub chain: String,
    /// The handle of the rule, as `nft -a list chain` shows it; none: the policy of the chain.
    pub rule: Option<u64>,
}

/// What each of these chains, which [`super::base_chains`] lists, does with a packet; `None` for those that do not see it, because they are
/// elsewhere, or one before has dropped it. `carriers` are the devices below its interface. Reading ends within the time; what could not be
/// read is [`ChainVerdict::Unknown`].
pub fn evaluate(
    chains: &[BaseChain],
    packet: &FirstPacket,
    way: Way,
    carriers: &[String],
    within: Duration,
) -> Vec<Option<ChainVerdict>> {
    let mut verdicts = vec![None; chains.len()];
    let mut order: Vec<usize> = (0..chains.len()).collect();
    // What chains of the same priority do before each other is not known: those that may change the packet come first.
    order.sort_by_key(|at| (place(&chains[*at]), !chains[*at].is_nat));
    let Ok(netlink) = Netlink::open(libc::NETLINK_NETFILTER, within) else {
        return vec![Some(ChainVerdict::Unknown { rules: 0 }); chains.len()];
    };
    let mut reader = Reader { netlink, rules: BTreeMap::new(), sets: BTreeMap::new(), bytes: 0, steps: 0 };
    let mut known = PartialPacket::new(packet);
    let older = OlderTables::look(packet.frontend.ip());
    if older.may_exempt {
        known.exempt();
    }
    let mut is_translated = false;
    for at in order {
        let chain = &chains[at];
        let sees = match chain.hook {
            Hook::Ingress => sees_device(chain, packet, carriers),
            _ => sees_packet(chain, way),
        };
        let Some(sees) = sees else { continue };
        known.is_at_device = chain.hook == Hook::Ingress;
        known.is_tracked = place(chain) > TRACKING;
        let may_translate = way != Way::ToThisMachine || older.may_translate;
        match place(chain).cmp(&TRANSLATION) {
            Ordering::Equal if may_translate => known.forget_destination(),
            Ordering::Greater if may_translate && !is_translated => {
                is_translated = true;
                known.redirect(if let Way::Through(endpoint) = way { endpoint } else { None });
            }
            _ => {}
        }
        let verdict = match sees {
            Sees::AsItIs => reader.judge(chain, &mut known),
            Sees::Perhaps => ChainVerdict::Unknown { rules: 0 },
        };
        let ends = matches!(verdict, ChainVerdict::Drops(_));
        verdicts[at] = Some(verdict);
        if ends {
            break;
        }
    }
    verdicts
}

/// Where a chain runs.
fn place(chain: &BaseChain) -> (Hook, i32) {
    match (chain.hook, chain.is_nat) {
        (Hook::Prerouting, true) => TRANSLATION,
        (Hook::Input, true) => (Hook::Input, SOURCE_TRANSLATION),
        (hook, _) => (hook, chain.priority),
    }
}

/// How a chain sees the packet.
enum Sees {
    AsItIs,
    /// Perhaps, or with headers around it.
    Perhaps,
}

fn sees_packet(chain: &BaseChain, way: Way) -> Option<Sees> {
    let is_through = way != Way::ToThisMachine;
    let on_its_way = match chain.hook {
        // The kernel path translates first, and nobody does so a second time.
        Hook::Prerouting => !(is_through && chain.is_nat),
        Hook::Input => !is_through,
        Hook::Forward => is_through,
        Hook::Ingress | Hook::Output | Hook::Postrouting | Hook::Egress => false,
    };
    let of_packets = matches!(chain.family, TableFamily::Inet | TableFamily::Ip | TableFamily::Ip6);
    (on_its_way && of_packets).then_some(Sees::AsItIs)
}

fn sees_device(chain: &BaseChain, packet: &FirstPacket, carriers: &[String]) -> Option<Sees> {
    let has = |name: &str| {
        chain.devices.iter().any(|device| match device.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => device == name,
        })
    };
    let may_drop = chain.drops_by_policy || chain.has_drops;
    match &packet.interface {
        Some(interface) if has(&interface.name) => Some(Sees::AsItIs),
        Some(_) if !carriers.iter().any(|carrier| has(carrier)) => None,
        _ => may_drop.then_some(Sees::Perhaps),
    }
}

/// What tables of the older iptables, whose rules are not seen, may do.
struct OlderTables {
    may_exempt: bool,
    may_translate: bool,
}

impl OlderTables {
    fn look(of: IpAddr) -> Self {
        let tables = legacy_tables(of);
        let has =
            |name: &str| tables.as_ref().map_or(true, |tables| tables.iter().any(|table| table == name));
        Self { may_exempt: has("raw"), may_translate: has("nat") }
    }
}

struct Rule {
    handle: u64,
    expressions: Vec<u8>,
}

/// Family, table and name.
type Key = (u8, String, String);

/// Reads rules and sets when they are first needed.
struct Reader {
    netlink: Netlink,
    rules: BTreeMap<Key, Rc<Vec<Rule>>>,
    sets: BTreeMap<Key, Set>,
    /// Size of the rules so far, and number of the expressions that were run.
    bytes: usize,
    steps: u32,
}

impl Reader {
    fn judge(&mut self, base: &BaseChain, packet: &mut PartialPacket) -> ChainVerdict {
        let mut table = Table {
            family: base.family.number(),
            name: base.table.clone(),
            reader: self,
            undecided: BTreeSet::new(),
        };
        let outcome = table.run_chain(&base.chain, packet, 0);
        let rules = table.undecided.len();
        // A rule may have changed the packet that was not read.
        let Ok(mut outcome) = outcome else {
            packet.forget_destination();
            packet.exempt();
            return ChainVerdict::Unknown { rules: 0 };
        };
        if outcome.falls_through {
            match base.drops_by_policy {
                true => outcome.drops = Some(DroppedBy { chain: base.chain.clone(), rule: None }),
                false => outcome.accepts = true,
            }
        }
        // Chains of type nat see tracked packets alone, and none after one of them has translated it.
        outcome.accepts |= base.is_nat && !(packet.is_new() && packet.is_untranslated());
        match (outcome.accepts, outcome.drops) {
            (false, Some(by)) => ChainVerdict::Drops(by),
            (true, None) => ChainVerdict::Accepts,
            _ => ChainVerdict::Unknown { rules },
        }
    }

    fn rules(&mut self, key: &Key) -> io::Result<Rc<Vec<Rule>>> {
        if let Some(rules) = self.rules.get(key) {
            return Ok(Rc::clone(rules));
        }
        let (family, table, chain) = key;
        let room = MOST_BYTES - self.bytes;
        let (rules, bytes) = self.netlink.dump(
            GET_RULE,
            &named(*family, table, chain),
            |(rules, bytes): &mut (Vec<Rule>, usize), _, payload| {
                if let Some(rule) = read_rule(payload, key).filter(|_| *bytes <= room) {
                    *bytes += payload.len();
                    rules.push(rule);
                }
            },
        )?;
        if bytes > room {
            return Err(io::Error::other("too many rules"));
        }
        self.bytes += bytes;
        let rules = Rc::new(rules);
        self.rules.insert(key.clone(), Rc::clone(&rules));
        Ok(rules)
    }
}

/// A rule of this chain.
fn read_rule(payload: &[u8], (family, table, chain): &Key) -> Option<Rule> {
    let (of, rule) = split(payload)?;
    let is_of_chain = of.number() == *family
        && rule.text(RULE_TABLE) == Some(table.as_str())
        && rule.text(RULE_CHAIN) == Some(chain.as_str());
    let handle = rule.find(RULE_HANDLE).and_then(super::wide)?;
    let expressions = rule.find(RULE_EXPRESSIONS).unwrap_or_default().to_vec();
    is_of_chain.then_some(Rule { handle, expressions })
}

/// All ways in which a chain may end.
#[derive(Default)]
struct Outcome {
    accepts: bool,
    /// The last rule that may drop.
    drops: Option<DroppedBy>,
    /// No verdict.
    falls_through: bool,
}

impl Outcome {
    /// Takes over how a chain may end that this one leads to, but for ends without a verdict.
    fn add(&mut self, other: Self) {
        self.accepts |= other.accepts;
        self.drops = other.drops.or(self.drops.take());
    }
}

/// A table whose chains are run.
struct Table<'a> {
    family: u8,
    name: String,
    reader: &'a mut Reader,
    /// Rules with a verdict of which it is not known whether they match.
    undecided: BTreeSet<(String, u64)>,
}

impl Sets for Table<'_> {
    fn set(&mut self, name: &str) -> io::Result<&Set> {
        let key = (self.family, self.name.clone(), name.to_owned());
        if !self.reader.sets.contains_key(&key) {
            let set = Set::read(&mut self.reader.netlink, self.family, &self.name, name)?;
            self.reader.sets.insert(key.clone(), set);
        }
        self.reader.sets.get(&key).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Table<'_> {
    fn run_chain(&mut self, name: &str, packet: &mut PartialPacket, depth: usize) -> io::Result<Outcome> {
        if depth > DEEPEST {
            return Err(io::Error::other("too many jumps"));
        }
        let mut outcome = Outcome::default();
        let rules = self.reader.rules(&(self.family, self.name.clone(), name.to_owned()))?;
        for rule in rules.iter() {
            let (verdicts, mut may_go_on) = self.run_rule(rule, packet)?;
            if verdicts.len() + usize::from(may_go_on) > 1 && !verdicts.is_empty() {
                self.undecided.insert((name.to_owned(), rule.handle));
            }
            let drop = || Some(DroppedBy { chain: name.to_owned(), rule: Some(rule.handle) });
            for verdict in verdicts {
                match verdict {
                    Verdict::Accept => outcome.accepts = true,
                    Verdict::Drop => outcome.drops = drop(),
                    Verdict::Other => (outcome.accepts, outcome.drops) = (true, drop()),
                    Verdict::Return => outcome.falls_through = true,
                    // Not among those of a rule.
                    Verdict::Continue => {}
                    Verdict::Jump(to) => {
                        let of_chain = self.run_chain(&to, packet, depth + 1)?;
                        may_go_on |= of_chain.falls_through;
                        outcome.add(of_chain);
                    }
                    Verdict::Goto(to) => {
                        let of_chain = self.run_chain(&to, packet, depth + 1)?;
                        outcome.falls_through |= of_chain.falls_through;
                        outcome.add(of_chain);
                    }
                }
            }
            if !may_go_on {
                return Ok(outcome);
            }
        }
        outcome.falls_through = true;
        Ok(outcome)
    }

    /// The verdicts that a rule may have, and whether the next one may be run.
    fn run_rule(&mut self, rule: &Rule, packet: &mut PartialPacket) -> io::Result<(Vec<Verdict>, bool)> {
        let (mut possible, mut matches) = (Vec::new(), Some(true));
        let mut registers = Registers::new();
        for (name, data) in expressions(&rule.expressions) {
            self.reader.steps += 1;
            if self.reader.steps > MOST_STEPS {
                return Err(io::Error::other("too many rules"));
            }
            match run(name, data, packet, &mut registers, self)? {
                Effect::Matches(Some(true)) => {}
                Effect::Matches(Some(false)) => return Ok((possible, true)),
                Effect::Matches(None) => matches = None,
                Effect::Decides { verdicts, may_not: false } if verdicts == [Verdict::Continue] => {}
                Effect::Decides { verdicts, may_not } => {
                    let goes_on = verdicts.contains(&Verdict::Continue);
                    possible.extend(verdicts.into_iter().filter(|verdict| *verdict != Verdict::Continue));
                    if !may_not && !goes_on {
                        return Ok((possible, matches.is_none()));
                    }
                    matches = None;
                }
            }
        }
        Ok((possible, true))
    }
}
