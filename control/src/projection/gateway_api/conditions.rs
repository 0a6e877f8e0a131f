//! Conditions of a Gateway and its ListenerSets: the decisions about their specs, with what is known of addresses and gateway nodes.
//! The first row that fits decides, as the conformance tests of the Gateway API require.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use sheave_model::FrontendAddr;

use super::outcome::{GatewayOutcome, ListenerOutcome, ListenerSetOutcome};
use crate::api::condition::DesiredCondition;
use crate::api::gateway_api::{MOST_ADDRESSES, RouteKind, transport};
use crate::api::objects::ObjectKey;
use crate::api::problem::{Problem, reason};
use crate::projection::status::LoadBalancerStatus;
use crate::text::first_few;

/// Condition that the object is valid.
pub const ACCEPTED: &str = "Accepted";
/// Condition that gateway nodes forward by it.
pub const PROGRAMMED: &str = "Programmed";
/// Condition that a listener cannot be told from another one.
pub const CONFLICTED: &str = "Conflicted";
/// Condition that references exist and are permitted.
pub const RESOLVED_REFS: &str = "ResolvedRefs";

/// Reason of [`PROGRAMMED`] when an address of the spec cannot be used; the others serve.
pub const ADDRESS_NOT_USABLE: &str = "AddressNotUsable";

/// How many addresses a message lists.
const LISTED: usize = 8;

/// Known state of a Gateway's addresses and of gateway nodes.
#[derive(Clone, Copy, Debug)]
pub struct LiveState<'a> {
    /// Addresses, and the ports that others hold there.
    pub status: &'a LoadBalancerStatus,
    /// Problems of the Gateway.
    pub problems: &'a [Problem],
    /// Whether a gateway node is ready to serve it.
    pub nodes: bool,
    /// Gateway nodes that do not read Gateways yet, as a text, if that matters to it.
    pub unaware: Option<&'a str>,
    /// Frontends on which gateway nodes could not listen.
    pub failed: &'a BTreeSet<FrontendAddr>,
    /// Frontends on which no gateway node could listen, a part of `failed`.
    pub closed: &'a BTreeSet<FrontendAddr>,
}

/// Conditions of a Gateway, and of what belongs to it.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayConditions {
    /// `Accepted` and `Programmed`.
    pub gateway: Vec<DesiredCondition>,
    /// Assigned addresses, sorted.
    pub addresses: Vec<IpAddr>,
    /// Its own listeners, in the order of the spec.
    pub listeners: Vec<ListenerConditions>,
    /// ListenerSets that name it, with their conditions and listeners.
    pub sets: Vec<(ObjectKey, Vec<DesiredCondition>, Vec<ListenerConditions>)>,
    /// Number of attached ListenerSets.
    pub attached_sets: usize,
}

/// Conditions of a listener.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerConditions {
    /// Name, as in the spec.
    pub name: String,
    /// Kinds of routes that can attach.
    pub supported_kinds: Vec<RouteKind>,
    /// Number of attached routes.
    pub attached_routes: u32,
    /// `Accepted`, `Conflicted`, `Programmed` and `ResolvedRefs`.
    pub conditions: Vec<DesiredCondition>,
}

impl ListenerConditions {
    /// Whether the listener is valid: accepted, with a kind of route.
    fn is_valid(&self) -> bool {
        let accepted = self.conditions.iter().any(|it| it.kind == ACCEPTED && it.holds);
        accepted && !self.supported_kinds.is_empty()
    }
}

