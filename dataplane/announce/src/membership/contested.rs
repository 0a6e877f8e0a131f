//! Addresses that another machine uses, as some gateway has found: whoever owns one next asks first whether that is still so.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::Membership;
use crate::heartbeat::{AddressHash, Contested};

/// How long a gateway remembers what one has said: longer than it takes to follow one that has died, and to say the same.
const REMEMBERED: Duration = Duration::from_mins(1);

/// Contested addresses, as this gateway and others have reported them.
#[derive(Debug, Default)]
pub(super) struct KnownConflicts {
    own: Contested,
    said: BTreeMap<AddressHash, Instant>,
    all_said: Option<Instant>,
}

impl KnownConflicts {
    /// Remembers the addresses that a gateway reports.
    pub(super) fn note(&mut self, contested: &Contested, now: Instant) {
        match contested {
            Contested::All => self.all_said = Some(now),
            Contested::These(hashes) if hashes.is_empty() => {}
            Contested::These(hashes) => {
                self.said.retain(|_, said| now < *said + REMEMBERED);
                self.said.extend(hashes.iter().map(|hash| (*hash, now)));
            }
        }
    }

    /// Contents of the next heartbeat.
    pub(super) fn told(&mut self, now: Instant) -> Contested {
        let own = self.own.clone();
        self.note(&own, now);
        own
    }
}

impl Membership {
    /// Sets which addresses this gateway leaves to another machine.
    pub fn set_contested(&mut self, ips: &[IpAddr]) {
        let contested = Contested::of(ips);
        if self.conflicts.own != contested {
            self.conflicts.own = contested;
            self.urgent = true;
        }
    }

    /// Whether some gateway has left the address to another machine within the last minute.
    pub fn is_contested(&self, ip: IpAddr, now: Instant) -> bool {
        let said = self.conflicts.said.get(&AddressHash::of(ip)).into_iter().chain(&self.conflicts.all_said);
        said.into_iter().any(|said| now < *said + REMEMBERED)
    }
}
