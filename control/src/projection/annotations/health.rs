//! Annotations about the health of endpoints.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use sheave_model::{Check, CheckKind, HealthPolicy};

use super::{HEALTH_CHECK, PANIC_THRESHOLD, SLOW_START};
use crate::api::problem::report::Report;
use crate::projection::annotations;
use crate::time;

/// Range of a slow start: no endpoint warms up for longer.
const SLOWEST_START: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

/// Longest timeout: a check that hangs delays others of its namespace for this long.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Largest length of a gRPC service name.
const LONGEST_SERVICE: usize = 255;

/// Largest length of a check's payload and answer: datagrams of this size are not fragmented.
const LONGEST_PAYLOAD: usize = 1024;

/// The health policy of a Service: the shared `default` unless annotations change it. An invalid annotation is ignored.
pub(in crate::projection) fn read(
    service: &Service,
    default: &Arc<HealthPolicy>,
    report: &mut Report,
) -> Arc<HealthPolicy> {
    let usual = u16::from(default.panic_threshold);
    let panic_threshold = percent(service, PANIC_THRESHOLD, 0..=100, usual, report);
    let check = annotations::read(service, HEALTH_CHECK, report, |text| {
        check(text).map_err(|why| format!("{text:?}: {why}; only connections show health"))
    });
    let slow_start = annotations::read(service, SLOW_START, report, |text| {
        let time = time::parse_duration(text.trim()).ok().filter(|time| SLOWEST_START.contains(time));
        time.ok_or_else(|| {
            format!("{text:?} is not a duration from 1s to 1h; endpoints get their share at once")
        })
    });
    let policy = HealthPolicy {
        slow_start: slow_start.unwrap_or(default.slow_start),
        panic_threshold: u8::try_from(panic_threshold).unwrap_or(default.panic_threshold),
        check: check.or_else(|| default.check.clone()),
    };
    if policy == **default { Arc::clone(default) } else { Arc::new(policy) }
}

/// The percentage in an annotation, or the default.
pub(super) fn percent(
    service: &Service,
    annotation: &str,
    range: RangeInclusive<u16>,
    default: u16,
    report: &mut Report,
) -> u16 {
    let percent = annotations::read(service, annotation, report, |text| {
        let percent =
            text.trim().trim_end_matches('%').parse().ok().filter(|percent| range.contains(percent));
        percent.ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            format!("{text:?} is not within {least} to {most} percent; {default} is used")
        })
    });
    percent.unwrap_or(default)
}

/// Parses `tcp`, `tcp:PORT`, `http:/PATH`, `http:PORT/PATH`, `grpc`, `grpc:SERVICE` or `udp:PAYLOAD`, followed by options such as
/// `interval=5s timeout=1s failures=3 successes=2`.
fn check(text: &str) -> Result<Check, String> {
    let mut words = text.split_whitespace();
    let (kind, port) = kind(words.next().unwrap_or_default())?;
    let mut check = Check {
        kind,
        port,
        interval: Duration::from_secs(5),
        timeout: Duration::from_secs(1),
        failures: 3,
        successes: 2,
    };
    let mut seen = std::collections::BTreeSet::new();
    for word in words {
        let (name, value) = word.split_once('=').ok_or_else(|| format!("{word:?} is not an option"))?;
        if !seen.insert(name) {
            return Err(format!("{name} is given twice"));
        }
        match name {
            "interval" => check.interval = time(value)?,
            "timeout" => check.timeout = time(value)?,
            "failures" => check.failures = count(value)?,
            "successes" => check.successes = count(value)?,
            "port" => match check.kind {
                CheckKind::Udp { .. } | CheckKind::Grpc { .. } => check.port = Some(port_number(value)?),
                CheckKind::Tcp | CheckKind::Http { .. } => {
                    return Err("port is for grpc and udp; write tcp:PORT or http:PORT/PATH".to_owned());
                }
            },
            "answer" => match &mut check.kind {
                CheckKind::Udp { answer, .. } => *answer = bytes(value)?,
                CheckKind::Tcp | CheckKind::Http { .. } | CheckKind::Grpc { .. } => {
                    return Err("answer is for udp alone".to_owned());
                }
            },
            _ => return Err(format!("{name:?} is not interval, timeout, failures or successes")),
        }
    }
    if check.interval < Duration::from_secs(1) {
        return Err("an interval is at least 1s".to_owned());
    }
    if check.timeout > LONGEST_TIMEOUT {
        return Err(format!("a timeout is at most {}s", LONGEST_TIMEOUT.as_secs()));
    }
    if check.timeout > check.interval {
        return Err("the timeout is longer than the interval".to_owned());
    }
    Ok(check)
}

fn kind(word: &str) -> Result<(CheckKind, Option<u16>), String> {
    match word.split_once(':') {
        None if word == "tcp" => Ok((CheckKind::Tcp, None)),
        Some(("tcp", number)) => Ok((CheckKind::Tcp, Some(port_number(number)?))),
        Some(("http", rest)) => {
            let slash = rest.find('/').ok_or("a path begins with /")?;
            let (number, path) = rest.split_at(slash);
            if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err("a path is of printable ASCII".to_owned());
            }
            let number = if number.is_empty() { None } else { Some(port_number(number)?) };
            Ok((CheckKind::Http { path: path.into() }, number))
        }
        None if word == "grpc" => Ok((CheckKind::Grpc { service: Arc::default() }, None)),
        Some(("grpc", service)) => {
            let printable = service.bytes().all(|byte| byte.is_ascii_graphic());
            if !printable || !(1..=LONGEST_SERVICE).contains(&service.len()) {
                return Err(format!("a service is named by 1 to {LONGEST_SERVICE} bytes of printable ASCII"));
            }
            Ok((CheckKind::Grpc { service: service.into() }, None))
        }
        Some(("udp", payload)) => {
            Ok((CheckKind::Udp { payload: bytes(payload)?, answer: Arc::default() }, None))
        }
        _ => Err("it is not tcp, tcp:PORT, http:/PATH, http:PORT/PATH, grpc, grpc:SERVICE or udp:PAYLOAD"
            .to_owned()),
    }
}