impl GatewayOutcome {
    /// The conditions with this state.
    pub fn conditions(&self, live: &LiveState<'_>) -> GatewayConditions {
        let unavailable = UnavailablePorts::new(live);
        let listeners: Vec<_> = self.listeners.iter().map(|it| listener(it, live, &unavailable)).collect();
        let accepted = self.refused.clone().unwrap_or_else(|| by_listeners(&listeners, "Gateway"));
        let programmed = programmed(&accepted, &self.unusable, live);
        let sets: Vec<_> = self
            .sets
            .iter()
            .map(|(key, set)| listener_set(key, set, (&accepted, &programmed), live, &unavailable))
            .collect();
        let is_attached = |conditions: &[DesiredCondition]| conditions.first().is_some_and(|it| it.holds);
        GatewayConditions {
            attached_sets: sets.iter().filter(|(_, conditions, _)| is_attached(conditions)).count(),
            gateway: vec![accepted, programmed],
            addresses: addresses(live),
            listeners,
            sets,
        }
    }
}

fn addresses(live: &LiveState<'_>) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = live.status.ingress.iter().map(|ingress| ingress.ip).collect();
    addresses.sort_unstable();
    addresses
}

/// `Accepted` of an object by its listeners.
fn by_listeners(listeners: &[ListenerConditions], kind: &str) -> DesiredCondition {
    let invalid = listeners.iter().filter(|listener| !listener.is_valid());
    let invalid: Vec<&str> = invalid.map(|listener| listener.name.as_str()).collect();
    let names = || first_few(invalid.iter().map(|name| format!("{name:?}")), ", ", LISTED);
    match invalid.len() {
        0 if listeners.is_empty() => {
            DesiredCondition::no(ACCEPTED, LISTENERS_NOT_VALID, "It has no valid listener.".to_owned())
        }
        0 => DesiredCondition::yes(ACCEPTED, ACCEPTED, format!("Every listener of the {kind} is valid.")),
        all if all == listeners.len() => {
            let message = format!("No listener is valid: {}. See the conditions of each.", names());
            DesiredCondition::no(ACCEPTED, LISTENERS_NOT_VALID, message)
        }
        _ => {
            let message = format!("Some listeners are not valid: {}. See the conditions of each.", names());
            DesiredCondition::yes(ACCEPTED, LISTENERS_NOT_VALID, message)
        }
    }
}

const LISTENERS_NOT_VALID: &str = "ListenersNotValid";

fn programmed(accepted: &DesiredCondition, unusable: &[String], live: &LiveState<'_>) -> DesiredCondition {
    if !accepted.holds {
        return DesiredCondition::no(PROGRAMMED, "Invalid", format!("It is not accepted: see {ACCEPTED}."));
    }
    let lacking = live.problems.iter().filter(|problem| problem.reason == reason::NO_ADDRESS);
    let (by_value, others): (Vec<_>, Vec<_>) =
        lacking.partition(|problem| problem.field.starts_with("spec.addresses"));
    let unusable: Vec<String> =
        unusable.iter().cloned().chain(by_value.iter().map(|problem| problem.message.clone())).collect();
    if !unusable.is_empty() {
        return DesiredCondition::no(PROGRAMMED, ADDRESS_NOT_USABLE, sentence(&unusable));
    }
    if live.status.ingress.is_empty() {
        let why: Vec<String> = others.iter().map(|problem| problem.message.clone()).collect();
        let message = if why.is_empty() { "It has no address yet.".to_owned() } else { sentence(&why) };
        return DesiredCondition::no(PROGRAMMED, "AddressNotAssigned", message);
    }
    let addresses = addresses(live);
    let at = listed(&addresses);
    if !live.nodes {
        return DesiredCondition::no(
            PROGRAMMED,
            "NoResources",
            format!("No gateway node is ready to serve {at}."),
        );
    }
    if let Some(message) = unaware(live) {
        return DesiredCondition::no(PROGRAMMED, "Pending", message);
    }
    let unlisted = if addresses.len() > MOST_ADDRESSES {
        format!(" The status has room for {MOST_ADDRESSES} of the {} addresses.", addresses.len())
    } else {
        String::new()
    };
    DesiredCondition::yes(PROGRAMMED, PROGRAMMED, format!("Gateway nodes serve it on {at}.{unlisted}"))
}

