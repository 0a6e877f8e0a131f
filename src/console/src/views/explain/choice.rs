//! Choice of an endpoint in the table in force, with the reason.

use std::time::Duration;

use sheave_dataplane::select::affinity::AffinityTable;
use sheave_dataplane::select::{ActiveFrontend, Origin, PickRequest, Preview};
use sheave_dataplane::{Pinned, hashed_by_kernel, pinned_by_kernel};
use sheave_model::{Affinity, Algorithm, EndpointAddr, Protocol};

use super::Basis;
use super::client;
use super::question::Client;

/// Chosen endpoint.
pub(super) struct Choice {
    /// `None` if each connection is decided anew, or if not enough is known about the client.
    pub(super) endpoint: Option<EndpointAddr>,
    /// Reasons, as sentences.
    pub(super) reasons: Vec<String>,
}

/// Makes the choice without recording it. `None` if there is nothing to choose.
pub(super) fn choose(
    active: &ActiveFrontend,
    origin: Origin,
    client: Option<Client>,
    basis: Basis<'_>,
) -> Option<Choice> {
    let choices: Vec<EndpointAddr> = active.choices(origin).collect();
    let (&only, others) = choices.split_first()?;
    let only = Some(only).filter(|_| others.is_empty());
    let preview = client.map(|client| preview(active, origin, client, basis));
    let mut choice = match (preview, only) {
        (Some(Preview::Affinity { .. } | Preview::Balanced(_)), None) if by_kernel(active, basis) => {
            kernels(active, origin, client, basis, choices.len())
        }
        (Some(Preview::Affinity { endpoint, remaining }), _) => recorded(endpoint, remaining),
        (_, Some(only)) => Choice {
            endpoint: Some(only),
            reasons: vec![format!("{only} is the only one that may be chosen")],
        },
        (Some(Preview::Balanced(hashed)), None) => balanced(active, client, hashed, choices.len()),
        (Some(Preview::Reject | Preview::Drop | Preview::Refused(_)) | None, None) => {
            any(active, choices.len())
        }
    };
    if only.is_none() && basis.affinity.is_none() && active.spec().affinity != Affinity::None {
        choice.reasons.push(
            "a running gateway may have the client on record at another endpoint: ask it with --admin"
                .to_owned(),
        );
    }
    Some(choice)
}

fn by_kernel(active: &ActiveFrontend, basis: Basis<'_>) -> bool {
    basis.no_kernel_path.allow(active.spec())
}

/// Choice by the kernel, which a running gateway asks for what it has on record.
fn kernels(
    active: &ActiveFrontend,
    origin: Origin,
    client: Option<Client>,
    basis: Basis<'_>,
    count: usize,
) -> Choice {
    let asked = client.filter(|_| basis.affinity.is_some());
    match asked.map_or(Pinned::Nowhere, |client| pinned_by_kernel(active, client.ip, client.port)) {
        Pinned::Open(endpoint) => {
            let reason = format!("connection tracking has the client at {endpoint}, from this port");
            return Choice { endpoint: Some(endpoint), reasons: vec![reason] };
        }
        Pinned::Recorded(endpoint, remaining) => return recorded(endpoint, remaining),
        Pinned::Nowhere => {}
    }
    match client.and_then(|client| hashed_by_kernel(active, origin, client.ip)) {
        Some(hashed) => {
            let unrecorded = asked.is_some() && active.spec().affinity != Affinity::None;
            let begin = if unrecorded { "session affinity has no record of the client: " } else { "" };
            let reason = format!(
                "{begin}the kernel's hash of the client's address chooses {hashed}, as on every gateway with these endpoints"
            );
            Choice { endpoint: Some(hashed), reasons: vec![reason] }
        }
        None => Choice {
            endpoint: None,
            reasons: vec![format!("any of these {count}: the kernel chooses at random, by their shares")],
        },
    }
}

fn preview(active: &ActiveFrontend, origin: Origin, client: Client, basis: Basis<'_>) -> Preview {
    let nobody = AffinityTable::with_capacity(1);
    let request = PickRequest {
        client: client::addr(client),
        origin,
        random: 0,
        now: basis.now,
        tried: &[],
        part: None,
    };
    active.preview(&request, basis.affinity.unwrap_or(&nobody))
}

fn recorded(endpoint: EndpointAddr, remaining: Duration) -> Choice {
    let reason = format!(
        "session affinity: the client's last connection went to {endpoint}; that counts for another {} s, and each new \
         connection starts the time anew",
        remaining.as_secs()
    );
    Choice { endpoint: Some(endpoint), reasons: vec![reason] }
}

/// Choice by the algorithm. Only Maglev's is predictable.
fn balanced(active: &ActiveFrontend, client: Option<Client>, hashed: EndpointAddr, count: usize) -> Choice {
    if active.algorithm() != Algorithm::Maglev {
        return any(active, count);
    }
    let sticky = active.spec().affinity != Affinity::None;
    let port_known = client.is_some_and(|client| client.port.is_some());
    let (endpoint, reason) = if sticky {
        let reason = format!(
            "session affinity has no record of the client: Maglev hashing of its address chooses {hashed}, as on every \
             gateway with these endpoints"
        );
        (Some(hashed), reason)
    } else if port_known {
        let reason = format!(
            "Maglev hashing of the client's address and port chooses {hashed}, as on every gateway with these endpoints"
        );
        (Some(hashed), reason)
    } else {
        let reason = format!(
            "any of these {count}: Maglev hashes the client's port, too, which is not given: ask with IP:PORT"
        );
        (None, reason)
    };
    Choice { endpoint, reasons: vec![reason] }
}

fn any(active: &ActiveFrontend, count: usize) -> Choice {
    let each = match active.spec().addr.protocol {
        Protocol::Tcp => "connection",
        Protocol::Udp => "flow",
    };
    let how = match active.algorithm() {
        Algorithm::LeastConnections => format!("least connections chooses for each new {each}"),
        Algorithm::RoundRobin => format!("round robin chooses for each new {each}"),
        Algorithm::Random => format!("random chooses for each new {each}"),
        Algorithm::Maglev if active.spec().affinity != Affinity::None => {
            "session affinity keeps each client at the one that Maglev hashing of its address chooses first"
                .to_owned()
        }
        Algorithm::Maglev => "Maglev hashing of the client's address and port chooses".to_owned(),
    };
    Choice { endpoint: None, reasons: vec![format!("any of these {count}: {how}")] }
}
