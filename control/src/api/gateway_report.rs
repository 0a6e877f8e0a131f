//! Report of a gateway to the controller: its health, what it could not do, and which addresses it announces. Gateways have no
//! permission to write to the API, so the controller polls each of them over HTTP, at the port that their headless Service names
//! `report`.
//!
//! Gateways and controllers of different versions meet in every rollout, so fields are only ever added to a report. The reader
//! ignores unknown fields, uses defaults for missing ones, and drops a trouble that it cannot parse or whose reason it does not
//! know. A change that older controllers would misread gets another path, where older gateways answer 404. A gateway whose report
//! cannot be parsed counts as one that does not answer.

use std::net::IpAddr;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::api::karmada::lenient;
use crate::api::problem::reason;
use crate::text::one_line;

/// Path of the report.
pub const PATH: &str = "/api/report";
/// Path of the gateway's status. The clients that the listener's configuration names may get it, and so may clients that may get
/// [`PATH`].
pub const STATUS_PATH: &str = "/api/status";
/// Path of the gateway's explanations, for the same clients as [`STATUS_PATH`].
pub const EXPLAIN_PATH: &str = "/api/explain";
/// Path of the gateway's traces, with captures below it, for clients that may get both [`PATH`] and this.
pub const TRACE_PATH: &str = "/api/trace";
/// Path of the gateway's last capture, for the same clients as [`TRACE_PATH`].
pub const CAPTURE_PATH: &str = "/api/capture.pcap";
/// Audience of the tokens for [`PATH`]: an impostor that receives one cannot use it anywhere else.
pub const AUDIENCE: &str = "gateways.sheave.dev";
/// Header of the controller's request for [`PATH`]: the kinds that it reads (`KindHints`). Older gateways do not know it.
pub const KINDS_HEADER: &str = "sheave-kinds";
/// Name of the port in the gateways' Service.
pub const PORT_NAME: &str = "report";

/// Largest number of troubles in a report. Beyond it, most troubles have the same cause.
const MOST_TROUBLES: usize = 1000;
/// Largest number of announced addresses: as many as one gateway announces for all Services of a large cluster.
const MOST_ADDRESSES: usize = 10_000;
/// Largest length of a text in bytes: two sentences, or a Node's name.
const LONGEST_TEXT: usize = 256;

/// State of one gateway, as it reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayReport {
    /// Name of the Node that it runs on.
    pub node: String,
    /// Generation of the current routing table.
    pub generation: u64,
    /// Whether it is about to stop accepting connections, so that it should get no new clients.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draining: bool,
    /// Requests that it could not fulfil, sorted.
    #[serde(default, deserialize_with = "lenient::list")]
    pub troubles: Vec<Trouble>,
    /// Addresses that it announces now, sorted; `None` if it never announces any itself.
    #[serde(default, deserialize_with = "addresses", skip_serializing_if = "Option::is_none")]
    pub announced: Option<Vec<IpAddr>>,
    /// Whether other gateways may announce the same addresses at the same time because routers spread connections over them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    /// Whether it reads Gateways, so that it serves new ones; `None` from gateways that do not say. One that was there before their
    /// definitions looks for these once the controller has found them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway_api: Option<bool>,
}

impl GatewayReport {
    /// Parses a gateway's answer and limits its size.
    ///
    /// # Errors
    /// A JSON error if `answer` is not a report.
    pub fn read(answer: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice::<Self>(answer).map(Self::bounded)
    }

    /// Truncates the report to the limits: a server on that port is trusted only this far.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        tidy(&mut self.node);
        self.troubles.retain(Trouble::has_names);
        self.troubles.truncate(MOST_TROUBLES);
        self.troubles.iter_mut().for_each(|trouble| tidy(&mut trouble.message));
        if let Some(addresses) = &mut self.announced {
            addresses.sort_unstable();
            addresses.dedup();
            addresses.truncate(MOST_ADDRESSES);
        }
        self
    }
}

/// Drops the addresses that cannot be parsed. A value that is not a list comes from a later version and becomes the default, like
/// an unknown field.
fn addresses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<IpAddr>>, D::Error> {
    let items: Option<Vec<Value>> =
        serde_json::from_value(Value::deserialize(deserializer)?).unwrap_or_default();
    Ok(items.map(|items| items.into_iter().filter_map(|item| serde_json::from_value(item).ok()).collect()))
}

/// Reduces a text to one line within the limit, because it ends up in conditions, Events and the log.
fn tidy(text: &mut String) {
    one_line(text, LONGEST_TEXT);
}

