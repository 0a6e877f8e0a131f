//! Forwarding loops that no table shows. An endpoint may lead back to a frontend by way of another load balancer or of NAT. Then each
//! flow's socket is one more client, whose flow has one more socket, and a single datagram makes flows without end. So all workers know
//! the local addresses of their sockets towards endpoints, with a hop count: how many of these sockets a datagram has passed. A few may be
//! Services one behind the other; more are a loop.
//!
//! A hop count, since an address is no proof: it may be that of a client as well, where endpoints see clients' own.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::PoisonError;

use sheave_model::{ClientAddr, EndpointAddr};

use crate::sync::{Mutex, MutexGuard};

/// How many flows of this process a datagram may pass, one after the other.
const MOST_HOPS: u8 = 4;

/// Enough that dozens of workers rarely wait for each other.
const SHARDS: usize = 64;

/// Link-local addresses of several interfaces are not told apart: at worst a loop is said to be shorter than it is, or longer by one.
type LocalAddr = (IpAddr, u16);
type OfSomePorts = HashMap<LocalAddr, Upstreams, foldhash::fast::RandomState>;

/// The local addresses of all sockets towards endpoints, by port. Looked at only when a flow begins.
#[derive(Debug)]
pub(crate) struct UpstreamAddresses([Mutex<OfSomePorts>; SHARDS]);

/// Those that have one local address: flows share ports.
#[derive(Debug)]
struct Upstreams {
    /// How many there are by hop count, which begins with 1 and includes the socket itself.
    sockets: [u32; MOST_HOPS as usize],
    /// Whom the last one with the highest is connected to.
    endpoint: EndpointAddr,
}

/// One socket's, known until this is dropped.
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
    /// Makes a socket's local address known, which is connected to `endpoint` for `client`.
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

    /// How many flows of this process the client's datagrams have passed, as far as can be known: 0 to `MOST_HOPS`. A flow of a client that has passed some
    /// must share its port with no other one, which would be taken for as far in.
    pub(super) fn hops(&self, client: ClientAddr) -> u8 {
        let addr = (client.ip(), client.0.port());
        self.shard(addr).get(&addr).map_or(0, Upstreams::hops)
    }

    /// The endpoint that the client's datagrams have come back from, if they go round in a loop.
    pub(super) fn looping(&self, client: ClientAddr) -> Option<EndpointAddr> {
        let addr = (client.ip(), client.0.port());
        let shard = self.shard(addr);
        shard.get(&addr).filter(|sockets| sockets.hops() >= MOST_HOPS).map(|sockets| sockets.endpoint)
    }

    /// A shard is consistent between any two statements, so poisoning does not matter.
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
        // The same port elsewhere, or of the same address another port: no socket of these.
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
        /// Whatever shares an address, and in whatever order sockets are closed.
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
