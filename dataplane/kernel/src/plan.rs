//! Plan: the ruleset of all forwardings. It changes with some of them at the cost of those alone, since it counts the users of what
//! several frontends share.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

use sheave_model::{AddressSet, FrontendAddr, Protocol};

use crate::elements::{elements, intervals};
use crate::forwarding::Forwarding;
use crate::ruleset::{Action, Chain, Changes, Element, Family};

/// Every frontend's forwarding, and the ruleset that they need together.
///
/// An address is in the ruleset while one of its frontends needs the kernel. Its proxied frontends are then in it, too: what the
/// ruleset does not know of such an address is refused.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    entries: BTreeMap<FrontendAddr, Known>,
    uses: Uses,
    internal_clients: AddressSet,
    machine: BTreeSet<IpAddr>,
}

/// Frontend in the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Known {
    Told(Forwarding),
    /// Its elements, sorted, as an earlier process left them.
    Kept(Vec<Element>),
}

impl Known {
    fn elements(&self) -> Vec<Element> {
        match self {
            Self::Told(forwarding) => elements(forwarding),
            Self::Kept(elements) => elements.clone(),
        }
    }

    fn is_proxied(&self) -> bool {
        match self {
            Self::Told(forwarding) => forwarding.is_proxied(),
            Self::Kept(elements) => matches!(elements[..], [Element::Service(_, Action::Accept)]),
        }
    }
}

/// Part of the ruleset that exists while something needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Shared {
    /// Needed by each frontend of the address that is not left to the proxy.
    Address(IpAddr),
    EndpointPort(Protocol, SocketAddr),
    Chain(Family, Chain),
    /// The internal clients of a family, needed by each frontend that treats them differently.
    InternalClients(Family),
}

impl Plan {
    /// Takes over these forwardings; `None` removes the frontend. Of several with one address the last counts.
    pub fn apply(
        &mut self,
        changes: impl IntoIterator<Item = (FrontendAddr, Option<Forwarding>)>,
    ) -> Changes {
        self.replace(changes.into_iter().map(|(addr, forwarding)| {
            debug_assert!(
                forwarding.as_ref().is_none_or(|it| it.addr == addr),
                "{addr:?} is not the address of {forwarding:?}"
            );
            (addr, forwarding.map(Known::Told))
        }))
    }

    /// Keeps what the kernel has of frontends that are not in the plan, until [`Self::apply`] or [`Self::forget_kept`] replaces it.
    pub fn keep(&mut self, present: &BTreeSet<Element>) {
        let mut unknown: BTreeMap<FrontendAddr, Vec<Element>> = BTreeMap::new();
        for element in present {
            if let Some(frontend) = element.frontend().filter(|it| !self.entries.contains_key(it)) {
                unknown.entry(frontend).or_default().push(*element);
            }
        }
        // The kernel has them already.
        drop(self.replace(unknown.into_iter().map(|(addr, kept)| (addr, Some(Known::Kept(kept))))));
    }

    /// Removes what was [kept](Self::keep) and has not been told since.
    pub fn forget_kept(&mut self) -> Changes {
        let kept = self.entries.iter().filter(|(_, entry)| matches!(entry, Known::Kept(_)));
        let kept: Vec<FrontendAddr> = kept.map(|(addr, _)| *addr).collect();
        self.replace(kept.into_iter().map(|addr| (addr, None)))
    }

    fn replace(&mut self, entries: impl Iterator<Item = (FrontendAddr, Option<Known>)>) -> Changes {
        let mut replaced: BTreeMap<FrontendAddr, Option<Known>> = BTreeMap::new();
        for (addr, entry) in entries {
            let old = match entry {
                Some(entry) => self.entries.insert(addr, entry),
                None => self.entries.remove(&addr),
            };
            replaced.entry(addr).or_insert(old);
        }
        let mut changes = Changes::default();
        let mut before = BTreeMap::new();
        self.use_addresses(&replaced, &mut before);
        self.change_frontends(&replaced, &before, &mut changes);
        for (elements, more) in [(&changes.removed, false), (&changes.added, true)] {
            for shared in elements.iter().flat_map(needs) {
                self.uses.change(shared, more, &mut before);
            }
        }
        self.change_shared(before, &mut changes);
        changes
    }

