//! Connection logs as CSV (RFC 4180): a header with the keys of the JSON, and a line for each connection. Fields have no line breaks.

use std::borrow::Cow;

use super::log_line::{LineError, LogLine, known_key};

/// Keys without which a line means nothing.
const REQUIRED: [&str; 4] = ["time", "service", "frontend", "client"];

/// The keys of the columns; `None` for those that a replay does not read.
#[derive(Debug)]
pub(super) struct CsvHeader(Vec<Option<&'static str>>);

impl CsvHeader {
    /// Reads the first line of a file; `None` if it is no header of a connection log.
    pub(super) fn of(line: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?;
        let fields = fields(line.trim_start_matches('\u{feff}')).ok()?;
        let keys: Vec<_> = fields.iter().map(|name| known_key(name.trim())).collect();
        REQUIRED.iter().all(|key| keys.contains(&Some(*key))).then_some(Self(keys))
    }

    /// Reads a line.
    pub(super) fn line<'a>(&self, line: &'a [u8]) -> Result<LogLine<'a>, LineError> {
        let fields = fields(std::str::from_utf8(line).map_err(|_| LineError::NotCsv)?)?;
        if fields.len() != self.0.len() {
            return Err(LineError::Fields { found: fields.len(), columns: self.0.len() });
        }
        let mut read = LogLine::default();
        for (key, value) in self.0.iter().zip(fields) {
            if let Some(key) = key {
                read.set(key, value)?;
            }
        }
        Ok(read)
    }
}

/// The fields of a line, without their quotes.
fn fields(line: &str) -> Result<Vec<Cow<'_, str>>, LineError> {
    let mut fields = Vec::with_capacity(16);
    let mut rest = line;
    loop {
        let Some(quoted) = rest.strip_prefix('"') else {
            let Some((field, after)) = rest.split_once(',') else {
                fields.push(Cow::Borrowed(rest));
                return Ok(fields);
            };
            fields.push(Cow::Borrowed(field));
            rest = after;
            continue;
        };
        let (field, after) = quoted_field(quoted)?;
        fields.push(field);
        match after.strip_prefix(',') {
            Some(after) => rest = after,
            None if after.is_empty() => return Ok(fields),
            None => return Err(LineError::NotCsv),
        }
    }
}

/// The text up to the closing quote, and what follows it. Two quotes stand for one.
fn quoted_field(text: &str) -> Result<(Cow<'_, str>, &str), LineError> {
    let mut from = 0;
    loop {
        let end = from + text[from..].find('"').ok_or(LineError::NotCsv)?;
        match text[end + 1..].starts_with('"') {
            true => from = end + 2,
            false if from == 0 => return Ok((Cow::Borrowed(&text[..end]), &text[end + 1..])),
            false => return Ok((Cow::Owned(text[..end].replace("\"\"", "\"")), &text[end + 1..])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::log_line::or_empty;

    #[test]
    fn quotes_and_unknown_columns_are_read() {
        let header =
            CsvHeader::of("\u{feff}time,service,later,frontend,client,\"clientBytes\"".as_bytes()).unwrap();
        let line = header.line(br#"t,"a,""b""",x,f,c,12"#).unwrap();
        assert_eq!(or_empty(line.service.as_ref()), "a,\"b\"");
        assert_eq!((or_empty(line.client.as_ref()), line.client_bytes), ("c", Some(12)));
        assert!(CsvHeader::of(b"time,service").is_none() && CsvHeader::of(b"{}").is_none());
    }

    #[test]
    fn torn_lines_are_errors() {
        let header = CsvHeader::of(b"time,service,frontend,client").unwrap();
        let error = |line: &[u8]| header.line(line).unwrap_err();
        assert_eq!(error(b"a,b"), LineError::Fields { found: 2, columns: 4 });
        for line in [&b"\"a,b,c,d"[..], b"\"a\"b,c,d,e", b"\xff,b,c,d", b"\"a\"\",b,c,d"] {
            assert_eq!(error(line), LineError::NotCsv, "{line:?}");
        }
    }
}
