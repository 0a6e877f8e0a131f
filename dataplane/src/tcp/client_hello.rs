//! The server name of a TLS client: the ClientHello at the beginning of its stream (RFC 8446, sections 4.1.2 and 5.1), and the name
//! in it (RFC 6066, section 3).
//!
//! The parser sees each byte once, however small the segments and records are in which they arrive, keeps only the field that is
//! incomplete, and judges as soon as the bytes allow. Versions, ciphers and other extensions are for the endpoint to judge; with an
//! encrypted ClientHello the outer name counts. Existing crates are not used: `tls-parser` needs the whole message in one slice, and
//! the `Acceptor` of rustls, with which tests/fuzz compares this parser, refuses clients that an endpoint may well serve.

use std::net::Ipv4Addr;

use thiserror::Error;

/// Maximum number of bytes up to the end of the ClientHello. Post-quantum keys take some kilobytes.
pub const LONGEST_HELLO: usize = 64 << 10;
/// Longest name, without a dot at its end (RFC 1035, section 2.3.4).
const LONGEST_NAME: usize = 255;

/// Handshake records (RFC 8446, section 5.1): their type, the first byte of every version, the length of a header, and the maximum
/// length of what follows.
const HANDSHAKE: u8 = 22;
const MAJOR_VERSION: u8 = 3;
const RECORD_HEADER: usize = 5;
const LONGEST_RECORD: usize = 1 << 14;

/// The message's type, and the length of what precedes its first vector: the legacy version and the random.
const CLIENT_HELLO: usize = 1;
const BEFORE_SESSION_ID: usize = 34;
const LONGEST_SESSION_ID: usize = 32;
/// Number of the extension with the server name, and type of the only kind of names that is defined.
const SERVER_NAME: usize = 0;
const HOST_NAME: usize = 0;

/// Result of parsing the beginning of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum ParsedClientHello {
    /// More bytes are needed.
    Incomplete,
    /// A ClientHello with this server name, as [`server_name`] returns it.
    Name(Box<str>),
    /// A ClientHello that names no server, or not exactly one by a [host name](server_name).
    NoName,
    /// No ClientHello, whatever follows.
    Invalid(ClientHelloError),
}

/// Reason why bytes are no ClientHello.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ClientHelloError {
    /// Another protocol, an alert, or another record between those of the message.
    #[error("other bytes than a TLS handshake record")]
    NoRecord,
    /// An empty record, which a handshake message must not have, or one of more than 16 KiB.
    #[error("a record of a length that is not allowed")]
    RecordLength,
    /// Another handshake message.
    #[error("another message than a ClientHello")]
    NoClientHello,
    /// The message does not end within [`LONGEST_HELLO`] bytes.
    #[error("longer than 64 KiB")]
    TooLong,
    /// A field is longer than what contains it, or shorter than its contents.
    #[error("a field and what contains it have different ends")]
    Overrun,
    /// A field has a length that it cannot have.
    #[error("a field of a length that is not allowed")]
    FieldLength,
    /// The server name extension is there twice.
    #[error("two server name extensions")]
    SecondExtension,
}

/// Incremental parser of the beginning of a stream.
#[derive(Debug, Default)]
pub struct ClientHelloParser {
    /// Number of bytes seen.
    seen: usize,
    /// Header of a record, as far as it has arrived.
    header: Vec<u8>,
    /// Number of bytes that the current record still has.
    in_record: usize,
    message: MessageParser,
}

impl ClientHelloParser {
    /// Parses the bytes that follow those of earlier calls. Not to be called after another result than
    /// [`ParsedClientHello::Incomplete`]; bytes after the ClientHello do not matter.
    pub fn parse(&mut self, bytes: &[u8]) -> ParsedClientHello {
        match self.advance(bytes) {
            Ok(false) => ParsedClientHello::Incomplete,
            Ok(true) => self.message.name.take().map_or(ParsedClientHello::NoName, ParsedClientHello::Name),
            Err(error) => ParsedClientHello::Invalid(error),
        }
    }

