//! Layer 2 against real kernels: gateways, clients and rivals as network namespaces on one bridge.

#![cfg(test)]

use sheave_test_support as support;

mod cases;
mod conflicts;
mod foreign;
mod interfaces;
mod last_word;
mod network;
mod scale;
