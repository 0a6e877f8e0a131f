//! Which reports of draining gateways count. No I/O; the caller passes the time.
//!
//! Reports have no TLS, so an attacker between controller and gateways can forge one. A forged report must not withdraw the
//! addresses of all nodes, or of one node permanently: see [`ACCEPTED`] and [`DrainReports::update`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// How long a report counts in each [`PERIOD`] while its endpoint stays ready. A drain lasts about a minute by default
/// (`timeouts.lameDuck`, `timeouts.drain`), and then the kubelet reports its end, or that the Pod terminates.
pub(super) const ACCEPTED: Duration = Duration::from_secs(300);
/// Period of [`ACCEPTED`], from the first report on.
pub(super) const PERIOD: Duration = Duration::from_secs(3_600);
/// Smallest part of [`ACCEPTED`] that a report uses up, even if it is withdrawn at once: each one moves the addresses of every
/// Service.
const LEAST: Duration = Duration::from_secs(60);

/// An endpoint of a gateway, from the API server.
pub(super) struct GatewayAddress<'a> {
    pub(super) address: IpAddr,
    pub(super) node: &'a str,
    /// Whether it is ready and does not terminate.
    pub(super) ready: bool,
}

/// Reports of draining gateways, by the address that they came from.
#[derive(Debug, Default)]
pub(super) struct DrainReports {
    by_address: BTreeMap<IpAddr, DrainReport>,
}

/// Reports from one address.
#[derive(Clone, Copy, Debug)]
struct DrainReport {
    first: Instant,
    /// Start of the current report, if there is one.
    since: Option<Instant>,
    /// Duration of earlier reports in this period.
    spent: Duration,
    accepted: bool,
}

impl DrainReport {
    fn new(now: Instant) -> Self {
        Self { first: now, since: None, spent: Duration::ZERO, accepted: false }
    }

    /// Time until which the current report can count.
    fn until(&self) -> Option<Instant> {
        Some(self.since? + ACCEPTED.saturating_sub(self.spent))
    }
}

impl DrainReports {
    /// Sets which addresses report that they drain. Returns whether that changed.
    pub(super) fn set(&mut self, reported: &BTreeSet<IpAddr>, now: Instant) -> bool {
        let mut differs = false;
        for (address, report) in &mut self.by_address {
            if let Some(since) = report.since.filter(|_| !reported.contains(address)) {
                report.spent += now.saturating_duration_since(since).max(LEAST);
                (report.since, report.accepted) = (None, false);
                differs = true;
            }
        }
        self.by_address.retain(|_, report| report.since.is_some() || now < report.first + PERIOD);
        for address in reported {
            let report = self.by_address.entry(*address).or_insert_with(|| DrainReport::new(now));
            differs |= report.since.is_none();
            report.since.get_or_insert(now);
        }
        differs
    }

    /// Decides which reports count. Without confirmation by the API server, they cover at most half of the nodes with a ready
    /// gateway, those that reported first, and never the only one, whose clients have no alternative. A report that the API
    /// server confirms is not limited.
    pub(super) fn update(&mut self, gateways: &[GatewayAddress<'_>], now: Instant) {
        let ready = || gateways.iter().filter(|gateway| gateway.ready);
        let mut nodes: BTreeMap<IpAddr, BTreeSet<&str>> = BTreeMap::new();
        for gateway in ready() {
            nodes.entry(gateway.address).or_default().insert(gateway.node);
        }
        let most = ready().map(|gateway| gateway.node).collect::<BTreeSet<_>>().len() / 2;
        let mut out = BTreeSet::new();
        let mut by_age: Vec<_> = self.by_address.iter_mut().collect();
        by_age.sort_by_key(|(address, report)| (report.since, **address));
        for (address, report) in by_age {
            let Some(nodes) = nodes.get(address) else {
                let reported = report.since.is_some();
                *report = DrainReport { since: report.since.map(|_| now), ..DrainReport::new(now) };
                report.accepted = reported;
                continue;
            };
            report.accepted = report.until().is_some_and(|until| now < until) && {
                let with: BTreeSet<&str> = out.union(nodes).copied().collect();
                let fits = with.len() <= most;
                if fits {
                    out = with;
                }
                fits
            };
        }
    }

    /// Whether the gateway with this address drains, as far as its report counts.
    pub(super) fn drains(&self, address: IpAddr) -> bool {
        self.by_address.get(&address).is_some_and(|report| report.accepted)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_address.is_empty()
    }

    /// Time of the next update that only the time requires.
    pub(super) fn due(&self) -> Option<Instant> {
        self.by_address.values().filter(|report| report.accepted).filter_map(DrainReport::until).min()
    }
}
