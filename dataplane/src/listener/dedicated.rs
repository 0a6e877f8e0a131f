//! Dedicated addresses: addresses that this machine has for frontends alone. Its other listeners must not answer there, even if they
//! listen on all addresses (sshd, kubelet). The kernel refuses traffic that is for no open frontend, as if nothing listened.
//!
//! Traffic of a frontend with its own sockets passes once they listen, and no longer before they close. Connected sockets are not
//! affected.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use sheave_model::FrontendAddr;

use super::binding::Binding;
use super::{Listener, ListenerSet};

/// The dedicated addresses, and which of them are guarded.
#[derive(Debug, Default)]
pub(super) struct DedicatedAddresses {
    all: BTreeSet<IpAddr>,
    /// Addresses that the kernel guards.
    guarded: BTreeSet<IpAddr>,
    /// Whether another process is about to take over, which may have frontends there that this one does not know.
    suspended: bool,
    /// Reason why some addresses are not guarded.
    obstacle: Option<String>,
}

impl ListenerSet {
    /// Refuses traffic that is for no frontend at exactly these addresses.
    pub(crate) fn dedicate(&mut self, addresses: BTreeSet<IpAddr>) {
        if self.dedicated.all != addresses {
            self.dedicated.all = addresses;
            self.guard_dedicated();
        }
    }

    /// Refuses nothing at dedicated addresses until [`Self::resume_dedicated`]: each of two processes would refuse the traffic of
    /// frontends that only the other one has.
    pub(crate) fn suspend_dedicated(&mut self) {
        self.dedicated.suspended = true;
        self.guard_dedicated();
    }

    /// Resumes refusing after [`Self::suspend_dedicated`].
    pub(crate) fn resume_dedicated(&mut self) {
        self.dedicated.suspended = false;
        self.guard_dedicated();
    }

    /// Reason why other listeners of the machine answer at dedicated addresses, if they do.
    pub(crate) fn dedicated_obstacle(&self) -> Option<&str> {
        self.dedicated.obstacle.as_deref()
    }

    /// Updates the kernel's entries where they differ from the wanted ones. Almost free if nothing differs.
    pub(super) fn guard_dedicated(&mut self) {
        let wanted = if self.dedicated.suspended { BTreeSet::new() } else { self.dedicated.all.clone() };
        let gone: BTreeSet<IpAddr> = &self.dedicated.guarded - &wanted;
        let new: BTreeSet<IpAddr> = &wanted - &self.dedicated.guarded;
        self.pass_all_at(&gone);
        let unguarded = if new.is_empty() { Ok(()) } else { self.guard(&new) };
        self.report_obstacle(unguarded.err());
    }

    /// Guards these addresses; returns the first reason why one cannot be guarded.
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

    /// The frontends at these addresses that have their own sockets.
    fn passed_at(&self, addresses: &BTreeSet<IpAddr>) -> Vec<FrontendAddr> {
        let passed = |(addr, listener): &(&FrontendAddr, &Listener)| {
            addresses.contains(&addr.ip) && matches!(listener.binding, Binding::Sockets { .. })
        };
        if addresses.is_empty() {
            return Vec::new();
        }
        self.listeners.iter().filter(passed).map(|(addr, _)| *addr).collect()
    }

    /// Lets traffic of a frontend pass whose sockets now listen.
    pub(super) fn pass_open(&mut self, addr: FrontendAddr) {
        if self.dedicated.guarded.contains(&addr.ip)
            && let Err(error) = self.steering.pass(addr)
        {
            self.pass_all_at(&BTreeSet::from([addr.ip]));
            self.report_obstacle(Some(too_many(&error)));
        }
    }

    /// Refuses traffic of a frontend whose sockets are about to close.
    pub(super) fn refuse_closing(&mut self, addr: FrontendAddr) {
        if self.dedicated.guarded.contains(&addr.ip) {
            self.steering.forget(addr);
        }
    }

    /// Forgets all dedicated addresses, which another process guards now.
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
