//! What clients have had by the networks that they are in, and endpoints in bytes, counted while somebody watches.
//!
//! Each connection and flow has a meter: two sums that its own worker writes. Once a second, if there is a watch, the worker walks over
//! all that it has open, a part in each turn, and collects what the meters have; what ends or changes its endpoint is collected then.
//! Without a watch nothing is collected, so that all there is to it is the two sums.

mod counts;
mod meter;
mod prefix;
mod tally;
mod watch;

pub use counts::{ClientCounts, ClientTraffic};
pub(crate) use meter::Meter;
pub use prefix::ClientPrefix;
pub(crate) use tally::TallyCell;
pub use watch::TrafficWatch;
pub(crate) use watch::{WatchRequest, WatchRequests};

#[cfg(test)]
mod tests;
