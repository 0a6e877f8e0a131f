//! Takes numbers off the front of a datagram.

/// Why a datagram is no heartbeat for this gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WireError {
    #[error("not a heartbeat, or cut short")]
    Malformed,
    #[error("of another major version: {0}")]
    Version(u8),
    #[error("of another fleet")]
    ForeignFleet,
}

/// What is left of a datagram.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(WireError::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        self.take(N)?.first_chunk().copied().ok_or(WireError::Malformed)
    }

    pub(super) fn u16(&mut self) -> Result<u16, WireError> {
        Ok(u16::from_be_bytes(self.array()?))
    }
}
