//! Step of the frontend's address: which gateway announces it, whether this machine takes packets for it, and who answers for it on the
//! segment.

use std::net::IpAddr;
use std::time::Duration;

use sheave_trace::link::{Link, with_subnet_of};
use sheave_trace::route::{Admission, RouteKind};
use sheave_trace::{MacAddress, Unseen, route, segment};

use super::subject::Subject;
use crate::views::gateways::AddressView;
use crate::views::trace::StepView;

/// How long machines on the segment may take to answer.
const PATIENCE: Duration = Duration::from_millis(700);

/// Facts about the address.
#[derive(Clone, Debug)]
pub(super) struct AddressFacts {
    /// Whether this machine takes packets for it: its kernel, or the kernel path before that.
    pub(super) is_taken: bool,
    /// Other machines that answer for it, by link.
    pub(super) answers: Vec<(String, Result<Vec<MacAddress>, Unseen>)>,
}

/// Looks at the address on the links that have its subnet.
pub(super) fn look(ip: IpAddr, links: &[Link], by_kernel: bool) -> AddressFacts {
    // The kernel path redirects before it is decided whether a packet is for this machine.
    let is_taken = by_kernel
        || matches!(route::output(None, ip), Ok(route) if route.kind == RouteKind::Local)
        || links.iter().any(|link| {
            // A rule may deliver what arrives from outside alone.
            link.has_neighbours && takes(ip, link)
        });
    let on = with_subnet_of(links, ip).into_iter().filter(|link| link.has_neighbours);
    // Another link of this machine on the same segment answers, too (`arp_ignore` 0).
    let is_own = |mac: &MacAddress| links.iter().any(|link| link.mac == Some(*mac));
    let others = |mut macs: Vec<MacAddress>| {
        macs.retain(|mac| !is_own(mac));
        macs
    };
    let answers = on.map(|link| (link.name.clone(), segment::who_has(ip, link, PATIENCE).map(others)));
    AddressFacts { is_taken, answers: answers.collect() }
}

/// Whether the kernel takes a packet for the address that arrives on the link, whoever sends it.
fn takes(ip: IpAddr, link: &Link) -> bool {
    let neighbour =
        link.addresses.iter().find(|it| it.ip.is_ipv4() == ip.is_ipv4()).and_then(|it| next(it.ip));
    let admission = neighbour.and_then(|from| route::input(from, ip, link.index).ok());
    admission == Some(Admission::Admitted(RouteKind::Local))
}

/// The address after this one, which stands for a machine of the same subnet.
fn next(ip: IpAddr) -> Option<IpAddr> {
    match ip {
        IpAddr::V4(ip) => u32::from(ip).checked_add(1).map(|ip| IpAddr::V4(ip.into())),
        IpAddr::V6(ip) => u128::from(ip).checked_add(1).map(|ip| IpAddr::V6(ip.into())),
    }
}

/// Judges the address.
pub(super) fn step(subject: &Subject, ip: IpAddr, facts: &AddressFacts) -> StepView {
    let links: Vec<&str> = facts.answers.iter().map(|(link, _)| link.as_str()).collect();
    let on = if links.is_empty() { String::new() } else { format!(" on {}", links.join(" and ")) };
    let step = StepView::new("address", format!("who announces {ip}, and who answers for it{on}"));
    let others = foreign(facts);
    let seen = format!("; {}", answering(facts, &others));
    match &subject.announced {
        None => unannounced(step, ip, facts, &others, &seen),
        Some((true, row)) => shared(step, ip, facts, row.as_ref(), &seen),
        Some((false, row)) => announced(step, subject, row.as_ref(), facts, (&others, &seen)),
    }
}

/// All MAC addresses that answered.
fn foreign(facts: &AddressFacts) -> Vec<String> {
    let answers = facts.answers.iter().filter_map(|(_, macs)| macs.as_ref().ok());
    let mut macs: Vec<String> = answers.flatten().map(ToString::to_string).collect();
    macs.sort_unstable();
    macs.dedup();
    macs
}

fn answering(facts: &AddressFacts, others: &[String]) -> String {
    let unseen = facts.answers.iter().find_map(|(_, macs)| macs.as_ref().err());
    match (others, unseen) {
        ([], Some(unseen)) => unseen.to_string(),
        ([], None) if facts.answers.is_empty() => "it is outside the subnets of all links".to_owned(),
        ([], None) => "no other machine answers for it".to_owned(),
        (macs, _) => format!("{} answers for it", macs.join(" and ")),
    }
}

