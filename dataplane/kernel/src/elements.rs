//! The elements of one frontend: those that no other frontend shares.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use sheave_model::{AddressSet, FrontendAddr};

use crate::forwarding::{Decision, Forwarding, Masquerade, Method};
use crate::ruleset::{Action, Chooser, Element, Family};
use crate::slots::slots;

/// The elements of a frontend, sorted, while its address has some frontend that needs the kernel.
pub(crate) fn elements(forwarding: &Forwarding) -> Vec<Element> {
    let addr = forwarding.addr;
    if forwarding.is_proxied() {
        return vec![Element::Service(addr, Action::Accept)];
    }
    let (external, mut chosen) = route(forwarding, &forwarding.external);
    let mut elements = vec![Element::Service(addr, external)];
    if forwarding.internal != forwarding.external {
        let (internal, behind) = route(forwarding, &forwarding.internal);
        if (internal, &behind) != (external, &chosen) {
            elements.push(Element::ServiceInternal(addr, at(internal, chosen.len() as u32)));
            if forwarding.affinity.is_some() {
                elements.extend(of_one_class(addr, &chosen, &behind));
            }
            chosen.extend(behind);
        }
    }
    elements.extend(chosen.iter().zip(0..).map(|(&endpoint, slot)| Element::Slot(addr, slot, endpoint)));
    if !chosen.is_empty() {
        elements.extend(seconds(forwarding).map(|seconds| Element::Learn(addr, seconds)));
        elements.extend(match forwarding.masquerade {
            Masquerade::Nobody => None,
            Masquerade::Internal => Some(Element::MasqueradedInternal(addr)),
            Masquerade::Everyone => Some(Element::Masqueraded(addr)),
        });
    }
    chosen.sort_unstable();
    chosen.dedup();
    elements.extend(chosen.into_iter().map(|endpoint| Element::Endpoint(addr, endpoint)));
    if !forwarding.admitted.has_family(addr.ip) {
        elements.push(Element::Ranged(addr));
        let admitted = intervals(&forwarding.admitted, Family::of(addr.ip));
        elements.extend(admitted.map(|(first, last)| Element::Admitted(addr, first, last)));
    }
    elements.sort_unstable();
    elements
}

/// The intervals of the set's addresses of this family, first and last included.
pub(crate) fn intervals(set: &AddressSet, family: Family) -> impl Iterator<Item = (IpAddr, IpAddr)> {
    let v4 = set.v4().iter().filter(move |_| family == Family::Ipv4);
    let v6 = set.v6().iter().filter(move |_| family == Family::Ipv6);
    let v4 = v4.map(|&(first, last)| (IpAddr::from(first.to_be_bytes()), IpAddr::from(last.to_be_bytes())));
    v4.chain(v6.map(|&(first, last)| (IpAddr::from(first.to_be_bytes()), IpAddr::from(last.to_be_bytes()))))
}

/// Fate of one class of clients, and the slots that it chooses from.
fn route(forwarding: &Forwarding, decision: &Decision) -> (Action, Vec<SocketAddr>) {
    let slots = match decision {
        Decision::Forward(endpoints) => slots(endpoints, forwarding.method),
        Decision::Refuse => return (Action::Refuse, Vec::new()),
        Decision::Discard => return (Action::Discard, Vec::new()),
        Decision::Proxy => return (Action::Accept, Vec::new()),
    };
    let action = match slots.len() {
        0 => Action::Refuse,
        count => Action::Choose(Chooser {
            method: forwarding.method,
            slots: count as u32,
            offset: 0,
            sticky: forwarding.affinity.is_some(),
            guarded: forwarding.guarded && forwarding.method == Method::Hash,
        }),
    };
    (action, slots)
}

/// The endpoints that clients of one class get and those of the other do not, where both choose: a record of the other route does not count.
fn of_one_class(addr: FrontendAddr, external: &[SocketAddr], internal: &[SocketAddr]) -> Vec<Element> {
    if external.is_empty() || internal.is_empty() {
        return Vec::new();
    }
    let [external, internal] = [external, internal].map(|route| BTreeSet::from_iter(route.iter().copied()));
    let external_only = external.difference(&internal).map(|&endpoint| Element::ExternalOnly(addr, endpoint));
    let internal_only = internal.difference(&external).map(|&endpoint| Element::InternalOnly(addr, endpoint));
    external_only.chain(internal_only).collect()
}

/// The action with its slots from number `offset` on.
fn at(action: Action, offset: u32) -> Action {
    match action {
        Action::Choose(chooser) => Action::Choose(Chooser { offset, ..chooser }),
        Action::Refuse | Action::Discard | Action::Accept => action,
    }
}

/// Lifetime of affinity records.
fn seconds(forwarding: &Forwarding) -> Option<u32> {
    forwarding.affinity.map(|it| u32::try_from(it.as_secs()).unwrap_or(u32::MAX).max(1))
}
