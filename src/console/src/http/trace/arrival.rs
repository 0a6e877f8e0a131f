//! Step of the client's way here and back: whether the kernel takes its packets where they arrive, and where answers go.

use std::net::IpAddr;

use sheave_trace::link::{Link, with_subnet_of};
use sheave_trace::neighbour::{Neighbour, NeighbourState};
use sheave_trace::route::{Admission, ReversePath, Route, RouteKind};
use sheave_trace::{Unseen, neighbour, route};

use crate::views::trace::StepView;

/// Facts about the way of a client.
#[derive(Clone, Debug)]
pub(super) struct ArrivalFacts {
    /// Whether the kernel takes its packets, for each link by which they may arrive.
    pub(super) admissions: Vec<(String, Result<Admission, Unseen>)>,
    /// Other links of an address that is routed here, where strict `rp_filter` would drop its packets.
    pub(super) elsewhere: Vec<String>,
    /// Whether the source of packets is checked there.
    pub(super) checked: Option<ReversePath>,
    /// Way of the answers.
    pub(super) back: Result<Route, Unseen>,
    /// The neighbour to which answers go: the router, or the client itself.
    pub(super) neighbour: Option<(IpAddr, Neighbour)>,
}

impl ArrivalFacts {
    /// Whether the client is this machine.
    pub(super) fn is_own(&self) -> bool {
        matches!(&self.back, Ok(route) if route.kind == RouteKind::Local)
    }
}

/// Looks up how packets of the client arrive and how answers leave.
pub(super) fn look(client: IpAddr, frontend: IpAddr, links: &[Link]) -> ArrivalFacts {
    // Answers leave from the frontend's address, for which there may be routing rules.
    let back = route::output(Some(frontend), client).or_else(|_| route::output(None, client));
    let by = back.as_ref().ok().and_then(|route| route.interface.clone());
    // Packets to an address arrive where its subnet is. An address of no subnet, such as one of a loopback interface, is routed here: by
    // any link.
    let mut arriving: Vec<&Link> =
        with_subnet_of(links, frontend).into_iter().filter(|link| link.has_neighbours).collect();
    let is_routed = arriving.is_empty();
    if is_routed {
        arriving = links.iter().filter(|link| by.as_ref().is_some_and(|by| by.index == link.index)).collect();
    }
    let admissions =
        arriving.iter().map(|link| (link.name.clone(), route::input(client, frontend, link.index))).collect();
    let elsewhere = match is_routed {
        true => refusing(client, frontend, links.iter().filter(|link| !arriving.contains(link))),
        false => Vec::new(),
    };
    let checked =
        arriving.first().filter(|_| client.is_ipv4()).and_then(|link| route::rp_filter(&link.name).ok());
    let next = back.as_ref().ok().map(|route| route.gateway.unwrap_or(client));
    let neighbour = by.zip(next).and_then(|(by, next)| Some((next, neighbour::entry(next, by.index).ok()?)));
    ArrivalFacts { admissions, elsewhere, checked, back, neighbour }
}

/// Links that are up and have neighbours and addresses, where strict `rp_filter` drops packets of the client. IPv6 has none.
fn refusing<'a>(client: IpAddr, frontend: IpAddr, links: impl Iterator<Item = &'a Link>) -> Vec<String> {
    let has_address = |link: &Link| link.addresses.iter().any(|it| it.ip.is_ipv4());
    let is_used = |link: &&Link| link.is_up && link.has_carrier && link.has_neighbours && has_address(link);
    let refuses = |link: &&Link| {
        matches!(route::rp_filter(&link.name), Ok(ReversePath::Strict))
            && matches!(route::input(client, frontend, link.index), Ok(Admission::ReversePathFilter))
    };
    let refusing = links.filter(|_| client.is_ipv4()).filter(is_used).filter(refuses);
    refusing.map(|link| link.name.clone()).collect()
}

/// What a capture without packets may be due to: the kernel does not even answer ARP requests of a client whose packets `rp_filter` drops.
pub(super) fn may_be_refused(client: IpAddr, frontend: IpAddr, links: &[Link]) -> Option<String> {
    let refusing = refusing(client, frontend, links.iter());
    (!refusing.is_empty()).then(|| {
        format!(
            "; rp_filter (strict) drops packets of {client} on {}, and ARP requests of it get no answer there",
            refusing.join(" and ")
        )
    })
}

