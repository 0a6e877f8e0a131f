//! API tests: the test API server against what a real kube-apiserver answered, and its faults against their description.

#![cfg(test)]

use sheave_test_support as support;

mod access;
mod client;
mod comparison;
mod connect;
mod credentials;
mod election;
mod events;
mod faults;
mod karmada;
mod publishing;
mod recorded;
mod recorded_writes;
mod reviews;
mod scale;
mod transcript;
mod uninstall;
mod waiting;
mod watching;
mod writes;
