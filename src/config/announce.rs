//! Section `announce`: whether and how gateways announce addresses of pools themselves.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use sheave_announce::{LARGEST_WEIGHT, OnConflict, TieBreaker};

use super::section::Section;
use super::values::{self, ValueError};

/// Default UDP port: not registered with IANA, and close to the admin and report ports.
const PORT: u16 = 9846;
/// Default heartbeat interval. A gateway among fifty then sends and receives a thousand datagrams a second.
const INTERVAL: Duration = Duration::from_millis(100);
/// Default of `failAfter`: three lost heartbeats, and half an interval of delay.
const FAIL_AFTER: Duration = Duration::from_millis(350);
/// Default of `holdDown`: long compared with a restart, so that addresses do not move back and forth.
const HOLD_DOWN: Duration = Duration::from_secs(5);
/// Default of `repeat`. Switches forget addresses after 300 s by default (IEEE 802.1Q, 8.8.3), many clients after 60 s.
const REPEAT: Duration = Duration::from_secs(60);
/// Minimum heartbeat interval. With a shorter one, scheduling delays on a busy machine look like dead gateways.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);
/// Minimum number of lost heartbeats before a gateway counts as dead.
const LOST: u32 = 3;
/// Default of `bgp.drain`: enough for the change to pass from router to router, which takes milliseconds each.
const BGP_DRAIN: Duration = Duration::from_secs(3);
/// Default interface, which FRR's configuration in deploy/examples/bgp-frr names.
const BGP_INTERFACE: &str = "sheave0";
/// Length limit of the name, since `-gshut` is appended and interface names have at most 15 bytes.
const LONGEST_BGP_INTERFACE: usize = 9;
/// How many times as long round trips make it by default.
const LONGER: u32 = 4;
/// Maximum of `failAfter`; clients give up sooner.
const LONGEST_FAIL_AFTER: Duration = Duration::from_secs(60);

/// Announcement of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Announce {
    /// Whether addresses are announced, and by which protocol.
    pub(crate) mode: AnnounceMode,
    /// Interfaces to use for addresses whose pool names none; empty = all with a subnet that contains the address.
    pub(crate) interfaces: Vec<String>,
    /// Relative share of addresses that this gateway owns.
    pub(crate) weight: u8,
    /// Interval of repeated announcements to neighbours; zero = never.
    pub(crate) repeat: Duration,
    /// Reaction to another machine that uses an address.
    pub(crate) on_conflict: OnConflict,
    /// Heartbeats between gateways.
    pub(crate) heartbeat: Heartbeat,
    /// How long a gateway owns no address after it starts or comes back.
    pub(crate) hold_down: Duration,
    /// Address whose answer lets a gateway go on without a majority of the gateways.
    pub(crate) tie_breaker: TieBreaker,
    /// Interface to a routing daemon.
    pub(crate) bgp: Bgp,
}

/// Protocol of announcements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AnnounceMode {
    /// No announcements: other means bring packets to the gateways.
    None,
    /// BGP, by a routing daemon on the node.
    Bgp,
    /// ARP and neighbor discovery, in the subnets of the gateways.
    Layer2 {
        /// Folder with the keys that sign heartbeats.
        keys: PathBuf,
    },
}

/// Heartbeats between gateways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heartbeat {
    /// UDP port, the same on all gateways.
    pub(crate) port: u16,
    /// Interval of heartbeats.
    pub(crate) interval: Duration,
    /// Silence after which a gateway counts as dead.
    pub(crate) fail_after: Duration,
    /// The longest silence that long round trips make of it.
    pub(crate) fail_after_max: Duration,
}

/// Interface to a routing daemon on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bgp {
    /// Interface whose addresses the daemon announces.
    pub(crate) interface: String,
    /// How long a stopping gateway announces its addresses as shutting down.
    pub(crate) drain: Duration,
}

/// Reads the section, which may also be just the mode.
pub(super) fn read(root: &mut Section<'_>) -> Announce {
    const KEY: &str = "announce";
    if root.given(KEY).is_some_and(Value::is_string) {
        let mode = root.get(KEY, Mode::None, mode);
        if mode == Mode::Layer2 {
            root.report(KEY, ValueError::from("needs announce.heartbeat.keys").hint(KEYS_HINT));
        }
        let announce = read_section(&mut Section::root(&Value::Null, &mut Vec::new()));
        // The other keys are not read in this form.
        return if mode == Mode::Bgp { Announce { mode: AnnounceMode::Bgp, ..announce } } else { announce };
    }
    root.nested(KEY, read_section)
}

