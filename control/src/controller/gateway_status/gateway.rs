//! Status of a Gateway.

use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

use super::condition_list::{ConditionList, is_own, more_urgent};
use super::listeners::ListenerList;
use super::{apply, merge};
use crate::api::condition::DesiredCondition;
use crate::api::gateway_api::{Gateway, GatewayAddress, GatewayStatus, MOST_ADDRESSES};
use crate::api::names::{ANNOUNCED, FROM_GATEWAY_NODES, PORTS_PUBLISHED};
use crate::api::published_ports;
use crate::api::store::{Objects, ServiceKey};
use crate::controller::conditions;
use crate::controller::desired_status::{Announcement, DesiredStatus};
use crate::controller::status_writer::next_step::{Urgency, WriteStep};
use crate::projection::Published;
use crate::projection::gateway_api::conditions::{GatewayConditions, ListenerConditions, PROGRAMMED};

/// The desired status of a Gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredGateway {
    /// Generation that it was computed from.
    pub(super) generation: Option<i64>,
    /// Standard conditions, then our own.
    conditions: Vec<DesiredCondition>,
    addresses: Vec<GatewayAddress>,
    listeners: Vec<ListenerConditions>,
    /// Number of attached ListenerSets; `None` for none, which older definitions of the kind have no field for.
    attached_sets: Option<i32>,
    announcement: Announcement,
}

/// The addresses for which the status has room: the lowest of each family, of which neither takes more than half of the room from the other.
fn within_room(addresses: &[IpAddr]) -> impl Iterator<Item = IpAddr> {
    let of = |is_v4: bool| addresses.iter().copied().filter(move |ip| ip.is_ipv4() == is_v4);
    let v6 = of(false).count().min(MOST_ADDRESSES - of(true).count().min(MOST_ADDRESSES / 2));
    of(true).take(MOST_ADDRESSES - v6).chain(of(false).take(v6))
}

impl DesiredGateway {
    /// The desired status of a Gateway that this installation implements. `live` has what is known of its frontends.
    pub fn new(gateway: &Gateway, standard: GatewayConditions, live: &DesiredStatus) -> Self {
        let GatewayConditions { gateway: mut all, addresses, listeners, attached_sets, sets: _ } = standard;
        let programmed = all.iter().find(|it| it.kind == PROGRAMMED).cloned();
        if let Some(programmed) = programmed {
            all.extend(conditions::gateway_conditions(live, &programmed, serves_any(&listeners)));
        }
        let addresses = within_room(&addresses).map(GatewayAddress::of);
        Self {
            generation: gateway.metadata.generation,
            conditions: all,
            addresses: addresses.collect(),
            listeners,
            attached_sets: i32::try_from(attached_sets).ok().filter(|count| *count > 0),
            announcement: live.announcement.clone(),
        }
    }

    /// Whether the Gateway has published the same addresses, and these ports or more. Gateway nodes serve at their own addresses where a
    /// condition says so, published or not.
    pub fn is_published(&self, key: &ServiceKey, objects: &Objects) -> bool {
        let Some((_, published)) = Published::of(key, objects) else { return false };
        let status = objects.gateway_api.gateways.get(key).and_then(|gateway| gateway.status.as_ref());
        let desired = |kind| self.conditions.iter().find(|condition| condition.kind == kind);
        let is_of_nodes = |origin: &DesiredCondition| {
            let stands = |status: &GatewayStatus| origin.is_meant_by(&status.conditions, None);
            !origin.holds || status.is_some_and(stands)
        };
        let ports = desired(PORTS_PUBLISHED).map(|condition| published_ports::read(&condition.message));
        status.map(|status| status.addresses.as_slice()).unwrap_or_default() == self.addresses
            && desired(FROM_GATEWAY_NODES).is_none_or(is_of_nodes)
            && ports.unwrap_or_default().into_iter().all(|addr| published.has(addr))
    }

    fn conditions<'a>(&'a self, status: &'a GatewayStatus) -> ConditionList<'a> {
        ConditionList { before: &status.conditions, desired: &self.conditions, generation: self.generation }
    }

    fn listeners<'a>(&'a self, status: &'a GatewayStatus) -> ListenerList<'a> {
        ListenerList { before: &status.listeners, desired: &self.listeners, generation: self.generation }
    }

    /// Whether a condition in the status has one of our names and is not desired any more.
    fn is_outlived(&self, condition: &Condition) -> bool {
        let is_kept = condition.type_ == ANNOUNCED && self.announcement == Announcement::Unknown;
        is_own(&condition.type_) && !is_kept && !self.conditions.iter().any(|it| it.kind == condition.type_)
    }

