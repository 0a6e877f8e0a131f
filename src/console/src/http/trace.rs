//! `/api/trace`: follows a client's packet through this gateway. Each step looks at the machine, its neighbours or the endpoints, from
//! where the gateway's own packets go; nothing is changed. What would stop the packet first is the verdict.

mod address;
mod arrival;
mod capturing;
mod connection;
mod endpoints;
mod listener;
mod machine;
mod packet_size;
mod service;
mod subject;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path as UrlPath, Query as UrlQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sheave_control::api::gateway_report::{CAPTURE_PATH, TRACE_PATH};
use sheave_control::api::problem::reason;
use sheave_dataplane::Observer;
use sheave_model::FrontendAddr;
use sheave_trace::link::{self, Link};
use tokio::sync::Semaphore;

use self::capturing::{Capture, Wanted};
use self::subject::Subject;
use crate::http::gateway_pages::{Asker, answered, bad_request, question, stuck};
use crate::http::query::{Query, QuerySender, ask};
use crate::views::View as _;
use crate::views::explain::{Question, QuestionQuery, outcome};
use crate::views::trace::{CaptureView, StepState, StepView, TraceView, VerdictView};

/// Limit of traces at a time. Each one uses some threads and sockets for up to three seconds.
const AT_ONCE: usize = 2;

/// Content type of a capture's file.
pub(crate) const PCAP: &str = "application/vnd.tcpdump.pcap";

/// Traces packets through this gateway. Clones share the limits.
#[derive(Clone)]
pub(crate) struct Tracer {
    observer: Observer,
    queries: QuerySender,
    room: Arc<Semaphore>,
    /// One capture at a time.
    capturing: Arc<Semaphore>,
    /// Files of the last captures: of headers alone, and with payload.
    files: Arc<[Mutex<Vec<u8>>; 2]>,
}

impl Tracer {
    pub(crate) fn new(observer: Observer, queries: QuerySender) -> Self {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self { observer, queries, room: semaphore(AT_ONCE), capturing: semaphore(1), files: Arc::default() }
    }

    /// Routes of traces and captures. A controller's token may be read on its way, so a controller gets headers of packets alone.
    pub(crate) fn router(self, asker: Asker) -> Router {
        Router::new()
            .route(TRACE_PATH, get(trace))
            .route(&format!("{TRACE_PATH}/{{seconds}}"), get(trace_with_capture))
            .route(CAPTURE_PATH, get(file))
            .with_state((self, asker))
    }

    /// Answers with a trace, and with a capture.
    async fn answer(self, asked: Question, capture: Option<Wanted>) -> Response {
        let busy =
            |what: &str| (StatusCode::SERVICE_UNAVAILABLE, format!("{what}; try again\n")).into_response();
        let Ok(place) = Arc::clone(&self.room).try_acquire_owned() else {
            return busy("other traces are running");
        };
        let capturing = match capture.map(|_| Arc::clone(&self.capturing).try_acquire_owned()) {
            Some(Err(_)) => return busy("another capture is running"),
            permit => permit,
        };
        let client = asked.client;
        let Ok(answer) = ask(&self.queries, |reply| Query::Explain(asked, reply)).await else {
            return stuck();
        };
        let Ok(overview) = ask(&self.queries, |reply| Query::Overview(None, reply)).await else {
            return stuck();
        };
        let mut problems = overview.objects.iter().flat_map(|objects| &objects.problems);
        if capture.is_some()
            && let Some(problem) = problems.find(|problem| problem.reason == reason::OVERLOADED)
        {
            let why = format!("this machine is at its limit, so nothing is captured: {}\n", problem.message);
            return (StatusCode::SERVICE_UNAVAILABLE, why).into_response();
        }
        let traced = tokio::task::spawn_blocking(move || {
            // Whoever asked may have gone: the work goes on, and so do its limits.
            let _permits = (place, capturing);
            let subject = Subject::new(answer, overview, &self.observer, client);
            let exists = subject.exists;
            (exists, self.follow(&subject, capture))
        });
        let Ok((exists, view)) = traced.await else {
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        };
        answered(exists, view.to_json())
    }

    fn follow(&self, subject: &Subject, capture: Option<Wanted>) -> TraceView {
        let mut steps = vec![service::decision(subject), service::gateway(subject)];
        let mut captured = None;
        if let Some(addr) = subject.addr() {
            let links = link::links();
            thread::scope(|threads| {
                let taking = capture
                    .map(|wanted| (wanted, threads.spawn(move || capturing::take(subject, addr, wanted))));
                match &links {
                    Ok(links) => steps.extend(on_this_machine(subject, addr, links)),
                    Err(unseen) => steps.push(
                        StepView::new("machine", "this machine's links, by which all else is looked at")
                            .unseen(unseen.to_string()),
                    ),
                }
                // The capture lasts longer than everything else.
                if let Some((wanted, taking)) = taking
                    && let Ok(taken) = taking.join()
                {
                    steps.push(capturing::step(
                        subject,
                        addr,
                        wanted.time,
                        &taken,
                        links.as_deref().unwrap_or_default(),
                    ));
                    captured = taken.ok().map(|taken| (wanted.payload, taken));
                }
            });
        }
        let view = &subject.view;
        let reached = format!("a connection through this gateway {}", outcome(view));
        TraceView {
            node: subject.status.node.clone(),
            service: view.service.clone(),
            source: view.source.clone(),
            frontend: view.frontend.clone(),
            client: view.client.clone(),
            verdict: VerdictView::of(&steps, reached),
            steps,
            capture: captured.map(|(payload, capture)| self.keep(payload, capture)),
        }
    }

