//! Polls the gateways for their reports.
//!
//! The last report of a gateway that does not answer stays valid for a while: it may be busy, and a port does not become free by
//! that. EndpointSlices decide whether a gateway is ready, not this file.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
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

/// How often each gateway is polled. A failed port is published that much later, and a gateway that is about to drain accepts
/// connections for `timeouts.lameDuck`, by default 5 s, until its addresses must be gone. An idle gateway answers in well under a
/// millisecond.
const EVERY: Duration = Duration::from_secs(2);
/// How long a report stays valid after its gateway fell silent.
const VALID: Duration = Duration::from_secs(30);
/// How many gateways are polled at a time.
const AT_ONCE: usize = 32;

/// The reports of all gateways, kept up to date until dropped.
#[derive(Debug)]
pub(crate) struct GatewayReports {
    gateways: watch::Sender<Vec<SocketAddr>>,
    collected: watch::Receiver<Collected>,
    /// How often all gateways were polled.
    polls: watch::Receiver<u64>,
}

/// The last report of each gateway, where it answers.
pub(crate) type ReportsByGateway = BTreeMap<SocketAddr, Arc<GatewayReport>>;

/// The answers of all gateways.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Collected {
    reports: Arc<ReportsByGateway>,
    /// Gateways that were polled at least once, whether they answered or not.
    asked: BTreeMap<SocketAddr, Liveness>,
}

/// Whether a gateway that was polled answers, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Liveness {
    /// It has not answered for [`VALID`].
    Silent,
    /// It did not answer the last time, but within [`VALID`].
    Late,
    /// It answered the last time.
    Answering,
}

impl GatewayReports {
    /// Starts polling, with the bearer token in this file if there is one. Must be called inside a Tokio runtime.
    pub(crate) fn start(token_file: Option<PathBuf>) -> Self {
        let (gateways, asked) = watch::channel(Vec::new());
        let (sender, collected) = watch::channel(Collected::default());
        let (count, polls) = watch::channel(0);
        tokio::spawn(keep_asking(asked, sender, count, token_file.map(TokenFile::new)));
        Self { gateways, collected, polls }
    }

    /// Sets which gateways there are. New ones are polled at once.
    pub(crate) fn follow(&self, gateways: Vec<SocketAddr>) {
        self.gateways.send_if_modified(|known| {
            let differs = *known != gateways;
            *known = gateways;
            differs
        });
    }

    /// Waits until some report differs from what [`Self::now`] gave last, or a gateway was polled for the first time. With
    /// `await_poll` also until all gateways were polled more often than [`Self::polls`] gave last. Cancel safe.
    pub(crate) async fn changed(&mut self, await_poll: bool) {
        let changed = tokio::select! {
            changed = self.collected.changed() => changed,
            polled = self.polls.changed(), if await_poll => polled,
        };
        if changed.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// How often all gateways were polled. [`Self::now`] has the answers of these polls if it is called afterwards.
    pub(crate) fn polls(&mut self) -> u64 {
        *self.polls.borrow_and_update()
    }

    /// Whether the gateway answered the last time that it was polled.
    pub(crate) fn is_answering(&self, gateway: &SocketAddr) -> bool {
        self.collected.borrow().asked.get(gateway) == Some(&Liveness::Answering)
    }

    /// The last reports.
    pub(crate) fn now(&mut self) -> Arc<ReportsByGateway> {
        Arc::clone(&self.collected.borrow_and_update().reports)
    }

    /// The gateways that are about to stop accepting connections, by their own last reports.
    pub(crate) fn draining(&self) -> BTreeSet<IpAddr> {
        let collected = self.collected.borrow();
        let draining = collected.reports.iter().filter(|(_, report)| report.draining);
        draining.map(|(gateway, _)| gateway.ip()).collect()
    }

    /// Whether each of the gateways that are followed has answered, or had its time to.
    pub(crate) fn asked_all(&self) -> bool {
        let collected = self.collected.borrow();
        self.gateways.borrow().iter().all(|gateway| collected.asked.contains_key(gateway))
    }

    /// Whether some gateway that is followed stands so, or better. One that was not polled yet is given the time to answer.
    pub(crate) fn any(&self, standing: Liveness) -> bool {
        let collected = self.collected.borrow();
        let of = |gateway| collected.asked.get(gateway).copied().unwrap_or(Liveness::Late);
        self.gateways.borrow().iter().any(|gateway| of(gateway) >= standing)
    }
}

/// Whether some ready gateway has no port to be asked at.
pub(crate) fn any_without_port<'a>(mut slices: impl Iterator<Item = &'a Arc<EndpointSlice>>) -> bool {
    slices.any(|slice| report_port(slice).is_none() && slice.endpoints.iter().flatten().any(is_ready))
}

pub(super) fn report_port(slice: &EndpointSlice) -> Option<u16> {
    let port = slice.ports.iter().flatten().find(|port| port.name.as_deref() == Some(PORT_NAME))?;
    u16::try_from(port.port?).ok()
}

/// How many gateways are ready: one that has addresses of both families is in slices of both.
pub(crate) fn count<'a>(slices: impl Iterator<Item = &'a Arc<EndpointSlice>>) -> usize {
    let endpoints = slices.flat_map(|slice| slice.endpoints.iter().flatten()).filter(|it| is_ready(it));
    let names =
        endpoints.filter_map(|it| it.node_name.as_deref().or(it.addresses.first().map(String::as_str)));
    names.collect::<BTreeSet<_>>().len()
}

/// Where the ready gateways answer, by their EndpointSlices, sorted.
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
        // Only new ones: a rollout would poll all of them with each that comes or goes.
        let mut due: Vec<SocketAddr> =
            there.into_iter().filter(|it| all || !known.contains_key(it)).collect();
        // Those that did not answer the last time may take up all places for as long as a request lasts.
        due.sort_by_key(|gateway| known.get(gateway).is_some_and(|known| !known.answers));
        let token = match &mut token_file {
            Some(file) => file.read().await,
            None => None,
        };
        ask(due, token.as_ref(), &mut known, &publish).await;
        if all {
            polls.send_modify(|polls| *polls += 1);
        }
    }
}

/// Polls these gateways, and publishes each answer as it comes: one that drains must not wait for one that is silent.
async fn ask(
    gateways: Vec<SocketAddr>,
    token: Option<&HeaderValue>,
    known: &mut BTreeMap<SocketAddr, GatewayState>,
    publish: &watch::Sender<Collected>,
) {
    let mut waiting = gateways.into_iter();
    let mut asking = JoinSet::new();
    loop {
        for gateway in waiting.by_ref().take(AT_ONCE - asking.len()) {
            let token = token.cloned();
            asking.spawn(async move { (gateway, gateway_request::report(gateway, token).await) });
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

/// What is known of one gateway.
#[derive(Debug)]
struct GatewayState {
    report: Option<Arc<GatewayReport>>,
    /// When it answered last, or was polled for the first time.
    answered: Instant,
    /// It answered the last time.
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
