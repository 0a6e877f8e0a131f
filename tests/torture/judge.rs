//! Rules for observations of a connection, given what both ends did: those of TCP as kept by a direct connection. They
//! are tested with direct connections, too, so that none is stricter than the kernel.

use crate::end::{End, Observation};
use crate::script::{How, Part, Script, When};
use crate::support::patience::patience;

/// Observations of both ends; `None` for the server if no connection arrived.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) client: Observation,
    pub(crate) server: Option<Observation>,
}

/// All violations in an outcome.
pub(crate) fn judge(script: &Script, outcome: &Outcome) -> Vec<String> {
    let Outcome { client, server } = outcome;
    let mut wrong = Vec::new();
    match server {
        Some(server) => {
            let of_client = side(script, (&script.client, &script.server), client, server);
            let of_server = side(script, (&script.server, &script.client), server, client);
            wrong.extend(of_client.into_iter().map(|what| format!("client: {what}")));
            wrong.extend(of_server.into_iter().map(|what| format!("server: {what}")));
        }
        // A client that leaves at once may be gone before the gateway has chosen an endpoint.
        None if script.client.abandons() => {}
        None => wrong.push("server: no connection came".to_owned()),
    }
    wrong
}

/// Violations in what one end saw of the other.
fn side(
    script: &Script,
    (part, other): (&Part, &Part),
    seen: &Observation,
    by_other: &Observation,
) -> Vec<String> {
    let mut wrong = Vec::new();
    if let Some(corrupt) = &seen.corrupt {
        wrong.push(format!("corrupt: {corrupt}"));
    }
    if seen.received > by_other.sent {
        wrong.push(format!("received {} bytes of {}", seen.received, by_other.sent));
    }
    let longest = script.pauses() + patience(4.0);
    if seen.end != End::Hang && seen.took > longest {
        wrong.push(format!("took {:?}, longer than {longest:?}", seen.took));
    }
    if seen.end == End::Hang {
        wrong.push(format!("hangs after {} bytes", seen.received));
    }
    let whole = seen.received == by_other.sent;
    // A failed write has consumed the error that a read would have returned.
    if seen.end == End::Clean && !whole && seen.send_error.is_none() {
        wrong.push(format!("a clean end after {} bytes of {}", seen.received, by_other.sent));
    }
    let resets = other.abandons() && other.by == How::Reset;
    if seen.end == End::Clean && resets && !by_other.fin_sent && seen.send_error.is_none() {
        wrong.push("a clean end in place of a reset".to_owned());
    }
    if let (false, End::Error(error)) = (other.abandons(), seen.end) {
        wrong.push(format!("{error:?} though the other end did not leave"));
    }
    if let (false, Some(error)) = (other.abandons(), seen.send_error) {
        wrong.push(format!("sending: {error:?} though the other end did not leave"));
    }
    let (wanted, read) = (part.wanted(), seen.received + seen.urgent.len() as u64);
    if part.leaves == When::AfterReading && !other.abandons() && read < wanted.min(other.total()) {
        wrong.push(format!("read {read} bytes of {wanted} before it left"));
    }
    let regular = !part.abandons() && !other.abandons();
    let complete = whole && seen.end == End::Clean && seen.sent == part.total();
    if regular && !complete {
        wrong.push(format!(
            "received {} bytes of {}, sent {} of {}, {:?}",
            seen.received,
            other.total(),
            seen.sent,
            part.total(),
            seen.end
        ));
    }
    let urgent = if part.urgent_inline { other.urgent_at() } else { Vec::new() };
    if seen.urgent.iter().any(|at| !urgent.contains(at)) || (regular && seen.urgent != urgent) {
        wrong.push(format!("urgent bytes at {:?} in place of {urgent:?}", seen.urgent));
    }
    wrong
}
