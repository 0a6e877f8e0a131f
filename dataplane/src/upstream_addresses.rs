//! Detection of forwarding loops that no table shows. An endpoint may lead back to a frontend through another load balancer or NAT. Each
//! flow's socket is then another client, whose flow has another socket, so a single datagram would create flows without end. Therefore all
//! workers share the local addresses of their sockets towards endpoints, each with a hop count: the number of these sockets that a datagram
//! has passed. A few hops may be chained Services; more are a loop.
//!
//! The hop count is needed since an address alone is no proof: if endpoints see clients' own addresses, it may belong to a client.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::PoisonError;

use sheave_model::{ClientAddr, EndpointAddr};

use crate::sync::{Mutex, MutexGuard};

/// Maximum number of flows of this process that a datagram may pass in sequence.
const MOST_HOPS: u8 = 4;

/// Number of shards: dozens of workers rarely wait for each other.
const SHARDS: usize = 64;

/// A local address without its interface. Link-local addresses of several interfaces are not distinguished: at worst a loop is taken for
/// shorter than it is, or for longer by one.
type LocalAddr = (IpAddr, u16);
type OfSomePorts = HashMap<LocalAddr, Upstreams, foldhash::fast::RandomState>;

/// Local addresses of all sockets towards endpoints, sharded by port. Only consulted when a flow begins.
#[derive(Debug)]
pub(crate) struct UpstreamAddresses([Mutex<OfSomePorts>; SHARDS]);

/// The sockets that share one local address.
#[derive(Debug)]
struct Upstreams {
    /// Number of sockets by hop count, which begins with 1 and includes the socket itself.
    sockets: [u32; MOST_HOPS as usize],
    /// Endpoint of the last socket with the highest hop count.
    endpoint: EndpointAddr,
}

/// Registration of one socket's address, removed when dropped.
#[derive(Debug)]
pub(super) struct KnownAddress {
    all: Arc<UpstreamAddresses>,
    addr: LocalAddr,
    hops: u8,
}

impl Upstreams {
    fn hops(&self) -> u8 {
        let highest = self.sockets.iter().rposition(|count| *count > 0);
        highest.map_or(0, |place| place as u8 + 1)
    }

    fn of(&mut self, hops: u8) -> Option<&mut u32> {
        self.sockets.get_mut(usize::from(hops.checked_sub(1)?))
    }
}

impl Default for UpstreamAddresses {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }
}

impl UpstreamAddresses {
    /// Registers the local address of a socket that is connected to `endpoint` for `client`.
    pub(super) fn add(
        self: &Arc<Self>,
        local: SocketAddr,
        endpoint: EndpointAddr,
        client: ClientAddr,
    ) -> KnownAddress {
        let hops = MOST_HOPS.min(self.hops(client) + 1);
        let addr = (local.ip(), local.port());
        let mut shard = self.shard(addr);
        let new = || Upstreams { sockets: [0; MOST_HOPS as usize], endpoint };
        let upstreams = shard.entry(addr).or_insert_with(new);
        if hops >= upstreams.hops() {
            upstreams.endpoint = endpoint;
        }
        upstreams.of(hops).into_iter().for_each(|count| *count += 1);
        drop(shard);
        KnownAddress { all: Arc::clone(self), addr, hops }
    }

    /// Number of flows of this process that the client's datagrams have passed, as far as known: 0 to `MOST_HOPS`. If it is not 0, the
    /// client's flow must not share its port with another flow, whose datagrams would inherit the count.
    pub(super) fn hops(&self, client: ClientAddr) -> u8 {
        let addr = (client.ip(), client.0.port());
        self.shard(addr).get(&addr).map_or(0, Upstreams::hops)
    }

    /// The endpoint from which the client's datagrams have come back, if they are in a loop.
    pub(super) fn looping(&self, client: ClientAddr) -> Option<EndpointAddr> {
        let addr = (client.ip(), client.0.port());
        let shard = self.shard(addr);
        shard.get(&addr).filter(|sockets| sockets.hops() >= MOST_HOPS).map(|sockets| sockets.endpoint)
    }