/// Message about gateway nodes that would not serve a new Gateway.
fn unaware(live: &LiveState<'_>) -> Option<String> {
    live.unaware.map(|nodes| {
        format!(
            "Not every gateway node reads Gateways: {nodes}. Each learns of their definitions within seconds, and needs the right to \
             list and watch them."
        )
    })
}

fn sentence(messages: &[String]) -> String {
    let text = first_few(messages.iter(), "; ", LISTED);
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", chars.as_str().trim_end_matches('.'))
}

fn listed(addresses: &[IpAddr]) -> String {
    first_few(addresses.iter().map(IpAddr::to_string), ", ", LISTED)
}

fn listener_set(
    key: &ObjectKey,
    set: &ListenerSetOutcome,
    (parent_accepted, parent_programmed): (&DesiredCondition, &DesiredCondition),
    live: &LiveState<'_>,
    unavailable: &UnavailablePorts,
) -> (ObjectKey, Vec<DesiredCondition>, Vec<ListenerConditions>) {
    let mut listeners: Vec<_> = set.listeners.iter().map(|it| listener(it, live, unavailable)).collect();
    let refused = if !set.allowed {
        let message = "The Gateway does not allow ListenerSets of this namespace (spec.allowedListeners).";
        Some(("NotAllowed", message.to_owned()))
    } else if !parent_accepted.holds {
        Some(("ParentNotAccepted", "The Gateway is not accepted.".to_owned()))
    } else {
        None
    };
    let accepted = match &refused {
        Some((reason, message)) => DesiredCondition::no(ACCEPTED, reason, message.clone()),
        None => by_listeners(&listeners, "ListenerSet"),
    };
    let programmed = if !accepted.holds {
        let reason =
            if accepted.reason == "ParentNotAccepted" { "ParentNotProgrammed" } else { accepted.reason };
        DesiredCondition::no(PROGRAMMED, reason, format!("It is not accepted: see {ACCEPTED}."))
    } else if !parent_programmed.holds {
        DesiredCondition::no(PROGRAMMED, "ParentNotProgrammed", "The Gateway is not programmed.".to_owned())
    } else {
        DesiredCondition::yes(PROGRAMMED, PROGRAMMED, "Gateway nodes serve it with the Gateway.".to_owned())
    };
    if refused.is_some() {
        listeners.iter_mut().for_each(unattached);
    }
    (key.clone(), vec![accepted, programmed], listeners)
}

/// Marks a listener whose ListenerSet is not attached.
fn unattached(listener: &mut ListenerConditions) {
    for condition in &mut listener.conditions {
        if condition.kind == PROGRAMMED && condition.holds {
            let message = "The ListenerSet is not attached to the Gateway.".to_owned();
            *condition = DesiredCondition::no(PROGRAMMED, "Pending", message);
        }
    }
}

fn listener(
    outcome: &ListenerOutcome,
    live: &LiveState<'_>,
    unavailable: &UnavailablePorts,
) -> ListenerConditions {
    let mut accepted = outcome.accepted.clone();
    let unavailable = unavailable.of(outcome);
    if accepted.holds
        && let Some((at, true)) = &unavailable
    {
        let message = format!(
            "Port {} is not available on {at}: another object or the node has it. Choose another port or address.",
            outcome.port
        );
        accepted = DesiredCondition::no(ACCEPTED, "PortUnavailable", message);
    }
    let programmed = listener_programmed(outcome, &accepted, unavailable, live);
    ListenerConditions {
        name: outcome.name.clone(),
        supported_kinds: outcome.supported_kinds.clone(),
        attached_routes: outcome.attached_routes,
        conditions: vec![accepted, outcome.conflicted.clone(), programmed, outcome.resolved_refs.clone()],
    }
}

