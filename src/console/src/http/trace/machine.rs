//! Steps of the machine's kernel: packet filters of others, connection tracking, and what carries the connection.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use sheave_model::{ClientSource, FrontendAddr, Protocol};
use sheave_trace::conntrack::TableUse;
use sheave_trace::link::{self, Link};
use sheave_trace::packet_filter::{BaseChain, ChainVerdict, DroppedBy, FirstPacket, Hook, Way};
use sheave_trace::route::{Interface, RouteKind};
use sheave_trace::{Errno, Missing, Unseen, conntrack, packet_filter, route};

use super::arrival::ArrivalFacts;
use super::subject::Subject;
use crate::views::trace::StepView;

const PATIENCE: Duration = Duration::from_secs(1);
/// ENOENT (errno(3)).
const NO_SUCH_FILE: i32 = 2;
/// Limit of endpoints whose link is looked up.
const PROBED: usize = 64;
/// Percentage of the connection tracking table from which on it is nearly full.
const NEARLY_FULL: u64 = 95;

/// What was seen of the kernel.
#[derive(Clone, Debug)]
pub(super) struct MachineFacts {
    pub(super) chains: Result<Vec<BaseChain>, Unseen>,
    pub(super) legacy: Vec<String>,
    pub(super) tracking: Result<TableUse, Unseen>,
    pub(super) forwards: Option<bool>,
    /// An endpoint whose answers may go straight to the client, and the link of both.
    pub(super) straight: Option<(SocketAddr, Interface)>,
}

/// Looks at the kernel for packets of the frontend's family that arrive on this interface (`all`: it is not known which).
pub(super) fn look(subject: &Subject, frontend: IpAddr, interface: &str) -> MachineFacts {
    MachineFacts {
        chains: packet_filter::base_chains(frontend, PATIENCE),
        legacy: packet_filter::legacy_tables(frontend).unwrap_or_default(),
        tracking: conntrack::table_use(),
        forwards: route::forwards(frontend, interface).ok(),
        straight: answering_straight(subject),
    }
}

/// An endpoint that sees the client's own address, and is on a link with the client. That is no case for the kernel path, which masquerades
/// what leaves by the link that it came from, nor if the endpoint is the client: the gateway never shows it its own address.
fn answering_straight(subject: &Subject) -> Option<(SocketAddr, Interface)> {
    if subject.by_kernel || subject.client_source() != ClientSource::Transparent {
        return None;
    }
    let link = |ip: IpAddr| {
        let route = route::output(None, ip).ok()?;
        let is_neighbour = route.kind == RouteKind::Unicast && route.gateway.is_none();
        route.interface.filter(|_| is_neighbour)
    };
    let client = subject.client_ip()?;
    let of_client = link(client)?;
    let mut others = subject.endpoints.iter().take(PROBED).filter(|it| it.ip() != client);
    let found = others.find(|it| link(it.ip()).is_some_and(|link| link.index == of_client.index))?;
    Some((*found, of_client))
}