    fn file(&self, payload: bool) -> MutexGuard<'_, Vec<u8>> {
        self.files[usize::from(payload)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the file of a capture until the next one of its kind.
    fn keep(
        &self,
        payload: bool,
        Capture { captured, directions: [came, answered], file }: Capture,
    ) -> CaptureView {
        *self.file(payload) = file;
        CaptureView {
            packets: captured.packets,
            bytes: captured.bytes,
            came,
            answered,
            path: CAPTURE_PATH.to_owned(),
            file: None,
        }
    }
}

/// Whether captures for these clients may have what the two sides send each other.
fn has_payload(asker: Asker) -> bool {
    asker == Asker::Administrator
}

/// Steps behind the decision, in the order of the packet's way. The probes run at the same time, since each waits for others.
fn on_this_machine(subject: &Subject, addr: FrontendAddr, links: &[Link]) -> Vec<StepView> {
    let client = subject.client_ip();
    thread::scope(|threads| {
        let address = threads.spawn(|| address::look(addr.ip, links, subject.by_kernel));
        let probed = threads.spawn(|| endpoints::look(subject));
        let connection = threads.spawn(move || client.map(|client| (client, connection::look(client, addr))));
        let sizes = packet_size::peers(subject, links).into_iter();
        let sizes: Vec<_> = sizes.map(|peer| threads.spawn(move || packet_size::look(peer))).collect();
        let arrival = client.map(|client| (client, arrival::look(client, addr.ip, links)));
        let arrives_on = arrival.as_ref().and_then(|(_, facts)| facts.admissions.first());
        let machine = machine::look(subject, addr.ip, arrives_on.map_or("all", |(link, _)| link));
        let listening = listener::look(subject);
        let seen =
            machine::evaluate(&machine, subject, addr, arrival.as_ref().map(|(_, facts)| facts), links);
        let connection = connection.join().ok().flatten();
        let has_open = connection.as_ref().is_some_and(|(_, facts)| facts.has_open());
        let is_served = subject.counts.opened > 0 || has_open;

        let mut steps = Vec::new();
        steps.extend(address.join().ok().map(|facts| address::step(subject, addr.ip, &facts)));
        let is_elsewhere = steps.iter().any(|step| step.state == StepState::Doubtful);
        if !is_elsewhere {
            steps.extend(arrival.map(|(client, facts)| arrival::step(client, &facts, is_served)));
            steps.push(machine::filters(&machine, &seen, addr, is_served));
            steps.push(machine::tracking(&machine));
            steps.push(machine::path(&machine, addr.ip, subject.by_kernel));
            steps.push(listener::step(subject, listening.as_ref()));
        }
        steps.extend(probed.join().ok().map(|outcomes| endpoints::step(subject, &outcomes)));
        let sizes: Vec<_> = sizes.into_iter().filter_map(|size| size.join().ok()).collect();
        steps.push(packet_size::step(&sizes));
        steps.extend(
            connection
                .filter(|_| !is_elsewhere)
                .map(|(client, facts)| connection::step(subject, client, &facts)),
        );
        steps
    })
}

async fn trace(
    State((tracer, _)): State<(Tracer, Asker)>,
    query: Result<UrlQuery<QuestionQuery>, QueryRejection>,
) -> Response {
    match question(query) {
        Ok(asked) => tracer.answer(asked, None).await,
        Err(why) => bad_request(why),
    }
}

async fn trace_with_capture(
    State((tracer, asker)): State<(Tracer, Asker)>,
    seconds: Result<UrlPath<u64>, PathRejection>,
    query: Result<UrlQuery<QuestionQuery>, QueryRejection>,
) -> Response {
    match (capture_time(seconds), question(query)) {
        (Ok(time), Ok(asked)) => {
            tracer.answer(asked, Some(Wanted { time, payload: has_payload(asker) })).await
        }
        (Err(why), _) | (_, Err(why)) => bad_request(why),
    }
}

/// Path of a trace, with a capture of this length.
pub(crate) fn with_capture(path: &str, capture: Option<Duration>) -> String {
    capture.map_or_else(|| path.to_owned(), |time| format!("{path}/{}", time.as_secs()))
}

/// Parses the length of a capture from a URL.
///
/// # Errors
/// If it is no length that captures may have, as text.
pub(crate) fn capture_time(seconds: Result<UrlPath<u64>, PathRejection>) -> Result<Duration, String> {
    let UrlPath(seconds) = seconds.map_err(|rejection| rejection.body_text())?;
    let longest = capturing::LONGEST.as_secs();
    if (1..=longest).contains(&seconds) {
        Ok(Duration::from_secs(seconds))
    } else {
        Err(format!("capture for 1 to {longest} seconds"))
    }
}

async fn file(State((tracer, asker)): State<(Tracer, Asker)>) -> Response {
    let file = tracer.file(has_payload(asker)).clone();
    match file.is_empty() {
        true => (StatusCode::NOT_FOUND, "nothing was captured yet\n").into_response(),
        false => ([(header::CONTENT_TYPE, PCAP)], file).into_response(),
    }
}
