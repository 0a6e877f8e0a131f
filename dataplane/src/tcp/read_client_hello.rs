//! Reading the TLS ClientHello at the beginning of a client's connection, whose server name decides where the connection goes.

use std::io;
use std::time::Duration;

use thiserror::Error;

use super::client_hello::{ClientHelloError, ClientHelloParser, LONGEST_HELLO, ParsedClientHello};
use super::stream::{ReadOutcome, Stream};
use crate::counters::CloseReason;

/// Time from accept in which the ClientHello must be whole. Clients send it at once; HAProxy's documentation recommends the same
/// (`tcp-request inspect-delay 5s` with `req.ssl_sni`).
pub(super) const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// A ClientHello with a server name.
#[derive(Debug)]
pub(super) struct ClientHello {
    pub(super) server_name: Box<str>,
    /// Everything received: the message, and what came behind it.
    pub(super) sent: Vec<u8>,
}

/// Reason why a connection has no server name.
#[derive(Debug, Error)]
pub(super) enum ServerNameError {
    #[error("no host name in the ClientHello")]
    Missing,
    #[error("no ClientHello: {0}")]
    Flawed(#[from] ClientHelloError),
    #[error("closed before its ClientHello was whole")]
    Ended,
    #[error("no whole ClientHello within {} s", HELLO_TIMEOUT.as_secs())]
    Late,
    #[error("broke before its ClientHello was whole: {0}")]
    Broken(#[from] io::Error),
}

impl ServerNameError {
    /// The close reason that is counted for the connection.
    pub(super) fn reason(&self) -> CloseReason {
        match self {
            Self::Missing => CloseReason::NoServerName,
            Self::Flawed(_) | Self::Ended | Self::Late => CloseReason::BadClientHello,
            Self::Broken(_) => CloseReason::ClientReset,
        }
    }
}

/// Progress of reading a ClientHello.
#[must_use]
pub(super) enum HelloRead {
    /// More bytes are needed.
    Partial,
    /// The message is complete.
    Complete(ClientHello),
    /// There is no server name, and cannot be.
    Refused(ServerNameError),
}

/// Incremental reader of a ClientHello.
#[derive(Debug, Default)]
pub(super) struct HelloReader {
    bytes: Vec<u8>,
    /// Number of bytes that the parser has seen.
    parsed: usize,
    parser: ClientHelloParser,
}

impl HelloReader {
    /// A reader of a message that begins with these bytes, which have been received already.
    pub(super) fn beginning_with(bytes: Vec<u8>) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// Number of bytes received so far.
    pub(super) fn received(&self) -> usize {
        self.bytes.len()
    }

    /// Reads the part of the message that has arrived.
    pub(super) fn read(&mut self, client: &mut Stream) -> HelloRead {
        loop {
            match self.parser.parse(&self.bytes[self.parsed..]) {
                ParsedClientHello::Incomplete => self.parsed = self.bytes.len(),
                ParsedClientHello::Name(server_name) => {
                    let sent = std::mem::take(&mut self.bytes);
                    return HelloRead::Complete(ClientHello { server_name, sent });
                }
                ParsedClientHello::NoName => return HelloRead::Refused(ServerNameError::Missing),
                ParsedClientHello::Invalid(error) => return HelloRead::Refused(error.into()),
            }
            if !client.is_readable() {
                return HelloRead::Partial;
            }
            // `LONGEST_HELLO` bytes are never an incomplete message.
            match client.append(&mut self.bytes, LONGEST_HELLO) {
                Ok(ReadOutcome::Bytes(_) | ReadOutcome::NotNow) => {}
                Ok(ReadOutcome::End) => return HelloRead::Refused(ServerNameError::Ended),
                Err(error) => return HelloRead::Refused(error.into()),
            }
        }
    }
}