/// Judges the way of the client. Where clients have been served, their packets come by the right link.
pub(super) fn step(client: IpAddr, facts: &ArrivalFacts, is_served: bool) -> StepView {
    let links: Vec<&str> = facts.admissions.iter().map(|(link, _)| link.as_str()).collect();
    let on = if links.is_empty() { String::new() } else { format!(" on {}", links.join(" and ")) };
    let step =
        StepView::new("client", format!("whether packets of {client} are taken{on}, and the way back"));
    // What this machine sends to itself is not validated.
    if facts.is_own() {
        return step.ok(format!("{client} is an address of this machine"));
    }
    let refused = facts.admissions.iter().find_map(|(link, admission)| {
        let admission = admission.as_ref().ok()?;
        (!matches!(admission, Admission::Admitted(RouteKind::Local))).then_some((link, *admission))
    });
    let any_admitted = facts.admissions.iter().any(|(_, it)| matches!(it, Ok(Admission::Admitted(_))));
    match refused {
        Some((link, Admission::ReversePathFilter)) if !any_admitted => {
            reverse_path(step, client, link, facts)
        }
        Some((link, Admission::Martian)) if !any_admitted => step.stopped(
            format!(
                "the kernel drops packets of {client} on {link}: no machine outside can have this address"
            ),
            "the client's address is one of this machine, or no unicast address",
        ),
        _ => way_back(step, client, facts, is_served),
    }
}

fn reverse_path(step: StepView, client: IpAddr, link: &str, facts: &ArrivalFacts) -> StepView {
    let leaves = match &facts.back {
        Ok(Route { interface: Some(interface), .. }) => format!("answers would leave by {}", interface.name),
        _ => "there is no way back".to_owned(),
    };
    let mode = if facts.checked == Some(ReversePath::Loose) { "loose" } else { "strict" };
    step.stopped(
        format!("rp_filter ({mode}) drops packets of {client} that arrive on {link}: {leaves}"),
        format!("add a route to {client} by {link}, or set net.ipv4.conf.all.rp_filter and net.ipv4.conf.{link}.rp_filter to 2 or 0"),
    )
}

fn way_back(step: StepView, client: IpAddr, facts: &ArrivalFacts, is_served: bool) -> StepView {
    let route = match &facts.back {
        Ok(route) => route,
        Err(unseen) => return step.unseen(unseen.to_string()),
    };
    let no_way = match route.kind {
        RouteKind::Unicast | RouteKind::Local => None,
        RouteKind::Blackhole => Some("a blackhole route discards them"),
        RouteKind::Unreachable => Some("a route of type unreachable refuses them"),
        RouteKind::Prohibit => Some("a route of type prohibit refuses them"),
        _ => Some("there is no route"),
    };
    if let Some(why) = no_way {
        return step.stopped(
            format!("answers to {client} go nowhere: {why}"),
            format!("add a route to {client} on this node (ip route get {client})"),
        );
    }
    let by = route.interface.as_ref().map_or("an unknown interface", |it| it.name.as_str());
    let via = route.gateway.map(|router| format!(" via {router}")).unwrap_or_default();
    match facts.neighbour {
        Some((next, Neighbour { state: NeighbourState::Failed, .. })) => step.stopped(
            format!("answers to {client} leave by {by}{via}, and {next} does not answer on that link"),
            format!("check that {next} is on {by}, and the route (ip route get {client})"),
        ),
        _ if facts.elsewhere.is_empty() => step.ok(format!("packets are taken; answers leave by {by}{via}")),
        _ => {
            let others = facts.elsewhere.join(" and ");
            let found = format!(
                "packets are taken where answers leave, by {by}{via}; if they came by {others}, rp_filter (strict) would drop them, with ARP requests of {client}"
            );
            if is_served {
                return step.ok(found);
            }
            step.doubtful(found, format!("see by which link they come (tcpdump -ni any host {client}); if it is one of these, add a route to {client} there, or set its rp_filter and net.ipv4.conf.all.rp_filter to 2 or 0"))
        }
    }
}
