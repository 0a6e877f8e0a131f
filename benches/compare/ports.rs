//! The ports of the server; every proxy offers the same ones on its own address.

/// Takes a stream of bytes, checks it and says how many came.
pub(crate) const SINK: u16 = 9001;
/// Answers every byte with its complement, for as long as the client likes.
pub(crate) const ECHO: u16 = 9002;
/// Answers one request of [`ONCE_LEN`] bytes and closes.
pub(crate) const ONCE: u16 = 9003;
/// Answers every datagram with its complement.
pub(crate) const DATAGRAM: u16 = 9004;

/// Answers every datagram with its complement, and a bundle with a bundle.
pub(crate) const BUNDLE: u16 = 9005;

/// All ports served over TCP.
pub(crate) const TCP: [u16; 3] = [SINK, ECHO, ONCE];

/// All ports served over UDP.
pub(crate) const UDP: [u16; 2] = [DATAGRAM, BUNDLE];

/// Length of a request to [`ONCE`].
pub(crate) const ONCE_LEN: usize = 64;

/// Connections that may wait to be accepted, the same for every listener of the bench.
pub(crate) const BACKLOG: i32 = 4096;
