//! Series of frontends: up to a configured number, and totals of all. The totals are exact and include frontends that were removed
//! or lost their series.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use sheave_dataplane::Observer;
use sheave_dataplane::counters::ShedReason;
use sheave_dataplane::counters::{CloseReason, TcpCounters};
use sheave_dataplane::counters::{DropReason, UdpCounters};
use sheave_dataplane::counters::{FrontendCounters, Histogram, Totals};
use sheave_model::RoutingTable;
use sheave_model::{Frontend, FrontendKind, Protocol, Route, ServicePort};

use crate::http::metrics::exposition::{Buckets, Exposition, render};
use crate::http::metrics::families::{self as names, Family};
use crate::views::routes::{algorithm_name, listener_name};

/// Frontend with series.
struct ShownFrontend {
    labels: String,
    protocol: Protocol,
    /// Counters of each worker. They may be dropped during the scrape.
    counters: Weak<[FrontendCounters]>,
}

/// Counters of all frontends of one protocol.
struct FrontendCounts<'a, C> {
    shown: &'a [ShownFrontend],
    protocol: Protocol,
    /// Selects one worker's counters, if the frontend is of this protocol.
    counters: fn(&FrontendCounters) -> Option<&C>,
    /// Totals over all frontends, by worker.
    all: Vec<&'a C>,
}

/// Writes series for the first `most` frontends of the table, and totals.
pub(super) fn write(text: &mut Exposition, observer: &Observer, table: &RoutingTable, most: usize) {
    let frontends = table.frontends();
    text.family(&names::FRONTENDS_OMITTED).add(&[], frontends.len().saturating_sub(most) as u64);
    write_info(text, frontends.iter().take(most));
    write_endpoints(text, frontends.iter().take(most));
    let of = |frontend: &Arc<Frontend>| {
        let counters = observer.counters(frontend.addr)?;
        Some(ShownFrontend { labels: labels(frontend), protocol: frontend.addr.protocol, counters })
    };
    let shown: Vec<ShownFrontend> = frontends.iter().take(most).filter_map(of).collect();
    let totals = observer.totals();
    write_shed(text, observer, &shown);
    write_kernel_drops(text, observer, &shown);
    write_tcp(
        text,
        &FrontendCounts {
            shown: &shown,
            protocol: Protocol::Tcp,
            counters: FrontendCounters::as_tcp,
            all: totals.tcp().map(|of| &of.counters).collect(),
        },
    );
    write_connect_times(text, &shown, totals);
    write_udp(
        text,
        &FrontendCounts {
            shown: &shown,
            protocol: Protocol::Udp,
            counters: FrontendCounters::as_udp,
            all: totals.udp().map(|of| &of.counters).collect(),
        },
    );
}

/// Labels that identify a frontend.
pub(super) fn labels(frontend: &Frontend) -> String {
    labels_of(frontend, &frontend.service)
}

/// Labels of a frontend's traffic to this Service.
pub(super) fn labels_of(frontend: &Frontend, service: &ServicePort) -> String {
    let (addr, service) = (frontend.addr.to_string(), service.to_string());
    render(&[("frontend", &addr), ("service", &service)])
}

fn write_info<'a>(text: &mut Exposition, frontends: impl Iterator<Item = &'a Arc<Frontend>>) {
    let mut samples = text.family(&names::FRONTEND_INFO);
    for frontend in frontends {
        let kind = frontend.kind.to_string();
        let listener = listener_name(&frontend.service).unwrap_or_default();
        let route = frontend.split.as_ref().map(|split| &*split.route).unwrap_or_default();
        let more = [
            ("kind", &*kind),
            ("port_name", &*frontend.service.port_name),
            ("app_protocol", frontend.app_protocol.as_deref().unwrap_or_default()),
            ("balance", algorithm_name(frontend.algorithm)),
            ("route", route),
            ("listener", &listener),
        ];
        samples.add_to(&labels(frontend), &more, 1);
    }
}

