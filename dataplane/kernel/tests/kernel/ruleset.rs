//! Elements and chains as the cases need them, without a plan.

use std::net::{IpAddr, SocketAddr};

use sheave_kernel::Method;
use sheave_kernel::ruleset::{Action, Chain, Changes, Chooser, Element, Family};
use sheave_model::{FrontendAddr, Protocol};

/// Elements and chains of some frontends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ruleset {
    pub(crate) elements: Vec<Element>,
    pub(crate) chains: Vec<(Family, Chain)>,
}

pub(crate) fn frontend(ip: IpAddr, port: u16, protocol: Protocol) -> FrontendAddr {
    FrontendAddr { ip, port, protocol }
}

pub(crate) fn chooser(method: Method, slots: usize, sticky: bool) -> Chooser {
    Chooser { method, slots: u32::try_from(slots).unwrap(), offset: 0, sticky, guarded: false }
}

impl Ruleset {
    /// Adds a frontend with an endpoint for each slot; clients of one with affinity are remembered for so many seconds.
    pub(crate) fn forward(
        mut self,
        frontend: FrontendAddr,
        method: Method,
        slots: &[SocketAddr],
        affinity: Option<u32>,
    ) -> Self {
        let family = Family::of(frontend.ip);
        let chooser = chooser(method, slots.len(), affinity.is_some());
        self.add_chain(family, Chain::Choose(chooser));
        self = self.act(frontend, Action::Choose(chooser));
        for (slot, &endpoint) in (0..).zip(slots) {
            self.add(Element::Slot(frontend, slot, endpoint));
            self.add(Element::Endpoint(frontend, endpoint));
            self.add(Element::EndpointPort(frontend.protocol, endpoint));
        }
        if let Some(seconds) = affinity {
            self.add_chain(family, Chain::Learn(seconds));
            self.add(Element::Learn(frontend, seconds));
        }
        self
    }

    /// Gives clients inside the cluster endpoints of their own.
    pub(crate) fn within(
        mut self,
        frontend: FrontendAddr,
        chooser: Chooser,
        endpoints: &[SocketAddr],
    ) -> Self {
        self.add_chain(Family::of(frontend.ip), Chain::Choose(chooser));
        self.add(Element::ServiceInternal(frontend, Action::Choose(chooser)));
        for (slot, &endpoint) in (chooser.offset..).zip(endpoints) {
            self.add(Element::Slot(frontend, slot, endpoint));
            self.add(Element::Endpoint(frontend, endpoint));
            self.add(Element::EndpointPort(frontend.protocol, endpoint));
        }
        self
    }

    /// Adds a frontend with an action.
    pub(crate) fn act(mut self, frontend: FrontendAddr, action: Action) -> Self {
        self.add(Element::Address(frontend.ip));
        self.add(Element::Service(frontend, action));
        self
    }

    pub(crate) fn with(mut self, element: Element) -> Self {
        self.add(element);
        self
    }

    fn add(&mut self, element: Element) {
        if !self.elements.contains(&element) {
            self.elements.push(element);
        }
    }

    fn add_chain(&mut self, family: Family, chain: Chain) {
        if !self.chains.contains(&(family, chain)) {
            self.chains.push((family, chain));
        }
    }

    /// What turns this ruleset into another.
    pub(crate) fn changes_to(&self, other: &Self) -> Changes {
        let without = |all: &[Element], others: &[Element]| {
            all.iter().copied().filter(|element| !others.contains(element)).collect()
        };
        let chains = |all: &[(Family, Chain)], others: &[(Family, Chain)]| {
            all.iter().copied().filter(|chain| !others.contains(chain)).collect()
        };
        Changes {
            new_chains: chains(&other.chains, &self.chains),
            removed: without(&self.elements, &other.elements),
            added: without(&other.elements, &self.elements),
            old_chains: chains(&self.chains, &other.chains),
        }
    }

    /// All of it.
    pub(crate) fn whole(&self) -> Changes {
        Self::default().changes_to(self)
    }
}

/// A ruleset of both families in which every kind of element and chain occurs.
pub(crate) fn of_every_kind(ipv6_affinity: bool) -> Ruleset {
    let mut ruleset = Ruleset::default();
    for v6 in [false, true] {
        let ip = |number: u8| -> IpAddr {
            if v6 { format!("2001:db8::{number:x}") } else { format!("192.0.2.{number}") }.parse().unwrap()
        };
        let endpoint = |number: u8| SocketAddr::new(ip(100 + number), 8080);
        let tcp = |port| frontend(ip(1), port, Protocol::Tcp);
        let affinity = (!v6 || ipv6_affinity).then_some(10_800);
        ruleset = ruleset
            .forward(tcp(80), Method::Random, &[endpoint(1), endpoint(2), endpoint(1)], None)
            .forward(tcp(81), Method::Hash, &[endpoint(3), endpoint(4)], None)
            .forward(frontend(ip(1), 53, Protocol::Udp), Method::Random, &[endpoint(5)], affinity)
            .with(Element::ExternalOnly(tcp(80), endpoint(1)))
            .with(Element::InternalOnly(tcp(80), endpoint(6)))
            .act(tcp(82), Action::Refuse)
            .act(tcp(83), Action::Discard)
            .act(tcp(84), Action::Accept)
            .with(Element::Machine(ip(1)))
            .with(Element::Masqueraded(tcp(80)))
            .with(Element::Ranged(tcp(81)))
            .with(Element::Admitted(tcp(81), ip(10), ip(19)))
            .with(Element::Admitted(tcp(81), ip(30), ip(30)))
            .with(Element::Internal(ip(40), ip(49)))
            .with(Element::Internal(ip(50), ip(50)))
            .with(Element::Internal(
                ip(60),
                if v6 { "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff" } else { "255.255.255.255" }
                    .parse()
                    .unwrap(),
            ));
        let inside = Chooser { offset: 3, ..chooser(Method::Random, 2, false) };
        ruleset = ruleset.within(tcp(80), inside, &[endpoint(6), endpoint(7)]);
    }
    ruleset
}
