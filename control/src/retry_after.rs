//! How far a server's `Retry-After` is obeyed. It must not know what is asked for again.

use std::time::Duration;

/// A server that asks for more than this is not obeyed further: proxies in front of it ask for hours.
pub(crate) const LONGEST_OBEYED: Duration = Duration::from_secs(120);