    fn status(&self, before: &GatewayStatus, now: Timestamp) -> Value {
        let mut conditions = self.conditions(before).written(now);
        conditions.extend(self.announcement.kept(&before.conditions).cloned());
        let mut status = json!({
            "addresses": self.addresses,
            "conditions": conditions,
            "listeners": self.listeners(before).written(now),
        });
        if let Some(attached) = self.attached_sets {
            status["attachedListenerSets"] = json!(attached);
        }
        status
    }
}

/// Whether gateway nodes serve any listener.
fn serves_any(listeners: &[ListenerConditions]) -> bool {
    let is_programmed =
        |it: &ListenerConditions| it.conditions.iter().any(|it| it.kind == PROGRAMMED && it.holds);
    listeners.iter().any(is_programmed)
}

/// Whether the status reports that gateway nodes serve the Gateway.
pub(in crate::controller) fn is_programmed(gateway: &Gateway) -> bool {
    gateway.is_marked() && gateway.condition(PROGRAMMED).is_some_and(|it| it.status == "True")
}

/// Whether the status reports that gateway nodes serve a listener of the Gateway itself, as they may if some address cannot be used.
pub(in crate::controller) fn is_served(gateway: &Gateway) -> bool {
    let mut listeners = gateway.status.iter().flat_map(|status| &status.listeners);
    gateway.is_marked() && listeners.any(|listener| listener.holds(PROGRAMMED))
}

/// The next write. A Gateway that is being deleted is released like one that is not ours any more: with a finalizer of others it may stay
/// for long, and nothing serves it.
pub(super) fn next_step(
    gateway: &Gateway,
    desired: Option<&DesiredGateway>,
    cleared: bool,
    now: Timestamp,
) -> WriteStep {
    let metadata = &gateway.metadata;
    let Some(desired) = desired.filter(|_| metadata.deletion_timestamp.is_none()) else {
        if cleared || !gateway.is_marked() {
            return WriteStep::Nothing;
        }
        return WriteStep::ClearStatus(apply::<Gateway>(metadata, &json!({})));
    };
    let nothing = GatewayStatus::default();
    let before = gateway.status.as_ref().unwrap_or(&nothing);
    let (conditions, listeners) = (desired.conditions(before), desired.listeners(before));
    if !conditions.stands() || !listeners.stands() || !has_fields(before, desired) {
        return WriteStep::ApplyStatus(apply::<Gateway>(metadata, &desired.status(before, now)));
    }
    // What our own apply left out is gone already; the rest is what other managers wrote, too.
    let mut rest = json!({});
    if before.conditions.iter().any(|it| desired.is_outlived(it)) {
        let kept: Vec<_> = before.conditions.iter().filter(|it| !desired.is_outlived(it)).collect();
        rest["conditions"] = json!(kept);
    }
    if listeners.has_outlived() {
        rest["listeners"] = json!(listeners.without_outlived());
    }
    if rest.as_object().is_some_and(|rest| !rest.is_empty()) {
        return WriteStep::RemoveRest(merge(metadata, &rest));
    }
    WriteStep::Nothing
}

fn has_fields(before: &GatewayStatus, desired: &DesiredGateway) -> bool {
    before.addresses == desired.addresses
        && before.attached_listener_sets.filter(|count| *count > 0) == desired.attached_sets
}

/// When a status is due that differs from the object's.
pub(super) fn urgency(gateway: &Gateway, desired: &DesiredGateway) -> Urgency {
    let nothing = GatewayStatus::default();
    let before = gateway.status.as_ref().unwrap_or(&nothing);
    if before.addresses != desired.addresses {
        return Urgency::Now;
    }
    let fields = if has_fields(before, desired) { Urgency::Settled } else { Urgency::Status };
    let (conditions, listeners) = (desired.conditions(before), desired.listeners(before));
    let conditions = if conditions.stands() { Urgency::Settled } else { conditions.urgency() };
    more_urgent(fields, more_urgent(conditions, listeners.urgency()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_addresses_the_status_has_both_families() {
        let addresses = |v4: u8, v6: u16| -> Vec<IpAddr> {
            let of_v4 = (0..v4).map(|host| IpAddr::from([192, 0, 2, host]));
            of_v4.chain((0..v6).map(|host| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, host]))).collect()
        };
        for ((v4, v6), expected) in [
            ((20, 20), (8, 8)),
            ((20, 3), (13, 3)),
            ((3, 20), (3, 13)),
            ((20, 0), (16, 0)),
            ((0, 20), (0, 16)),
            ((2, 2), (2, 2)),
        ] {
            let within: Vec<IpAddr> = within_room(&addresses(v4, v6)).collect();
            assert_eq!(within, addresses(expected.0, expected.1), "{v4} and {v6}");
        }
    }
}
