//! Step of the endpoints: what each one does when this gateway connects to it.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use sheave_model::{ClientSource, Protocol};
use sheave_trace::Errno;
use sheave_trace::endpoint_probe::{self, End, TcpProbe, TcpProbed, UdpProbe, UdpProbed};

use super::subject::Subject;
use crate::views::numbers::counted;
use crate::views::trace::StepView;

/// Limit of probed endpoints.
const PROBED: usize = 64;
/// How long a connection or an answer may take.
const PATIENCE: Duration = Duration::from_millis(1000);
/// How long a connection is watched, and a header is waited for.
const WATCHED: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_millis(1400);

/// Headers that say nothing about the client: an endpoint that understands them waits for the client's bytes.
const PROXY_V1: &[u8] = b"PROXY UNKNOWN\r\n";
const PROXY_V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
/// Bytes that most protocols wait behind, and of which no PROXY header begins.
const LINE_END: &[u8] = b"\r\n";

/// Behaviour of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Works,
    Refuses,
    Silent,
    Unreachable(Errno),
    /// Accepts a connection and ends it at once.
    Ends {
        resets: bool,
    },
    /// Does not understand the PROXY header that the Service sends.
    RefusesHeader,
    /// Expects a PROXY header, and the Service sends none.
    WantsHeader,
    /// Answers from there.
    AnswersFrom(SocketAddr),
    /// Nothing can be said.
    Unknown,
}

/// Probes the endpoints as the gateway would connect to them.
pub(super) fn look(subject: &Subject) -> Vec<(SocketAddr, Outcome)> {
    let endpoints = &subject.endpoints[..subject.endpoints.len().min(PROBED)];
    let outcomes: Vec<Outcome> = match subject.addr().map(|addr| addr.protocol) {
        Some(Protocol::Udp) => by_udp(endpoints),
        _ => by_tcp(endpoints, subject),
    };
    endpoints.iter().copied().zip(outcomes).collect()
}

fn by_udp(endpoints: &[SocketAddr]) -> Vec<Outcome> {
    // A datagram with something in it: some servers take an empty one for the end.
    let probe = UdpProbe { from: None, send: LINE_END, timeout: PATIENCE };
    let outcomes = endpoint_probe::udp_all(endpoints, &probe, LONGEST);
    let outcome = |(endpoint, probed): (&SocketAddr, UdpProbed)| match probed {
        UdpProbed::Answered { from, .. } if from != *endpoint => Outcome::AnswersFrom(from),
        UdpProbed::Answered { .. } => Outcome::Works,
        UdpProbed::Refused => Outcome::Refuses,
        UdpProbed::Unreachable(errno) => Outcome::Unreachable(errno),
        UdpProbed::Silent | UdpProbed::NotSent(_) | UdpProbed::NotTried => Outcome::Unknown,
    };
    endpoints.iter().zip(outcomes).map(outcome).collect()
}

fn by_tcp(endpoints: &[SocketAddr], subject: &Subject) -> Vec<Outcome> {
    let header = match subject.client_source() {
        ClientSource::ProxyV1 => Some(PROXY_V1),
        ClientSource::ProxyV2 => Some(PROXY_V2),
        ClientSource::Gateway | ClientSource::Transparent => None,
    };
    let probed = probe(endpoints, header);
    let outcomes: Vec<Outcome> = probed.iter().map(|probed| tcp_outcome(*probed, header.is_some())).collect();
    // Only where no client has ever got a byte back: the bytes of this probe are no request of any protocol.
    let unanswered = subject.counts.opened > 0 && subject.counts.endpoint_bytes == 0;
    if header.is_none() && unanswered && outcomes.contains(&Outcome::Works) {
        return want_header(endpoints, outcomes);
    }
    outcomes
}

fn probe(endpoints: &[SocketAddr], send: Option<&[u8]>) -> Vec<TcpProbed> {
    let probe = TcpProbe { from: None, send, timeout: PATIENCE, linger: WATCHED };
    endpoint_probe::tcp_all(endpoints, &probe, LONGEST)
}

fn tcp_outcome(probed: TcpProbed, with_header: bool) -> Outcome {
    match probed {
        // With or without a greeting.
        TcpProbed::Connected { end: End::Open, .. } => Outcome::Works,
        TcpProbed::Connected { .. } if with_header => Outcome::RefusesHeader,
        // It has said what it has to say, as a time server does.
        TcpProbed::Connected { received: 1.., end: End::Closed(_), .. } => Outcome::Works,
        TcpProbed::Connected { end, .. } => Outcome::Ends { resets: matches!(end, End::Reset(_)) },
        TcpProbed::Refused => Outcome::Refuses,
        TcpProbed::Silent => Outcome::Silent,
        TcpProbed::Unreachable(errno) => Outcome::Unreachable(errno),
        TcpProbed::NotSent(_) | TcpProbed::NotTried => Outcome::Unknown,
    }
}