/// Value of `mode`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    None,
    Layer2,
    Bgp,
}

const KEYS_HINT: &str = "write announce: {mode: l2, heartbeat: {keys: FOLDER}}; the folder has one file with a key, the same for all \
                         gateways, for example made by `head -c 32 /dev/urandom | base64`";

fn read_section(section: &mut Section<'_>) -> Announce {
    let mode = section.get("mode", Mode::None, mode);
    let conflicts = [("defend", OnConflict::Defend), ("withdraw", OnConflict::Withdraw)];
    let interfaces = section.list("interfaces", values::interface);
    let weight = section.get("weight", 1, values::between(1, LARGEST_WEIGHT));
    let repeat = section.get("repeat", REPEAT, values::delay);
    let on_conflict = section.get("onConflict", OnConflict::Defend, values::one_of(&conflicts));
    let (mut heartbeat, keys, most) = section.nested("heartbeat", read_heartbeat);
    let least = most.unwrap_or_default().max(heartbeat.fail_after);
    let hold_down = section.get("holdDown", HOLD_DOWN.max(least), values::delay);
    let longer = (heartbeat.fail_after * LONGER).min(LONGEST_FAIL_AFTER).min(hold_down);
    heartbeat.fail_after_max = most.unwrap_or(longer).max(heartbeat.fail_after);
    let tie_breaker = section.get("tieBreaker", TieBreaker::Router, tie_breaker);
    let bgp = section.nested("bgp", |section| Bgp {
        interface: section.get("interface", BGP_INTERFACE.to_owned(), bgp_interface),
        drain: section.get("drain", BGP_DRAIN, values::delay),
    });
    if hold_down < least {
        let key = if least > heartbeat.fail_after { "failAfterMax" } else { "failAfter" };
        let short = ValueError::from(format!("{hold_down:?} is shorter than heartbeat.{key}"));
        section.report("holdDown", short.hint(format!("write {least:?} or longer")));
    }
    let mode = match (mode, keys) {
        (Mode::None, _) => AnnounceMode::None,
        (Mode::Bgp, _) => AnnounceMode::Bgp,
        (Mode::Layer2, Some(keys)) => AnnounceMode::Layer2 { keys },
        (Mode::Layer2, None) => {
            let missing = ValueError::from("is missing, and gateways believe signed heartbeats alone");
            section.report("heartbeat.keys", missing.hint(KEYS_HINT));
            AnnounceMode::None
        }
    };
    Announce { mode, interfaces, weight, repeat, on_conflict, heartbeat, hold_down, tie_breaker, bgp }
}

/// The section, the folder of keys, and `failAfterMax` if it is given.
fn read_heartbeat(section: &mut Section<'_>) -> (Heartbeat, Option<PathBuf>, Option<Duration>) {
    let interval = section.get("interval", INTERVAL, |value| {
        let interval = values::timeout(value)?;
        if interval < SHORTEST_INTERVAL {
            return Err(ValueError::expected("10ms or longer", value));
        }
        Ok(interval)
    });
    let least = interval * LOST;
    let fail_after = section.get("failAfter", FAIL_AFTER.max(least), values::timeout);
    if !(least..=LONGEST_FAIL_AFTER).contains(&fail_after) {
        let wrong = ValueError::from(format!("{fail_after:?} is not between {LOST} intervals and a minute"));
        section.report("failAfter", wrong.hint(format!("write {least:?} or longer")));
    }
    let most = section.get("failAfterMax", None, values::optional(values::timeout));
    if let Some(most) = most.filter(|most| !(fail_after..=LONGEST_FAIL_AFTER).contains(most)) {
        let wrong = ValueError::from(format!("{most:?} is not between failAfter and a minute"));
        section.report("failAfterMax", wrong.hint(format!("write {fail_after:?} or longer")));
    }
    let port = section.get("port", PORT, values::between(1, u16::MAX));
    let keys = section.get("keys", None, values::optional(values::path));
    (Heartbeat { port, interval, fail_after, fail_after_max: fail_after }, keys, most)
}

fn mode(value: &Value) -> Result<Mode, ValueError> {
    values::one_of(&[("none", Mode::None), ("l2", Mode::Layer2), ("bgp", Mode::Bgp)])(value)
}

fn bgp_interface(value: &Value) -> Result<String, ValueError> {
    let name = values::interface(value)?;
    if name.len() > LONGEST_BGP_INTERFACE {
        return Err(ValueError::expected("an interface name of 9 letters or fewer", value));
    }
    Ok(name)
}

