//! View of one gateway on all gateways and the owners of addresses: `sheave gateways` and `/api/gateways`.

mod text;

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sheave_announce::{
    AddressStatus, ConflictAnswer, Disagreement, GatewayState, Here, MemberStatus, NoOwner, RankReason,
    Ranked, Standing, Status,
};
use sheave_control::projection::{AnnouncePolicies, AnnouncePolicy};

use crate::views::View;
use crate::views::status::AnnouncingView;

/// State of all gateways as one gateway knows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewaysView {
    /// Node of the gateway that answers.
    pub node: String,
    /// `eligible`, `holdDown`, `fenced` or `leaving`; empty if nothing is announced.
    pub state: String,
    /// Whether each gateway announces, by BGP, what it can serve, regardless of the others.
    #[serde(default)]
    pub shared: bool,
    /// Number of gateways that receive heartbeats from this one, including itself.
    pub heard_by: usize,
    /// Number of gateways that count for the majority.
    pub counted: usize,
    /// Address whose answer lets a gateway go on without a majority; null if there is one gateway.
    pub tie_breaker: Option<TieBreakerView>,
    /// The silence after which a gateway counts as dead here: what is configured, and room for long round trips.
    #[serde(default)]
    pub fail_after_milliseconds: u64,
    /// All gateways, by node.
    pub members: Vec<MemberView>,
    /// All addresses to announce, in order.
    pub addresses: Vec<AddressView>,
    /// Warnings, as sentences.
    pub warnings: Vec<String>,
}

/// What lets a gateway go on without a majority.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TieBreakerView {
    /// Address.
    pub address: String,
    /// Whether it answers pings.
    pub reachable: bool,
}

/// Gateway as seen by the one that answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberView {
    /// Name of the Node.
    pub node: String,
    /// Destination of its heartbeats; null for the gateway that answers.
    pub address: Option<String>,
    /// `candidate` for addresses, or the reason against: `notAlive`, `leaving`, `notEligible`, `stale`.
    pub state: String,
    /// Whether its heartbeats arrive here.
    pub heard: bool,
    /// Gateway that receives its heartbeats, if this one does not.
    pub heard_via: Option<String>,
    /// Time since its last heartbeat.
    pub silent_milliseconds: Option<u64>,
    /// Maximum time from a heartbeat to its answer.
    pub round_trip_milliseconds: Option<u64>,
    /// Whether it agrees with the gateway that answers about all owners.
    pub agrees: bool,
    /// About what it has disagreed for more than 10 s: who may own addresses (`candidates`), or which `addresses` there are and who can serve
    /// them; null if it has not.
    #[serde(default)]
    pub disagreement: Option<String>,
    /// Readiness according to the API server.
    pub ready: bool,
}

/// One address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressView {
    /// Address.
    pub address: String,
    /// Node of its owner; null if there is none.
    pub owner: Option<String>,
    /// State of the address at the gateway that answers: `announced`, `waiting`, `failed`, `conflict`; empty if it does not own
    /// the address.
    pub state: String,
    /// Interfaces on which it is announced.
    pub interfaces: Vec<String>,
    /// Reason for the state, if the address is not announced.
    pub message: Option<String>,
}

impl View for GatewaysView {}

impl GatewaysView {
    /// Builds the view from the announcer's status and the policies of the pools.
    pub fn new(status: &Status, policies: &AnnouncePolicies) -> Self {
        let tie_breaker = status
            .tie_breaker
            .map(|(address, reachable)| TieBreakerView { address: address.to_string(), reachable });
        let address = |(ip, address): (&IpAddr, &AddressStatus)| {
            let left_out_by = left_out_by(policies.of(*ip), status);
            AddressView::new(ip.to_string(), address, left_out_by)
        };
        Self {
            node: status.node.to_string(),
            state: state(status).to_owned(),
            shared: status.shared,
            heard_by: status.heard_by,
            counted: status.counted,
            tie_breaker,
            fail_after_milliseconds: milliseconds(status.fail_after),
            members: status.members.iter().map(MemberView::from).collect(),
            addresses: status.addresses.iter().map(address).collect(),
            warnings: status.warnings.clone(),
        }
    }
}

