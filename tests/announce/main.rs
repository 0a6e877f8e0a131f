//! Announcing, on a network segment with a bridge that learns: several gateways, a client and a server of endpoints, each in a
//! network namespace of its own; and by BGP, with FRR on the gateways and on a router.
//!
//! Cases that move addresses many times have a short form for `tests/run` and a long one for `tests/soak`.

use sheave_test_support as support;

#[cfg(test)]
#[path = "../endurance/scale.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod scale;

#[cfg(test)]
mod addresses;
#[cfg(test)]
mod bgp;
#[cfg(test)]
mod fabric;
#[cfg(test)]
mod failover;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod figures;
#[cfg(test)]
mod frr;
#[cfg(test)]
mod heartbeat_cost;
#[cfg(test)]
mod manifests;
#[cfg(test)]
mod many;
#[cfg(test)]
mod other_announcers;
#[cfg(test)]
mod planned;
#[cfg(test)]
mod pools;
#[cfg(test)]
mod quick_start;
#[cfg(test)]
mod segment;
#[cfg(test)]
mod watch;