/// Chains of others in the packet's way: to this machine, or through it if the kernel carries the connection.
///
/// Where clients have been served, rules that cannot be decided accept.
pub(super) fn filters(facts: &MachineFacts, seen: &Seen, addr: FrontendAddr, is_served: bool) -> StepView {
    let step = StepView::new("filters", "nftables rules of other programs before the gateway");
    let chains = match &facts.chains {
        Ok(chains) => chains,
        Err(unseen) => return step.unseen(unseen.to_string()),
    };
    let way: Vec<(&BaseChain, &ChainVerdict)> = chains
        .iter()
        .zip(&seen.verdicts)
        .filter_map(|(chain, verdict)| Some((chain, verdict.as_ref()?)))
        .collect();
    let drops = way.iter().find_map(|(chain, verdict)| match verdict {
        ChainVerdict::Drops(by) => Some((chain, by)),
        _ => None,
    });
    if let Some((chain, by)) = drops {
        return dropped(step, chain, by, addr, &seen.packet);
    }
    let legacy = if facts.legacy.is_empty() {
        String::new()
    } else {
        "; the older iptables has tables, too, whose rules are not seen here".to_owned()
    };
    let undecided = way.iter().filter_map(|(chain, verdict)| match verdict {
        ChainVerdict::Unknown { rules } => Some((chain, rules)),
        _ => None,
    });
    let undecided: Vec<String> = undecided.map(|(chain, rules)| uncertain(chain, *rules)).collect();
    if way.is_empty() {
        return step.ok(format!("no chain of others sees {}{legacy}", seen.packet));
    }
    let seeing = match way.len() {
        1 => format!("one chain of others sees {}", seen.packet),
        chains => format!("{chains} chains of others see {}", seen.packet),
    };
    match (undecided.is_empty(), is_served) {
        (true, _) => step.ok(format!("{seeing}, and none drops it{legacy}")),
        (false, true) => step.ok(format!(
            "{seeing}; {} may drop it, and connections come to the frontend{legacy}",
            undecided.join(" and ")
        )),
        (false, false) => step.doubtful(
            format!("{seeing}; {} may drop it{legacy}", undecided.join(" and ")),
            "run with --capture 10s: if packets come and none is answered, a rule there drops them (nft list ruleset)",
        ),
    }
}

/// A rule or a policy that drops the packet for certain.
fn dropped(step: StepView, chain: &BaseChain, by: &DroppedBy, addr: FrontendAddr, packet: &str) -> StepView {
    let table = format!("{} {}", chain.family, chain.table);
    match by.rule {
        Some(handle) => step.stopped(
            format!("a rule of table {table}, chain {} (handle {handle}), drops {packet}", by.chain),
            format!(
                "`nft -a list chain {table} {}` shows the rule: let the program that made it accept {addr}, or delete it (nft delete rule {table} {} handle {handle})",
                by.chain, by.chain
            ),
        ),
        None => step.stopped(
            format!("no rule accepts {packet}, so {} drops it", name(chain)),
            format!(
                "add a rule that accepts {addr} where the others are made (nft list chain {table} {})",
                by.chain
            ),
        ),
    }
}

fn uncertain(chain: &BaseChain, rules: usize) -> String {
    let name = format!("chain {} {} {}", chain.family, chain.table, chain.chain);
    match rules {
        0 => name,
        rules => format!("{name} ({rules} of its rules depend on what is not known here)"),
    }
}

fn name(chain: &BaseChain) -> String {
    let packets = chain.policy_packets.filter(|packets| *packets > 0);
    let dropped = packets.map(|packets| format!(", {packets} packets so far")).unwrap_or_default();
    let hook = match chain.hook {
        Hook::Ingress => "ingress",
        Hook::Prerouting => "prerouting",
        Hook::Input => "input",
        Hook::Forward => "forward",
        Hook::Output => "output",
        Hook::Postrouting => "postrouting",
        Hook::Egress => "egress",
    };
    format!("the policy of {} {} {} (hook {hook}{dropped})", chain.family, chain.table, chain.chain)
}

/// What chains of others do with the first packet of a connection.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// For each chain; `None` if it does not see the packet.
    verdicts: Vec<Option<ChainVerdict>>,
    /// The packet in words.
    packet: String,
}

