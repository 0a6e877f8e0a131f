//! Ports of the server. Every proxy offers the same ones on its own address.

/// Receives a stream of bytes, checks it and answers with their number.
pub(crate) const SINK: u16 = 9001;
/// Answers every byte with its complement until the client closes.
pub(crate) const ECHO: u16 = 9002;
/// Answers one request of [`ONCE_LEN`] bytes and closes.
pub(crate) const ONCE: u16 = 9003;
/// Answers every datagram with its complement.
pub(crate) const DATAGRAM: u16 = 9004;

/// Answers every datagram with its complement, and a bundle with a bundle.
pub(crate) const BUNDLE: u16 = 9005;

/// Like [`ECHO`], on every address of the server.
pub(crate) const MANY: u16 = 9006;

/// The ports that every proxy offers over TCP.
pub(crate) const TCP: [u16; 3] = [SINK, ECHO, ONCE];

/// The ports that it offers over UDP.
pub(crate) const UDP: [u16; 2] = [DATAGRAM, BUNDLE];

/// Length of a request to [`ONCE`].
pub(crate) const ONCE_LEN: usize = 64;

/// Backlog of every listener in the bench.
pub(crate) const BACKLOG: i32 = 4096;
