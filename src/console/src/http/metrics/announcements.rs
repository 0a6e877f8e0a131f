//! Series of announced addresses.

use sheave_announce::{AddressStatus, GatewayState, Here, Status};

use super::exposition::Exposition;
use super::families as names;

/// Writes the state and the counters of the announcer.
pub(super) fn write(text: &mut Exposition, status: &Status) {
    text.family(&names::ANNOUNCE_GATEWAYS)
        .add(&[("state", "heard_by")], status.heard_by as u64)
        .add(&[("state", "counted")], status.counted as u64)
        .add(&[("state", "disagreeing")], status.disagreements().count() as u64);
    let eligible = matches!(status.state, GatewayState::Eligible | GatewayState::Minority);
    text.family(&names::ANNOUNCE_ELIGIBLE).add(&[], u64::from(eligible));
    text.family(&names::ANNOUNCE_TIE_UNDECIDED).add(&[], status.tie_undecided.into());
    text.family(&names::ANNOUNCE_ABSENT).add(&[], status.absent.len() as u64);
    text.family(&names::ANNOUNCE_FAIL_AFTER).add_fraction("", status.fail_after.as_secs_f64());
    let mut samples = text.family(&names::ANNOUNCE_ADDRESSES);
    for state in STATES {
        let count = status.addresses.values().filter(|address| state_of(address) == state).count();
        samples.add(&[("state", state)], count as u64);
    }
    let counts = status.counts;
    text.family(&names::ANNOUNCE_HEARTBEATS)
        .add(&[("event", "sent")], counts.heartbeats_sent)
        .add(&[("event", "received")], counts.heartbeats_received)
        .add(&[("event", "refused")], counts.heartbeats_refused);
    text.family(&names::ANNOUNCE_MOVES)
        .add(&[("event", "gained")], counts.gained)
        .add(&[("event", "lost")], counts.lost);
    text.family(&names::ANNOUNCE_FENCED).add(&[], counts.fenced);
    text.family(&names::ANNOUNCE_CONFLICTS).add(&[], counts.conflicts);
}

const STATES: [&str; 5] = ["announced", "waiting", "failed", "conflict", "other"];

fn state_of(address: &AddressStatus) -> &'static str {
    match address.here {
        Here::Announced { .. } => "announced",
        Here::Waiting { .. } => "waiting",
        Here::Failed { .. } => "failed",
        Here::Conflict { .. } => "conflict",
        Here::Nothing => "other",
    }
}
