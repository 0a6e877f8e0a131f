//! `sheave watch`: a line for each change of a running gateway's decision for a Service.

use std::io::{self, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::Serialize;
use sheave_control::api::gateway_report::EXPLAIN_PATH;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval};

use crate::admin_server::AdminServer;
use crate::arguments::{LineFormat, Watch};
use crate::exit::Exit;
use crate::inspect;
use crate::options::Options;
use crate::stdout::complain;
use crate::views::change::{Change, ChangeKind};
use crate::views::escape::{visible, visible_json};
use crate::views::explain::Answer;
use crate::views::watch::Decision;

/// How often the gateway is queried. Changes that revert within a period go unnoticed.
const PERIOD: Duration = Duration::from_secs(1);

/// Follows the gateway until a signal arrives or stdout is closed.
pub async fn run(command: &Watch, config: &Options, server: AdminServer) -> Exit {
    let question = match command.asked.question(|| inspect::namespace_of_context(config)) {
        Ok(question) => question,
        Err(why) => {
            complain(&why);
            return Exit::Usage;
        }
    };
    let authority = server.authority.clone();
    let mut watched = Watched {
        service: question.service.to_string(),
        authority: authority.clone(),
        forwarded: server.is_forwarded(),
        known: None,
        silent_since: None,
    };
    let path = question.path(EXPLAIN_PATH);
    let ends = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
    let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hang_up)] = ends else { return Exit::Software };
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let asking = async {
        loop {
            ticks.tick().await;
            let (authority, path) = (authority.clone(), path.clone());
            let asked = tokio::task::spawn_blocking(move || inspect::explained(&authority, &path)).await;
            let answer = asked.unwrap_or_else(|error| Err(error.to_string()));
            for change in watched.take(answer) {
                let written = match line(&watched.service, &change, command.output) {
                    Ok(line) => write(line).await,
                    Err(error) => Err(error.into()),
                };
                if let Err(error) = written {
                    return Some(error);
                }
            }
        }
    };
    let failed = tokio::select! {
        failed = asking => failed,
        _ = interrupt.recv() => None,
        _ = terminate.recv() => None,
        _ = hang_up.recv() => None,
    };
    match failed {
        // A reader that has gone away (`| head`) is not an error.
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("sheave: cannot write: {error}");
            Exit::Software
        }
        _ => Exit::Ok,
    }
}

/// State that was reported last.
struct Watched {
    service: String,
    authority: String,
    /// Whether a port-forward leads to one Pod.
    forwarded: bool,
    known: Option<Decision>,
    silent_since: Option<Instant>,
}

impl Watched {
    /// Changes to report after an answer or a failure.
    fn take(&mut self, answer: Result<Answer, String>) -> Vec<Change> {
        let of_gateway = |text: String| Change::new(ChangeKind::Gateway, None, Some(text));
        let answer = match answer {
            Ok(answer) => answer,
            Err(_) if self.silent_since.is_some() => return Vec::new(),
            Err(why) => {
                self.silent_since = Some(Instant::now());
                let retries =
                    if self.forwarded { "if its Pod is gone, start again; retrying" } else { "retrying" };
                let text =
                    format!("the gateway at http://{} does not answer: {why}; {retries}", self.authority);
                return vec![of_gateway(text)];
            }
        };
        let mut changes = Vec::new();
        if let Some(since) = self.silent_since.take() {
            let seconds = since.elapsed().as_secs();
            changes.push(of_gateway(format!("the gateway answers again, after {seconds} s")));
        }
        let now = Decision::of(&answer);
        changes.extend(match &self.known {
            Some(known) => now.changes(known),
            None => now.state(),
        });
        self.known = Some(now);
        changes
    }
}

/// A line of JSON output.
#[derive(Serialize)]
struct WatchLine<'a> {
    time: String,
    service: &'a str,
    #[serde(flatten)]
    change: &'a Change,
    /// The change as text for people.
    message: String,
}

fn line(service: &str, change: &Change, format: LineFormat) -> serde_json::Result<String> {
    let time = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
    let message = change.to_text();
    match format {
        LineFormat::Text => Ok(format!("{time} {}\n", visible(&message))),
        LineFormat::Json => {
            let json = serde_json::to_string(&WatchLine { time, service, change, message })?;
            Ok(visible_json(&json).into_owned() + "\n")
        }
    }
}

/// Writes on a separate thread, so that a blocked stdout (a full pipe, Ctrl-S) does not keep signals from ending the process.
async fn write(line: String) -> io::Result<()> {
    let (done, written) = oneshot::channel();
    thread::Builder::new().spawn(move || {
        let mut out = io::stdout().lock();
        // The receiver is gone if the process is ending.
        done.send(out.write_all(line.as_bytes()).and_then(|()| out.flush())).ok();
    })?;
    written.await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use sheave_control::projection::explain::ExplainView;

    use super::*;

    #[test]
    fn no_format_lets_a_name_control_the_terminal() {
        let change = Change::new(ChangeKind::Closed, None, Some("a\u{9b}2J\u{202e}".to_owned()));
        for format in [LineFormat::Text, LineFormat::Json] {
            let line = line("shop/\u{9b}web", &change, format).unwrap();
            assert!(!line.contains(['\u{9b}', '\u{202e}']), "{line}");
            if format == LineFormat::Json {
                let json: serde_json::Value = serde_json::from_str(&line).unwrap();
                assert_eq!(json["service"], "shop/\u{9b}web");
            }
        }
    }

    #[test]
    fn silence_is_reported_once_and_so_is_its_end_with_what_changed_meanwhile() {
        let mut watched = Watched {
            service: "shop/web".to_owned(),
            forwarded: false,
            authority: "gw:9841".to_owned(),
            known: None,
            silent_since: None,
        };
        let view = |action: &str| ExplainView {
            frontend: Some("203.0.113.10:80/TCP".to_owned()),
            kind: Some("LoadBalancer".to_owned()),
            allowed: true,
            action: Some(action.to_owned()),
            ..ExplainView::default()
        };
        let mut lines = |answer: Result<ExplainView, &str>| -> Vec<String> {
            let answer = answer.map(Answer::Explained).map_err(str::to_owned);
            watched.take(answer).iter().map(Change::to_text).collect()
        };
        assert_eq!(
            lines(Err("refused")),
            ["the gateway at http://gw:9841 does not answer: refused; retrying"]
        );
        assert_eq!(lines(Err("refused")), [""; 0]);
        let first = lines(Ok(view("Forward")));
        assert_eq!((first.len(), first[0].as_str()), (2, "the gateway answers again, after 0 s"));
        assert_eq!(lines(Ok(view("Forward"))), [""; 0]);
        assert_eq!(lines(Err("refused")).len(), 1);
        let back = lines(Ok(view("Reject")));
        assert_eq!(back, ["the gateway answers again, after 0 s", "action: Reject (was: Forward)"]);
    }
}
