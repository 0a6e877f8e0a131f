//! Split of a frontend's traffic by weight over several parts.

use std::sync::Arc;

use crate::frontend::Frontend;
use crate::share::Share;

/// Traffic of a frontend split by weight over several parts. The part of a new connection or flow is chosen by weight before anything
/// else, then an endpoint inside the part. Weights never follow health: a part without a usable endpoint refuses its share.
///
/// What concerns the socket and the client's side of connections comes from the frontend that is split: its source ranges, trusted
/// proxies, client sources, limits, timeouts and log sample. What concerns endpoints comes from the pools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// The route that has the traffic, such as `TCPRoute shop/web`. Only shown.
    pub route: Arc<str>,
    /// Number of other routes that ask for the traffic and get none, since this one is older. Only shown.
    pub superseded: u32,
    /// The parts, in the order of the spec: 1 to 16.
    pub parts: Vec<SplitPart>,
}

/// Part of a split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitPart {
    /// Name of the part: what users wrote, such as `Service shop/web:80`. It identifies the part on every gateway, in whatever order
    /// the parts are.
    pub name: Arc<str>,
    /// 0 to 1,000,000; 0 = no new connections.
    pub weight: u32,
    /// Destination of the part's traffic.
    pub target: PartTarget,
}

/// Destination of a part's traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartTarget {
    /// The frontend as it would be if this part were the only one. It has the address of the frontend that is split, and its Service
    /// port is the backend's own, by which the health of endpoints is kept. It is not split itself.
    Pool(Arc<Frontend>),
    /// The part's share is refused.
    Refused(RefusedPart),
}

/// Reason why a part is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RefusedPart {
    /// The backend does not exist, or has no such port.
    BackendNotFound,
    /// The backend's kind cannot be served.
    InvalidKind,
    /// No ReferenceGrant permits the reference to another namespace.
    RefNotPermitted,
    /// The backend's application protocol cannot be served.
    UnsupportedProtocol,
}

impl RefusedPart {
    /// The reason as the Gateway API spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::BackendNotFound => "BackendNotFound",
            Self::InvalidKind => "InvalidKind",
            Self::RefNotPermitted => "RefNotPermitted",
            Self::UnsupportedProtocol => "UnsupportedProtocol",
        }
    }
}

impl SplitPart {
    /// The part's pool; `None` if the part is refused.
    pub fn pool(&self) -> Option<&Arc<Frontend>> {
        match &self.target {
            PartTarget::Pool(pool) => Some(pool),
            PartTarget::Refused(_) => None,
        }
    }
}

impl Split {
    /// The pools that get new connections: those of the parts with a weight.
    pub fn open_pools(&self) -> impl Iterator<Item = &Frontend> {
        let open = self.parts.iter().filter(|part| part.weight > 0);
        open.filter_map(SplitPart::pool).map(AsRef::as_ref)
    }

    /// Share of new connections that parts of this weight together get.
    pub fn share(&self, weight: u64) -> Share {
        Share { part: weight, whole: self.parts.iter().map(|part| u64::from(part.weight)).sum() }
    }
}

#[cfg(test)]
mod tests;
