//! Polls the gateways for their reports.
//!
//! The last report of a gateway that does not answer stays valid for a while: the gateway may only be busy, and its failed ports
//! have not recovered because of that. EndpointSlices decide whether a gateway is ready, not this file.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::HeaderValue;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::gateway_request::{self, GatewayRequestError};
use super::token_file::TokenFile;
use crate::api::gateway_report::{GatewayReport, PORT_NAME};
use crate::api::store::is_ready;
use crate::net;

/// Interval between polls. A failed port is published with up to this delay. A gateway that is about to drain still accepts
/// connections for `timeouts.lameDuck` (5 s by default), in which its addresses must be withdrawn. An idle gateway answers in
/// well under a millisecond.
const EVERY: Duration = Duration::from_secs(2);
/// How long a report stays valid after its gateway stopped answering.
const VALID: Duration = Duration::from_secs(30);
/// How many gateways are polled concurrently.
const AT_ONCE: usize = 32;

/// Reports of all gateways, kept up to date until dropped.
#[derive(Debug)]
pub(crate) struct GatewayReports {
    gateways: watch::Sender<Vec<SocketAddr>>,
    collected: watch::Receiver<Collected>,
    /// Number of polls of all gateways.
    polls: watch::Receiver<u64>,
    /// What each poll says about the kinds that this controller reads.
    kinds: watch::Sender<Option<HeaderValue>>,
}

/// The last valid report of each gateway.
pub(crate) type ReportsByGateway = BTreeMap<SocketAddr, Arc<GatewayReport>>;

/// Results of the polls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Collected {
    reports: Arc<ReportsByGateway>,
    /// Gateways that were polled at least once, whether they answered or not.
    asked: BTreeMap<SocketAddr, Liveness>,
}

/// Whether a polled gateway answers, from worst to best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Liveness {
    /// No answer within [`VALID`].
    Silent,
    /// No answer to the last poll, but one within [`VALID`].
    Late,
    /// An answer to the last poll.
    Answering,
}

impl GatewayReports {
    /// Starts polling, with the bearer token in this file, if any. Must be called within a Tokio runtime.
    pub(crate) fn start(token_file: Option<PathBuf>) -> Self {
        let (gateways, asked) = watch::channel(Vec::new());
        let (sender, collected) = watch::channel(Collected::default());
        let (count, polls) = watch::channel(0);
        let (kinds, told) = watch::channel(None);
        tokio::spawn(keep_asking(asked, sender, count, told, token_file.map(TokenFile::new)));
        Self { gateways, collected, polls, kinds }
    }

    /// Replaces the set of gateways. New ones are polled at once.
    pub(crate) fn follow(&self, gateways: Vec<SocketAddr>) {
        self.gateways.send_if_modified(|known| {
            let differs = *known != gateways;
            *known = gateways;
            differs
        });
    }

    /// Sets what the next polls say about the kinds that this controller reads.
    pub(crate) fn tell_kinds(&self, kinds: &str) {
        self.kinds.send_replace(HeaderValue::from_str(kinds).ok());
    }

    /// Waits until a report differs from the last result of [`Self::now`], or a gateway was polled for the first time. With
    /// `await_poll` also returns when all gateways have been polled again since [`Self::polls`]. Cancel safe.
    pub(crate) async fn changed(&mut self, await_poll: bool) {
        let changed = tokio::select! {
            changed = self.collected.changed() => changed,
            polled = self.polls.changed(), if await_poll => polled,
        };
        if changed.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Number of polls of all gateways. A later call of [`Self::now`] includes the answers of these polls.
    pub(crate) fn polls(&mut self) -> u64 {
        *self.polls.borrow_and_update()
    }

    /// Whether the gateway answered the last poll.
    pub(crate) fn is_answering(&self, gateway: &SocketAddr) -> bool {
        self.collected.borrow().asked.get(gateway) == Some(&Liveness::Answering)
    }

    /// The last valid reports.
    pub(crate) fn now(&mut self) -> Arc<ReportsByGateway> {
        Arc::clone(&self.collected.borrow_and_update().reports)
    }

    /// Whether every gateway has answered or had its time to answer.
    pub(crate) fn asked_all(&self) -> bool {
        let collected = self.collected.borrow();
        self.gateways.borrow().iter().all(|gateway| collected.asked.contains_key(gateway))
    }

    /// Whether some gateway has this liveness or better. One that was not polled yet counts as [`Liveness::Late`].
    pub(crate) fn any(&self, standing: Liveness) -> bool {
        let collected = self.collected.borrow();
        let of = |gateway| collected.asked.get(gateway).copied().unwrap_or(Liveness::Late);
        self.gateways.borrow().iter().any(|gateway| of(gateway) >= standing)
    }
}

/// Whether some ready gateway has no port for reports.
pub(crate) fn any_without_port<'a>(mut slices: impl Iterator<Item = &'a Arc<EndpointSlice>>) -> bool {
    slices.any(|slice| report_port(slice).is_none() && slice.endpoints.iter().flatten().any(is_ready))
}

pub(super) fn report_port(slice: &EndpointSlice) -> Option<u16> {
    let port = slice.ports.iter().flatten().find(|port| port.name.as_deref() == Some(PORT_NAME))?;
    u16::try_from(port.port?).ok()
}

/// Number of ready gateways. A gateway with addresses of both families is in slices of both and counts once.
pub(crate) fn count<'a>(slices: impl Iterator<Item = &'a Arc<EndpointSlice>>) -> usize {
    let endpoints = slices.flat_map(|slice| slice.endpoints.iter().flatten()).filter(|it| is_ready(it));
    let names =
        endpoints.filter_map(|it| it.node_name.as_deref().or(it.addresses.first().map(String::as_str)));
    names.collect::<BTreeSet<_>>().len()
}