/// Has the rules of others decide on the client's first packet.
pub(super) fn evaluate(
    facts: &MachineFacts,
    subject: &Subject,
    addr: FrontendAddr,
    arrival: Option<&ArrivalFacts>,
    links: &[Link],
) -> Seen {
    // What the packet arrives on is only known if there is one such link. Rules see a VRF in place of its links.
    let link = arrival.and_then(|facts| match facts.admissions.as_slice() {
        [(name, _)] => links.iter().find(|link| link.name == *name && link.controller.is_none()),
        _ => None,
    });
    let interface = link.map(|link| Interface { index: link.index, name: link.name.clone() });
    let client = subject.client_ip();
    let from = client.map(|ip| format!(" of {ip}")).unwrap_or_default();
    let on = link.map(|link| format!(" that arrives on {}", link.name)).unwrap_or_default();
    let what = if addr.protocol == Protocol::Tcp { "a SYN" } else { "a datagram" };
    let packet = format!("{what}{from} to {addr}{on}");
    let is_own = arrival.is_some_and(ArrivalFacts::is_own);
    let way = match (subject.by_kernel, subject.endpoints.as_slice()) {
        (false, _) => Way::ToThisMachine,
        // What this machine sends does not pass these chains.
        (true, _) if is_own => return Seen { verdicts: Vec::new(), packet },
        (true, [endpoint]) => Way::Through(Some(*endpoint)),
        (true, _) => Way::Through(None),
    };
    let first = FirstPacket {
        protocol: addr.protocol,
        client,
        client_port: subject.client.and_then(|client| client.port),
        frontend: addr.socket_addr(),
        interface,
    };
    let carriers: Vec<String> = link.map_or_else(Vec::new, |link| {
        link::carriers(links, link.index).iter().map(|link| link.name.clone()).collect()
    });
    let chains = facts.chains.as_deref().unwrap_or_default();
    Seen { verdicts: packet_filter::evaluate(chains, &first, way, &carriers, PATIENCE), packet }
}

/// Room in the connection tracking table, through which packets of tracked connections go.
pub(super) fn tracking(facts: &MachineFacts) -> StepView {
    let step = StepView::new("conntrack", "room in the kernel's connection tracking table");
    let TableUse { count, max, losses } = match &facts.tracking {
        Ok(of) => of,
        Err(Unseen { missing: Missing::File { error: Errno(NO_SUCH_FILE), .. }, .. }) => {
            return step.ok("the kernel tracks no connections here");
        }
        Err(unseen) => return step.unseen(unseen.to_string()),
    };
    let lost = losses.map(|losses| losses.drop + losses.early_drop).unwrap_or_default();
    let lost =
        if lost > 0 { format!("; {lost} packets or entries were dropped so far") } else { String::new() };
    let found = format!("{count} of {max} entries are used{lost}");
    let advice =
        "raise net.netfilter.nf_conntrack_max, or find out who opens so many connections (conntrack -L)";
    match count {
        // 0 is no limit.
        _ if *max == 0 => step.ok(found),
        count if count >= max => step.stopped(format!("the table is full: {found}"), advice),
        count if count * 100 >= max * NEARLY_FULL => {
            step.doubtful(format!("the table is nearly full: {found}"), advice)
        }
        _ => step.ok(found),
    }
}

/// Whether the kernel forwards, which the kernel path needs, and whether answers come back to the proxy.
pub(super) fn path(facts: &MachineFacts, frontend: IpAddr, by_kernel: bool) -> StepView {
    let step = StepView::new("path", "what carries the connection");
    let key = if frontend.is_ipv4() { "net.ipv4.ip_forward" } else { "net.ipv6.conf.all.forwarding" };
    if let Some((endpoint, link)) = &facts.straight {
        return step.doubtful(
            format!(
                "the gateway's proxy, from the client's own address: {endpoint} and the client are both on {}, so answers may go straight to the client, who sent nothing there",
                link.name
            ),
            "let these clients be seen with the gateway's address (sheave.dev/client-source: gateway), or let the endpoint's answers come back through this node",
        );
    }
    match (by_kernel, facts.forwards) {
        (false, _) => step.ok("the gateway's proxy"),
        (true, Some(false)) => step.stopped(
            format!("the kernel carries it, and {key} is 0: it drops every packet to an endpoint elsewhere"),
            format!("set {key} to 1"),
        ),
        (true, Some(true)) => step.ok("the kernel, by nftables"),
        (true, None) => step.unseen(format!("the kernel, by nftables; {key} cannot be read")),
    }
}
