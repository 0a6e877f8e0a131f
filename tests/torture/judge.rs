//! What may be observed of a connection, from what both ends did: the rules of TCP as a direct connection keeps them. The
//! rules are held against direct connections, too, so that none is stricter than the kernel.

use crate::end::{End, Observation};
use crate::script::{How, Part, Script, When};

/// What both ends observed; the server nothing if no connection came to it.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) client: Observation,
    pub(crate) server: Option<Observation>,
}

/// All that is wrong with an outcome; nothing if it is right.
pub(crate) fn judge(script: &Script, outcome: &Outcome) -> Vec<String> {
    let Outcome { client, server } = outcome;
    let mut wrong = Vec::new();
    match server {
        Some(server) => {
            let mut side = |name: &str, part, other, seen, by_other| {
                wrong.extend(
                    side(part, other, seen, by_other).into_iter().map(|what| format!("{name}: {what}")),
                );
            };
            side("client", &script.client, &script.server, client, server);
            side("server", &script.server, &script.client, server, client);
        }
        // A client that leaves at once may be gone before the gateway has looked for an endpoint.
        None if script.client.abandons() => {}
        None => wrong.push("server: no connection came".to_owned()),
    }
    wrong
}

/// What is wrong with what one end saw of the other.
fn side(part: &Part, other: &Part, seen: &Observation, by_other: &Observation) -> Vec<String> {
    let mut wrong = Vec::new();
    if let Some(corrupt) = &seen.corrupt {
        wrong.push(format!("corrupt: {corrupt}"));
    }
    if seen.received > by_other.sent {
        wrong.push(format!("received {} bytes of {}", seen.received, by_other.sent));
    }
    if seen.end == End::Hang {
        wrong.push(format!("hangs after {} bytes", seen.received));
    }
    let whole = seen.received == by_other.sent;
    // A write that failed has taken the error that a read would have returned.
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
    let wanted = part.wanted();
    if part.leaves == When::AfterReading && !other.abandons() && seen.received < wanted.min(other.total()) {
        wrong.push(format!("received {} bytes of {wanted} before it left", seen.received));
    }
    if !part.abandons()
        && !other.abandons()
        && !(whole && seen.end == End::Clean && seen.sent == part.total())
    {
        wrong.push(format!(
            "received {} bytes of {}, sent {} of {}, {:?}",
            seen.received,
            other.total(),
            seen.sent,
            part.total(),
            seen.end
        ));
    }
    wrong
}
