//! Meaning of a ruleset: what the kernel's rules do with the first packet of a connection or flow, by look-ups in the same elements.
//! `explain` asks it, and the plan's tests compare it with the forwardings.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use sheave_model::FrontendAddr;

use crate::forwarding::Method;
use crate::jhash::{chosen_slot, scale};
use crate::ruleset::{Action, Chooser, Element};

/// Fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Goes to an endpoint.
    Forward {
        /// The endpoint.
        endpoint: SocketAddr,
        /// Whether the endpoint sees the gateway's address in place of the client's.
        masquerade: bool,
        /// For how many seconds the client's next connections go to this endpoint.
        learnt: Option<u32>,
    },
    /// Refused with a TCP reset or ICMP port unreachable.
    Refuse,
    /// Dropped.
    Discard,
    /// Left to a socket of the machine.
    ToSocket,
    /// Not met by the rules, since no frontend of the kernel path has the address.
    Untouched,
}

/// The elements as the kernel's sets and maps.
#[derive(Clone, Debug, Default)]
pub struct Meaning {
    service: BTreeMap<FrontendAddr, Action>,
    service_internal: BTreeMap<FrontendAddr, Action>,
    slot: BTreeMap<(FrontendAddr, u32), SocketAddr>,
    learn: BTreeMap<FrontendAddr, u32>,
    /// First addresses with the last ones.
    internal: BTreeMap<IpAddr, IpAddr>,
    admitted: BTreeMap<(FrontendAddr, IpAddr), IpAddr>,
    /// Elements of the sets, which have no value.
    present: BTreeSet<Element>,
}

impl FromIterator<Element> for Meaning {
    fn from_iter<T: IntoIterator<Item = Element>>(elements: T) -> Self {
        let mut meaning = Self::default();
        for element in elements {
            meaning.add(element);
        }
        meaning
    }
}

impl Meaning {
    /// The fate of a new connection of `client` to `frontend`. `record` is the endpoint of the client's affinity record, and `random` the
    /// number by which a random choice is made.
    pub fn fate(
        &self,
        client: IpAddr,
        frontend: FrontendAddr,
        record: Option<SocketAddr>,
        random: u32,
    ) -> Fate {
        if !self.present.contains(&Element::Address(frontend.ip)) {
            return Fate::Untouched;
        }
        if self.present.contains(&Element::Ranged(frontend)) && !self.admits(frontend, client) {
            return Fate::Discard;
        }
        let internal = self.service_internal.get(&frontend).filter(|_| self.is_inside(client, frontend));
        match internal.or_else(|| self.service.get(&frontend)) {
            Some(Action::Choose(chooser)) => {
                let record = record.filter(|_| chooser.sticky);
                match record.or_else(|| self.choose(*chooser, client, frontend, random)) {
                    Some(endpoint) => self.forward(client, frontend, endpoint),
                    None => Fate::Discard,
                }
            }
            Some(Action::Discard) => Fate::Discard,
            Some(Action::Accept) => Fate::ToSocket,
            None if self.present.contains(&Element::Machine(frontend.ip)) => Fate::ToSocket,
            Some(Action::Refuse) | None => Fate::Refuse,
        }
    }

    fn add(&mut self, element: Element) {
        match element {
            Element::Service(frontend, action) => {
                self.service.insert(frontend, action);
            }
            Element::ServiceInternal(frontend, action) => {
                self.service_internal.insert(frontend, action);
            }
            Element::Slot(frontend, slot, endpoint) => {
                self.slot.insert((frontend, slot), endpoint);
            }
            Element::Learn(frontend, seconds) => {
                self.learn.insert(frontend, seconds);
            }
            Element::Internal(first, last) => {
                self.internal.insert(first, last);
            }
            Element::Admitted(frontend, first, last) => {
                self.admitted.insert((frontend, first), last);
            }
            Element::Endpoint(..)
            | Element::ExternalOnly(..)
            | Element::InternalOnly(..)
            | Element::Address(_)
            | Element::Machine(_)
            | Element::Masqueraded(_)
            | Element::MasqueradedInternal(_)
            | Element::Ranged(_)
            | Element::EndpointPort(..) => {
                self.present.insert(element);
            }
        }
    }

    fn is_internal(&self, client: IpAddr) -> bool {
        self.internal.range(..=client).next_back().is_some_and(|(_, last)| client <= *last)
    }

    /// Whether the client counts as inside the cluster. The machine itself, which has the frontend's address, does.
    fn is_inside(&self, client: IpAddr, frontend: FrontendAddr) -> bool {
        client == frontend.ip || self.is_internal(client)
    }

    fn admits(&self, frontend: FrontendAddr, client: IpAddr) -> bool {
        let before = self.admitted.range(..=(frontend, client)).next_back();
        before.is_some_and(|(&(of, _), last)| of == frontend && client <= *last)
    }

    fn choose(
        &self,
        chooser: Chooser,
        client: IpAddr,
        frontend: FrontendAddr,
        random: u32,
    ) -> Option<SocketAddr> {
        let slot = match chooser.method {
            Method::Random => scale(random, chooser.slots) + chooser.offset,
            Method::Hash => chosen_slot(client, chooser.slots, chooser.offset),
        };
        self.slot.get(&(frontend, slot)).or_else(|| self.slot.get(&(frontend, chooser.offset))).copied()
    }

    /// Only an affinity record can have an endpoint that the frontend may not use any more, or not for this client: it is deleted with the
    /// packet.
    fn forward(&self, client: IpAddr, frontend: FrontendAddr, endpoint: SocketAddr) -> Fate {
        let learnt = self.learn.get(&frontend).copied();
        let of_others = match self.is_inside(client, frontend) {
            true => Element::ExternalOnly(frontend, endpoint),
            false => Element::InternalOnly(frontend, endpoint),
        };
        let is_free = self.present.contains(&Element::Endpoint(frontend, endpoint))
            && !self.present.contains(&of_others);
        if learnt.is_some() && !is_free {
            return Fate::Discard;
        }
        let masquerade = client == frontend.ip
            || self.present.contains(&Element::Masqueraded(frontend))
            || self.is_internal(client) && self.present.contains(&Element::MasqueradedInternal(frontend));
        Fate::Forward { endpoint, masquerade, learnt }
    }
}