/// The reason with this name, if gateways may report it. With any other reason a gateway could speak for the controller.
pub(crate) fn known_reason(name: &str) -> Option<&'static str> {
    let known = [
        reason::BIND_FAILED,
        reason::ANNOUNCE_FAILED,
        reason::ADDRESS_CONFLICT,
        reason::CLIENT_SOURCE_LOST,
        reason::KERNEL_PATH_UNAVAILABLE,
        reason::CONNECTION_TRACKING_FULL,
        reason::LOCAL_PORTS_TAKEN,
        reason::FAILED_TO_START_SERVICE_HEALTHCHECK,
    ];
    known.into_iter().find(|known| *known == name)
}

/// Something that a gateway could not do for one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trouble {
    /// Kind of the affected object: `Service`, `MultiClusterService`.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// One of [`crate::api::problem::reason`].
    pub reason: String,
    /// One sentence for the user.
    pub message: String,
    /// The frontend, if only one is affected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frontend: Option<TroubledFrontend>,
}

impl Trouble {
    /// Whether its names are no longer than object names can be.
    fn has_names(&self) -> bool {
        let protocol = self.frontend.as_ref().map_or("", |frontend| &frontend.protocol);
        let names = [&self.kind, &self.namespace, &self.name, &self.reason].map(String::as_str);
        names.iter().chain([&protocol]).all(|name| name.len() <= LONGEST_TEXT)
    }
}

