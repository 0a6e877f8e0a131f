//! A gateway with series for every frontend: time and memory of a scrape.

use crate::options::Sizes;
use crate::process::Sheave;
use crate::report::Row;

/// Number of scrapes, of which the slowest counts.
const SCRAPES: usize = 5;

/// Scrapes repeatedly, one scrape at a time.
pub(super) fn run(sizes: &Sizes) -> Vec<Row> {
    let services = sizes.scraped;
    let case = format!("{services} frontends with series");
    let server = super::cluster(services, 2, true);
    let settings = format!("metrics: {{maxFrontends: {services}}}\n");
    let mut gateway = Sheave::start_with("gateway", &server, None, &settings);
    gateway.ready();
    gateway.rest();
    gateway.forget_peak();
    let before = gateway.usage();
    let scrapes: Vec<_> = (0..SCRAPES).map(|_| gateway.scrape()).collect();
    let after = gateway.usage();
    let seconds = scrapes.iter().map(|(took, ..)| took.as_secs_f64()).fold(0.0, f64::max);
    let (_, bytes, lines) = scrapes[0];
    assert!(lines > services as usize, "each frontend has series, and there are {lines} lines");
    let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64() / SCRAPES as f64;
    let row = |what: &str, value: f64, unit| Row::new(&case, what, value, unit);
    vec![
        row("/metrics, the slowest of some", seconds, "s")
            .at_most(1.0, sizes.full)
            .note(format!("{:.1} MB, {lines} lines", bytes as f64 / 1e6)),
        row("CPU per scrape", cpu, "s"),
        row("RSS before", before.resident_mib(), "MiB"),
        row("more at the peak of a scrape", after.peak_mib() - before.resident_mib(), "MiB")
            .at_most(100.0, sizes.full),
    ]
}
