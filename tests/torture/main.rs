//! Torture: random scripts of what both ends of a connection do, or clients and servers of UDP, directly and through the gateway. What may
//! be observed directly is what must be observed through it.
//!
//! `SHEAVE_TORTURE_SCRIPTS=100000` runs so many scripts per case instead of the usual few; `SHEAVE_TORTURE_SEED=N` repeats
//! the scripts of a run, which prints its seed when it fails. The cases need root, as the end-to-end tests do.

use sheave_test_support as support;

#[cfg(test)]
mod connection;
#[cfg(test)]
mod datagrams;
#[cfg(test)]
mod end;
#[cfg(test)]
mod exchange;
#[cfg(test)]
mod judge;
#[cfg(test)]
mod pattern;
#[cfg(test)]
mod road;
#[cfg(test)]
mod run;
#[cfg(test)]
mod script;
#[cfg(test)]
mod tcp;
#[cfg(test)]
mod udp;
