//! Lines of one log, read in bounded memory: JSON lines or CSV, as its first line tells.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use super::connection::ReplayedConnection;
use super::csv::CsvHeader;
use super::log_line::{LineError, LogLine};
use super::names::LoggedNames;

/// Maximum length of a line.
const LONGEST_LINE: usize = 64 * 1024;
/// Bytes read at once.
const READ: usize = 1 << 20;
/// First bytes of a gzip file (RFC 1952).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// An open log.
pub(super) struct LogReader {
    /// Name as the user wrote it.
    pub(super) name: String,
    /// Length in bytes, if it is a regular file.
    pub(super) length: Option<u64>,
    /// Bytes read so far.
    pub(super) position: u64,
    /// Number of the last line.
    pub(super) line: u64,
    input: BufReader<Box<dyn Read>>,
    buffer: Vec<u8>,
    /// `None` until the first line with text.
    format: Option<LogFormat>,
}

/// Format of the lines.
enum LogFormat {
    Json,
    Csv(CsvHeader),
}

/// Next line of a log.
pub(super) enum NextLine {
    Connection(ReplayedConnection),
    Skipped(LineError),
    End,
}

impl LogReader {
    /// Opens a log; `-` is standard input.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let (input, length): (Box<dyn Read>, _) = match path.as_os_str() == "-" {
            true => (Box::new(io::stdin()), None),
            false => {
                let file = File::open(path)?;
                let metadata = file.metadata()?;
                let length = Some(metadata.len()).filter(|_| metadata.is_file());
                (Box::new(file), length)
            }
        };
        Self::of(path.display().to_string(), input, length)
    }

    /// Reads a log from `input`.
    pub(super) fn of(name: String, input: Box<dyn Read>, length: Option<u64>) -> io::Result<Self> {
        let mut input = BufReader::with_capacity(READ, input);
        if input.fill_buf()?.starts_with(&GZIP) {
            let why = "it is compressed; run gunzip -c FILE | sheave replay --log -";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(Self { name, length, position: 0, line: 0, input, buffer: Vec::new(), format: None })
    }

    /// Reads the next line that is not blank.
    pub(super) fn next(&mut self, names: &mut LoggedNames) -> io::Result<NextLine> {
        loop {
            if !self.read_line()? {
                return Ok(NextLine::End);
            }
            if self.buffer.len() > LONGEST_LINE {
                return Ok(NextLine::Skipped(LineError::TooLong(LONGEST_LINE)));
            }
            let line = self.buffer.trim_ascii();
            if line.is_empty() {
                continue;
            }
            if self.format.is_none() {
                let header = CsvHeader::of(line);
                let is_header = header.is_some();
                self.format = Some(header.map_or(LogFormat::Json, LogFormat::Csv));
                if is_header {
                    continue;
                }
            }
            let read = match &self.format {
                Some(LogFormat::Csv(header)) => header.line(line),
                Some(LogFormat::Json) | None => LogLine::of_json(line),
            };
            let connection = read.and_then(|line| ReplayedConnection::of(&line, names));
            return Ok(connection.map_or_else(NextLine::Skipped, NextLine::Connection));
        }
    }

    /// Reads a line into the buffer, no more than its beginning if it is too long; false at the end.
    fn read_line(&mut self) -> io::Result<bool> {
        self.buffer.clear();
        let limit = LONGEST_LINE as u64 + 2;
        let mut read = (&mut self.input).take(limit).read_until(b'\n', &mut self.buffer)?;
        if read == 0 {
            return Ok(false);
        }
        self.line += 1;
        self.position += read as u64;
        let mut rest = Vec::new();
        while read as u64 == limit && self.buffer.last() != Some(&b'\n') && rest.last() != Some(&b'\n') {
            rest.clear();
            read = (&mut self.input).take(limit).read_until(b'\n', &mut rest)?;
            self.position += read as u64;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"time":"2026-01-01T00:00:00Z","service":"shop/web","frontend":"203.0.113.1:80","client":"192.0.2.1:7"}"#;

    fn read(text: &str) -> (Vec<u64>, Vec<(u64, LineError)>) {
        let input = Box::new(io::Cursor::new(text.as_bytes().to_vec()));
        let mut reader = LogReader::of("log".to_owned(), input, None).unwrap();
        let (mut names, mut connections, mut skipped) = (LoggedNames::default(), Vec::new(), Vec::new());
        loop {
            match reader.next(&mut names).unwrap() {
                NextLine::End => break,
                NextLine::Connection(_) => connections.push(reader.line),
                NextLine::Skipped(error) => skipped.push((reader.line, error)),
            }
        }
        assert_eq!(reader.position, text.len() as u64);
        (connections, skipped)
    }

    #[test]
    fn torn_and_foreign_lines_are_skipped_and_all_others_read() {
        let torn = &LINE[..40];
        let (connections, skipped) = read(&format!("{LINE}\r\n\n{torn}\nINFO sheave: started\n{LINE}"));
        assert_eq!(connections, [1, 5]);
        assert_eq!(skipped.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [3, 4]);
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_in_bounded_memory() {
        for length in [LONGEST_LINE + 1, LONGEST_LINE + 2, LONGEST_LINE + 3, 2 * LONGEST_LINE + 4, 1_000_000]
        {
            let (connections, skipped) = read(&format!("{LINE}\n{}\n{LINE}\n", "x".repeat(length)));
            assert_eq!(connections, [1, 3], "{length}");
            assert_eq!(skipped, [(2, LineError::TooLong(LONGEST_LINE))], "{length}");
        }
    }

    #[test]
    fn csv_is_known_by_its_header() {
        let (connections, skipped) = read(
            "client,frontend,service,time,clientBytes\n192.0.2.1:7,203.0.113.1:80,shop/web,2026-01-01T00:00:00Z,x\n192.0.2.1:7,203.0.113.1:80,shop/web,2026-01-01T00:00:00Z,\n",
        );
        assert_eq!(connections, [3]);
        assert_eq!(skipped.len(), 1);
    }

    #[test]
    fn a_compressed_log_is_refused_with_what_to_do() {
        let error = LogReader::of("log".to_owned(), Box::new(io::Cursor::new(vec![0x1f, 0x8b, 8])), None);
        assert!(error.err().unwrap().to_string().contains("gunzip"));
    }
}