fn listener_programmed(
    outcome: &ListenerOutcome,
    accepted: &DesiredCondition,
    unavailable: Option<(String, bool)>,
    live: &LiveState<'_>,
) -> DesiredCondition {
    let no = |reason, message: String| DesiredCondition::no(PROGRAMMED, reason, message);
    if outcome.conflicted.holds {
        return no(outcome.conflicted.reason, "It conflicts with another listener.".to_owned());
    }
    if let Some((at, _)) = unavailable {
        let message = format!("Port {} is not available on {at}.", outcome.port);
        return no("PortUnavailable", message);
    }
    if !accepted.holds || outcome.supported_kinds.is_empty() {
        return no("Invalid", "It is not valid: see its other conditions.".to_owned());
    }
    if live.status.ingress.is_empty() {
        return no("Pending", "The Gateway has no address yet.".to_owned());
    }
    if !live.nodes {
        return no("Pending", "No gateway node is ready.".to_owned());
    }
    if let Some(message) = unaware(live) {
        return no("Pending", message);
    }
    DesiredCondition::yes(PROGRAMMED, PROGRAMMED, "Gateway nodes accept its traffic.".to_owned())
}

/// Addresses at which a Gateway does not have a port.
#[derive(Default)]
struct LostAddresses {
    /// On every gateway node.
    everywhere: Vec<IpAddr>,
    /// On some gateway node.
    somewhere: Vec<IpAddr>,
}

/// Ports that a Gateway does not have at some of its addresses. Read once for all listeners, of which ListenerSets may add any number.
struct UnavailablePorts {
    addresses: usize,
    ports: BTreeMap<(i32, &'static str), LostAddresses>,
}

impl UnavailablePorts {
    fn new(live: &LiveState<'_>) -> Self {
        let mut ports: BTreeMap<(i32, &'static str), LostAddresses> = BTreeMap::new();
        for ingress in &live.status.ingress {
            let at = |addrs: &BTreeSet<FrontendAddr>| {
                let here = addrs.iter().filter(|addr| addr.ip == ingress.ip);
                here.map(|addr| (i32::from(addr.port), addr.protocol.name())).collect::<BTreeSet<_>>()
            };
            let mut lost = at(live.closed);
            let held = ingress.ports.iter().filter(|port| port.error.is_some());
            lost.extend(held.map(|port| (i32::from(port.port), port.protocol)));
            for port in at(live.failed).difference(&lost) {
                ports.entry(*port).or_default().somewhere.push(ingress.ip);
            }
            for port in lost {
                ports.entry(port).or_default().everywhere.push(ingress.ip);
            }
        }
        Self { addresses: live.status.ingress.len(), ports }
    }

    /// Addresses on which a listener does not get its port, and whether these are all, on every gateway node.
    fn of(&self, outcome: &ListenerOutcome) -> Option<(String, bool)> {
        let LostAddresses { everywhere, somewhere } =
            self.ports.get(&(outcome.port, transport(&outcome.protocol).name()))?;
        let at: Vec<IpAddr> = everywhere.iter().chain(somewhere).copied().collect();
        Some((listed(&at), everywhere.len() == self.addresses))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::api::store::ServiceKey;
    use crate::projection::status::Ingress;

    #[test]
    fn addresses_that_a_status_has_no_room_for_are_counted() {
        let message = |count: u32| {
            let ingress = |number| Ingress {
                ip: Ipv4Addr::from(0xc633_6400 + number).into(),
                hostname: None,
                ports: Vec::new(),
                whole: true,
            };
            let status = LoadBalancerStatus {
                service: ServiceKey::new("shop", "web"),
                ingress: (1..=count).map(ingress).collect(),
                node_families: Default::default(),
            };
            let failed = BTreeSet::new();
            let live = LiveState {
                status: &status,
                problems: &[],
                nodes: true,
                unaware: None,
                failed: &failed,
                closed: &failed,
            };
            let accepted = DesiredCondition::yes(ACCEPTED, ACCEPTED, String::new());
            programmed(&accepted, &[], &live).message
        };
        assert_eq!(message(2), "Gateway nodes serve it on 198.51.100.1, 198.51.100.2.");
        assert!(!message(16).contains("room"), "{}", message(16));
        let many = message(17);
        assert!(many.ends_with(" and 9 more. The status has room for 16 of the 17 addresses."), "{many}");
    }
}