/// State of a gateway in JSON.
fn state(status: &Status) -> &'static str {
    match status.state {
        GatewayState::Eligible => "eligible",
        GatewayState::Minority => "minority",
        GatewayState::Fenced => "fenced",
        GatewayState::HoldDown => "holdDown",
        GatewayState::Leaving => "leaving",
    }
}

impl From<&Status> for AnnouncingView {
    fn from(status: &Status) -> Self {
        let here = |address: &&AddressStatus| matches!(address.here, Here::Announced { .. });
        Self {
            state: state(status).to_owned(),
            shared: status.shared,
            heard_by: status.heard_by,
            counted: status.counted,
            addresses: status.addresses.len(),
            announced: status.addresses.values().filter(here).count(),
            warnings: status.warnings.clone(),
        }
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl From<&MemberStatus> for MemberView {
    fn from(member: &MemberStatus) -> Self {
        let state = match member.standing {
            Standing::Candidate => "candidate",
            Standing::NotAlive => "notAlive",
            Standing::Leaving | Standing::Left => "leaving",
            Standing::NotEligible => "notEligible",
            Standing::Stale => "stale",
        };
        Self {
            node: member.node.to_string(),
            address: member.address.map(|address| address.to_string()),
            state: state.to_owned(),
            heard: member.heard,
            heard_via: member.heard_via.as_deref().map(str::to_owned),
            silent_milliseconds: member.silent_for.map(milliseconds),
            round_trip_milliseconds: member.round_trip.map(milliseconds),
            agrees: member.agrees,
            disagreement: member.disagreement.map(|about| match about {
                Disagreement::Candidates => "candidates".to_owned(),
                Disagreement::Addresses => "addresses".to_owned(),
            }),
            ready: member.ready,
        }
    }
}

impl AddressView {
    fn new(address: String, status: &AddressStatus, left_out_by: Option<&str>) -> Self {
        let (state, interfaces, message) = match &status.here {
            Here::Nothing if status.owner == Err(NoOwner::Shared) => {
                ("", Vec::new(), Some("withdrawn, since this gateway is about to end".to_owned()))
            }
            Here::Nothing => {
                ("", Vec::new(), status.owner.as_ref().err().map(|why| nobody(*why, left_out_by)))
            }
            Here::Waiting { nodes } => {
                ("waiting", Vec::new(), Some(format!("until {} has let go of it", nodes.join(", "))))
            }
            Here::Announced { interfaces } => {
                ("announced", interfaces.iter().map(ToString::to_string).collect(), None)
            }
            Here::Failed { error } => ("failed", Vec::new(), Some(error.clone())),
            Here::Conflict { mac, interface, answer } => {
                let done = match answer {
                    ConflictAnswer::Defended => "defended",
                    ConflictAnswer::Withdrawn => "given up",
                    ConflictAnswer::LeftToGateway => "left to it",
                    ConflictAnswer::NotAnnounced => "not taken",
                };
                ("conflict", Vec::new(), Some(format!("{mac} on {interface} uses it; {done}")))
            }
        };
        Self {
            address,
            owner: status.owner.as_deref().ok().map(str::to_owned),
            state: state.to_owned(),
            interfaces,
            message,
        }
    }
}

/// Pool whose node selector excludes every gateway that may own addresses, if there is one. With shared addresses: that excludes
/// this gateway.
pub(crate) fn left_out_by<'a>(policy: Option<&'a AnnouncePolicy>, status: &Status) -> Option<&'a str> {
    let candidates = status.members.iter().filter(|member| member.standing == Standing::Candidate);
    if status.shared {
        return policy.filter(|policy| !policy.selects(&status.node)).map(|policy| &*policy.pool);
    }
    policy.filter(|policy| candidates.clone().all(|it| !policy.selects(&it.node))).map(|policy| &*policy.pool)
}

/// Reason for a missing owner, as text.
pub(crate) fn nobody(why: NoOwner, left_out_by: Option<&str>) -> String {
    match (why, left_out_by) {
        (NoOwner::Unknown, _) => "not known: too few gateways hear this one".to_owned(),
        (NoOwner::NoCandidate, _) => "no gateway may own addresses".to_owned(),
        (NoOwner::CannotServe, Some(pool)) => {
            format!("the node selector of AddressPool {pool} leaves out every gateway that is alive")
        }
        (NoOwner::CannotServe, None) => {
            "no gateway that is alive has an endpoint that may serve it".to_owned()
        }
        (NoOwner::Shared, _) => "each gateway that can serve it announces it".to_owned(),
        (NoOwner::SharedElsewhere, Some(pool)) => {
            format!("the node selector of AddressPool {pool} leaves out this gateway")
        }
        (NoOwner::SharedElsewhere, None) => "this gateway has no endpoint for it".to_owned(),
    }
}

