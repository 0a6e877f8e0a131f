//! Announcing: which gateway answers for an address, and how its network learns of it.
//!
//! Gateways send each other heartbeats (`heartbeat`, `keys`), agree by them on who is alive (`membership`), and compute
//! from that alone who owns which address (`ownership`). The owner announces it in its subnets (`layer2`). Or every gateway that can
//! serve an address announces it to routers (`bgp`). A thread of its own does all that (`announcer`). Nothing is written to the API
//! server for it. `README.md` beside this crate describes both.
#![forbid(unsafe_code)]

mod ability;
mod announcer;
mod async_socket;
mod bgp;
mod disagreement;
mod hash;
mod heartbeat;
mod keys;
mod layer2;
mod membership;
mod network;
mod ownership;
mod status;
mod tie_breaker;

pub use ability::{Ability, InterfaceId, LARGEST_WEIGHT, Reach, ReachedSubnet};
pub use announcer::{Announcer, AnnouncerEvent, Options, StartError};
pub use bgp::{BgpInterface, BgpInterfaces, BgpOptions};
pub use disagreement::Disagreement;
pub use heartbeat::{Applied, NodeState};
pub use keys::{KeyError, KeyRing};
pub use layer2::frame;
pub use layer2::{
    AnnounceError, Announced, ConflictAnswer, Layer2, Layer2Event, Layer2Options, MacAddress, OnConflict,
    SettingWarning,
};
pub use membership::{
    Actions, Candidate, Continuation, Datagram, HoldDown, Knowledge, Listing, Membership, MembershipCounters,
    MembershipOptions, OptionsError, PeerReport, Precedence, Presence, Quorum, ReceiveOutcome, Standing,
    Start, View,
};
pub use network::Network;
pub use ownership::{Assignment, Handover, HandoverSteps, NoOwner, RankReason, Ranked, assign, explain};
pub use sheave_model::{Claim, Member, Nodes};
pub use status::{AddressStatus, Counts, GatewayState, Here, MemberStatus, Status};
pub use tie_breaker::TieBreaker;