    /// Locks a shard. It is consistent between any two statements, so poisoning does not matter.
    fn shard(&self, addr: LocalAddr) -> MutexGuard<'_, OfSomePorts> {
        self.0[usize::from(addr.1) % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for KnownAddress {
    fn drop(&mut self) {
        if let Entry::Occupied(mut entry) = self.all.shard(self.addr).entry(self.addr) {
            entry.get_mut().of(self.hops).into_iter().for_each(|count| *count -= 1);
            if entry.get().hops() == 0 {
                entry.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn endpoint(number: u8) -> EndpointAddr {
        EndpointAddr::new([10, 0, 0, number].into(), 53)
    }

    fn at(port: u16) -> SocketAddr {
        ([192, 0, 2, 1], port).into()
    }

    fn outside() -> ClientAddr {
        ClientAddr(([198, 51, 100, 1], 40_000).into())
    }

    #[test]
    fn datagrams_that_come_back_again_and_again_are_found_and_a_chain_of_services_passes() {
        let all = Arc::<UpstreamAddresses>::default();
        let mut sockets = vec![all.add(at(1), endpoint(1), outside())];
        for port in 1..u16::from(MOST_HOPS) {
            assert_eq!(all.looping(ClientAddr(at(port))), None, "{port}");
            sockets.push(all.add(at(port + 1), endpoint(2), ClientAddr(at(port))));
        }
        assert_eq!(all.looping(ClientAddr(at(MOST_HOPS.into()))), Some(endpoint(2)));
        // The same port at another address, or another port of the same address, belongs to none of these sockets.
        for stranger in [([192, 0, 2, 2], 4).into(), at(5), "[2001:db8::1]:4".parse().unwrap()] {
            assert_eq!(all.looping(ClientAddr(stranger)), None, "{stranger}");
        }
        sockets.clear();
        assert_eq!(all.looping(ClientAddr(at(MOST_HOPS.into()))), None, "closed");
        assert!(all.0.iter().all(|shard| shard.lock().unwrap().is_empty()));
    }

    #[test]
    fn of_sockets_that_share_an_address_the_one_of_the_loop_counts() {
        let all = Arc::<UpstreamAddresses>::default();
        let mut sockets: Vec<_> = (1..MOST_HOPS)
            .scan(outside(), |client, port| {
                let known = all.add(at(port.into()), endpoint(1), *client);
                *client = ClientAddr(at(port.into()));
                Some(known)
            })
            .collect();
        let last = ClientAddr(at(u16::from(MOST_HOPS) - 1));
        sockets.push(all.add(at(9), endpoint(2), outside()));
        sockets.push(all.add(at(9), endpoint(3), last));
        sockets.push(all.add(at(9), endpoint(4), outside()));
        assert_eq!(all.looping(ClientAddr(at(9))), Some(endpoint(3)));
        let [.., of_the_loop, other] = sockets.as_mut_slice() else { panic!("they are open") };
        std::mem::swap(of_the_loop, other);
        sockets.pop();
        assert_eq!((all.looping(ClientAddr(at(9))), all.hops(ClientAddr(at(9)))), (None, 1), "it is over");
    }

    proptest! {
        /// Holds for any shared address, and any order in which sockets are closed.
        #[test]
        fn an_address_is_known_for_as_long_as_any_socket_has_it(
            steps in prop::collection::vec((0_u16..4, any::<bool>(), any::<prop::sample::Index>()), 0..100)
        ) {
            let all = Arc::<UpstreamAddresses>::default();
            let mut open: Vec<(u16, KnownAddress)> = Vec::new();
            for (port, opens, which) in steps {
                if opens || open.is_empty() {
                    open.push((port, all.add(at(port), endpoint(1), outside())));
                } else {
                    drop(open.swap_remove(which.index(open.len())));
                }
                for port in 0..4 {
                    let known = open.iter().any(|(of, _)| *of == port);
                    prop_assert_eq!(all.hops(ClientAddr(at(port))), u8::from(known));
                }
            }
        }
    }
}