/// The frontend that a gateway could not open.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TroubledFrontend {
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// `TCP` or `UDP`.
    pub protocol: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trouble(message: &str) -> Trouble {
        Trouble {
            kind: "Service".to_owned(),
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            reason: reason::BIND_FAILED.to_owned(),
            message: message.to_owned(),
            frontend: None,
        }
    }

    #[test]
    fn a_report_has_its_limits() {
        let troubles = vec![trouble(&"\u{e4}".repeat(200)); MOST_TROUBLES + 1];
        let report = GatewayReport { troubles, ..GatewayReport::default() }.bounded();
        assert_eq!(report.troubles.len(), MOST_TROUBLES);
        // Of the 256 bytes 253 are left before the dots, and each letter has two.
        assert_eq!(report.troubles[0].message, "\u{e4}".repeat(126) + "...");
        let as_long_as_may_be = "x".repeat(LONGEST_TEXT);
        let report = GatewayReport { troubles: vec![trouble(&as_long_as_may_be)], ..report }.bounded();
        assert_eq!(report.troubles[0].message, as_long_as_may_be);
    }

    #[test]
    fn whoever_answers_in_the_place_of_a_gateway_writes_no_lines_of_its_own() {
        let long = "x".repeat(LONGEST_TEXT + 1);
        let named = |change: fn(&mut Trouble, String)| {
            let mut trouble = trouble("m");
            change(&mut trouble, long.clone());
            trouble
        };
        let frontend = |trouble: &mut Trouble, protocol: String| {
            trouble.frontend = Some(TroubledFrontend { address: [192, 0, 2, 1].into(), port: 1, protocol });
        };
        let troubles = vec![
            named(|it, long| it.kind = long),
            named(|it, long| it.namespace = long),
            named(|it, long| it.name = long),
            named(|it, long| it.reason = long),
            named(frontend),
            trouble("cannot listen\n2026-01-01 ERROR \u{1b}[31mall is lost"),
        ];
        let report =
            GatewayReport { node: "gw\r\n1".to_owned(), troubles, ..GatewayReport::default() }.bounded();
        assert_eq!(report.node, "gw  1");
        let messages: Vec<&str> = report.troubles.iter().map(|it| it.message.as_str()).collect();
        assert_eq!(messages, ["cannot listen 2026-01-01 ERROR  [31mall is lost"]);
    }

    /// A report in the first format that gateways used. Later versions must parse it the same way.
    const RECORDED: &str = r#"{"node":"gw-1","generation":7,"troubles":[{"kind":"MultiClusterService","namespace":"shop","name":"web","reason":"ClientAddressLost","message":"cannot speak from others"},{"kind":"Service","namespace":"shop","name":"web","reason":"BindFailed","message":"cannot listen","frontend":{"address":"2001:db8::1","port":80,"protocol":"TCP"}}]}"#;

    fn recorded() -> GatewayReport {
        let lost = Trouble {
            kind: "MultiClusterService".to_owned(),
            reason: reason::CLIENT_SOURCE_LOST.to_owned(),
            ..trouble("cannot speak from others")
        };
        let frontend = TroubledFrontend {
            address: "2001:db8::1".parse().unwrap(),
            port: 80,
            protocol: "TCP".to_owned(),
        };
        let closed = Trouble { frontend: Some(frontend), ..trouble("cannot listen") };
        GatewayReport {
            node: "gw-1".to_owned(),
            generation: 7,
            troubles: vec![lost, closed],
            ..GatewayReport::default()
        }
    }

    #[test]
    fn a_recorded_report_is_read_and_would_be_written_the_same() {
        assert_eq!(GatewayReport::read(RECORDED.as_bytes()).unwrap(), recorded());
        assert_eq!(serde_json::to_string(&recorded()).unwrap(), RECORDED);
    }

    #[test]
    fn an_older_gateway_and_a_newer_one_are_understood_as_far_as_may_be() {
        let read = |text: &str| GatewayReport::read(text.as_bytes()).unwrap();
        let quiet = GatewayReport { troubles: Vec::new(), ..recorded() };
        assert_eq!(read(r#"{"node":"gw-1","generation":7}"#), quiet);
        assert_eq!(
            read(r#"{"node":"gw-1","generation":7,"troubles":{"by":"Service"},"since":"now"}"#),
            quiet
        );
        let mut newer: serde_json::Value = serde_json::from_str(RECORDED).unwrap();
        newer["memory"] = 7.into();
        let troubles = newer["troubles"].as_array_mut().unwrap();
        troubles[1]["frontend"]["interface"] = "eth0".into();
        troubles[0]["severity"] = "high".into();
        let unknown = serde_json::json!({"kind": "Service", "namespace": "shop", "names": ["web", "api"]});
        let elsewhere = serde_json::json!({
            "kind": "Service", "namespace": "shop", "name": "web", "reason": "BindFailed", "message": "",
            "frontend": {"path": "/run/web.sock"},
        });
        troubles.extend([unknown, elsewhere, 7.into()]);
        assert_eq!(read(&newer.to_string()), recorded());
    }

    #[test]
    fn a_gateway_that_drains_says_so_and_others_do_not() {
        let text = r#"{"node":"gw-1","generation":7,"draining":true,"troubles":[]}"#;
        let report = GatewayReport { draining: true, troubles: Vec::new(), ..recorded() };
        assert_eq!(GatewayReport::read(text.as_bytes()).unwrap(), report);
        assert_eq!(serde_json::to_string(&report).unwrap(), text);
        assert!(!recorded().draining);
    }

    #[test]
    fn a_gateway_that_announces_nothing_now_is_not_one_that_never_does() {
        let announcing = |addresses: &[&str]| GatewayReport {
            announced: Some(addresses.iter().map(|it| it.parse().unwrap()).collect()),
            ..GatewayReport::read(br#"{"node":"gw-1","generation":7}"#).unwrap()
        };
        for (addresses, text) in [
            (&[][..], r#"{"node":"gw-1","generation":7,"troubles":[],"announced":[]}"#),
            (
                &["203.0.113.10", "2001:db8::1"],
                r#"{"node":"gw-1","generation":7,"troubles":[],"announced":["203.0.113.10","2001:db8::1"]}"#,
            ),
        ] {
            assert_eq!(GatewayReport::read(text.as_bytes()).unwrap(), announcing(addresses));
            assert_eq!(serde_json::to_string(&announcing(addresses)).unwrap(), text);
        }
    }

    #[test]
    fn a_gateway_says_whether_others_may_announce_the_same() {
        let text = r#"{"node":"gw-1","generation":7,"troubles":[],"announced":[],"shared":true}"#;
        let report = GatewayReport::read(text.as_bytes()).unwrap();
        assert!(report.shared && !recorded().shared);
        assert_eq!(serde_json::to_string(&report).unwrap(), text);
    }

    #[test]
    fn announced_addresses_are_read_as_far_as_may_be() {
        let read = |announced: &str| {
            let text = format!(r#"{{"node":"gw-1","generation":7,"announced":{announced}}}"#);
            GatewayReport::read(text.as_bytes()).unwrap().announced
        };
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let mixed = r#"["2001:db8::1", 7, "gw-1", "203.0.113.10", {"ip": "203.0.113.11"}, "2001:db8::1"]"#;
        assert_eq!(read(mixed), Some(vec![ip("203.0.113.10"), ip("2001:db8::1")]), "sorted, each once");
        for other in ["null", "true", r#""203.0.113.10""#, r#"{"l2": ["203.0.113.10"]}"#] {
            assert_eq!(read(other), None, "{other}");
        }
        let addresses =
            (0..=u32::try_from(MOST_ADDRESSES).unwrap()).map(|it| std::net::Ipv4Addr::from(it).into());
        let many = GatewayReport { announced: Some(addresses.collect()), ..GatewayReport::default() };
        assert_eq!(many.bounded().announced.map(|it| it.len()), Some(MOST_ADDRESSES));
    }

    #[test]
    fn gateways_have_few_reasons() {
        assert_eq!(known_reason("BindFailed"), Some(reason::BIND_FAILED));
        assert_eq!(known_reason(reason::NOT_SERVED), None);
        assert_eq!(known_reason("x"), None);
    }
}
