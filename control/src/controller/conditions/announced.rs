//! The condition that shows which gateways announce an object's addresses.

use super::{LISTED, listed};
use crate::api::condition::DesiredCondition;
use crate::api::names::ANNOUNCED;
use crate::controller::desired_status::Announcement;
use crate::text::first_few;

/// Reason of `sheave.dev/Announced` when it is true.
const BY_ONE: &str = "Announced";
/// Reason of `sheave.dev/Announced`: no gateway announces an address.
const BY_NONE: &str = "NotAnnounced";
/// Reason of `sheave.dev/Announced`: several gateways announce the same address.
const BY_SEVERAL: &str = "AnnouncedTwice";

/// How many gateways that announce the same address a message names.
const NAMED: usize = 3;
/// Advice at the end of a message.
const ADVICE: &str = "See `sheave gateways` on a gateway node.";

/// The condition, unless announcements are not needed or not known.
pub(super) fn announced_condition(announcement: &Announcement) -> Option<DesiredCondition> {
    Some(match announcement {
        Announcement::NotNeeded | Announcement::Unknown => return None,
        Announcement::ByOne(nodes) => {
            let nodes = nodes.iter().map(|(ip, node)| format!("{ip} on {node}"));
            let message = format!("Gateways announce {}.", first_few(nodes, ", ", LISTED));
            DesiredCondition::yes(ANNOUNCED, BY_ONE, message)
        }
        Announcement::ByNone(addresses) => {
            let message = format!("No gateway announces {}. {ADVICE}", listed(addresses));
            DesiredCondition::no(ANNOUNCED, BY_NONE, message)
        }
        Announcement::BySeveral(nodes) => {
            let nodes =
                nodes.iter().map(|(ip, nodes)| format!("{ip} by {}", first_few(nodes, " and ", NAMED)));
            let nodes = first_few(nodes, ", ", LISTED);
            let message = format!("More than one gateway announces the same address: {nodes}. {ADVICE}");
            DesiredCondition::no(ANNOUNCED, BY_SEVERAL, message)
        }
    })
}
