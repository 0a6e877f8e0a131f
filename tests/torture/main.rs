//! Torture tests: random scripts for both ends of a connection, or for UDP clients and servers, directly and through the gateway. The
//! observations through the gateway must be possible directly.
//!
//! `SHEAVE_TORTURE_SCRIPTS=100000` sets the number of scripts per case. `SHEAVE_TORTURE_SEED=N` repeats the scripts of a run, which prints
//! its seed when it fails. The cases need root, like the end-to-end tests.

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
