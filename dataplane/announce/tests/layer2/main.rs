//! Layer 2 against real kernels: gateways, clients and rivals as network namespaces on one bridge.

use sheave_test_support as support;

#[cfg(test)]
mod cases;
#[cfg(test)]
mod conflicts;
#[cfg(test)]
mod interfaces;
#[cfg(test)]
mod network;
#[cfg(test)]
mod scale;