/// Reason why a gateway owns an address or does not, as text.
pub(crate) fn rank(Ranked { node, reason }: &Ranked, policy: Option<&AnnouncePolicy>) -> String {
    let why = match reason {
        RankReason::Owner => "owns it",
        RankReason::CannotServe => match policy.filter(|policy| !policy.selects(node)) {
            Some(policy) => {
                return format!("{node} is left out by the node selector of AddressPool {}", policy.pool);
            }
            None => "has no endpoint for it",
        },
        RankReason::OutOfReach => "has no interface in its network",
        RankReason::OverShare => "has its share of addresses",
        RankReason::LowerRank => "ranks lower for it",
        RankReason::NotCandidate(Standing::Leaving | Standing::Left) => "is about to end",
        RankReason::NotCandidate(Standing::NotEligible) => "has not been heard for long enough",
        RankReason::NotCandidate(Standing::Stale) => "does not reach the API server",
        RankReason::NotCandidate(Standing::NotAlive | Standing::Candidate) => "is not alive",
    };
    format!("{node} {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(node: &str, state: &str) -> MemberView {
        MemberView { node: node.to_owned(), state: state.to_owned(), ready: true, ..MemberView::default() }
    }

    pub(super) fn address(address: &str, owner: Option<&str>) -> AddressView {
        let owner = owner.map(str::to_owned);
        AddressView { address: address.to_owned(), owner, ..AddressView::default() }
    }

    pub(super) fn view() -> GatewaysView {
        let heard = MemberView {
            address: Some("192.0.2.2".to_owned()),
            heard: true,
            silent_milliseconds: Some(40),
            agrees: true,
            ..member("gw-2", "candidate")
        };
        let via = MemberView { heard_via: Some("gw-2".to_owned()), ..member("gw-3", "notEligible") };
        let announced = AddressView {
            state: "announced".to_owned(),
            interfaces: vec!["eth0".to_owned(), "eth1".to_owned()],
            ..address("203.0.113.10", Some("gw-1"))
        };
        let conflict = AddressView {
            state: "conflict".to_owned(),
            message: Some("00:00:5e:00:53:01 on eth0 uses it; defended".to_owned()),
            ..address("203.0.113.11", Some("gw-1"))
        };
        let nobodys = AddressView {
            message: Some(nobody(NoOwner::CannotServe, None)),
            ..address("203.0.113.13", None)
        };
        let left_out = AddressView {
            message: Some(nobody(NoOwner::CannotServe, Some("edge"))),
            ..address("203.0.113.14", None)
        };
        GatewaysView {
            node: "gw-1".to_owned(),
            state: "eligible".to_owned(),
            shared: false,
            heard_by: 3,
            counted: 4,
            tie_breaker: Some(TieBreakerView { address: "192.0.2.254".to_owned(), reachable: true }),
            fail_after_milliseconds: 350,
            members: vec![
                MemberView { agrees: true, ..member("gw-1", "candidate") },
                heard,
                via,
                member("gw-4", "notAlive"),
                MemberView { disagreement: Some("addresses".to_owned()), ..member("gw-5", "candidate") },
            ],
            addresses: vec![announced, conflict, address("203.0.113.12", Some("gw-2")), nobodys, left_out],
            warnings: vec!["net.ipv4.conf.all.arp_ignore is 8".to_owned()],
        }
    }

    #[test]
    fn the_keys_are_those_of_the_contract() {
        let json: serde_json::Value = serde_json::from_str(&view().to_json()).unwrap();
        let keys = |value: &serde_json::Value| {
            value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            keys(&json),
            "addresses counted failAfterMilliseconds heardBy members node shared state tieBreaker warnings"
        );
        assert_eq!(
            keys(&json["members"][0]),
            "address agrees disagreement heard heardVia node ready roundTripMilliseconds silentMilliseconds state"
        );
        assert_eq!(keys(&json["addresses"][0]), "address interfaces message owner state");
        assert_eq!(serde_json::from_str::<GatewaysView>(&view().to_json()).unwrap(), view());
    }
}
