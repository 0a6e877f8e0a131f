//! The rules of a table, chain by chain. Each chain in the syntax of nft(8) stands above its function, for IPv4.

use sheave_model::Protocol;

use crate::expressions::{ACK, FIN, INVALID, Member, NEW, RST, Record, Rule, SYN};
use crate::forwarding::Method;
use crate::ruleset::{Chain, Chooser, Family};

const PROTOCOLS: [Protocol; 2] = [Protocol::Tcp, Protocol::Udp];

/// A chain that is always there.
pub(crate) struct FixedChain {
    pub(crate) name: &'static str,
    /// Type, hook (linux/netfilter.h) and priority; `None`: other chains name it.
    pub(crate) hook: Option<(&'static str, u32, i32)>,
}

/// NF_INET_PRE_ROUTING, NF_INET_LOCAL_IN, NF_INET_FORWARD, NF_INET_LOCAL_OUT and NF_INET_POST_ROUTING.
const PRE_ROUTING: u32 = 0;
const LOCAL_IN: u32 = 1;
const FORWARDED: u32 = 2;
const LOCAL_OUT: u32 = 3;
const POST_ROUTING: u32 = 4;
/// Before connection tracking (-200), behind defragmentation (-400).
const BEFORE_TRACKING: i32 = -300;
/// Before other destination NAT (-100), so that ours wins for our addresses.
const BEFORE_NAT: i32 = -110;
/// Before source NAT (100): the client is not masqueraded yet.
const BEFORE_MASQUERADE: i32 = 90;
const BEFORE_FILTERS: i32 = -10;

/// Chain of the rules that [`forward`] gives.
pub(crate) const FORWARD: &str = "forward";
/// How long a failure of an endpoint is to be seen, in seconds.
const FAILURE_LASTS: u32 = 3;

/// The chains that are always there.
pub(crate) const FIXED: [FixedChain; 14] = [
    FixedChain { name: "urgent_reset", hook: None },
    FixedChain { name: "services", hook: None },
    FixedChain { name: "from_own", hook: None },
    FixedChain { name: "after", hook: None },
    FixedChain { name: "refuse", hook: None },
    FixedChain { name: "discard", hook: None },
    FixedChain { name: "untracked", hook: Some(("filter", PRE_ROUTING, BEFORE_TRACKING)) },
    FixedChain { name: "untracked_sent", hook: Some(("filter", LOCAL_OUT, BEFORE_TRACKING)) },
    FixedChain { name: "prerouting", hook: Some(("nat", PRE_ROUTING, BEFORE_NAT)) },
    FixedChain { name: "output", hook: Some(("nat", LOCAL_OUT, BEFORE_NAT)) },
    FixedChain { name: "input", hook: Some(("nat", LOCAL_IN, BEFORE_MASQUERADE)) },
    FixedChain { name: "postrouting", hook: Some(("nat", POST_ROUTING, BEFORE_MASQUERADE)) },
    FixedChain { name: FORWARD, hook: Some(("filter", FORWARDED, BEFORE_FILTERS)) },
    FixedChain { name: "sent", hook: Some(("filter", LOCAL_OUT, BEFORE_FILTERS)) },
];

/// The rules of a fixed chain.
pub(crate) fn fixed(family: Family, chain: &str, liberal: bool) -> Vec<Rule> {
    let rule = || Rule::new(family);
    match chain {
        "untracked" | "untracked_sent" => vec![rule().like_an_urgent_reset().jump("urgent_reset")],
        "urgent_reset" => urgent_reset(family).into(),
        "prerouting" => vec![rule().destination().is(Member::Of, "address").jump("services")],
        "output" => {
            ["from_own", "services"].map(|to| rule().destination().is(Member::Of, "address").jump(to)).into()
        }
        "from_own" => from_own(family),
        "input" => vec![after_translation(family)],
        "postrouting" => postrouting(family),
        "services" => services(family),
        "after" => after(family),
        "refuse" => vec![
            // The stack itself refuses what the machine sends to itself; `reject` does not reach the sender there.
            rule().local_destination().leaves_by_loopback().accept(),
            rule().protocol(Protocol::Tcp).reset(),
            rule().port_unreachable(),
        ],
        "discard" => vec![rule().drop()],
        FORWARD => {
            let mut rules = vec![rule().assured().accept()];
            if !liberal {
                rules.extend(forward(family));
            }
            rules.push(silent(family));
            rules.extend(failures(family));
            rules
        }
        "sent" => [rule().assured().accept()].into_iter().chain(failures(family)).collect(),
        _ => Vec::new(),
    }
}

/// ```text
/// meta l4proto tcp ip daddr @address tcp flags set rst | ack
/// meta l4proto tcp ip saddr . meta l4proto . th sport @endpoint_port tcp flags set rst | ack
/// ```
/// A reset that is sent while urgent data is on the way carries the urgent flag (`__tcp_transmit_skb`). Connection tracking rejects that
/// combination (`tcp_valid_flags` in net/netfilter/nf_conntrack_proto_tcp.c), so the reset would not be translated, and resets are not sent again.
fn urgent_reset(family: Family) -> [Rule; 2] {
    let reset = || Rule::new(family).protocol(Protocol::Tcp);
    [
        reset().destination().is(Member::Of, "address").set_reset(),
        reset().replying_endpoint().is(Member::Of, "endpoint_port").set_reset(),
    ]
}

/// ```text
/// ct status dnat ct original ip daddr @address jump after
/// ```
fn after_translation(family: Family) -> Rule {
    Rule::new(family).translated().original_address().is(Member::Of, "address").jump("after")
}

/// ```text
/// ct status dnat ct original ip daddr @address jump after
/// ct status dnat meta l4proto tcp ct original ip daddr . meta l4proto . ct original proto-dst @masqueraded masquerade    # and udp
/// ct status dnat ip saddr @internal meta l4proto tcp ct original ... @masqueraded_internal masquerade    # and udp
/// ct status dnat ct original ip daddr @address ip saddr @address masquerade
/// ct status dnat ct original ip daddr @address iifname . oifname @hairpin masquerade
/// ```
/// A client with a frontend's address is the machine itself, and answers to that address may go to another gateway.
fn postrouting(family: Family) -> Vec<Rule> {
    let masqueraded = |protocol| {
        let rule = Rule::new(family).translated().protocol(protocol).original_frontend();
        rule.is(Member::Of, "masqueraded").masquerade()
    };
    let internal = |protocol| {
        let rule = Rule::new(family).translated().client().is(Member::Of, "internal").protocol(protocol);
        rule.original_frontend().is(Member::Of, "masqueraded_internal").masquerade()
    };
    let hairpin = Rule::new(family).translated().original_address().is(Member::Of, "address");
    let mut rules = vec![after_translation(family)];
    rules.extend(PROTOCOLS.map(masqueraded));
    rules.extend(PROTOCOLS.map(internal));
    let own = Rule::new(family).translated().original_address().is(Member::Of, "address");
    rules.push(own.client().is(Member::Of, "address").masquerade());
    rules.push(hairpin.interfaces().turns_around().masquerade());
    rules
}

/// ```text
/// ip daddr . meta l4proto . th dport @ranged ip daddr . meta l4proto . th dport . ip saddr != @admitted drop
/// ip saddr @address ip daddr . meta l4proto . th dport vmap @service_internal
/// ```
/// The machine takes the frontend's own address for its connections to it, and is inside the cluster.
fn from_own(family: Family) -> Vec<Rule> {
    let client = Rule::new(family).client().is(Member::Of, "address");
    vec![admits(family), client.frontend().verdict_of("service_internal")]
}

fn admits(family: Family) -> Rule {
    let ranged = Rule::new(family).frontend().is(Member::Of, "ranged");
    ranged.frontend_and_client().is(Member::NotOf, "admitted").drop()
}

/// ```text
/// ip daddr . meta l4proto . th dport @ranged ip daddr . meta l4proto . th dport . ip saddr != @admitted drop
/// ip saddr @internal ip daddr . meta l4proto . th dport vmap @service_internal
/// ip daddr . meta l4proto . th dport vmap @service
/// ip daddr @machine accept
/// icmp type echo-request redirect
/// meta l4proto tcp goto refuse    # and udp
/// ```
fn services(family: Family) -> Vec<Rule> {
    let rule = || Rule::new(family);
    let mut rules = vec![
        admits(family),
        rule().client().is(Member::Of, "internal").frontend().verdict_of("service_internal"),
        rule().frontend().verdict_of("service"),
        rule().destination().is(Member::Of, "machine").accept(),
        // The machine answers for addresses that are not its own, too.
        rule().ping().redirect(),
    ];
    rules.extend(PROTOCOLS.map(|protocol| rule().protocol(protocol).goto("refuse")));
    rules
}

/// ```text
/// meta l4proto tcp ct original ip daddr . meta l4proto . ct original proto-dst vmap @learn    # and udp
/// meta l4proto tcp ct original ip daddr . ... . ct reply ip saddr . ct reply proto-src @endpoint    # and udp; counts
/// ```
fn after(family: Family) -> Vec<Rule> {
    let frontend = |protocol| Rule::new(family).protocol(protocol).original_frontend();
    let learn = PROTOCOLS.map(|protocol| frontend(protocol).verdict_of("learn"));
    let count = PROTOCOLS.map(|protocol| frontend(protocol).chosen_endpoint().is(Member::Of, "endpoint"));
    learn.into_iter().chain(count).collect()
}

/// ```text
/// ct status assured accept    # comes before these: what each packet meets should be short
/// ct state invalid ip saddr . meta l4proto . th sport @endpoint_port drop
/// ct state new tcp flags & (syn | ack) != syn ip saddr . meta l4proto . th sport @endpoint_port drop
/// ```
/// Segments below the window, and those of a server whose connection the kernel does not know, would reach the client with the
/// endpoint's address. Where `nf_conntrack_tcp_be_liberal` is set there are none of the former.
fn forward(family: Family) -> Vec<Rule> {
    let rule = || Rule::new(family);
    vec![
        rule().state(INVALID).replying_endpoint().is(Member::Of, "endpoint_port").drop(),
        rule().state(NEW).no_syn(SYN | ACK).replying_endpoint().is(Member::Of, "endpoint_port").drop(),
    ]
}

/// ```text
/// tcp flags syn / fin,syn,rst,ack ct status & (seen-reply | confirmed | dnat) == confirmed | dnat
///     ct original ip daddr . ... @masqueraded update @failed { ... timeout 3s }
/// ```
/// A client sends its SYN again after a second, or at once to feign a failure. An endpoint that sees clients may refuse the gateway, which is
/// asked next, whether it serves or not.
fn silent(family: Family) -> Rule {
    noted(Rule::new(family).syn().unanswered().original_frontend().is(Member::Of, "masqueraded"))
}

/// ```text
/// tcp flags rst,ack / fin,syn,rst,ack tcp sequence 0 ct direction reply ct status dnat update @failed { ... timeout 3s }
/// icmp type destination-unreachable icmp code != frag-needed ct protocol tcp ct status dnat
///     ct original ip daddr . ... @masqueraded update @failed { ... timeout 3s }
/// ```
/// What an endpoint of the machine itself sends is not forwarded, nor what the machine says of one that it cannot reach.
fn failures(family: Family) -> [Rule; 2] {
    let rule = || Rule::new(family);
    [
        noted(rule().refusal().translated().original_frontend()),
        noted(
            rule()
                .unreachable()
                .related_to_tcp()
                .translated()
                .related_frontend()
                .is(Member::Of, "masqueraded"),
        ),
    ]
}

/// ```text
/// ct original ip daddr @address update @failed { ct original ip daddr . meta l4proto . ct original proto-dst . ct reply ip saddr . ... }
/// ```
fn noted(rule: Rule) -> Rule {
    rule.is(Member::Of, "address").chosen_endpoint().note_failed(FAILURE_LASTS)
}

/// Name of a chain: `random_3`, `hash_251_at_251_sticky_guarded`, `learn_10800s`.
pub(crate) fn name(chain: Chain) -> String {
    match chain {
        Chain::Choose(Chooser { method, slots, offset, sticky, guarded }) => {
            let method = match method {
                Method::Random => "random",
                Method::Hash => "hash",
            };
            let offset = if offset == 0 { String::new() } else { format!("_at_{offset}") };
            let sticky = if sticky { "_sticky" } else { "" };
            format!("{method}_{slots}{offset}{sticky}{}", if guarded { "_guarded" } else { "" })
        }
        Chain::Learn(seconds) => format!("learn_{seconds}s"),
    }
}

/// The chain of a name; `None`: it is a fixed chain, or none of ours.
pub(crate) fn named(name: &str) -> Option<Chain> {
    if let Some(seconds) = name.strip_prefix("learn_") {
        return Some(Chain::Learn(seconds.strip_suffix('s')?.parse().ok()?));
    }
    let (method, rest) = name.split_once('_')?;
    let method = match method {
        "random" => Method::Random,
        "hash" => Method::Hash,
        _ => return None,
    };
    let (rest, guarded) = rest.strip_suffix("_guarded").map_or((rest, false), |rest| (rest, true));
    let (rest, sticky) = rest.strip_suffix("_sticky").map_or((rest, false), |rest| (rest, true));
    let (slots, offset) = rest.split_once("_at_").unwrap_or((rest, "0"));
    let (slots, offset) = (slots.parse().ok()?, offset.parse().ok()?);
    Some(Chain::Choose(Chooser { method, slots, offset, sticky, guarded }))
}

/// The rules of a chain whose number of users varies.
pub(crate) fn varying(family: Family, chain: Chain) -> Vec<Rule> {
    match chain {
        Chain::Choose(chooser) => choose(family, chooser),
        Chain::Learn(seconds) => learn(family, seconds),
    }
}

/// ```text
/// tcp flags != syn / fin,syn,rst,ack accept    # of a hash only where guarded
/// dnat ip to ip saddr . ip daddr . meta l4proto . th dport map @affinity    # where sticky
/// dnat ip to ip daddr . meta l4proto . th dport . numgen random mod N map @slot
/// dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 1 map @slot
/// drop
/// ```
/// The last slot but one: a packet may find its chain before a change of the table, and its slot after that.
fn choose(family: Family, Chooser { method, slots, offset, sticky, guarded }: Chooser) -> Vec<Rule> {
    let rule = || Rule::new(family);
    let mut rules = Vec::new();
    if guarded || method == Method::Random {
        // A connection that goes on without being tracked stays with the proxy's socket. Otherwise a hash finds the endpoint to which
        // another gateway, or this one before it forgot, has sent it.
        rules.push(rule().no_syn(FIN | SYN | RST | ACK).accept());
    }
    if sticky {
        rules.push(rule().client_and_frontend().translate_to_recorded());
    }
    rules.push(match method {
        Method::Random => rule().frontend().random_slot(slots, offset).translate_to_slot(),
        Method::Hash => rule().frontend().hashed_slot(slots, offset).translate_to_slot(),
    });
    rules.push(rule().frontend().random_slot(1, offset).translate_to_slot());
    rules.push(rule().drop());
    rules
}

/// ```text
/// meta l4proto tcp ct original ip daddr . ... . ct reply proto-src != @endpoint delete @affinity { ... } drop    # and udp
/// ip saddr @internal meta l4proto tcp ct original ip daddr . ... @external_only delete @affinity { ... } drop    # and udp
/// iif 0 ip saddr @address meta l4proto tcp ct original ip daddr . ... @external_only delete @affinity { ... } drop    # and udp
/// ip saddr != @internal ip saddr != @address meta l4proto tcp ct ... @internal_only delete @affinity { ... } drop    # and udp
/// meta l4proto tcp update @affinity { ip saddr . ct original ip daddr . ... timeout Ts : ct reply ip saddr . ct reply proto-src }    # and udp
/// ```
/// A record to an endpoint that left, or that clients of this class do not get, ends here, and the client's next packet chooses anew.
fn learn(family: Family, seconds: u32) -> Vec<Rule> {
    let record = |rule: Rule, record| rule.client_and_original_frontend().chosen_endpoint().record(record);
    let rule = || Rule::new(family);
    // The classes are those of `services` and `from_own`.
    let classes = [
        (rule(), Member::NotOf, "endpoint"),
        (rule().client().is(Member::Of, "internal"), Member::Of, "external_only"),
        (rule().comes_from_machine().client().is(Member::Of, "address"), Member::Of, "external_only"),
        (
            rule().client().is(Member::NotOf, "internal").client().is(Member::NotOf, "address"),
            Member::Of,
            "internal_only",
        ),
    ];
    let forget = |(client, member, set): (Rule, Member, &str), protocol| {
        let rule = client.protocol(protocol).original_frontend().chosen_endpoint();
        record(rule.is(member, set), Record::Delete).drop()
    };
    let update = |protocol| record(rule().protocol(protocol), Record::Update { seconds });
    let forgotten =
        classes.into_iter().flat_map(|class| PROTOCOLS.map(|protocol| forget(class.clone(), protocol)));
    forgotten.chain(PROTOCOLS.map(update)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chain_is_found_by_its_name() {
        for method in [Method::Random, Method::Hash] {
            for (offset, sticky, guarded) in
                [(0, false, true), (0, true, false), (7, false, false), (7, true, true)]
            {
                let chain = Chain::Choose(Chooser { method, slots: 251, offset, sticky, guarded });
                assert_eq!(named(&name(chain)), Some(chain));
            }
        }
        assert_eq!(named(&name(Chain::Learn(10_800))), Some(Chain::Learn(10_800)));
        assert!(FIXED.iter().all(|chain| named(chain.name).is_none()));
    }
}
