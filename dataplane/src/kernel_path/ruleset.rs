//! Ruleset of the kernel path as its thread uses it: made of nftables and connection tracking, or by a test.

use std::collections::HashSet;
use std::net::SocketAddr;

use sheave_kernel::ruleset::Changes;
use sheave_kernel::{Plan, TranslatedFlow};
use sheave_model::FrontendAddr;

use super::errors::{KernelPathError, KernelPathErrors};

/// Ruleset of the kernel, and changes of it, as the kernel or a test makes them.
pub(crate) trait Ruleset: Send {
    /// Obstacles that keep packets from being forwarded, although the kernel may take the rules. An error says nothing of them.
    fn obstacles(&mut self) -> Result<KernelPathErrors, KernelPathError>;
    /// Turns what the kernel has, whatever that is, into this plan, and returns what that changed. With `keep`, the plan first takes in
    /// what the kernel has of frontends that it does not know. If the kernel does not take the plan, it has nothing after that.
    fn establish(&mut self, plan: &mut Plan, keep: bool) -> Result<Changes, KernelPathError>;
    /// Makes these changes, which are in the plan.
    fn apply(&mut self, plan: &Plan, changes: &Changes) -> Result<(), KernelPathError>;
    /// Whether the kernel still has what it was told. An error says nothing of that.
    fn is_whole(&mut self) -> Result<bool, KernelPathError>;
    /// Removes the tables, unless the kernel still translates something; returns whether they are gone.
    fn remove_unused(&mut self) -> Result<bool, KernelPathError>;
    /// New connections since each endpoint of a frontend got its element.
    fn counts(&mut self) -> Result<Vec<(FrontendAddr, SocketAddr, u64)>, KernelPathError>;
    /// Endpoints of frontends that clients could not reach lately.
    fn failed(&mut self) -> Result<Vec<(FrontendAddr, SocketAddr)>, KernelPathError>;
    /// Ends the flows of these frontends to these endpoints, so that their next datagrams choose anew; returns whether none is left.
    fn forget_flows(&mut self, flows: &[(FrontendAddr, SocketAddr)]) -> Result<bool, KernelPathError>;
    /// Ends the UDP flows to endpoints that `ends` selects, whoever has begun to translate them; returns whether none is left.
    fn end_flows(&mut self, ends: &dyn Fn(&TranslatedFlow) -> bool) -> Result<bool, KernelPathError>;
    /// Ends connections of frontends that have left, so that their next segments are refused; returns whether none is left.
    fn forget_connections(&mut self, frontends: &HashSet<FrontendAddr>) -> Result<bool, KernelPathError>;
}