/// Endpoints of the route that applies to the clients that the frontend is meant for.
fn write_endpoints<'a>(text: &mut Exposition, frontends: impl Iterator<Item = &'a Arc<Frontend>>) {
    let mut samples = text.family(&names::FRONTEND_ENDPOINTS);
    for frontend in frontends {
        samples.add_to(&labels(frontend), &[], endpoints(frontend) as u64);
    }
}

/// Number of endpoints that new clients may be given. One in several pools of a split frontend counts once.
fn endpoints(frontend: &Frontend) -> usize {
    let Some(split) = &frontend.split else { return route(frontend).candidates().len() };
    let mut endpoints = BTreeSet::new();
    for pool in split.open_pools() {
        endpoints.extend(route(pool).candidates().iter().map(|candidate| pool.endpoint(*candidate).addr));
    }
    endpoints.len()
}

/// The route that applies to the clients that the frontend is meant for.
fn route(frontend: &Frontend) -> &Route {
    if frontend.kind == FrontendKind::ClusterIp { &frontend.internal } else { &frontend.external }
}

/// Shed connections by reason. Frontends only have series for reasons that occurred, since most have none.
fn write_shed(text: &mut Exposition, observer: &Observer, shown: &[ShownFrontend]) {
    let mut samples = text.family(&names::SHED);
    for ShownFrontend { labels, counters, .. } in shown {
        let counts = counters.upgrade().and_then(|counters| {
            let usage = counters.first()?.usage();
            Some(ShedReason::ALL.map(|reason| (reason, usage.shed(reason))))
        });
        for (reason, count) in counts.into_iter().flatten().filter(|(_, count)| *count > 0) {
            samples.add_to(labels, &[("reason", reason.label())], count);
        }
    }
    let mut total = text.total_of(&names::SHED);
    for reason in ShedReason::ALL {
        total.add(&[("reason", reason.label())], observer.totals().shed().get(reason));
    }
}

/// Kernel drops. Frontends only have series if there were any. The total includes steered frontends, which share sockets.
fn write_kernel_drops(text: &mut Exposition, observer: &Observer, shown: &[ShownFrontend]) {
    let all = observer.kernel_drops();
    let mut samples = text.family(&names::KERNEL_DROPS);
    for ShownFrontend { labels, counters, .. } in shown {
        let packets = counters
            .upgrade()
            .and_then(|counters| Some(counters.first()?.usage().kernel_drops().last_packets()));
        if let Some(packets) = packets.filter(|packets| *packets > 0) {
            samples.add_to(labels, &[], packets);
        }
    }
    text.total_of(&names::KERNEL_DROPS).add(&[], all);
}

fn write_tcp(text: &mut Exposition, counts: &FrontendCounts<'_, TcpCounters>) {
    counts.write(text, &names::CONNECTIONS_OPENED, TcpCounters::opened);
    counts.write(text, &names::CONNECTIONS, |counters| {
        let closed: u64 = CloseReason::ALL.iter().map(|reason| counters.closed(*reason)).sum();
        counters.accepted.get().saturating_sub(closed)
    });
    let closed = CloseReason::ALL
        .map(|reason| (reason.label(), move |counters: &TcpCounters| counters.closed(reason)));
    counts.write_by(text, &names::CONNECTIONS_CLOSED, "reason", &closed);
    let bytes = [
        ("client", (|counters| counters.client_bytes.get()) as fn(&TcpCounters) -> u64),
        ("endpoint", |counters| counters.endpoint_bytes.get()),
    ];
    counts.write_by(text, &names::TCP_BYTES, "from", &bytes);
    counts.write(text, &names::CONNECT_RETRIES, |counters| counters.connect_retries.get());
    counts.write(text, &names::TCP_SOURCE_LOST, |counters| counters.source_lost.get());
}

