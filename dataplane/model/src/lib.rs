//! Data model of the load balancer: frontends, backends, endpoints, their policies, and the routing table that holds them
//! all. The control loop builds these values; the data plane forwards by them.
//!
//! The crate has no sockets, clocks or balancers (`sheave-dataplane`) and no Kubernetes objects (`sheave-control`), so
//! that the same table can be compiled to other data paths than the socket proxy.
#![forbid(unsafe_code)]

mod address_set;
mod backend;
mod claim;
mod data_path;
mod endpoint;
mod failover;
mod frontend;
mod health;
mod limits;
mod log_sample;
mod server_name;
mod share;
mod source_ranges;
mod table;
#[cfg(any(test, feature = "test-util"))]
pub mod test_util;

pub use address_set::AddressSet;
pub use backend::Backend;
pub use claim::{Claim, Member, Nodes};
pub use data_path::{PATH_CHOICES, PathChoice, ProxyReason};
pub use endpoint::{Endpoint, EndpointAddr, EndpointState, Path, Weight};
pub use failover::{Failover, Spread};
pub use frontend::{
    Affinity, AffinityScope, Algorithm, Candidate, ClientAddr, ClientSource, ClientSources, Frontend,
    FrontendAddr, FrontendKind, FrontendSource, PartTarget, Protocol, RefusedPart, Route, ServerNames,
    ServicePort, Split, SplitPart,
};
pub use health::{Check, CheckKind, HealthPolicy};
pub use limits::{Ipv6Prefix, ServiceLimits, ServiceTimeouts};
pub use log_sample::LogSample;
pub use server_name::{PatternMap, ServerNamePattern};
pub use share::Share;
pub use source_ranges::SourceRanges;
pub use table::{FrontendChange, FrontendList, RoutingTable, diff};
