//! Holds a Service to its limits: how many connections and flows it may have, and how many new ones a second, in all and for each
//! client. Its frontends and all workers share them; a Service without limits has none of this. A client is an IPv4 address or an IPv6
//! network: a host has as many addresses of its own network as it likes.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use indexmap::IndexMap;

use crate::counters::ShedReason;
use crate::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard};
use crate::weak_map::{ServiceId, WeakMap, service_id};
use sheave_model::{Frontend, Ipv6Prefix, ServiceLimits};

/// Clients of one Service that are counted each; a few megabytes. Beyond it those with nothing open are forgotten first, and if all have,
/// new ones count as one client.
const MOST_CLIENTS: usize = 65_536;
/// Clients that are looked at when one is added, round and round, to forget those that need no remembering.
const SWEPT: usize = 2;
/// Clients among which one is chosen to be forgotten where there is no room.
const SAMPLED: usize = 8;

const SECOND: u64 = 1_000_000_000;

/// Counts what one Service has, against what it may have.
#[derive(Debug)]
pub struct Limiter {
    limits: [AtomicU32; 4],
    client_prefix: AtomicU8,
    open: AtomicU32,
    /// What the process has that this one has taken over from.
    elsewhere: AtomicU32,
    /// When the next new one is due at an even rate, in nanoseconds since `epoch`.
    due: AtomicU64,
    clients: Mutex<Clients>,
    epoch: Instant,
}

/// What is known of clients.
#[derive(Debug, Default)]
struct Clients {
    known: IndexMap<IpAddr, ClientUse, foldhash::fast::RandomState>,
    /// All for whom there is no room, together.
    others: ClientUse,
    hand: usize,
}

/// Whose use is counted.
#[derive(Clone, Copy, Debug)]
enum LimitedClient {
    Client(IpAddr),
    Others,
}

#[derive(Clone, Copy, Debug, Default)]
struct ClientUse {
    open: u32,
    due: u64,
}

/// The generic cell rate algorithm (ITU-T I.371): as many may come at once as are allowed in a second, and then at that rate.
/// Gives the next due time if one may come now.
fn conforms(due: u64, now: u64, rate: NonZeroU32) -> Option<u64> {
    let interval = SECOND / u64::from(rate.get());
    (due <= now + (SECOND - interval)).then(|| due.max(now) + interval)
}

impl Limiter {
    fn new(limits: &ServiceLimits) -> Self {
        let limiter = Self {
            limits: Default::default(),
            client_prefix: AtomicU8::new(Ipv6Prefix::DEFAULT.bits()),
            open: AtomicU32::new(0),
            elsewhere: AtomicU32::new(0),
            due: AtomicU64::new(0),
            clients: Mutex::default(),
            epoch: Instant::now(),
        };
        limiter.set(limits);
        limiter
    }

    /// Holds to these limits from now on; what is open stays.
    fn set(&self, limits: &ServiceLimits) {
        let ServiceLimits {
            connections,
            connection_rate,
            connections_per_client,
            connection_rate_per_client,
            client_prefix,
        } = *limits;
        let values = [connections, connection_rate, connections_per_client, connection_rate_per_client];
        for (limit, value) in self.limits.iter().zip(values) {
            limit.store(value.map_or(0, NonZeroU32::get), Ordering::Relaxed);
        }
        self.client_prefix.store(client_prefix.bits(), Ordering::Relaxed);
    }

    fn limits(&self) -> ServiceLimits {
        let [connections, connection_rate, connections_per_client, connection_rate_per_client] =
            self.limits.each_ref().map(|limit| NonZeroU32::new(limit.load(Ordering::Relaxed)));
        let client_prefix = Ipv6Prefix::new(self.client_prefix.load(Ordering::Relaxed)).unwrap_or_default();
        ServiceLimits {
            connections,
            connection_rate,
            connections_per_client,
            connection_rate_per_client,
            client_prefix,
        }
    }

    /// Takes a place for a new connection or flow of `client`, or of one that is not known yet.
    pub(crate) fn admit(
        self: &Arc<Self>,
        client: Option<IpAddr>,
        now: Instant,
    ) -> Result<Permit, ShedReason> {
        let limits = self.limits();
        let now = self.time(now);
        let most = limits.connections.map_or(u32::MAX, NonZeroU32::get);
        let most = most.saturating_sub(self.elsewhere.load(Ordering::Relaxed));
        let more = |open: u32| (open < most).then(|| open + 1);
        self.open
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .map_err(|_| ShedReason::Connections)?;
        let mut permit = Permit { limiter: Arc::clone(self), client: None };
        // First the client's own limits: one that asks too often takes nothing of the others' rate.
        if let Some(client) = client {
            permit.take_client_place(client, now, &limits)?;
        }
        if let Some(rate) = limits.connection_rate {
            let next = |due| conforms(due, now, rate);
            self.due
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
                .map_err(|_| ShedReason::ConnectionRate)?;
        }
        Ok(permit)
    }

