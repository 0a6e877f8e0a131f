//! Answers about one Service as text, for which the gateway is asked when a key is pressed.

use std::fmt::Write as _;

use serde::de::DeserializeOwned;
use sheave_control::api::gateway_report::{EXPLAIN_PATH, TRACE_PATH};
use sheave_control::api::store::ServiceKey;
use sheave_control::projection::explain::ExplainView;

use super::messages::LiveService;
use super::recent::bars;
use crate::http::history::{EVENTS_PATH, HISTORY_PATH};
use crate::inspect;
use crate::views::escape::{self, line};
use crate::views::events::EventsView;
use crate::views::explain::{Answer, GatewayApiObject, Question, parse_listener, parse_service};
use crate::views::history::{HistoryView, SamplesView};
use crate::views::numbers::rate;
use crate::views::trace::TraceView;

/// How far back changes are shown, in seconds.
const DAY: u32 = 86_400;
/// Limit of changes; `sheave events` lists all.
const CHANGES: usize = 20;
/// Number of bars for the last hour.
const HOUR: usize = 60;

/// What is asked about a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    Explain,
    Trace,
}

/// A question to the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) of: LiveService,
    pub(super) kind: RequestKind,
}

/// Asks the gateway.
///
/// # Errors
/// If it does not answer, with the reason as text.
pub(super) async fn answer(authority: &str, request: &Request) -> Result<String, String> {
    let question = question(&request.of)?;
    let text = match request.kind {
        RequestKind::Explain => explanation(authority, &request.of, &question).await?,
        RequestKind::Trace => get::<TraceView>(authority, &question.path(TRACE_PATH)).await?.to_text(),
    };
    Ok(escape::lines(&text).into_owned())
}

async fn get<T: DeserializeOwned>(authority: &str, path: &str) -> Result<T, String> {
    inspect::asked(authority, path).await.map(|(_, view)| view)
}

