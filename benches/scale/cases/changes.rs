//! A gateway that has its table: one changed endpoint at a time, and a new list of everything.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::options::Sizes;
use crate::process::Sheave;
use crate::report::Row;
use crate::support::apiserver::ApiServer;
use crate::support::patience::{eventually_within, let_pass, patience};

/// Interval of changes, which makes them single changes and not a burst.
const SPACING: Duration = Duration::from_millis(25);
/// Log message of the gateway for each table.
const IN_FORCE: &str = "routing table in force";
/// Number of kinds that a gateway watches.
const KINDS: usize = 3;

/// Changes one endpoint after the other, of Services all over the table; `change` makes the change with a number. The time is
/// measured from just before the server stores the change to the time of the new table in the gateway's log, so it includes the
/// server and the connection.
pub(super) fn run(case: &str, gateway: &Sheave, sizes: &Sizes, change: impl Fn(u32)) -> Vec<Row> {
    let before = in_force(&gateway.log()).len();
    let cpu = gateway.usage().cpu;
    let mut written = Vec::new();
    for number in 0..sizes.changes {
        written.push(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        change(number);
        let_pass(SPACING);
    }
    let tables = eventually_within(patience(10.0), "a table for each change", || {
        let tables = in_force(&gateway.log()).split_off(before);
        if tables.len() == written.len() { Ok(tables) } else { Err(tables.len()) }
    });
    let cpu = gateway.usage().cpu.saturating_sub(cpu).as_secs_f64() * 1e3 / f64::from(sizes.changes);
    let mut took: Vec<f64> = tables
        .iter()
        .zip(&written)
        .map(|(table, written)| (table.0.as_secs_f64() - written.as_secs_f64()) * 1e3)
        .collect();
    let mut inside: Vec<f64> = tables.iter().map(|table| table.1).collect();
    took.sort_by(f64::total_cmp);
    inside.sort_by(f64::total_cmp);
    let row = |what: &str, value: f64, unit| Row::new(case, what, value, unit);
    vec![
        row("change to table, p50", percentile(&took, 50), "ms").note(format!("{} changes", took.len())),
        row("change to table, p99", percentile(&took, 99), "ms")
            .at_most(10.0, sizes.full)
            .note("from the server's write to the table in force"),
        row("of it in the gateway, p50", percentile(&inside, 50), "ms"),
        row("of it in the gateway, p99", percentile(&inside, 99), "ms").note("from the event's receipt"),
        row("CPU per change", cpu, "ms"),
    ]
}

/// Time when each table came into force, since 1970, and the milliseconds since the receipt of its event.
fn in_force(log: &str) -> Vec<(Duration, f64)> {
    log.lines().filter(|line| line.contains(IN_FORCE)).filter_map(moment).collect()
}

fn moment(line: &str) -> Option<(Duration, f64)> {
    let time: jiff::Timestamp = line.split_whitespace().next()?.parse().ok()?;
    let took = line.split("took=").nth(1)?.split_whitespace().next()?;
    let number = |text: &str| text.parse::<f64>().ok();
    let milliseconds = if let Some(text) = took.strip_suffix("ms") {
        number(text)?
    } else if let Some(text) = took.strip_suffix("µs") {
        number(text)? / 1e3
    } else {
        number(took.strip_suffix('s')?)? * 1e3
    };
    Some((Duration::try_from(time.duration_since(jiff::Timestamp::UNIX_EPOCH)).ok()?, milliseconds))
}

fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let index = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

/// Cuts all watches and forgets the history, so that everything is listed again without a change.
pub(super) fn relist(case: &str, server: &ApiServer, gateway: &Sheave) -> Vec<Row> {
    gateway.rest();
    let before = gateway.usage();
    let generation = gateway.metric("sheave_table_generation ");
    server.forget_requests();
    server.skip_to(server.revision() + 1);
    server.compact();
    let cut = Instant::now();
    server.faults().cut_watches();
    eventually_within(patience(60.0), "everything is listed again", || {
        let lists = server
            .requests()
            .iter()
            .filter(|request| request.line.contains("sendInitialEvents=true"))
            .count();
        let watches = server.faults().open_watches();
        if lists >= KINDS && watches == KINDS {
            Ok(())
        } else {
            Err(format!("{lists} lists, {watches} watches"))
        }
    });
    gateway.rest();
    let took = cut.elapsed();
    let after = gateway.usage();
    assert_eq!(
        gateway.metric("sheave_table_generation "),
        generation,
        "the table is the same after a relist"
    );
    let row = |what: &str, value: f64, unit| Row::new(case, what, value, unit);
    vec![
        row("relist of everything, CPU", after.cpu.saturating_sub(before.cpu).as_secs_f64(), "s")
            .note(format!("at rest again within {:.1} s, the same table", took.as_secs_f64())),
        row("relist, peak RSS since start", after.peak_mib(), "MiB")
            .note(format!("{:.0} MiB before", before.peak_mib())),
    ]
}
