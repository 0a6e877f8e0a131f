//! Watches who has which address, by what the kernels report: how long two gateways have one at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use crate::segment::Segment;
use crate::support::patience::eventually;
use crate::support::process::Process;

/// An address that shows that reports arrive.
const SIGN: &str = "127.77.0.1/32";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Reports of all gateways' kernels, each with its time.
pub(crate) struct AddressWatch {
    monitors: BTreeMap<u8, Process>,
    /// Who had what when it began.
    began: BTreeMap<IpAddr, BTreeSet<u8>>,
}

/// An address that a gateway has from then on, or has no more.
struct Report {
    at: Duration,
    address: IpAddr,
    number: u8,
    has: bool,
}

impl AddressWatch {
    pub(crate) fn start(segment: &Segment) -> Self {
        let arguments = ["-ts", "-o", "monitor", "address"];
        let start = |number| (number, segment.host(number).start("ip", &arguments));
        let monitors: BTreeMap<u8, Process> = segment.numbers().into_iter().map(start).collect();
        for (number, monitor) in &monitors {
            eventually("reports arrive", || {
                segment.host(*number).ip(&["add", "del"].map(|word| format!("addr {word} {SIGN} dev lo")));
                if monitor.stdout().contains(SIGN) { Ok(()) } else { Err("none has") }
            });
        }
        let mut began: BTreeMap<IpAddr, BTreeSet<u8>> = BTreeMap::new();
        for number in segment.numbers() {
            let list = segment.host(number).finish("ip", &["-o", "address"]).expect_success();
            for address in list.lines().filter_map(address_of) {
                began.entry(address).or_default().insert(number);
            }
        }
        Self { monitors, began }
    }

    /// Whether a gateway had one of the addresses when it began.
    pub(crate) fn has_some(&self, number: u8, of: impl Fn(IpAddr) -> bool) -> bool {
        self.began.iter().any(|(address, holders)| of(*address) && holders.contains(&number))
    }

    /// The longest time for which two gateways had one of the addresses, once no two have one any more.
    pub(crate) fn longest_overlap(&self, of: impl Fn(IpAddr) -> bool) -> Duration {
        eventually("no address has two owners", || match self.overlaps(&of) {
            (longest, lasting) if lasting.is_empty() => Ok(longest),
            (_, lasting) => Err(format!("{lasting:?}")),
        })
    }

    /// The longest time, and the addresses that two have by the reports so far: one monitor may be behind another.
    fn overlaps(&self, of: &impl Fn(IpAddr) -> bool) -> (Duration, Vec<IpAddr>) {
        let (mut has, mut since, mut longest) = (self.began.clone(), BTreeMap::new(), Duration::ZERO);
        for Report { at, address, number, has: gained } in self.reports() {
            let holders: &mut BTreeSet<u8> = has.entry(address).or_default();
            if gained {
                holders.insert(number)
            } else {
                holders.remove(&number)
            };
            if holders.len() > 1 {
                since.entry(address).or_insert(at);
            } else if let Some(since) = since.remove(&address).filter(|_| of(address)) {
                longest = longest.max(at.saturating_sub(since));
            }
        }
        (longest, since.into_keys().filter(|address| of(*address)).collect())
    }

    fn reports(&self) -> Vec<Report> {
        let mut reports: Vec<Report> = Vec::new();
        for (number, monitor) in &self.monitors {
            let text = monitor.stdout();
            // The last line may not be there as a whole yet.
            let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
            reports.extend(complete.lines().filter_map(|line| report(line, *number)));
        }
        // Half a day apart: midnight is in between.
        let first = reports.iter().map(|report| report.at).max().unwrap_or_default();
        for report in &mut reports {
            report.at += if report.at + DAY / 2 < first { DAY } else { Duration::ZERO };
        }
        reports.sort_by_key(|report| report.at);
        reports
    }
}

/// The address of a line of `ip -o address`.
fn address_of(line: &str) -> Option<IpAddr> {
    let mut words = line.split_whitespace().skip_while(|word| !word.starts_with("inet"));
    words.nth(1)?.split('/').next()?.parse().ok()
}

/// `[2026-11-24T10:20:30.123456] Deleted 2: eth0    inet 10.5.100.1/32 ...`
fn report(line: &str, number: u8) -> Option<Report> {
    let (time, rest) = line.strip_prefix('[')?.split_once("] ")?;
    let mut parts = time.split_once('T')?.1.split(':').map(|part| part.parse::<f64>().ok());
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
    let at = Duration::from_secs_f64((hours * 60.0 + minutes) * 60.0 + seconds);
    Some(Report { at, address: address_of(rest)?, number, has: !rest.starts_with("Deleted") })
}
