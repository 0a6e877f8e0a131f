//! End-to-end test kit: hosts as network namespaces, the gateway as a process in one of them, and servers and clients
//! that communicate through it.
//!
//! The gateway is only used from outside: manifests in, traffic and the admin server out.

#![allow(missing_docs, clippy::new_without_default, reason = "the readers of these items are the tests")]

pub mod apiserver;
pub mod certificate;
pub mod clock;
pub mod cluster;
pub mod fleet;
pub mod gateway;
pub mod gateway_api;
pub mod host;
pub mod http;
pub mod karmada;
pub mod length;
pub mod load;
pub mod manifest;
pub mod members;
pub mod patience;
pub mod port_forward;
pub mod process;
pub mod program;
pub mod road;
pub mod seccomp;
pub mod sockets;
pub mod tcp;
pub mod terminal;
pub mod transfer;
pub mod udp;
pub mod usage;
pub mod world;

/// Makes each case two tests, `case::over_ipv4` and `case::over_ipv6`.
#[macro_export]
macro_rules! for_both_families {
    ($($case:ident),+ $(,)?) => {$(
        mod $case {
            use $crate::world::Family;

            #[test]
            fn over_ipv4() {
                super::$case(Family::V4);
            }

            #[test]
            fn over_ipv6() {
                super::$case(Family::V6);
            }
        }
    )+};
}