fn tie_breaker(value: &Value) -> Result<TieBreaker, ValueError> {
    match value.as_str() {
        Some("none") => Ok(TieBreaker::None),
        Some("router") => Ok(TieBreaker::Router),
        Some(text) if let Ok(ip) = text.parse() => Ok(TieBreaker::Address(ip)),
        _ => Err(ValueError::expected("router, none, or an IP address", value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::read as config;

    fn mistakes(text: &str) -> String {
        config(text).unwrap_err().join("\n")
    }

    #[test]
    fn the_mode_alone_is_the_section_in_short() {
        let none = config("").unwrap().announce;
        assert_eq!(none.mode, AnnounceMode::None);
        for same in ["announce: none", "announce: {mode: none}", "announce: {}"] {
            assert_eq!(config(same).unwrap().announce, none, "{same}");
        }
        let bgp = config("announce: bgp").unwrap().announce;
        assert_eq!(bgp, Announce { mode: AnnounceMode::Bgp, ..none.clone() });
        assert_eq!(config("announce: {mode: bgp}").unwrap().announce, bgp);
        let text = mistakes("announce: l2");
        assert!(text.contains("announce: needs announce.heartbeat.keys"), "{text}");
        let text = mistakes("announce: l3");
        assert!(text.contains("one of none, l2, bgp") && text.contains("did you mean l2?"), "{text}");
    }

    #[test]
    fn every_key_of_the_section_is_read() {
        let text = "announce: {mode: l2, interfaces: [eth1, bond0.7], weight: 3, repeat: 0s, onConflict: withdraw, holdDown: 1m, \
                    tieBreaker: '2001:db8::1', heartbeat: {port: 7, interval: 50ms, failAfter: 200ms, failAfterMax: 1s, keys: /keys}, \
                    bgp: {interface: vips, drain: 10s}}";
        let expected = Announce {
            mode: AnnounceMode::Layer2 { keys: "/keys".into() },
            interfaces: vec!["eth1".to_owned(), "bond0.7".to_owned()],
            weight: 3,
            repeat: Duration::ZERO,
            on_conflict: OnConflict::Withdraw,
            heartbeat: Heartbeat {
                port: 7,
                interval: Duration::from_millis(50),
                fail_after: Duration::from_millis(200),
                fail_after_max: Duration::from_secs(1),
            },
            hold_down: Duration::from_secs(60),
            tie_breaker: TieBreaker::Address("2001:db8::1".parse().unwrap()),
            bgp: Bgp { interface: "vips".to_owned(), drain: Duration::from_secs(10) },
        };
        assert_eq!(config(text).unwrap().announce, expected);
        assert_eq!(
            config("announce: {heartbeat: {interval: 3s}}").unwrap().announce.hold_down,
            Duration::from_secs(9),
            "what is not given follows what is"
        );
        let most = |text: &str| config(text).unwrap().announce.heartbeat.fail_after_max;
        assert_eq!(most(""), Duration::from_millis(1_400));
        assert_eq!(
            most("announce: {heartbeat: {failAfter: 3s}}"),
            Duration::from_secs(5),
            "as long as holdDown"
        );
    }

    #[test]
    fn times_that_do_not_go_together_are_mistakes() {
        let cases = [
            ("{mode: l2}", "announce.heartbeat.keys: is missing"),
            ("{heartbeat: {interval: 1ms}}", "announce.heartbeat.interval"),
            (
                "{heartbeat: {failAfter: 299ms}}",
                "announce.heartbeat.failAfter: 299ms is not between 3 intervals",
            ),
            ("{heartbeat: {interval: 1s, failAfter: 2s}}", "write 3s or longer"),
            (
                "{heartbeat: {failAfterMax: 300ms}}",
                "announce.heartbeat.failAfterMax: 300ms is not between failAfter",
            ),
            (
                "{holdDown: 1s, heartbeat: {failAfterMax: 2s}}",
                "announce.holdDown: 1s is shorter than heartbeat.failAfterMax",
            ),
            ("{holdDown: 100ms}", "announce.holdDown: 100ms is shorter than heartbeat.failAfter"),
            (
                "{tieBreaker: gateway}",
                "announce.tieBreaker: \"gateway\" is not router, none, or an IP address",
            ),
            ("{keys: /keys}", "announce.keys: unknown key"),
            (
                "{mode: bgp, bgp: {interface: tenletters}}",
                "announce.bgp.interface: \"tenletters\" is not an interface name of 9",
            ),
        ];
        for (section, expected) in cases {
            let text = mistakes(&format!("announce: {section}"));
            assert!(text.contains(expected), "{section}: {text}");
        }
    }
}
