//! What is seen and probed against real kernels: hosts are network namespaces.

#![cfg(test)]

use sheave_test_support as support;

mod capture;
mod conntrack;
mod endpoints;
mod evaluation;
mod network;
mod packet_filter;
mod path_mtu;
mod rights;
mod routes;
mod segment;
mod sockets;
