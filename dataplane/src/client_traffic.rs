//! Traffic of clients by network, and bytes of endpoints, counted while there is a watch.
//!
//! Each connection and flow has a meter: two sums that only its own worker writes. During a watch the worker walks once a second over
//! all that is open, a part in each turn, and collects the meters' values; a meter is also collected when its connection ends or its
//! flow changes its endpoint. Without a watch nothing is collected, and the two sums are the only cost.

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