fn port_number(text: &str) -> Result<u16, String> {
    let port = text.parse().ok().filter(|port| *port != 0);
    port.ok_or_else(|| format!("{text:?} is not a port (1 to 65535)"))
}

/// Decodes printable ASCII, with `%XX` for other bytes (RFC 3986, section 2.1).
fn bytes(text: &str) -> Result<Arc<[u8]>, String> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, behind @ ..] = rest {
        rest = behind;
        let digit = |at: usize| char::from(behind.get(at).copied().unwrap_or_default()).to_digit(16);
        let byte = match first {
            b'%' => {
                rest = behind.get(2..).unwrap_or_default();
                digit(0).zip(digit(1)).and_then(|(high, low)| u8::try_from(16 * high + low).ok())
            }
            byte => Some(*byte).filter(u8::is_ascii_graphic),
        };
        bytes.push(byte.ok_or_else(|| format!("{text:?} is not printable ASCII with %XX for other bytes"))?);
    }
    match bytes.len() {
        1..=LONGEST_PAYLOAD => Ok(bytes.into()),
        length => Err(format!("{length} bytes are not within 1 to {LONGEST_PAYLOAD}")),
    }
}

/// Parses a time such as `500ms`, `5s` or `1m`, from 1 ms to a day.
fn time(text: &str) -> Result<Duration, String> {
    let allowed = Duration::from_millis(1)..=Duration::from_secs(86_400);
    let time = time::parse_duration(text).ok().filter(|time| allowed.contains(time));
    time.ok_or_else(|| format!("{text:?} is not a duration such as 500ms, 5s or 1m"))
}

fn count(text: &str) -> Result<u8, String> {
    text.parse().ok().filter(|count| *count != 0).ok_or_else(|| format!("{text:?} is not within 1 to 255"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_read_with_their_defaults() {
        let read = |text| check(text).unwrap();
        let plain = read("tcp");
        assert_eq!((plain.kind, plain.port, plain.failures), (CheckKind::Tcp, None, 3));
        assert_eq!((plain.interval, plain.timeout), (Duration::from_secs(5), Duration::from_secs(1)));
        assert_eq!(read("tcp:81").port, Some(81));
        let http = read("http:8080/ready?x=1 interval=2s timeout=500ms failures=1 successes=9");
        assert_eq!((http.kind, http.port), (CheckKind::Http { path: "/ready?x=1".into() }, Some(8080)));
        assert_eq!((http.timeout, http.failures, http.successes), (Duration::from_millis(500), 1, 9));
        assert_eq!(read("http:/").port, None);
        assert_eq!(read("tcp interval=1m timeout=10s").timeout, Duration::from_secs(10));
    }

    #[test]
    fn a_check_by_datagrams_has_a_payload_and_may_have_an_answer() {
        let udp = check("udp:%00%01ping answer=pong%0a port=5300 interval=2s").unwrap();
        let (payload, answer) = (b"\0\x01ping".as_slice().into(), b"pong\n".as_slice().into());
        assert_eq!((udp.kind, udp.port), (CheckKind::Udp { payload, answer }, Some(5300)));
        let any = CheckKind::Udp { payload: b"?".as_slice().into(), answer: Arc::default() };
        assert_eq!(check("udp:?").unwrap().kind, any);
        for bad in
            ["udp:", "udp:%", "udp:%0", "udp:%zz", "udp:ä", "udp:a port=0", "udp:a answer=", "tcp port=1"]
        {
            assert!(check(bad).is_err(), "{bad}");
        }
        assert!(check(&format!("udp:{}", "a".repeat(1025))).is_err());
    }

    #[test]
    fn a_check_of_grpc_may_name_a_service_and_a_port() {
        let grpc = |service: &str| CheckKind::Grpc { service: service.into() };
        let plain = check("grpc interval=2s").unwrap();
        assert_eq!((plain.kind, plain.port, plain.interval), (grpc(""), None, Duration::from_secs(2)));
        let named = check("grpc:shop.v1.Cart port=50051").unwrap();
        assert_eq!((named.kind, named.port), (grpc("shop.v1.Cart"), Some(50051)));
        let longest = "a".repeat(255);
        assert_eq!(check(&format!("grpc:{longest}")).unwrap().kind, grpc(&longest));
        for bad in ["grpc:", "grpc:ä", "grpc answer=x", "grpc port=0", "grpcs", "http:/ port=1"] {
            assert!(check(bad).is_err(), "{bad}");
        }
        assert!(check(&format!("grpc:{longest}a")).is_err());
    }

    #[test]
    fn checks_that_make_no_sense_are_refused() {
        for bad in [
            "",
            "udp",
            "tcp:0",
            "tcp:x",
            "http:",
            "http:80",
            "http:0/",
            "tcp interval=0s",
            "tcp interval=500ms",
            "tcp timeout=6s",
            "tcp interval=1m timeout=10001ms",
            "tcp failures=0",
            "tcp failures=256",
            "tcp x=1",
            "tcp interval",
            "tcp interval=5",
            "tcp failures=1 failures=2",
            "http:/ä",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
