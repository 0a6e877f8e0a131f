//! The kernel path against real kernels: hosts as network namespaces, and what a gateway has in nftables.

#![cfg(test)]

use sheave_test_support as support;

mod contents;
mod life;
mod ruleset;
mod traffic;
