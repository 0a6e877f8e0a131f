//! API tests: the test API server compared with the recorded answers of a real kube-apiserver, and its faults compared
//! with their description.

#![cfg(test)]

use sheave_test_support as support;

mod access;
mod comparison;
mod connect;
mod credentials;
mod election;
mod events;
mod faults;
mod gateway_api;
mod karmada;
mod publishing;
mod recorded;
mod recorded_writes;
mod reviews;
mod scale;
mod transcript;
mod uninstall;
mod waiting;
mod writes;
