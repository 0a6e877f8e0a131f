//! Reading the PROXY protocol header with which a trusted proxy begins a connection and names its client.

use std::io;

use thiserror::Error;

use super::stream::{ReadOutcome, Stream};
use crate::counters::CloseReason;
use crate::proxy_protocol::{Addresses, LONGEST, ParseError, Parsed, parse};

/// Bytes to be read at once: a usual header with its additions, and not much of what follows it.
const READ: usize = 4096;

/// A PROXY protocol header.
#[derive(Debug)]
pub(super) struct ProxyHeader {
    /// `None`: the connection is the proxy's own.
    pub(super) addresses: Option<Addresses>,
    /// What came behind the header already.
    pub(super) sent: Vec<u8>,
}

/// Why a connection has no valid header.
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
    /// How such a connection is counted.
    pub(super) fn reason(&self) -> CloseReason {
        match self {
            Self::Flawed(_) | Self::Ended | Self::Late => CloseReason::BadProxyHeader,
            Self::Broken(_) => CloseReason::ClientReset,
        }
    }
}

/// How far a header has been read.
#[must_use]
pub(super) enum HeaderRead {
    /// More is to come.
    Incomplete,
    /// It is there.
    Whole(ProxyHeader),
    /// It will not come.
    Failed(ProxyHeaderError),
}

/// A header that is being read.
#[derive(Debug, Default)]
pub(super) struct HeaderReader {
    bytes: Vec<u8>,
}

impl HeaderReader {
    /// Reads what is there of the header.
    pub(super) fn read(&mut self, client: &mut Stream) -> HeaderRead {
        let bytes = &mut self.bytes;
        while client.is_readable() {
            let before = bytes.len();
            // There is room: that many bytes are never an incomplete header.
            bytes.resize(LONGEST.min(before + READ), 0);
            let count = match client.receive(&mut bytes[before..]) {
                Ok(ReadOutcome::Bytes(count)) => count,
                Ok(ReadOutcome::NotNow) => 0,
                Ok(ReadOutcome::End) => return HeaderRead::Failed(ProxyHeaderError::Ended),
                Err(error) => return HeaderRead::Failed(error.into()),
            };
            bytes.truncate(before + count);
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
