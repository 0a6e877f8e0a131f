//! Start of a gateway, until it has a complete table, and its cost at rest afterwards.

use std::time::Duration;

use crate::process::Sheave;
use crate::report::Row;
use crate::support::apiserver::ApiServer;
use crate::support::patience::let_pass;

/// How long a gateway at rest is observed.
const WATCHED: Duration = Duration::from_secs(5);

/// Limits of a gateway.
#[derive(Clone, Copy)]
pub(super) struct Marks {
    /// Seconds from process start to ready.
    pub(super) ready: f64,
    /// Peak memory in MiB.
    pub(super) memory: f64,
    /// Whether they apply to this size.
    pub(super) count: bool,
}

/// Starts a gateway, which must have a frontend for each Service. `marked` is whether the marks apply to this
/// size.
pub(super) fn run(case: &str, server: &ApiServer, services: u32, marked: bool) -> (Sheave, Vec<Row>) {
    let marks = Marks { ready: 5.0, memory: 400.0, count: marked };
    watch(case, Sheave::start("gateway", server), services, marks)
}

/// Observes a gateway that was just started.
pub(super) fn watch(case: &str, mut gateway: Sheave, services: u32, marks: Marks) -> (Sheave, Vec<Row>) {
    let ready = gateway.ready();
    let at_ready = gateway.usage();
    let frontends = gateway.metric("sheave_table_frontends ");
    assert_eq!(frontends, u64::from(services), "frontends in the table of {case}");
    gateway.rest();
    let settled = gateway.usage();
    let_pass(WATCHED);
    let idle = gateway.usage().cpu.saturating_sub(settled.cpu).as_secs_f64() / WATCHED.as_secs_f64();
    let status = gateway.page("/api/status");
    let problems = status["problems"].as_u64().unwrap_or_default();
    let (log, lines) = (gateway.log(), gateway.log().lines().count());
    let asked = gateway.asked("/api/status");
    let scraped = gateway.asked("/metrics");
    let usage = gateway.usage();
    let row = |what: &str, value: f64, unit| Row::new(case, what, value, unit);
    let rows = vec![
        row("start to ready", ready.as_secs_f64(), "s")
            .at_most(marks.ready, marks.count)
            .note(format!("{frontends} frontends, {problems} not opened")),
        row("CPU until ready", at_ready.cpu.as_secs_f64(), "s"),
        row("peak RSS", usage.peak_mib(), "MiB").at_most(marks.memory, marks.count),
        row("settled RSS", usage.resident_mib(), "MiB"),
        row("CPU at rest", idle * 100.0, "%"),
        row("log", log.len() as f64 / 1e6, "MB").note(format!("{lines} lines")),
        row("/api/status", asked.as_secs_f64() * 1e3, "ms"),
        row("/metrics", scraped.as_secs_f64() * 1e3, "ms"),
    ];
    (gateway, rows)
}
