//! API tests: the test API server against what a real kube-apiserver answered, and its faults against their description.

use sheave_test_support as support;

#[cfg(test)]
mod access;
#[cfg(test)]
mod client;
#[cfg(test)]
mod comparison;
#[cfg(test)]
mod connect;
#[cfg(test)]
mod credentials;
#[cfg(test)]
mod election;
#[cfg(test)]
mod events;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod karmada;
#[cfg(test)]
mod publishing;
#[cfg(test)]
mod recorded;
#[cfg(test)]
mod recorded_writes;
#[cfg(test)]
mod reviews;
#[cfg(test)]
mod scale;
#[cfg(test)]
mod transcript;
#[cfg(test)]
mod uninstall;
#[cfg(test)]
mod waiting;
#[cfg(test)]
mod watching;
#[cfg(test)]
mod writes;