    /// Whether the message is complete.
    fn advance(&mut self, bytes: &[u8]) -> Result<bool, ClientHelloError> {
        let mut rest = &bytes[..bytes.len().min(LONGEST_HELLO - self.seen)];
        self.seen += rest.len();
        while !rest.is_empty() {
            let wanted = if self.in_record > 0 { self.in_record } else { RECORD_HEADER - self.header.len() };
            let (next, behind) = rest.split_at(wanted.min(rest.len()));
            rest = behind;
            if self.in_record > 0 {
                self.in_record -= next.len();
                if self.message.advance(next)? {
                    return Ok(true);
                }
            } else {
                self.header.extend_from_slice(next);
                self.in_record = record_length(&self.header)?;
                if self.in_record > 0 {
                    self.header.clear();
                }
            }
        }
        if self.seen == LONGEST_HELLO { Err(ClientHelloError::TooLong) } else { Ok(false) }
    }
}

/// Length of the record that begins with this header; 0 while the header is incomplete.
fn record_length(header: &[u8]) -> Result<usize, ClientHelloError> {
    match *header {
        [kind, ..] if kind != HANDSHAKE => Err(ClientHelloError::NoRecord),
        [_, major, ..] if major != MAJOR_VERSION => Err(ClientHelloError::NoRecord),
        [_, _, _, high, low] => match usize::from(u16::from_be_bytes([high, low])) {
            length @ 1..=LONGEST_RECORD => Ok(length),
            _ => Err(ClientHelloError::RecordLength),
        },
        _ => Ok(0),
    }
}

/// Field of the message: a number, or the name. What follows a number and does not matter is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    MessageType,
    MessageLength,
    SessionIdLength,
    CiphersLength,
    CompressionsLength,
    ExtensionsLength,
    /// Number and length of an extension.
    Extension,
    NamesLength,
    /// Type and length of a name.
    NameHeader,
    Name,
    /// None: the message ends.
    End,
}

/// Incremental parser of the message inside the records.
#[derive(Debug)]
struct MessageParser {
    field: Field,
    /// Length of the field, and the part of it that has arrived.
    length: usize,
    arrived: Vec<u8>,
    /// Number of bytes to skip before the field.
    skip: usize,
    /// Offset behind the field, and where the message and the server name extension end.
    at: usize,
    end: usize,
    extension_end: usize,
    has_extension: bool,
    has_host_name: bool,
    name: Option<Box<str>>,
}

impl Default for MessageParser {
    fn default() -> Self {
        Self {
            field: Field::MessageType,
            length: 1,
            arrived: Vec::new(),
            skip: 0,
            at: 1,
            end: 0,
            extension_end: 0,
            has_extension: false,
            has_host_name: false,
            name: None,
        }
    }
}

