//! Torture: random scripts of what both ends of a connection do, or clients and servers of UDP, directly and through the gateway. What may
//! be observed directly is what must be observed through it.
//!
//! `SHEAVE_TORTURE_SCRIPTS=100000` runs so many scripts per case instead of the usual few; `SHEAVE_TORTURE_SEED=N` repeats
//! the scripts of a run, which prints its seed when it fails. The cases need root, as the end-to-end tests do.

#![cfg(test)]

use sheave_test_support as support;

mod connection;
mod datagrams;
mod end;
mod exchange;
mod judge;
mod pattern;
mod road;
mod run;
mod script;
mod tcp;
mod udp;
