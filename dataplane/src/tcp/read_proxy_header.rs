//! Reading the PROXY protocol header at the beginning of a trusted proxy's connection, which carries the client's
//! address.

use std::io;

use thiserror::Error;

use super::stream::{ReadOutcome, Stream};
use crate::counters::CloseReason;
use crate::proxy_protocol::{Addresses, LONGEST, ParseError, Parsed, parse};

/// A PROXY protocol header.
#[derive(Debug)]
pub(super) struct ProxyHeader {
    /// `None` if the connection is the proxy's own.
    pub(super) addresses: Option<Addresses>,
    /// Data received after the header.
    pub(super) sent: Vec<u8>,
}

/// Reason why a connection has no valid header.
#[derive(Debug, Error)]
pub(super) enum ProxyHeaderError {
    #[error("no PROXY protocol header: {0}")]
    Flawed(#[from] ParseError),
    #[error("closed before its PROXY protocol header was whole")]
    Ended,
    #[error("no whole PROXY protocol header within the connect timeout")]
    Late,
    #[error("broke before its PROXY protocol header was whole: {0}")]
    Broken(#[from] io::Error),
}

impl ProxyHeaderError {
    /// The close reason that is counted for the connection.
    pub(super) fn reason(&self) -> CloseReason {
        match self {
            Self::Flawed(_) | Self::Ended | Self::Late => CloseReason::BadProxyHeader,
            Self::Broken(_) => CloseReason::ClientReset,
        }
    }
}

/// Progress of reading a header.
#[must_use]
pub(super) enum HeaderRead {
    /// More bytes are needed.
    Incomplete,
    /// The header is complete.
    Whole(ProxyHeader),
    /// The header is invalid or cannot be completed.
    Failed(ProxyHeaderError),
}

/// Incremental reader of a header.
#[derive(Debug, Default)]
pub(super) struct HeaderReader {
    bytes: Vec<u8>,
}

impl HeaderReader {
    /// Reads the part of the header that has arrived.
    pub(super) fn read(&mut self, client: &mut Stream) -> HeaderRead {
        let bytes = &mut self.bytes;
        while client.is_readable() {
            // `LONGEST` bytes are never an incomplete header.
            match client.append(bytes, LONGEST) {
                Ok(ReadOutcome::Bytes(_) | ReadOutcome::NotNow) => {}
                Ok(ReadOutcome::End) => return HeaderRead::Failed(ProxyHeaderError::Ended),
                Err(error) => return HeaderRead::Failed(error.into()),
            }
            match parse(bytes) {
                Parsed::Incomplete => {}
                Parsed::Header { length, addresses } => {
                    return HeaderRead::Whole(ProxyHeader { addresses, sent: bytes.split_off(length) });
                }
                Parsed::Invalid(flaw) => return HeaderRead::Failed(flaw.into()),
            }
        }
        HeaderRead::Incomplete
    }
}

#[cfg(test)]
mod tests;
