//! Reading the PROXY protocol header with which a trusted proxy begins a connection and names its client.

use std::io;
use std::pin::pin;
use std::sync::Arc;

use socket2::{SockRef, Socket};
use thiserror::Error;
use tokio::io::Interest;
use tokio::time::Sleep;

use crate::counters::CloseReason;
use crate::proxy_protocol::{Addresses, LONGEST, ParseError, Parsed, parse};
use crate::sys::sockets::{Registered, register};
use crate::sys::stream;

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

/// Reads a connection's header until `deadline`. Without one the socket will be closed by a reset, which the caller does, so
/// that it can count the end before anybody sees it.
pub(super) async fn read(client: &Arc<Socket>, deadline: Sleep) -> Result<ProxyHeader, ProxyHeaderError> {
    let registered = register(Arc::clone(client), Interest::READABLE)?;
    let outcome = tokio::select! {
        biased;
        outcome = header(&registered) => outcome,
        () = pin!(deadline) => Err(ProxyHeaderError::Late),
    };
    if outcome.is_err() {
        super::reset_on_close(&SockRef::from(&**client));
    }
    outcome
}

async fn header(client: &Registered) -> Result<ProxyHeader, ProxyHeaderError> {
    let mut bytes = Vec::new();
    loop {
        let before = bytes.len();
        // There is room: that many bytes are never an incomplete header.
        bytes.resize(LONGEST.min(before + READ), 0);
        let room = &mut bytes[before..];
        let count = client.async_io(Interest::READABLE, |socket| stream::receive(socket, room)).await?;
        if count == 0 {
            return Err(ProxyHeaderError::Ended);
        }
        bytes.truncate(before + count);
        match parse(&bytes) {
            Parsed::Incomplete => {}
            Parsed::Header { length, addresses } => {
                return Ok(ProxyHeader { addresses, sent: bytes.split_off(length) });
            }
            Parsed::Invalid(flaw) => return Err(flaw.into()),
        }
    }
}

#[cfg(test)]
mod tests;