    /// Changes the clients that count as inside the cluster.
    pub fn set_internal_clients(&mut self, clients: &AddressSet) -> Changes {
        let families = [Family::Ipv4, Family::Ipv6]
            .into_iter()
            .filter(|&it| self.uses.0.contains_key(&Shared::InternalClients(it)));
        let needed = |set| families.clone().flat_map(|family| internal(set, family)).collect();
        let changes = between(&needed(&self.internal_clients), &needed(clients));
        self.internal_clients = clients.clone();
        changes
    }

    /// Changes the addresses of the machine, where ports without a frontend belong to other programs.
    pub fn set_machine(&mut self, addresses: impl IntoIterator<Item = IpAddr>) -> Changes {
        let addresses = addresses.into_iter().collect();
        let served = |of: &BTreeSet<IpAddr>| {
            of.iter().copied().filter(|&ip| self.is_served(ip)).map(Element::Machine).collect()
        };
        let changes = between(&served(&self.machine), &served(&addresses));
        self.machine = addresses;
        changes
    }

    /// Whether no frontend needs the kernel.
    pub fn is_empty(&self) -> bool {
        !self.uses.0.keys().any(|shared| matches!(shared, Shared::Address(_)))
    }

    /// All elements of the ruleset.
    pub fn elements(&self) -> BTreeSet<Element> {
        let served = self.entries.iter().filter(|(addr, _)| self.is_served(addr.ip));
        let own = served.flat_map(|(_, entry)| entry.elements());
        own.chain(self.uses.0.keys().flat_map(|&shared| self.shared_elements(shared))).collect()
    }

    /// The elements that decide about connections to one frontend, whether there is one at this address or not.
    pub fn elements_of(&self, addr: FrontendAddr) -> Vec<Element> {
        let own = self.entries.get(&addr).filter(|_| self.is_served(addr.ip)).map(Known::elements);
        let shared = [Shared::Address(addr.ip), Shared::InternalClients(Family::of(addr.ip))];
        let shared = shared.into_iter().filter(|it| self.uses.0.contains_key(it));
        own.into_iter().flatten().chain(shared.flat_map(|shared| self.shared_elements(shared))).collect()
    }

    /// All chains of the ruleset.
    pub fn chains(&self) -> BTreeSet<(Family, Chain)> {
        let chain = |shared: &Shared| match *shared {
            Shared::Chain(family, chain) => Some((family, chain)),
            Shared::Address(_) | Shared::EndpointPort(..) | Shared::InternalClients(_) => None,
        };
        self.uses.0.keys().filter_map(chain).collect()
    }

    /// Changes that turn the kernel's ruleset into the plan's.
    pub fn difference(
        &self,
        (elements, chains): (&BTreeSet<Element>, &BTreeSet<(Family, Chain)>),
    ) -> Changes {
        let wanted = self.chains();
        Changes {
            new_chains: wanted.difference(chains).copied().collect(),
            old_chains: chains.difference(&wanted).copied().collect(),
            ..between(elements, &self.elements())
        }
    }

    /// Whether some frontend of the address needs the kernel.
    pub fn is_served(&self, ip: IpAddr) -> bool {
        self.uses.0.contains_key(&Shared::Address(ip))
    }

    /// Whether it is an address of the machine.
    pub fn is_machine(&self, ip: IpAddr) -> bool {
        self.machine.contains(&ip)
    }

    /// Counts the frontends of each address that need the kernel.
    fn use_addresses(
        &mut self,
        replaced: &BTreeMap<FrontendAddr, Option<Known>>,
        before: &mut BTreeMap<Shared, bool>,
    ) {
        let needs_kernel = |entry: Option<&Known>| entry.is_some_and(|it| !it.is_proxied());
        for (addr, old) in replaced {
            let (needed, needs) = (needs_kernel(old.as_ref()), needs_kernel(self.entries.get(addr)));
            if needed != needs {
                self.uses.change(Shared::Address(addr.ip), needs, before);
            }
        }
    }

    /// Changes the elements of the replaced forwardings, and of all proxied ones of an address that becomes or was served.
    fn change_frontends(
        &self,
        replaced: &BTreeMap<FrontendAddr, Option<Known>>,
        before: &BTreeMap<Shared, bool>,
        changes: &mut Changes,
    ) {
        for (addr, old) in replaced {
            let served = self.is_served(addr.ip);
            let was_served = before.get(&Shared::Address(addr.ip)).copied().unwrap_or(served);
            let new = self.entries.get(addr);
            if was_served == served && old.as_ref() == new {
                continue;
            }
            let old = old.as_ref().filter(|_| was_served).map(Known::elements).unwrap_or_default();
            let new = new.filter(|_| served).map(Known::elements).unwrap_or_default();
            changes.removed.extend(old.iter().filter(|element| new.binary_search(element).is_err()));
            changes.added.extend(new.iter().filter(|element| old.binary_search(element).is_err()));
        }
        for (shared, &was_served) in before {
            let &Shared::Address(ip) = shared else { continue };
            let served = self.is_served(ip);
            if served != was_served {
                let all = self.entries.range(first_of(ip)..=last_of(ip));
                let others = all.filter(|(addr, _)| !replaced.contains_key(addr));
                let list = if served { &mut changes.added } else { &mut changes.removed };
                list.extend(others.flat_map(|(_, entry)| entry.elements()));
            }
        }
    }