/// Tells endpoints that end a connection whose first bytes are no PROXY header, and wait behind one.
fn want_header(endpoints: &[SocketAddr], outcomes: Vec<Outcome>) -> Vec<Outcome> {
    let working = endpoints.iter().zip(&outcomes).filter(|(_, outcome)| **outcome == Outcome::Works);
    let working: Vec<SocketAddr> = working.map(|(endpoint, _)| *endpoint).collect();
    let [plain, headed] = thread::scope(|threads| {
        let probes = [LINE_END, PROXY_V1].map(|bytes| threads.spawn(|| probe(&working, Some(bytes))));
        probes.map(|probe| probe.join().unwrap_or_default())
    });
    let mut probed = plain.iter().zip(&headed);
    let ends = |probed: &TcpProbed| {
        matches!(probed, TcpProbed::Connected { end: End::Closed(_) | End::Reset(_), .. })
    };
    let outcome = |outcome| match outcome {
        Outcome::Works if probed.next().is_some_and(|(plain, headed)| ends(plain) && !ends(headed)) => {
            Outcome::WantsHeader
        }
        outcome => outcome,
    };
    outcomes.into_iter().map(outcome).collect()
}

/// Judges the endpoints.
pub(super) fn step(subject: &Subject, outcomes: &[(SocketAddr, Outcome)]) -> StepView {
    let all = subject.endpoints.len() + subject.out_of_reach;
    let looked =
        format!("connections of this gateway to {} that the client may get", counted(all, "endpoint"));
    let step = StepView::new("endpoints", looked);
    let works = outcomes.iter().filter(|(_, it)| *it == Outcome::Works).count();
    let unknown = outcomes.iter().filter(|(_, it)| *it == Outcome::Unknown).count();
    let not_probed = match all - outcomes.len() {
        0 => String::new(),
        more => format!("; {more} more were not probed"),
    } + &avoided(subject);
    let bad = outcomes.iter().filter(|(_, it)| !matches!(it, Outcome::Works | Outcome::Unknown));
    let bad: Vec<&(SocketAddr, Outcome)> = bad.collect();
    let Some((first, outcome)) = bad.first() else {
        return match (works, unknown) {
            (0, 0) => step.unseen(format!("no endpoint to probe{not_probed}")),
            (works, 0) => step.ok(format!("{works} of {works} answer{not_probed}")),
            (0, unknown) => {
                step.ok(format!("no answer from {unknown}, which says nothing with UDP{not_probed}"))
            }
            (works, unknown) => step.ok(format!("{works} answer, {unknown} cannot be judged{not_probed}")),
        };
    };
    let alike = bad.iter().filter(|(_, it)| kind(*it) == kind(*outcome)).count();
    let who = match (alike, outcomes.len()) {
        (1, 1) => format!("the only endpoint, {first},"),
        (1, _) => first.to_string(),
        (alike, all) if alike == all => format!("each of the {all} endpoints, such as {first},"),
        (alike, all) => format!("{alike} of {all} endpoints, such as {first},"),
    };
    let (what, advice) = describe(*outcome, *first, alike == outcomes.len());
    let found = format!("{who} {what}{not_probed}");
    if bad.len() == outcomes.len() { step.stopped(found, advice) } else { step.doubtful(found, advice) }
}

/// Endpoints that nobody gets at present, which look healthy to whoever connects to the others.
fn avoided(subject: &Subject) -> String {
    let unhealthy = subject.view.endpoints.iter().filter(|endpoint| !endpoint.used);
    let mut unhealthy = unhealthy.filter_map(|it| Some((&it.address, it.unhealthy.as_ref()?)));
    let Some((first, why)) = unhealthy.next() else { return String::new() };
    match unhealthy.count() {
        0 => format!("; {first} is avoided as unhealthy: {why}"),
        more => format!("; {first} and {more} more are avoided as unhealthy: {why}"),
    }
}

/// Common part of outcomes of one kind.
fn kind(outcome: Outcome) -> std::mem::Discriminant<Outcome> {
    std::mem::discriminant(&outcome)
}

fn describe(outcome: Outcome, first: SocketAddr, all: bool) -> (String, String) {
    let port = first.port();
    match outcome {
        Outcome::Refuses if all => (
            format!("refuses connections: nothing listens at port {port}"),
            format!("check that targetPort {port} is the port of the container, and that the program listens on all addresses"),
        ),
        Outcome::Refuses => ("refuses connections".to_owned(), "look at that Pod: its program does not listen".to_owned()),
        Outcome::Silent => (
            format!("does not answer within {} ms", PATIENCE.as_millis()),
            "its packets, or the answers, are dropped on the way: look at NetworkPolicies, the Pod's node, and routes between the nodes".to_owned(),
        ),
        Outcome::Unreachable(errno) => (
            format!("cannot be reached from this node: {errno}"),
            format!("this node has no way to the Pod network: ip route get {}", first.ip()),
        ),
        Outcome::Ends { resets } => (
            format!("accepts connections and {} them at once", if resets { "resets" } else { "closes" }),
            "look at the program's log: it accepts nobody, or not this gateway".to_owned(),
        ),
        Outcome::RefusesHeader => (
            "ends connections that begin with a PROXY header, which this Service sends".to_owned(),
            "let the program read PROXY headers, or remove the annotation that sends them".to_owned(),
        ),
        Outcome::WantsHeader => (
            "ends connections that do not begin with a PROXY header, and this Service sends none".to_owned(),
            "send one (sheave.dev/client-source: proxy-v1 or proxy-v2), or let the program do without".to_owned(),
        ),
        Outcome::AnswersFrom(from) => (
            format!("answers from {from}: the gateway, as any client, takes answers only from where it sent to"),
            "let the program answer from the address and port that it was asked at".to_owned(),
        ),
        Outcome::Works | Outcome::Unknown => (String::new(), String::new()),
    }
}
