//! Limits of one Service: how many connections and flows it may have, and how many new ones per second, in total and per client. All its
//! frontends and all workers share one limiter, except for those of a ListenerSet with limits of its own; a Service without limits has none. A client is an IPv4 address or an IPv6 network, since
//! a host may use any address of its own network.

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

/// Maximum number of clients of one Service that are counted separately: a few megabytes. Beyond it, clients with nothing open are
/// forgotten first; if all have something open, new clients count together as one.
const MOST_CLIENTS: usize = 65_536;
/// Number of clients checked in rotation for each one added, to forget those without relevant state.
const SWEPT: usize = 2;
/// Number of clients compared to forget one when there is no room.
const SAMPLED: usize = 8;

const SECOND: u64 = 1_000_000_000;

/// Counts the connections of one Service and enforces its limits.
#[derive(Debug)]
pub struct Limiter {
    limits: [AtomicU32; 4],
    client_prefix: AtomicU8,
    open: AtomicU32,
    /// Number of connections in the process that this one has taken over from.
    elsewhere: AtomicU32,
    /// When the next connection is due at an even rate, in nanoseconds since `epoch`.
    due: AtomicU64,
    clients: Mutex<Clients>,
    epoch: Instant,
}

/// Clients of one Service.
#[derive(Debug, Default)]
struct Clients {
    known: IndexMap<IpAddr, ClientUse, foldhash::fast::RandomState>,
    /// Use of all clients without an entry of their own.
    others: ClientUse,
    hand: usize,
}

/// Entry in which a connection is counted.
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

/// The generic cell rate algorithm (ITU-T I.371): permits a burst of one second's worth, and then connections at the rate. Returns the
/// next due time if a connection conforms now.
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

    /// Applies these limits; open connections stay.
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

    /// Admits a new connection or flow of `client`, which is `None` if the client is not known yet.
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
        // The client's own limits first, so that a client over its rate does not consume the rate of others.
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

    /// Counts a connection that another process has admitted, even if it exceeds the current limits.
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

    /// Whether there is clearly room for another connection.
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

/// A permit for one connection of a Service, returned when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    limiter: Arc<Limiter>,
    /// The entry in which the connection is counted, if it is counted per client.
    client: Option<LimitedClient>,
}

impl Permit {
    /// Applies the limits of the client, which was not known at admission.
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
    /// The entry of a client, or that of all others if the table is full and no entry can be forgotten.
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

    /// Forgets the client, among a few without open connections, that has been idle for longest.
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

/// The frontends that share a limiter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LimiterId {
    pub(crate) service: ServiceId,
    /// See [`ServicePort::settings_of`](sheave_model::ServicePort::settings_of).
    pub(crate) settings_of: Option<Arc<str>>,
}

/// Limiters of all Services with limits. They are reused across tables, so that open connections stay counted.
#[derive(Debug, Default)]
pub(crate) struct Limiters(Mutex<WeakMap<LimiterId, Limiter>>);

impl Limiters {
    /// The limiter of a frontend, updated to the current limits; `None` without limits. What is open stays counted until it ends,
    /// whatever the limits were meanwhile.
    pub(crate) fn get(&self, frontend: &Frontend) -> Option<Arc<Limiter>> {
        if !frontend.limits.any() {
            return None;
        }
        let id =
            LimiterId { service: service_id(frontend), settings_of: frontend.service.settings_of.clone() };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let limiter = known.get_or_insert(id, || Limiter::new(&frontend.limits));
        limiter.set(&frontend.limits);
        Some(limiter)
    }

    /// Number of open connections and flows of each Service in this process.
    pub(crate) fn counts(&self) -> Vec<(LimiterId, u32)> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().map(|(id, limiter)| (id.clone(), limiter.open.load(Ordering::Relaxed))).collect()
    }

    /// Sets the number of connections that this Service has in another process, which count here, too.
    pub(crate) fn count_elsewhere(&self, id: &LimiterId, open: u32) {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(limiter) = known.get(id) {
            limiter.elsewhere.store(open, Ordering::Relaxed);
        }
    }

    /// Clears the numbers of connections in another process.
    pub(crate) fn forget_elsewhere(&self) {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().for_each(|(_, limiter)| limiter.elsewhere.store(0, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests;
