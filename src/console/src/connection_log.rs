//! Log of TCP connections that have ended: one JSON object per line on stdout. A separate thread writes it, since the reader may be
//! slow; workers never wait for it. The number of lines per Service is limited.

mod line;

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sheave_control::api::store::ServiceKey;
use sheave_dataplane::ConnectionRecord;

use self::line::Line;
use crate::views::escape::visible_json;

/// Records per write.
const BATCH: usize = 256;
/// How long the process may wait at its end for the last lines.
const LAST_LINES: Duration = Duration::from_millis(1500);
/// Window in which the lines of a Service are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// Lines of the connection log by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCounts {
    /// Written lines.
    pub written: u64,
    /// Dropped, since the Service exceeded its rate.
    pub over_rate: u64,
    /// Dropped, since the reader is too slow or has gone.
    pub lost: u64,
}

/// Running writer. Dropping it waits briefly for the last lines, if workers have ended.
#[derive(Debug)]
pub struct ConnectionLogWriter {
    shared: Arc<Shared>,
    /// Disconnects when the writer ends. In a mutex, since a receiver is not `Sync`.
    ended: Mutex<Receiver<()>>,
}

#[derive(Debug)]
struct Shared {
    lines_per_service: AtomicU32,
    written: AtomicU64,
    over_rate: AtomicU64,
    unwritable: AtomicU64,
    lost: Arc<AtomicU64>,
}

impl ConnectionLogWriter {
    /// Starts the writer. `lost` counts the records that did not fit into the channel.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(
        records: Receiver<ConnectionRecord>,
        lost: Arc<AtomicU64>,
        lines_per_service: u32,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            lines_per_service: lines_per_service.into(),
            written: AtomicU64::new(0),
            over_rate: AtomicU64::new(0),
            unwritable: AtomicU64::new(0),
            lost,
        });
        let (running, ended) = channel();
        let writing = Writing::new(Arc::clone(&shared), running);
        thread::Builder::new()
            .name("connection-log".to_owned())
            .spawn(move || writing.run(&records, &mut io::stdout()))?;
        Ok(Self { shared, ended: Mutex::new(ended) })
    }

    /// Sets the limit of lines per second for each Service.
    pub fn set_lines_per_service(&self, lines: u32) {
        self.shared.lines_per_service.store(lines, Ordering::Relaxed);
    }

    /// Counts since the start.
    pub fn counts(&self) -> LineCounts {
        let Shared { written, over_rate, unwritable, lost, .. } = &*self.shared;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LineCounts {
            written: count(written),
            over_rate: count(over_rate),
            lost: count(lost) + count(unwritable),
        }
    }
}

impl Drop for ConnectionLogWriter {
    fn drop(&mut self) {
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        ended.recv_timeout(LAST_LINES).unwrap_or_default();
    }
}

/// State of the writer's thread.
struct Writing {
    shared: Arc<Shared>,
    /// Dropped when the thread ends.
    _running: Sender<()>,
    /// Lines of each Service in the current window.
    lines: HashMap<ServiceKey, u32>,
    window: Instant,
    buffer: Vec<u8>,
    /// Whether writing to stdout failed, which is logged once.
    broken: bool,
    /// Whether the output ends within a line.
    cut: bool,
}

/// Writer that tracks whether the output ends within a line, as on a full disk.
struct WholeLines<'a, W> {
    out: &'a mut W,
    cut: &'a mut bool,
}

impl<W: Write> WholeLines<'_, W> {
    /// Ends an incomplete line, so that the next one starts on its own line.
    fn end_line(&mut self) -> io::Result<()> {
        if *self.cut { self.write_all(b"\n") } else { Ok(()) }
    }
}

