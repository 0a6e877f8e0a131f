//! How a connection begins whose peer is a proxy: with a PROXY protocol header that says who the client is.
//!
//! It must not know what is done with the client.

use std::io;
use std::net::TcpStream as AcceptedStream;
use std::pin::Pin;

use socket2::SockRef;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::Sleep;

use super::counters::CloseReason;
use super::relay;
use crate::proxy_protocol::{Addresses, Flaw, LONGEST, Parsed, parse};
use crate::sys::stream::{self, Taken};

/// Bytes to be read at once: a usual header with its additions, and not much of what follows it.
const READ: usize = 4096;

/// What a peer said before anything of its client's.
#[derive(Debug)]
pub(super) struct Introduction {
    /// `None`: it speaks for itself.
    pub(super) addresses: Option<Addresses>,
    /// What came behind the header already.
    pub(super) sent: Vec<u8>,
}

/// A peer that did not introduce its client.
#[derive(Debug, Error)]
pub(super) enum Unintroduced {
    #[error("no PROXY protocol header: {0}")]
    Flawed(#[from] Flaw),
    #[error("closed before its PROXY protocol header was whole")]
    Ended,
    #[error("no whole PROXY protocol header within the connect timeout")]
    Late,
    #[error("broke before its PROXY protocol header was whole: {0}")]
    Broken(#[from] io::Error),
}

impl Unintroduced {
    /// How such a connection is counted.
    pub(super) fn reason(&self) -> CloseReason {
        match self {
            Self::Flawed(_) | Self::Ended | Self::Late => CloseReason::BadProxyHeader,
            Self::Broken(_) => CloseReason::ClientReset,
        }
    }
}

/// Reads a connection's header until `deadline`. Without one the connection ends in a reset.
pub(super) async fn read(
    stream: AcceptedStream,
    deadline: Pin<&mut Sleep>,
) -> Result<(TcpStream, Introduction), Unintroduced> {
    let stream = TcpStream::from_std(stream)?;
    let outcome = tokio::select! {
        biased;
        outcome = header(&stream) => outcome,
        () = deadline => Err(Unintroduced::Late),
    };
    if outcome.is_err() {
        relay::reset_on_close(&SockRef::from(&stream));
    }
    Ok((stream, outcome?))
}

async fn header(stream: &TcpStream) -> Result<Introduction, Unintroduced> {
    let mut bytes = Vec::new();
    loop {
        stream.readable().await?;
        let before = bytes.len();
        // There is room: that many bytes are never an incomplete header.
        bytes.resize(LONGEST.min(before + READ), 0);
        let count = match stream::receive(stream, &mut bytes[before..])? {
            Taken::Bytes(count) => count,
            Taken::NotNow => 0,
            Taken::End => return Err(Unintroduced::Ended),
        };
        bytes.truncate(before + count);
        match parse(&bytes) {
            Parsed::Incomplete => {}
            Parsed::Header { length, addresses } => {
                return Ok(Introduction { addresses, sent: bytes.split_off(length) });
            }
            Parsed::Invalid(flaw) => return Err(flaw.into()),
        }
    }
}

#[cfg(test)]
mod tests;