    /// Adds what is needed now and was not before, and removes what was.
    fn change_shared(&self, before: BTreeMap<Shared, bool>, changes: &mut Changes) {
        for (shared, was_needed) in before {
            let needed = self.uses.0.contains_key(&shared);
            if needed == was_needed {
                continue;
            }
            match shared {
                Shared::Chain(family, chain) if needed => changes.new_chains.push((family, chain)),
                Shared::Chain(family, chain) => changes.old_chains.push((family, chain)),
                Shared::Address(_) | Shared::EndpointPort(..) | Shared::InternalClients(_) => {
                    let list = if needed { &mut changes.added } else { &mut changes.removed };
                    list.extend(self.shared_elements(shared));
                }
            }
        }
    }

    fn shared_elements(&self, shared: Shared) -> Vec<Element> {
        match shared {
            Shared::Address(ip) => {
                let machine = self.machine.contains(&ip).then_some(Element::Machine(ip));
                [Element::Address(ip)].into_iter().chain(machine).collect()
            }
            Shared::EndpointPort(protocol, endpoint) => vec![Element::EndpointPort(protocol, endpoint)],
            Shared::InternalClients(family) => internal(&self.internal_clients, family).collect(),
            Shared::Chain(..) => Vec::new(),
        }
    }
}

/// How many need what is shared; what nobody needs is absent.
#[derive(Clone, Debug, Default)]
struct Uses(HashMap<Shared, u32>);

impl Uses {
    /// Counts one user more or less, and notes in `before` whether there was any before the first change.
    fn change(&mut self, shared: Shared, more: bool, before: &mut BTreeMap<Shared, bool>) {
        let entry = self.0.entry(shared);
        before.entry(shared).or_insert(matches!(entry, Entry::Occupied(_)));
        match entry {
            Entry::Occupied(mut count) if more => *count.get_mut() += 1,
            Entry::Occupied(mut count) if *count.get() > 1 => *count.get_mut() -= 1,
            Entry::Occupied(count) => {
                count.remove();
            }
            Entry::Vacant(count) if more => {
                count.insert(1);
            }
            Entry::Vacant(_) => debug_assert!(more, "nobody uses {shared:?}"),
        }
    }
}

/// Requirements of an element of a frontend besides itself.
fn needs(element: &Element) -> impl Iterator<Item = Shared> {
    let family = element.family();
    let chain = match *element {
        Element::Service(_, Action::Choose(chooser))
        | Element::ServiceInternal(_, Action::Choose(chooser)) => {
            Some(Shared::Chain(family, Chain::Choose(chooser)))
        }
        Element::Learn(_, seconds) => Some(Shared::Chain(family, Chain::Learn(seconds))),
        _ => None,
    };
    let other = match *element {
        Element::ServiceInternal(..) | Element::MasqueradedInternal(_) => {
            Some(Shared::InternalClients(family))
        }
        Element::Endpoint(frontend, endpoint) => Some(Shared::EndpointPort(frontend.protocol, endpoint)),
        _ => None,
    };
    chain.into_iter().chain(other)
}

fn internal(clients: &AddressSet, family: Family) -> impl Iterator<Item = Element> {
    intervals(clients, family).map(|(first, last)| Element::Internal(first, last))
}

fn between(present: &BTreeSet<Element>, wanted: &BTreeSet<Element>) -> Changes {
    Changes {
        removed: present.difference(wanted).copied().collect(),
        added: wanted.difference(present).copied().collect(),
        ..Changes::default()
    }
}

fn first_of(ip: IpAddr) -> FrontendAddr {
    FrontendAddr { ip, port: 0, protocol: Protocol::Tcp }
}

fn last_of(ip: IpAddr) -> FrontendAddr {
    FrontendAddr { ip, port: u16::MAX, protocol: Protocol::Udp }
}

#[cfg(test)]
mod tests;