impl<W: Write> Write for WholeLines<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.out.write(bytes)?;
        if let Some(last) = bytes[..length].last() {
            *self.cut = *last != b'\n';
        }
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Writing {
    fn new(shared: Arc<Shared>, running: Sender<()>) -> Self {
        Self {
            shared,
            _running: running,
            lines: HashMap::new(),
            window: Instant::now(),
            buffer: Vec::new(),
            broken: false,
            cut: false,
        }
    }

    fn run(mut self, records: &Receiver<ConnectionRecord>, out: &mut impl Write) {
        while let Ok(first) = records.recv() {
            let lines = [first].into_iter().chain(records.try_iter().take(BATCH - 1));
            let lines = lines.filter(|record| self.format(record)).count() as u64;
            self.write(lines, out);
        }
    }

    /// Formats the line of a connection, unless its Service has exceeded its rate.
    fn format(&mut self, record: &ConnectionRecord) -> bool {
        if self.window.elapsed() >= WINDOW {
            self.lines.clear();
            self.window = Instant::now();
        }
        let lines = self.lines.entry(ServiceKey::from(&record.frontend.service)).or_default();
        if *lines >= self.shared.lines_per_service.load(Ordering::Relaxed) {
            self.shared.over_rate.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        *lines += 1;
        // Serialization of a line cannot fail.
        serde_json::to_string(&Line::of(record)).is_ok_and(|json| {
            // A terminal may show the log, and Nodes and clusters have names that others chose, so control characters are escaped as in
            // JSON.
            self.buffer.extend_from_slice(visible_json(&json).as_bytes());
            self.buffer.push(b'\n');
            true
        })
    }

    fn write(&mut self, lines: u64, out: &mut impl Write) {
        if lines == 0 {
            return;
        }
        let mut out = WholeLines { out, cut: &mut self.cut };
        let written = out.end_line().and_then(|()| out.write_all(&self.buffer)).and_then(|()| out.flush());
        self.buffer.clear();
        let counter = if written.is_ok() { &self.shared.written } else { &self.shared.unwritable };
        counter.fetch_add(lines, Ordering::Relaxed);
        let broken = written.is_err();
        if let Err(error) = written
            && !self.broken
        {
            tracing::warn!(%error, "connections cannot be logged to standard output");
        }
        self.broken = broken;
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use sheave_dataplane::counters::CloseReason;
    use sheave_dataplane::{LoggedEndpoint, LoggedFrontend};
    use sheave_model::{Algorithm, ClientAddr, FrontendSource, test_util};

    use super::*;

    fn record(service: u32) -> ConnectionRecord {
        let frontend = test_util::frontend(service, Algorithm::Random, &[(1, 100)]);
        let endpoint = LoggedEndpoint::of(frontend.backends[0].endpoints[0].addr, Some(&frontend));
        ConnectionRecord {
            frontend: LoggedFrontend::of(&frontend),
            ended: SystemTime::UNIX_EPOCH,
            peer: ClientAddr("[::ffff:10.9.0.7]:41232".parse().unwrap()),
            named_client: None,
            endpoint: Some(endpoint),
            connected_after: Some(Duration::from_micros(250)),
            duration: Duration::from_millis(1500),
            client_bytes: 78,
            endpoint_bytes: 1204,
            reason: CloseReason::Finished,
        }
    }

    fn writing(lines_per_service: u32) -> Writing {
        let shared = Shared {
            lines_per_service: lines_per_service.into(),
            written: AtomicU64::new(0),
            over_rate: AtomicU64::new(0),
            unwritable: AtomicU64::new(0),
            lost: Arc::default(),
        };
        Writing::new(Arc::new(shared), channel().0)
    }

    fn counts(shared: &Shared) -> [u64; 3] {
        [&shared.written, &shared.over_rate, &shared.unwritable]
            .map(|counter| counter.load(Ordering::Relaxed))
    }

    #[test]
    fn a_line_says_who_spoke_with_whom_and_why_it_ended() {
        let mut line = serde_json::to_value(Line::of(&record(1))).unwrap();
        assert_eq!(line["time"].take(), "1970-01-01T00:00:00Z");
        let endpoint = record(1).endpoint.unwrap().addr.to_string();
        let expected = serde_json::json!({
            "time": null, "service": "shop/web-1", "portName": "http", "source": "Service",
            "frontend": record(1).frontend.addr.socket_addr().to_string(), "client": "10.9.0.7:41232",
            "endpoint": endpoint, "cluster": "local", "connectSeconds": 0.00025,
            "durationSeconds": 1.5, "clientBytes": 78, "endpointBytes": 1204, "reason": "finished",
        });
        assert_eq!(line, expected);
        let named = ConnectionRecord { named_client: Some("192.0.2.1:7".parse().unwrap()), ..record(1) };
        let line = serde_json::to_value(Line::of(&named)).unwrap();
        assert_eq!((&line["client"], &line["proxy"]), (&"192.0.2.1:7".into(), &"10.9.0.7:41232".into()));
        let refused = ConnectionRecord {
            endpoint: None,
            connected_after: None,
            reason: CloseReason::NoEndpoint,
            ..record(1)
        };
        let line = serde_json::to_value(Line::of(&refused)).unwrap();
        assert_eq!(line["reason"], "no_endpoint");
        assert!(
            ["endpoint", "cluster", "node", "connectSeconds"].iter().all(|key| line.get(key).is_none()),
            "{line}"
        );
    }

    #[test]
    fn a_hostile_name_is_a_string_of_one_line_with_nothing_unseen_in_it() {
        let mut writing = writing(1);
        let mut record = record(1);
        let hostile = "web\n{}\u{202e}\u{1b}[31m\u{9b}";
        record.frontend.service.name = hostile.into();
        assert!(writing.format(&record));
        let text = String::from_utf8(writing.buffer).unwrap();
        let line = text.strip_suffix('\n').unwrap();
        assert!(!line.contains(|char: char| char.is_control() || char == '\u{202e}'), "{line:?}");
        let read: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(read["service"], format!("shop/{hostile}"));
    }

    #[test]
    fn one_service_takes_no_lines_of_another() {
        let (leave, records) = std::sync::mpsc::sync_channel(32);
        let writing = writing(3);
        let shared = Arc::clone(&writing.shared);
        for service in [1, 1, 1, 1, 1, 2, 2] {
            leave.send(record(service)).unwrap();
        }
        drop(leave);
        let mut out = Vec::new();
        writing.run(&records, &mut out);
        let text = String::from_utf8(out).unwrap();
        let of = |service: &str| text.lines().filter(|line| line.contains(service)).count();
        assert_eq!((of("shop/web-1"), of("shop/web-2")), (3, 2));
        assert_eq!(counts(&shared), [5, 2, 0]);
    }

    #[test]
    fn a_fleet_service_takes_no_lines_of_the_service_with_its_name() {
        let fleet = || {
            let mut record = record(1);
            record.frontend.service.source = FrontendSource::MultiClusterService;
            record
        };
        let mut writing = writing(1);
        let lines = [record(1), record(1), fleet(), fleet()].map(|record| writing.format(&record));
        assert_eq!(lines, [true, false, true, false]);
    }

    /// A full disk takes only the beginning of a line.
    #[test]
    fn a_line_after_one_that_was_cut_is_a_line_of_its_own() {
        struct Full {
            room: usize,
            taken: Vec<u8>,
        }
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let part = &bytes[..bytes.len().min(self.room)];
                self.room -= part.len();
                self.taken.extend_from_slice(part);
                if part.is_empty() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(part.len()) }
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut writing = writing(100);
        let mut disk = Full { room: 10, taken: Vec::new() };
        for room in [10, 10_000] {
            disk.room = room;
            assert!(writing.format(&record(1)));
            writing.write(1, &mut disk);
        }
        let text = String::from_utf8(disk.taken).unwrap();
        let whole: Vec<bool> =
            text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()).collect();
        assert_eq!(whole, [false, true], "{text}");
    }

    #[test]
    fn lines_that_nobody_takes_are_counted() {
        struct Gone;
        impl Write for Gone {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (leave, records) = std::sync::mpsc::sync_channel(32);
        let writing = writing(100);
        let shared = Arc::clone(&writing.shared);
        (0..4).for_each(|_| leave.send(record(1)).unwrap());
        drop(leave);
        writing.run(&records, &mut Gone);
        assert_eq!(counts(&shared), [0, 0, 4]);
    }
}