/// Connect times: few buckets for each frontend, since there may be many, and more for the total.
fn write_connect_times(text: &mut Exposition, shown: &[ShownFrontend], totals: &Totals) {
    let mut samples = text.family(&names::CONNECT_SECONDS);
    for ShownFrontend { labels, counters, .. } in shown.iter().filter(|it| it.protocol == Protocol::Tcp) {
        let Some(workers) = counters.upgrade() else { continue };
        let times = workers.iter().filter_map(FrontendCounters::as_tcp).map(|of| &of.connect_times);
        let times = sum_of_workers(times);
        drop(workers);
        samples.add_histogram(labels, &times);
        if samples.is_unwanted() {
            return;
        }
    }
    let all = sum_of_workers(totals.tcp().map(|of| &of.connect_times));
    text.total_of(&names::CONNECT_SECONDS).add_histogram("", &all);
}

fn sum_of_workers<'a, const N: usize>(workers: impl Iterator<Item = &'a Histogram<N>>) -> Buckets<N> {
    let (mut within, mut beyond, mut sum) = ([(0.0, 0); N], 0, Duration::ZERO);
    for times in workers {
        for ((upper, all), (bound, count)) in within.iter_mut().zip(times.buckets()) {
            *upper = bound.as_secs_f64();
            *all += count;
        }
        beyond += times.beyond();
        sum += times.sum();
    }
    Buckets { within, beyond, sum: sum.as_secs_f64() }
}

fn write_udp(text: &mut Exposition, counts: &FrontendCounts<'_, UdpCounters>) {
    counts.write(text, &names::FLOWS_OPENED, UdpCounters::opened);
    counts.write(text, &names::FLOWS, |counters| counters.flows_active.get());
    counts.write(text, &names::FLOWS_EVICTED, |counters| counters.flows_evicted.get());
    counts.write(text, &names::FLOWS_REPICKED, |counters| counters.flows_repicked.get());
    counts.write(text, &names::UDP_ENDPOINT_ERRORS, |counters| counters.endpoint_errors.get());
    counts.write(text, &names::UDP_SOURCE_LOST, |counters| counters.source_lost.get());
    let datagrams = [
        ("client", (|counters| counters.to_endpoints.datagrams.get()) as fn(&UdpCounters) -> u64),
        ("endpoint", |counters| counters.to_clients.datagrams.get()),
    ];
    counts.write_by(text, &names::DATAGRAMS, "from", &datagrams);
    let bytes = [
        ("client", (|counters| counters.to_endpoints.bytes.get()) as fn(&UdpCounters) -> u64),
        ("endpoint", |counters| counters.to_clients.bytes.get()),
    ];
    counts.write_by(text, &names::UDP_BYTES, "from", &bytes);
    let dropped = DropReason::ALL
        .map(|reason| (reason.label(), move |counters: &UdpCounters| counters.dropped(reason)));
    counts.write_by(text, &names::DATAGRAMS_DROPPED, "reason", &dropped);
}

impl<C> FrontendCounts<'_, C> {
    /// Writes one series per frontend and one total, summed over the workers.
    fn write(&self, text: &mut Exposition, family: &Family, value: impl Fn(&C) -> u64) {
        self.write_labelled(text, family, &[(None, value)]);
    }

    /// Writes one series per frontend and value of `label`, and one total per value, summed over the workers.
    fn write_by<F: Fn(&C) -> u64>(
        &self,
        text: &mut Exposition,
        family: &Family,
        label: &str,
        values: &[(&str, F)],
    ) {
        let values: Vec<_> = values.iter().map(|(name, value)| (Some((label, *name)), value)).collect();
        self.write_labelled(text, family, &values);
    }

    fn write_labelled<F: Fn(&C) -> u64>(
        &self,
        text: &mut Exposition,
        family: &Family,
        values: &[(Option<(&str, &str)>, F)],
    ) {
        let mut samples = text.family(family);
        for ShownFrontend { labels, counters, .. } in
            self.shown.iter().filter(|it| it.protocol == self.protocol)
        {
            for (label, value) in values {
                let Some(workers) = counters.upgrade() else { continue };
                let sum = workers.iter().filter_map(self.counters).map(value).sum();
                drop(workers);
                samples.add_to(labels, label.as_slice(), sum);
            }
            if samples.is_unwanted() {
                return;
            }
        }
        let mut total = text.total_of(family);
        for (label, value) in values {
            total.add(label.as_slice(), self.all.iter().map(|counters| value(counters)).sum());
        }
    }
}
