//! Dedicated addresses: they are on this machine for frontends alone, so its other listeners must not answer there, though they listen
//! on all addresses (sshd, kubelet). The kernel refuses whatever is no open frontend's, as if nothing listened.
//!
//! A frontend with sockets of its own is passed after they listen, and no longer before they close. Connected sockets are not asked about.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use sheave_model::FrontendAddr;

use super::binding::Binding;
use super::{Listener, ListenerSet};

/// Which addresses are dedicated, and whether the kernel knows.
#[derive(Debug, Default)]
pub(super) struct DedicatedAddresses {
    all: BTreeSet<IpAddr>,
    /// Those in force.
    guarded: BTreeSet<IpAddr>,
    /// Another process is about to take over, which may have frontends there that this one does not know.
    suspended: bool,
    /// Why some of them are not in force.
    obstacle: Option<String>,
}

impl ListenerSet {
    /// Refuses what is no frontend's at these addresses, and at no others.
    pub(crate) fn dedicate(&mut self, addresses: BTreeSet<IpAddr>) {
        if self.dedicated.all != addresses {
            self.dedicated.all = addresses;
            self.guard_dedicated();
        }
    }

    /// Refuses nothing at dedicated addresses until [`Self::resume_dedicated`]: each of two processes would refuse what only the other one
    /// has.
    pub(crate) fn suspend_dedicated(&mut self) {
        self.dedicated.suspended = true;
        self.guard_dedicated();
    }

    /// Takes that back.
    pub(crate) fn resume_dedicated(&mut self) {
        self.dedicated.suspended = false;
        self.guard_dedicated();
    }

    /// Why other listeners of the machine answer at dedicated addresses, if so.
    pub(crate) fn dedicated_obstacle(&self) -> Option<&str> {
        self.dedicated.obstacle.as_deref()
    }

    /// Makes the kernel do what is wanted, as far as it does not. Costs next to nothing if it does.
    pub(super) fn guard_dedicated(&mut self) {
        let wanted = if self.dedicated.suspended { BTreeSet::new() } else { self.dedicated.all.clone() };
        let gone: BTreeSet<IpAddr> = &self.dedicated.guarded - &wanted;
        let new: BTreeSet<IpAddr> = &wanted - &self.dedicated.guarded;
        self.pass_all_at(&gone);
        let unguarded = if new.is_empty() { Ok(()) } else { self.guard(&new) };
        self.report_obstacle(unguarded.err());
    }

    /// Guards these addresses; the first reason why one cannot be.
    fn guard(&mut self, addresses: &BTreeSet<IpAddr>) -> Result<(), String> {
        if !self.steering.attach() {
            return Err(self.steering.program_obstacle().unwrap_or_default().to_owned());
        }
        let mut failed = Ok(());
        let mut free = addresses.clone();
        for addr in self.passed_at(addresses) {
            if let Err(error) = self.steering.pass(addr) {
                free.remove(&addr.ip);
                failed = failed.and(Err(too_many(&error)));
            }
        }
        for ip in free {
            match self.steering.refuse_all_else(ip) {
                Ok(()) => drop(self.dedicated.guarded.insert(ip)),
                Err(error) => failed = failed.and(Err(too_many(&error))),
            }
        }
        let unguarded: BTreeSet<IpAddr> = addresses - &self.dedicated.guarded;
        self.forget_passed_at(&unguarded);
        failed
    }

    fn pass_all_at(&mut self, addresses: &BTreeSet<IpAddr>) {
        for ip in addresses {
            self.steering.pass_all_else(*ip);
            self.dedicated.guarded.remove(ip);
        }
        self.forget_passed_at(addresses);
    }

    fn forget_passed_at(&mut self, addresses: &BTreeSet<IpAddr>) {
        for addr in self.passed_at(addresses) {
            self.steering.forget(addr);
        }
    }

    /// The frontends at these addresses that have sockets of their own.
    fn passed_at(&self, addresses: &BTreeSet<IpAddr>) -> Vec<FrontendAddr> {
        let passed = |(addr, listener): &(&FrontendAddr, &Listener)| {
            addresses.contains(&addr.ip) && matches!(listener.binding, Binding::Sockets { .. })
        };
        if addresses.is_empty() {
            return Vec::new();
        }
        self.listeners.iter().filter(passed).map(|(addr, _)| *addr).collect()
    }

    /// The sockets of a frontend listen.
    pub(super) fn pass_open(&mut self, addr: FrontendAddr) {
        if self.dedicated.guarded.contains(&addr.ip)
            && let Err(error) = self.steering.pass(addr)
        {
            self.pass_all_at(&BTreeSet::from([addr.ip]));
            self.report_obstacle(Some(too_many(&error)));
        }
    }

    /// The sockets of a frontend are about to close.
    pub(super) fn refuse_closing(&mut self, addr: FrontendAddr) {
        if self.dedicated.guarded.contains(&addr.ip) {
            self.steering.forget(addr);
        }
    }

    /// Knows of none any more: another process has them.
    pub(super) fn leave_dedicated(&mut self) {
        self.dedicated = DedicatedAddresses::default();
    }

    fn report_obstacle(&mut self, obstacle: Option<String>) {
        if let Some(why) = &obstacle
            && self.dedicated.obstacle.is_none()
        {
            tracing::warn!(
                "listeners of this machine for all addresses (as sshd or the kubelet may be) answer at addresses that are here for \
                 frontends alone: {why}"
            );
        }
        self.dedicated.obstacle = obstacle;
    }
}

fn too_many(error: &io::Error) -> String {
    format!("the kernel takes no more entries ({error})")
}

#[cfg(test)]
mod tests;
