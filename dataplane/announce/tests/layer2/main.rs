//! Layer 2 against real kernels: gateways, clients and rivals as network namespaces on one bridge.

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
#[cfg(test)]
#[path = "../../../../tests/support"]
#[allow(dead_code, reason = "the kit serves several test programs; each uses a part of it")]
mod support {
    pub(crate) mod host;
    pub(crate) mod patience;
    pub(crate) mod process;
}