/// The address of a gateway that announces nothing: something else must bring packets here.
fn unannounced(step: StepView, ip: IpAddr, facts: &AddressFacts, others: &[String], seen: &str) -> StepView {
    let unseen = facts.answers.iter().any(|(_, macs)| macs.is_err());
    match (facts.is_taken, others) {
        (true, []) => step.ok(format!("{ip} is an address of this machine{seen}")),
        // Gateways behind a program that announces for them all have the address.
        (true, [other]) => step.doubtful(
            format!("this machine has {ip}, and {other} answers for it: neighbours reach that machine"),
            "if that is another gateway, trace there; if it is none, take the address away from it",
        ),
        (true, others) => step.stopped(
            format!("this machine has {ip}, and several others answer for it: {}", others.join(" and ")),
            "several machines have the address: take it away from those that are no gateways",
        ),
        (false, []) if !facts.answers.is_empty() && !unseen => step.stopped(
            format!("nobody answers for {ip}, and this machine does not have it"),
            "give the address to this machine, or let gateways announce it (`announce` in the configuration)",
        ),
        (false, []) => step.stopped(
            format!("this machine does not have {ip}, so its kernel takes no packets for it{seen}"),
            "give the address to this machine (a local route is enough), or let gateways announce it (`announce` in the configuration)",
        ),
        (false, others) => step.stopped(
            format!("{} answers for {ip}, and this machine does not have it", others.join(" and ")),
            "clients reach that machine: if it is another gateway, trace there; if not, choose another address",
        ),
    }
}

/// The address of gateways that each announce what they can serve, by BGP.
fn shared(
    step: StepView,
    ip: IpAddr,
    facts: &AddressFacts,
    row: Option<&AddressView>,
    seen: &str,
) -> StepView {
    match row {
        Some(row) if row.state == "announced" && facts.is_taken => {
            step.ok(format!("this gateway announces {ip} by BGP{seen}"))
        }
        Some(row) if row.state == "announced" => step.stopped(
            format!("this gateway announces {ip} by BGP, but the kernel does not take packets for it"),
            "see the warnings of `sheave gateways`",
        ),
        row => {
            let why =
                row.and_then(|row| row.message.clone()).unwrap_or_else(|| "it has no frontend".to_owned());
            step.stopped(
                format!("this gateway does not announce {ip} by BGP: {why}"),
                "clients that still come here follow a route that their router should have withdrawn: look at the router's BGP routes, and trace on a gateway that announces it",
            )
        }
    }
}

/// The address of gateways that answer by ARP and neighbour discovery, one for each address.
fn announced(
    step: StepView,
    subject: &Subject,
    row: Option<&AddressView>,
    facts: &AddressFacts,
    (others, seen): (&[String], &str),
) -> StepView {
    let node = &subject.status.node;
    let Some(row) = row else {
        return unannounced(
            step,
            subject.addr().map_or(IpAddr::from([0, 0, 0, 0]), |it| it.ip),
            facts,
            others,
            seen,
        );
    };
    let ip = &row.address;
    match (&row.owner, row.state.as_str(), others) {
        (None, ..) => {
            let why = row.message.as_deref().unwrap_or("no gateway may own it");
            step.stopped(format!("no gateway announces {ip}: {why}"), "`sheave gateways` says why")
        }
        (Some(owner), "conflict", _) if owner == node => {
            let who = row.message.clone().unwrap_or_default();
            step.stopped(
                format!("another machine uses {ip}: {who}"),
                "take the address away from that machine",
            )
        }
        (Some(owner), "announced", []) if owner == node => {
            step.ok(format!("this gateway announces {ip} on {}{seen}", row.interfaces.join(", ")))
        }
        (Some(owner), "announced", others) if owner == node => step.stopped(
            format!("this gateway announces {ip}, and {} answers for it, too", others.join(" and ")),
            "take the address away from the other machine: clients reach whichever answers first",
        ),
        (Some(owner), state, _) if owner == node => {
            let why = row.message.clone().unwrap_or_else(|| state.to_owned());
            step.stopped(
                format!("this gateway owns {ip}, but does not announce it: {why}"),
                "`sheave gateways` says more",
            )
        }
        (Some(owner), _, []) if facts.answers.iter().any(|(_, macs)| macs.is_ok()) => step.stopped(
            format!("gateway {owner} owns {ip}, and nobody answers for it on the segment"),
            format!("look at that gateway: {}", subject.command("trace", Some(owner))),
        ),
        (Some(owner), _, [_, _, ..]) => step.stopped(
            format!(
                "gateway {owner} owns {ip}, and several machines answer for it: {}",
                others.join(" and ")
            ),
            "take the address away from the machine that is no gateway",
        ),
        (Some(owner), ..) => step.doubtful(
            format!("gateway {owner} announces {ip}, so clients reach that gateway and not this one{seen}"),
            format!("trace there: {}", subject.command("trace", Some(owner))),
        ),
    }
}