    /// Counts what another process has admitted: it stays, whatever the limits are now.
    pub(crate) fn take_over(self: &Arc<Self>, client: IpAddr, now: Instant) -> Permit {
        self.open.fetch_add(1, Ordering::Relaxed);
        let mut permit = Permit { limiter: Arc::clone(self), client: None };
        let limits = self.limits();
        if limits.any_per_client() {
            let mut clients = self.clients();
            let (counted, known) = clients.entry(limits.client_prefix.client(client), self.time(now));
            known.open += 1;
            permit.client = Some(counted);
        }
        permit
    }

    /// Whether one more could be open, clearly.
    pub(crate) fn has_room_again(&self) -> bool {
        let count = |of: &AtomicU32| u64::from(of.load(Ordering::Relaxed));
        let open = count(&self.open) + count(&self.elsewhere);
        self.limits().connections.is_none_or(|most| open * 8 < u64::from(most.get()) * 7)
    }

    fn time(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.epoch).as_nanos()).unwrap_or(u64::MAX / 2)
    }

    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place among the connections of a Service, given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    limiter: Arc<Limiter>,
    /// Whose it is, if it counts for a client.
    client: Option<LimitedClient>,
}

impl Permit {
    /// The connection turned out to be this client's.
    pub(crate) fn identify(&mut self, client: IpAddr, now: Instant) -> Result<(), ShedReason> {
        let limits = self.limiter.limits();
        let now = self.limiter.time(now);
        self.take_client_place(client, now, &limits)
    }

    fn take_client_place(
        &mut self,
        client: IpAddr,
        now: u64,
        limits: &ServiceLimits,
    ) -> Result<(), ShedReason> {
        if !limits.any_per_client() {
            return Ok(());
        }
        let mut clients = self.limiter.clients();
        let (counted, known) = clients.entry(limits.client_prefix.client(client), now);
        if limits.connections_per_client.is_some_and(|most| known.open >= most.get()) {
            return Err(ShedReason::ClientConnections);
        }
        if let Some(rate) = limits.connection_rate_per_client {
            known.due = conforms(known.due, now, rate).ok_or(ShedReason::ClientConnectionRate)?;
        }
        known.open += 1;
        drop(clients);
        self.client = Some(counted);
        Ok(())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.limiter.open.fetch_sub(1, Ordering::Relaxed);
        if let Some(counted) = self.client
            && let Some(known) = self.limiter.clients().get_mut(counted)
        {
            known.open -= 1;
        }
    }
}

impl Clients {
    /// What is known of a client, or of all others if there is no room for one more, since those that are known have something open.
    fn entry(&mut self, client: IpAddr, now: u64) -> (LimitedClient, &mut ClientUse) {
        if !self.known.contains_key(&client) {
            self.sweep(now);
            if self.known.len() >= MOST_CLIENTS && !self.forget_one() {
                return (LimitedClient::Others, &mut self.others);
            }
        }
        (LimitedClient::Client(client), self.known.entry(client).or_default())
    }

    fn get_mut(&mut self, counted: LimitedClient) -> Option<&mut ClientUse> {
        match counted {
            LimitedClient::Client(client) => self.known.get_mut(&client),
            LimitedClient::Others => Some(&mut self.others),
        }
    }

    fn sweep(&mut self, now: u64) {
        for _ in 0..SWEPT {
            self.hand = self.hand.min(self.known.len()).checked_sub(1).unwrap_or(self.known.len());
            if self.known.get_index(self.hand).is_some_and(|(_, known)| known.open == 0 && known.due <= now) {
                self.known.swap_remove_index(self.hand);
            }
        }
    }

    /// Forgets the client among a few that has nothing open and was quiet the longest.
    fn forget_one(&mut self) -> bool {
        let count = self.known.len();
        let sample = (0..SAMPLED).map(|step| (self.hand + step * count / SAMPLED) % count.max(1));
        let idle = sample.filter_map(|index| {
            let (_, known) = self.known.get_index(index)?;
            (known.open == 0).then_some((known.due, index))
        });
        let Some((_, index)) = idle.min() else { return false };
        self.known.swap_remove_index(index).is_some()
    }
}

/// The limiters of all Services that have limits. They are found again when a table is made, so that what is open counts on.
#[derive(Debug, Default)]
pub(crate) struct Limiters(Mutex<WeakMap<ServiceId, Limiter>>);

impl Limiters {
    /// That of a frontend's Service, with the limits that it has now; `None` if it has none.
    pub(crate) fn get(&self, frontend: &Frontend) -> Option<Arc<Limiter>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !frontend.limits.any() {
            known.remove(&service_id(frontend));
            return None;
        }
        let limiter = known.get_or_insert(service_id(frontend), || Limiter::new(&frontend.limits));
        limiter.set(&frontend.limits);
        Some(limiter)
    }

    /// What each Service has in this process.
    pub(crate) fn counts(&self) -> Vec<(ServiceId, u32)> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().map(|(id, limiter)| (id.clone(), limiter.open.load(Ordering::Relaxed))).collect()
    }

    /// What this Service has in another process counts here, too, in place of what was said of it before.
    pub(crate) fn count_elsewhere(&self, service: &ServiceId, open: u32) {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(limiter) = known.get(service) {
            limiter.elsewhere.store(open, Ordering::Relaxed);
        }
    }

    /// No Service has anything in another process any more.
    pub(crate) fn forget_elsewhere(&self) {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().for_each(|(_, limiter)| limiter.elsewhere.store(0, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests;
