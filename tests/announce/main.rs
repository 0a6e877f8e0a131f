//! Announcing, on a network segment with a bridge that learns: several gateways, a client and a server of endpoints, each in a
//! network namespace of its own; and by BGP, with FRR on the gateways and on a router.
//!
//! Cases that move addresses many times have a short form for `tests/run` and a long one for `tests/soak`.

#![cfg(test)]

use sheave_test_support as support;

mod addresses;
mod bgp;
mod bgp_configuration;
mod dedicated;
mod fabric;
mod failover;
mod faults;
mod figures;
mod frr;
mod guest;
mod heartbeat_cost;
mod keepalived;
mod manifests;
mod many;
mod marks;
mod other_announcers;
mod planned;
mod pools;
mod quick_start;
mod segment;
mod watch;
mod wire;
mod witness;
