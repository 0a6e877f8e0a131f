//! Several logs, merged by the time at which connections ended, and what was skipped in them.

use std::io;
use std::path::PathBuf;

use super::connection::ReplayedConnection;
use super::log_reader::{LogReader, NextLine};
use super::names::LoggedNames;

/// Number of skipped lines that are named.
const NAMED: usize = 10;

/// Open logs.
pub(super) struct MergedLogs {
    logs: Vec<(LogReader, Option<ReplayedConnection>)>,
    /// Number of skipped lines.
    pub(super) skipped: u64,
    /// The first of them.
    pub(super) named: Vec<SkippedLine>,
    /// Number of connections so far.
    pub(super) connections: u64,
    /// Whether the first connection of each log was read.
    begun: bool,
}

/// A line that is not replayed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SkippedLine {
    pub(super) log: String,
    /// Number of the line, from 1.
    pub(super) line: u64,
    pub(super) message: String,
}

/// A log that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {name}: {error}")]
pub(super) struct UnreadableLog {
    name: String,
    error: io::Error,
}

impl MergedLogs {
    /// Opens logs.
    pub(super) fn open(paths: &[PathBuf]) -> Result<Self, UnreadableLog> {
        let open = |path: &PathBuf| {
            let name = path.display().to_string();
            LogReader::open(path).map_err(|error| UnreadableLog { name, error })
        };
        Ok(Self::of(paths.iter().map(open).collect::<Result<_, _>>()?))
    }

    /// Merges open logs.
    pub(super) fn of(logs: Vec<LogReader>) -> Self {
        let logs = logs.into_iter().map(|log| (log, None)).collect();
        Self { logs, skipped: 0, named: Vec::new(), connections: 0, begun: false }
    }

    /// The next connection; `None` at the end of all logs.
    pub(super) fn next(
        &mut self,
        names: &mut LoggedNames,
    ) -> Result<Option<ReplayedConnection>, UnreadableLog> {
        if !std::mem::replace(&mut self.begun, true) {
            for index in 0..self.logs.len() {
                self.advance(index, names)?;
            }
        }
        let ahead =
            self.logs.iter().enumerate().filter_map(|(index, (_, ahead))| Some((ahead.as_ref()?.end, index)));
        let Some((_, first)) = ahead.min() else { return Ok(None) };
        self.advance(first, names)
    }

    /// Takes the connection that was read ahead of a log, and reads its next one.
    fn advance(
        &mut self,
        index: usize,
        names: &mut LoggedNames,
    ) -> Result<Option<ReplayedConnection>, UnreadableLog> {
        let Some((log, ahead)) = self.logs.get_mut(index) else { return Ok(None) };
        loop {
            let next = log.next(names).map_err(|error| UnreadableLog { name: log.name.clone(), error })?;
            let next = match next {
                NextLine::Connection(connection) => {
                    self.connections += 1;
                    Some(connection)
                }
                NextLine::End => None,
                NextLine::Skipped(error) => {
                    self.skipped += 1;
                    if self.named.len() < NAMED {
                        let message = error.to_string();
                        self.named.push(SkippedLine { log: log.name.clone(), line: log.line, message });
                    }
                    continue;
                }
            };
            return Ok(std::mem::replace(ahead, next));
        }
    }

    /// Bytes read so far, and the length of all logs if each is a regular file.
    pub(super) fn progress(&self) -> (u64, Option<u64>) {
        let read = self.logs.iter().map(|(log, _)| log.position).sum();
        (read, self.logs.iter().map(|(log, _)| log.length).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(name: &str, seconds: &[u8]) -> LogReader {
        let line = |second: &u8| {
            format!(
                "{{\"time\":\"2026-01-01T00:00:{second:02}Z\",\"service\":\"shop/{name}\",\"frontend\":\"203.0.113.1:80\",\"client\":\"192.0.2.1:7\"}}\n"
            )
        };
        let text: String = seconds.iter().map(line).collect();
        LogReader::of(name.to_owned(), Box::new(io::Cursor::new(text + "torn\n")), None).unwrap()
    }

    #[test]
    fn logs_are_merged_by_time() {
        let mut logs = MergedLogs::of(vec![log("a", &[1, 4, 5]), log("b", &[2, 3, 9]), log("c", &[])]);
        let mut names = LoggedNames::default();
        let mut order = Vec::new();
        while let Some(connection) = logs.next(&mut names).unwrap() {
            let route = names.route_of(connection.route);
            order.push(names.service_of(route.service).service.to_string());
        }
        assert_eq!(order, ["shop/a", "shop/b", "shop/b", "shop/a", "shop/a", "shop/b"]);
        assert_eq!((logs.connections, logs.skipped), (6, 3));
        assert_eq!(logs.named.iter().map(|it| it.line).sum::<u64>(), 4 + 4 + 1);
    }
}
