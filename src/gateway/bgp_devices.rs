//! The two interfaces whose addresses a routing daemon announces. They exist while a process of this node holds them.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use sheave_announce::{BgpInterface, BgpInterfaces};
use sheave_dataplane::{check_tun, open_tun};
use thiserror::Error;

/// Suffix of the second interface's name.
const SHUTDOWN: &str = "-gshut";

/// Reason why the interfaces cannot be created.
#[derive(Debug, Error)]
pub(crate) enum BgpDeviceError {
    /// The TUN device cannot be opened.
    #[error(
        "announce: bgp needs /dev/net/tun, readable and writable for this process ({0}); in Kubernetes mount it as \
         deploy/examples/bgp-frr does"
    )]
    NoTun(io::Error),
    /// The kernel refuses an interface.
    #[error(
        "cannot make the interface {name} for announce: bgp (needs CAP_NET_ADMIN, and no other interface of that name): {error}"
    )]
    NotMade {
        /// Name of the interface.
        name: String,
        /// Reason.
        error: io::Error,
    },
}

/// The interfaces, shared with the announcer.
#[derive(Clone, Debug)]
pub(crate) struct BgpDevices(Arc<BgpInterfaces>);

impl BgpDevices {
    /// Checks whether the interfaces can be created, as far as possible beforehand: another process of this node may hold them.
    ///
    /// # Errors
    /// If the TUN device cannot be opened.
    pub(crate) fn check() -> Result<(), BgpDeviceError> {
        check_tun().map_err(BgpDeviceError::NoTun)
    }

    /// Creates the interfaces, without addresses.
    ///
    /// # Errors
    /// If the TUN device cannot be opened, or the kernel refuses an interface.
    pub(crate) fn open(name: &str) -> Result<Self, BgpDeviceError> {
        Self::check()?;
        let open = |name: String| match open_tun(&name) {
            Ok(device) => Ok(BgpInterface { name: name.into(), device }),
            Err(error) => Err(BgpDeviceError::NotMade { name, error }),
        };
        let (announced, shutdown) = (open(name.to_owned())?, open(shutdown_name(name))?);
        Ok(Self(Arc::new(BgpInterfaces { announced, shutdown })))
    }

    /// Interfaces from another process, with their addresses; `None` if the names do not match.
    pub(crate) fn handed(name: &str, devices: Vec<(String, OwnedFd)>) -> Option<Self> {
        let [announced, shutdown] = <[_; 2]>::try_from(devices).ok()?;
        if announced.0 != name || shutdown.0 != shutdown_name(name) {
            return None;
        }
        let interface = |(name, device): (String, _)| BgpInterface { name: name.into(), device };
        let (announced, shutdown) = (interface(announced), interface(shutdown));
        Some(Self(Arc::new(BgpInterfaces { announced, shutdown })))
    }

    /// Duplicates the descriptors for another process. Without them it creates its own interfaces once these are gone.
    pub(crate) fn hand_over(&self) -> Vec<(String, OwnedFd)> {
        let copy = |interface: &BgpInterface| Ok((interface.name.to_string(), interface.device.try_clone()?));
        let both: io::Result<_> = [&self.0.announced, &self.0.shutdown].into_iter().map(copy).collect();
        both.unwrap_or_else(|error| {
            tracing::warn!(%error, "the interfaces of announced addresses cannot be handed over");
            Vec::new()
        })
    }

    /// Interfaces for the announcer.
    pub(crate) fn interfaces(&self) -> Arc<BgpInterfaces> {
        Arc::clone(&self.0)
    }
}

fn shutdown_name(name: &str) -> String {
    format!("{name}{SHUTDOWN}")
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn devices(names: &[&str]) -> Vec<(String, OwnedFd)> {
        let device = || OwnedFd::from(File::open("/dev/null").unwrap());
        names.iter().map(|name| ((*name).to_owned(), device())).collect()
    }

    #[test]
    fn interfaces_of_another_configuration_are_not_gone_on_with() {
        let handed = |names: &[&str]| BgpDevices::handed("sheave0", devices(names));
        let both = handed(&["sheave0", "sheave0-gshut"]).unwrap();
        let names = |devices: Vec<(String, OwnedFd)>| devices.into_iter().map(|it| it.0).collect::<Vec<_>>();
        assert_eq!(names(both.hand_over()), ["sheave0", "sheave0-gshut"]);
        for others in [&[][..], &["sheave0"], &["vips", "vips-gshut"], &["sheave0-gshut", "sheave0"]] {
            assert!(handed(others).is_none(), "{others:?}");
        }
    }
}
