//! Steps of the machine's kernel: packet filters of others, connection tracking, and what carries the connection.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use sheave_model::ClientSource;
use sheave_trace::conntrack::TableUse;
use sheave_trace::packet_filter::{BaseChain, Hook, TableFamily};
use sheave_trace::route::{Interface, RouteKind};
use sheave_trace::{Errno, Missing, Unseen, conntrack, packet_filter, route};

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
/// What rules of a chain accept is not seen. Where clients have been served, they accept.
pub(super) fn filters(facts: &MachineFacts, by_kernel: bool, has_served: bool) -> StepView {
    let step = StepView::new("filters", "nftables rules of other programs before the gateway");
    let chains = match &facts.chains {
        Ok(chains) => chains,
        Err(unseen) => return step.unseen(unseen.to_string()),
    };
    let in_the_way = |chain: &&BaseChain| match chain.hook {
        Hook::Ingress | Hook::Prerouting => true,
        Hook::Input => !by_kernel,
        Hook::Forward => by_kernel,
        Hook::Output | Hook::Postrouting | Hook::Egress => false,
    };
    let of_packets = |chain: &&BaseChain| !matches!(chain.family, TableFamily::Arp | TableFamily::Bridge);
    let way: Vec<&BaseChain> = chains.iter().filter(of_packets).filter(in_the_way).collect();
    let dropping: Vec<String> =
        way.iter().filter(|chain| chain.drops_by_policy).map(|chain| name(chain)).collect();
    let legacy = if facts.legacy.is_empty() {
        String::new()
    } else {
        "; the older iptables has tables, too, whose rules are not seen here".to_owned()
    };
    if dropping.is_empty() {
        let drops: u64 = way.iter().map(|chain| chain.drops.rules).sum();
        return step.ok(format!(
            "{} chains of others see the packet, none drops by its policy; their tables have {drops} rules that drop or reject{legacy}",
            way.len()
        ));
    }
    if has_served {
        return step.ok(format!(
            "{} drops what no rule accepts, and clients have been served{legacy}",
            dropping.join(" and ")
        ));
    }
    step.doubtful(
        format!("packets that no rule accepts are dropped by {}{legacy}", dropping.join(" and ")),
        "see whether a rule there accepts packets for the frontend (nft list ruleset); if none does, add one",
    )
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
    format!("the policy of {} {} (hook {hook}{dropped})", chain.table, chain.chain)
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
