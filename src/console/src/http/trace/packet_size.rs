//! Step of packet sizes: whether full packets arrive where small ones do.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use sheave_trace::link::Link;
use sheave_trace::path_mtu::{Echo, PathMtu};
use sheave_trace::route::{Route, RouteKind, RouteMtu};
use sheave_trace::{Unseen, path_mtu, route};

use super::subject::Subject;
use crate::views::trace::StepView;

const PATIENCE: Duration = Duration::from_millis(900);
/// Limit of endpoints whose path is probed: those of one cluster usually share it.
const PROBED: usize = 3;

/// The usual MTU.
const ETHERNET: u32 = 1500;

/// Result of a probe of the path to a peer.
#[derive(Clone, Debug)]
pub(super) struct PathFacts {
    pub(super) peer: IpAddr,
    pub(super) is_client: bool,
    pub(super) size: u32,
    pub(super) result: Result<PathMtu, Unseen>,
}

/// Peers whose paths are probed, with the size of a full packet towards each.
pub(super) fn peers(subject: &Subject, links: &[Link]) -> Vec<(IpAddr, bool, u32)> {
    let client = subject.client_ip().map(|ip| (ip, true));
    let mut ips: Vec<IpAddr> = subject.endpoints.iter().map(SocketAddr::ip).collect();
    ips.dedup();
    let endpoints = ips.into_iter().take(PROBED).map(|ip| (ip, false));
    let with_size =
        |(ip, is_client)| Some((ip, is_client, full_size(&route::output(None, ip).ok()?, links)?));
    client.into_iter().chain(endpoints).filter_map(with_size).collect()
}

/// Length of a full packet on a route; `None` if packets do not leave the machine.
fn full_size(route: &Route, links: &[Link]) -> Option<u32> {
    let interface = route.interface.as_ref()?;
    let link = links.iter().find(|link| link.index == interface.index)?;
    if route.kind != RouteKind::Unicast {
        return None;
    }
    Some(match route.mtu {
        Some(RouteMtu::Configured(mtu) | RouteMtu::Learned { mtu, .. }) => mtu.min(link.mtu),
        None => link.mtu,
    })
}

/// Probes the path to one peer.
pub(super) fn look((peer, is_client, size): (IpAddr, bool, u32)) -> PathFacts {
    let packet = u16::try_from(size).unwrap_or(u16::MAX);
    PathFacts { peer, is_client, size, result: path_mtu::probe(peer, None, packet, PATIENCE) }
}

/// Judges the paths.
pub(super) fn step(facts: &[PathFacts]) -> StepView {
    let peers: Vec<String> = facts.iter().map(|it| it.peer.to_string()).collect();
    let step = StepView::new("mtu", format!("whether full packets reach {}", peers.join(", ")));
    if facts.is_empty() {
        return StepView::new("mtu", "whether full packets arrive").ok("no packet leaves this machine");
    }
    let lost = facts.iter().filter(|it| it.result.as_ref().is_ok_and(PathMtu::is_black_hole));
    let lost: Vec<&PathFacts> = lost.collect();
    if let Some(PathFacts { size, peer, .. }) = lost.first() {
        let whose = |it: &&PathFacts| if it.is_client { "the client" } else { "endpoint" };
        let towards: Vec<String> = lost.iter().map(|it| format!("{} {}", whose(it), it.peer)).collect();
        let found = format!(
            "packets of {size} bytes to {} are lost without a report, small ones arrive",
            towards.join(" and to ")
        );
        // Jumbo frames: the other end may be a plain one, whose segments are never that long.
        let judged = if *size > ETHERNET { StepView::doubtful } else { StepView::stopped };
        return judged(
            step,
            found,
            format!(
                "the path has a smaller MTU than this node's link: let routers send ICMP \"too big\" (fragmentation needed), or lower the MTU of the route (ip route change ... mtu ...) to {peer}"
            ),
        );
    }
    let small = facts.iter().find_map(|it| match it.result.as_ref().ok()?.large {
        Echo::TooBig { mtu, by } => {
            Some(format!("{by} reports an MTU of {mtu} towards {}, which TCP follows", it.peer))
        }
        _ => None,
    });
    let answered = |it: &&PathFacts| matches!(it.result, Ok(PathMtu { large: Echo::Answered { .. }, .. }));
    let unseen = facts.iter().find_map(|it| it.result.as_ref().err());
    match (small, facts.iter().filter(answered).count(), unseen) {
        (Some(small), ..) => step.ok(small),
        (None, 0, Some(unseen)) => step.unseen(unseen.to_string()),
        (None, 0, None) => step.unseen("none of them answers echo requests (ping)"),
        (None, answered, _) => step.ok(format!("{answered} of {} answer full packets", facts.len())),
    }
}