/// Listener addresses of the ready gateways from their EndpointSlices, sorted.
pub(crate) fn addresses<'a>(slices: impl Iterator<Item = &'a Arc<EndpointSlice>>) -> Vec<SocketAddr> {
    let mut addresses = Vec::new();
    for slice in slices {
        let Some(port) = report_port(slice) else { continue };
        for endpoint in slice.endpoints.iter().flatten() {
            let first = endpoint.addresses.first().and_then(|address| net::parse_ip(address).ok());
            addresses.extend(first.filter(|_| is_ready(endpoint)).map(|ip| SocketAddr::new(ip, port)));
        }
    }
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

async fn keep_asking(
    mut gateways: watch::Receiver<Vec<SocketAddr>>,
    publish: watch::Sender<Collected>,
    polls: watch::Sender<u64>,
    kinds: watch::Receiver<Option<HeaderValue>>,
    mut token_file: Option<TokenFile>,
) {
    let mut known: BTreeMap<SocketAddr, GatewayState> = BTreeMap::new();
    let mut timer = tokio::time::interval_at(tokio::time::Instant::now() + EVERY, EVERY);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let all = tokio::select! {
            _ = timer.tick() => true,
            changed = gateways.changed() => if changed.is_err() { return } else { false },
            () = publish.closed() => return,
        };
        let there: BTreeSet<SocketAddr> = gateways.borrow_and_update().iter().copied().collect();
        known.retain(|gateway, _| there.contains(gateway));
        publish_known(&known, &publish);
        // After a change of the set, poll only new gateways: otherwise a rollout would poll all of them with each change.
        let mut due: Vec<SocketAddr> =
            there.into_iter().filter(|it| all || !known.contains_key(it)).collect();
        // Gateways that did not answer last time go last, because each can occupy a slot for the whole timeout.
        due.sort_by_key(|gateway| known.get(gateway).is_some_and(|known| !known.answers));
        let token = match &mut token_file {
            Some(file) => file.read().await,
            None => None,
        };
        let kinds = kinds.borrow().clone();
        ask(due, (token, kinds), &mut known, &publish).await;
        if all {
            polls.send_modify(|polls| *polls += 1);
        }
    }
}

/// Polls these gateways and publishes each answer as it arrives: an answer must not wait for a silent gateway.
async fn ask(
    gateways: Vec<SocketAddr>,
    headers: (Option<HeaderValue>, Option<HeaderValue>),
    known: &mut BTreeMap<SocketAddr, GatewayState>,
    publish: &watch::Sender<Collected>,
) {
    let mut waiting = gateways.into_iter();
    let mut asking = JoinSet::new();
    loop {
        for gateway in waiting.by_ref().take(AT_ONCE - asking.len()) {
            let (token, kinds) = headers.clone();
            asking.spawn(async move { (gateway, gateway_request::report(gateway, token, kinds).await) });
        }
        let Some(mut answered) = asking.join_next().await else { return };
        loop {
            if let Ok((gateway, answer)) = answered {
                take(known, gateway, answer, Instant::now());
            }
            match asking.try_join_next() {
                Some(next) => answered = next,
                None => break,
            }
        }
        publish_known(known, publish);
    }
}

fn publish_known(known: &BTreeMap<SocketAddr, GatewayState>, publish: &watch::Sender<Collected>) {
    let reports: ReportsByGateway =
        known.iter().filter_map(|(gateway, known)| Some((*gateway, known.report.clone()?))).collect();
    let now = Instant::now();
    let asked = known.iter().map(|(gateway, known)| (*gateway, known.standing(now))).collect();
    let collected = Collected { reports: Arc::new(reports), asked };
    publish.send_if_modified(|published| {
        let differs = *published != collected;
        if differs {
            *published = collected;
        }
        differs
    });
}

/// Known state of one gateway.
#[derive(Debug)]
struct GatewayState {
    report: Option<Arc<GatewayReport>>,
    /// Time of the last answer, or of the first poll.
    answered: Instant,
    /// Whether it answered the last poll.
    answers: bool,
}

impl GatewayState {
    fn standing(&self, now: Instant) -> Liveness {
        if self.answers {
            Liveness::Answering
        } else if now.duration_since(self.answered) <= VALID {
            Liveness::Late
        } else {
            Liveness::Silent
        }
    }
}

fn take(
    known: &mut BTreeMap<SocketAddr, GatewayState>,
    gateway: SocketAddr,
    answer: Result<GatewayReport, GatewayRequestError>,
    now: Instant,
) {
    let answered_before = known.get(&gateway).map(|known| known.answers);
    let known = known.entry(gateway).or_insert(GatewayState { report: None, answered: now, answers: false });
    match answer {
        Ok(report) => {
            if answered_before == Some(false) {
                tracing::info!(%gateway, "the gateway reports again");
            }
            *known = GatewayState { report: Some(Arc::new(report)), answered: now, answers: true };
        }
        Err(error) => {
            if answered_before != Some(false) {
                tracing::warn!(
                    %gateway, %error,
                    "the gateway does not report: what it could not do is not published, and it does not count as serving \
                     (is report.listen set in its config, and gateways.tokenFile in this one?)"
                );
            }
            known.answers = false;
            if known.standing(now) == Liveness::Silent {
                known.report = None;
            }
        }
    }
}

#[cfg(test)]
mod tests;