impl MessageParser {
    /// Whether the message is complete with these bytes, which follow those of earlier calls.
    fn advance(&mut self, mut bytes: &[u8]) -> Result<bool, ClientHelloError> {
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            if self.field == Field::End && self.skip == 0 {
                return Ok(true);
            }
            let (next, behind) = bytes.split_at((self.length - self.arrived.len()).min(bytes.len()));
            self.arrived.extend_from_slice(next);
            bytes = behind;
            if self.skip > 0 || self.arrived.len() < self.length {
                return Ok(false);
            }
            let mut field = std::mem::take(&mut self.arrived);
            self.read(&field)?;
            field.clear();
            self.arrived = field;
        }
    }

    /// Reads a field that has arrived, and determines the next one.
    fn read(&mut self, field: &[u8]) -> Result<(), ClientHelloError> {
        let number = || field.iter().fold(0, |number, byte| number << 8 | usize::from(*byte));
        match self.field {
            Field::MessageType if number() != CLIENT_HELLO => Err(ClientHelloError::NoClientHello),
            Field::MessageType => {
                self.end = self.at + 3;
                self.expect(Field::MessageLength, 3)
            }
            Field::MessageLength => {
                self.end = self.at + number();
                if self.end + RECORD_HEADER > LONGEST_HELLO {
                    return Err(ClientHelloError::TooLong);
                }
                self.skip(BEFORE_SESSION_ID)?;
                self.expect(Field::SessionIdLength, 1)
            }
            Field::SessionIdLength => {
                self.skip_vector(number(), 0..=LONGEST_SESSION_ID)?;
                self.expect(Field::CiphersLength, 2)
            }
            Field::CiphersLength if number() % 2 == 1 => Err(ClientHelloError::FieldLength),
            Field::CiphersLength => {
                self.skip_vector(number(), 2..=usize::MAX)?;
                self.expect(Field::CompressionsLength, 1)
            }
            Field::CompressionsLength => {
                self.skip_vector(number(), 1..=usize::MAX)?;
                // TLS 1.2 and before know messages without extensions (RFC 5246, section 7.4.1.2).
                if self.at == self.end { self.finish() } else { self.expect(Field::ExtensionsLength, 2) }
            }
            Field::ExtensionsLength if self.at + number() != self.end => Err(ClientHelloError::Overrun),
            Field::ExtensionsLength => self.expect_extension(),
            Field::Extension => self.read_extension(number() >> 16, number() & 0xffff),
            Field::NamesLength if self.at + number() != self.extension_end => Err(ClientHelloError::Overrun),
            Field::NamesLength if number() == 0 => Err(ClientHelloError::FieldLength),
            Field::NamesLength => self.expect_name(),
            Field::NameHeader => self.read_name_header(number() >> 16, number() & 0xffff),
            Field::Name => {
                self.name = server_name(field);
                self.expect_name()
            }
            Field::End => Ok(()),
        }
    }

    fn read_extension(&mut self, kind: usize, length: usize) -> Result<(), ClientHelloError> {
        if kind != SERVER_NAME {
            self.skip(length)?;
            return self.expect_extension();
        }
        if std::mem::replace(&mut self.has_extension, true) {
            return Err(ClientHelloError::SecondExtension);
        }
        self.extension_end = self.at + length;
        if self.extension_end > self.end || length < 2 {
            return Err(ClientHelloError::Overrun);
        }
        self.expect(Field::NamesLength, 2)
    }

    fn read_name_header(&mut self, kind: usize, length: usize) -> Result<(), ClientHelloError> {
        if self.at + length > self.extension_end {
            return Err(ClientHelloError::Overrun);
        }
        let is_second = kind == HOST_NAME && std::mem::replace(&mut self.has_host_name, true);
        if is_second {
            // Not allowed, and endpoints may differ in which one they take.
            self.name = None;
        }
        if kind != HOST_NAME || is_second || !(1..=LONGEST_NAME + 1).contains(&length) {
            self.skip(length)?;
            return self.expect_name();
        }
        self.expect(Field::Name, length)
    }

    fn expect_extension(&mut self) -> Result<(), ClientHelloError> {
        if self.at == self.end { self.finish() } else { self.expect(Field::Extension, 4) }
    }

    fn expect_name(&mut self) -> Result<(), ClientHelloError> {
        match self.extension_end - self.at {
            0 => self.expect_extension(),
            1 | 2 => Err(ClientHelloError::Overrun),
            _ => self.expect(Field::NameHeader, 3),
        }
    }

    fn finish(&mut self) -> Result<(), ClientHelloError> {
        self.expect(Field::End, 0)
    }

    /// Makes `field` the next one.
    fn expect(&mut self, field: Field, length: usize) -> Result<(), ClientHelloError> {
        (self.field, self.length) = (field, length);
        self.proceed(length)
    }

    /// Skips a vector whose length must be within `allowed`.
    fn skip_vector(
        &mut self,
        length: usize,
        allowed: std::ops::RangeInclusive<usize>,
    ) -> Result<(), ClientHelloError> {
        if allowed.contains(&length) { self.skip(length) } else { Err(ClientHelloError::FieldLength) }
    }

    /// Skips bytes before the next field.
    fn skip(&mut self, count: usize) -> Result<(), ClientHelloError> {
        self.skip += count;
        self.proceed(count)
    }

    fn proceed(&mut self, count: usize) -> Result<(), ClientHelloError> {
        self.at += count;
        if self.at > self.end { Err(ClientHelloError::Overrun) } else { Ok(()) }
    }
}

/// The server name that a client means by this host name: in lower case, without a dot at its end. `None` if it is no host name: an
/// address, longer than 255 bytes, or with other labels than of letters, digits, hyphens and underscores.
pub fn server_name(host_name: &[u8]) -> Option<Box<str>> {
    let is_label = |label: &[u8]| {
        !label.is_empty() && label.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte))
    };
    let name = host_name.strip_suffix(b".").unwrap_or(host_name);
    if name.len() > LONGEST_NAME || !name.split(|byte| *byte == b'.').all(is_label) {
        return None;
    }
    let name = std::str::from_utf8(name).ok()?.to_ascii_lowercase();
    let is_address = name.parse::<Ipv4Addr>().is_ok();
    (!is_address).then(|| name.into())
}

#[cfg(test)]
pub(in crate::tcp) mod tests;