/// The question about a row. The name of a listener is behind that of its Gateway.
fn question(of: &LiveService) -> Result<Question, String> {
    let mut words = of.service.splitn(3, '/');
    let (namespace, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let listener = words.next().map(parse_listener).transpose()?;
    let gateway = of.source == "Gateway";
    if listener.is_some() && !gateway {
        return Err(format!("there is no Service {}", of.service));
    }
    Ok(Question {
        service: parse_service(&format!("{namespace}/{name}"))?,
        gateway_api: gateway.then_some(GatewayApiObject::Gateway(listener)),
        multi_cluster: of.source == "MultiClusterService",
        port: None,
        protocol: None,
        address: None,
        client: None,
        sni: None,
    })
}

/// What `sheave explain` prints, then the traffic of the last hour and the Service's changes of the last day.
async fn explanation(authority: &str, of: &LiveService, question: &Question) -> Result<String, String> {
    let ServiceKey { namespace, name, .. } = &question.service;
    let kind = match of.source.as_str() {
        "Gateway" => "listener",
        "MultiClusterService" => "multiClusterService",
        _ => "service",
    };
    let explain = question.path(EXPLAIN_PATH);
    let events = format!("{EVENTS_PATH}?service={namespace}/{name}&since={DAY}");
    let history = format!("{HISTORY_PATH}?{kind}={}", of.service);
    let (explained, events, history) = tokio::join!(
        get::<ExplainView>(authority, &explain),
        get::<EventsView>(authority, &events),
        get::<HistoryView>(authority, &history),
    );
    // Whether it is found makes no difference to the text.
    let mut text = Answer::Explained(explained?).to_text();
    text += "\nTraffic of the last hour\n";
    text += &history.map_or_else(|why| unknown(&why), |history| traffic(&history.recent));
    text += "\nChanges of the last day\n";
    text += &events.map_or_else(|why| unknown(&why), |events| changes(of, events));
    Ok(text)
}

fn unknown(why: &str) -> String {
    line(&format!("  unknown: {why}"))
}

fn traffic(samples: &SamplesView) -> String {
    let seconds = f64::from(samples.seconds.max(1));
    let mut text = String::new();
    for (name, counts) in [("opened", &samples.opened), ("errors", &samples.errors)] {
        let most = counts.iter().max().copied().unwrap_or_default();
        if most == 0 {
            writeln!(text, "  {name}   none").unwrap_or_default();
            continue;
        }
        let a_bar = (3600.0 / seconds / HOUR as f64).ceil().max(1.0) as usize;
        // Counted from the end, so that the first bar may have fewer.
        let bar = |samples: &[u64]| samples.iter().sum::<u64>() as f32;
        let mut shown: Vec<f32> = counts.rchunks(a_bar).take(HOUR).map(bar).collect();
        shown.reverse();
        let most = rate(most as f64 / seconds);
        writeln!(text, "  {name}   {}  at most {most}/s", bars(&shown)).unwrap_or_default();
    }
    let last = |times: &[Option<f64>]| times.iter().rev().find_map(|time| *time);
    if let (Some(half), Some(most)) = (last(&samples.connect_p50), last(&samples.connect_p99)) {
        writeln!(text, "  connect  half {}, 99 % {} (latest)", within(half), within(most))
            .unwrap_or_default();
    }
    text
}

/// The upper bound of a time; -1 is beyond the last one.
fn within(seconds: f64) -> String {
    match seconds {
        ..0.0 => "in more than 1 s".to_owned(),
        ..1.0 => format!("within {} ms", (seconds * 1e5).round() / 100.0),
        _ => format!("within {seconds} s"),
    }
}

/// The last changes of this object; those of the gateway would hide them. A MultiClusterService may have the name of a Service.
fn changes(of: &LiveService, mut view: EventsView) -> String {
    let (service, source) = (Some(&of.service), Some(&of.source));
    view.events.retain(|event| (event.service.as_ref(), event.source.as_ref()) == (service, source));
    if view.events.is_empty() {
        return "  none\n".to_owned();
    }
    let more = view.events.len().saturating_sub(CHANGES);
    view.events.drain(..more);
    let mut text = String::new();
    if more > 0 {
        writeln!(
            text,
            "  {more} earlier ones, which `sheave events {}` lists",
            view.service.as_deref().unwrap_or_default()
        )
        .unwrap_or_default();
    }
    text.extend(view.to_text().lines().map(|event| format!("  {event}\n")));
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(service: &str, source: &str) -> LiveService {
        LiveService { service: service.to_owned(), source: source.to_owned() }
    }

    #[test]
    fn rows_of_all_kinds_can_be_asked_about() {
        let path =
            |service: &str, source: &str| question(&of(service, source)).map(|question| question.path("/x"));
        assert_eq!(path("shop/web", "Service").unwrap(), "/x?service=shop/web");
        assert_eq!(path("shop/web", "MultiClusterService").unwrap(), "/x?service=shop/web&multiCluster=true");
        assert_eq!(path("shop/gw/tls", "Gateway").unwrap(), "/x?service=shop/gw&kind=gateway&listener=tls");
        assert_eq!(
            path("shop/gw/a/set/tls", "Gateway").unwrap(),
            "/x?service=shop/gw&kind=gateway&listener=a/set/tls"
        );
        assert_eq!(path("shop/gw", "Gateway").unwrap(), "/x?service=shop/gw&kind=gateway");
        for hostile in ["shop", "shop/a b", "shop/web&client=1", "shop/x HTTP/1.1\r\n", "shop/web/more", ""] {
            assert!(path(hostile, "Service").is_err(), "{hostile:?}");
        }
    }

    #[test]
    fn the_last_hour_is_bars_and_times() {
        let times = |last: f64| vec![Some(0.1), Some(last), None];
        let samples = SamplesView {
            seconds: 10,
            opened: [vec![0; 354], vec![5, 5, 5, 5, 5, 5]].concat(),
            open: Vec::new(),
            client_bytes: Vec::new(),
            endpoint_bytes: Vec::new(),
            errors: vec![0; 360],
            connect_p50: times(0.0005),
            connect_p99: times(-1.0),
        };
        let blank = " ".repeat(59);
        let expected = format!(
            "  opened   {blank}█  at most 0.5/s\n  errors   none\n  connect  half within 0.5 ms, 99 % in more than 1 s (latest)\n"
        );
        assert_eq!(traffic(&samples), expected);
    }

    #[test]
    fn changes_are_those_of_the_object() {
        let event = |service: Option<&str>, source: &str, message: &str| {
            json!({"time": "2026-11-23T22:10:03Z", "service": service, "source": service.map(|_| source), "change": "state",
                   "from": null, "to": "x", "message": message})
        };
        let mut events = vec![
            event(Some("shop/web"), "MultiClusterService", "of the other"),
            event(None, "", "began to serve"),
            event(Some("shop/web"), "Service", "state: ok\n  spoofed"),
        ];
        let view = |events: &[serde_json::Value]| {
            serde_json::from_value(json!({"node": "gw-1", "service": "shop/web", "events": events})).unwrap()
        };
        let of = of("shop/web", "Service");
        let expected = "  2026-11-23T22:10:03Z Service shop/web: state: ok\\u{a}  spoofed\n";
        assert_eq!(changes(&of, view(&events)), expected);
        assert_eq!(changes(&of, view(&events[..2])), "  none\n");
        events.extend((0..30).map(|_| event(Some("shop/web"), "Service", "more")));
        let text = changes(&of, view(&events));
        assert!(text.starts_with("  11 earlier ones, which `sheave events shop/web` lists\n"), "{text}");
        assert_eq!(text.lines().count(), 21);
    }
}
