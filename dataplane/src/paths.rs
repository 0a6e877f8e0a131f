//! Paths to clusters: network interfaces to which sockets are bound before they connect, so that clusters with overlapping pod
//! addresses are kept apart.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sheave_model::{EndpointAddr, Path};
use socket2::Socket;
use thiserror::Error;

/// The interfaces of all paths, shared by all workers.
#[derive(Debug, Default)]
pub(crate) struct Paths(Box<[Interface]>);

#[derive(Debug)]
struct Interface {
    name: String,
    /// Whether the last attempt to use it failed, which was logged.
    lost: AtomicBool,
}

/// Reason why a socket cannot use a path.
#[derive(Debug, Error)]
enum Lost {
    #[error("interface {name}: {error}")]
    Interface { name: String, error: io::Error },
    #[error("no interface has the number {0}")]
    Number(u16),
}

impl Paths {
    /// Creates the paths 1, 2 and so on with these interfaces.
    pub(crate) fn new(interfaces: &Arc<[String]>) -> Arc<Self> {
        let interface = |name: &String| Interface { name: name.clone(), lost: AtomicBool::new(false) };
        Arc::new(Self(interfaces.iter().map(interface).collect()))
    }

    /// The interfaces, from path 1 on.
    pub(crate) fn interfaces(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|interface| interface.name.as_str())
    }

    /// Restricts `socket` to the path's interface (`SO_BINDTODEVICE`, socket(7)); has no effect for the default path.
    ///
    /// # Errors
    /// Returns `NetworkUnreachable` if the interface does not exist or may not be used, as if there were no route to the endpoint.
    pub(crate) fn bind(&self, socket: &Socket, path: Path) -> io::Result<()> {
        let Some(index) = usize::from(path.0).checked_sub(1) else { return Ok(()) };
        let unreachable = |lost| io::Error::new(io::ErrorKind::NetworkUnreachable, lost);
        let interface = self.0.get(index).ok_or_else(|| unreachable(Lost::Number(path.0)))?;
        match socket.bind_device(Some(interface.name.as_bytes())) {
            Ok(()) => {
                if interface.lost.load(Ordering::Relaxed) && interface.lost.swap(false, Ordering::Relaxed) {
                    tracing::info!(
                        interface = interface.name,
                        "the interface to a cluster can be used again"
                    );
                }
                Ok(())
            }
            Err(error) => {
                let name = interface.name.clone();
                if !interface.lost.swap(true, Ordering::Relaxed) {
                    tracing::warn!(interface = name, %error, "the interface to a cluster cannot be used");
                }
                Err(unreachable(Lost::Interface { name, error }))
            }
        }
    }
}

/// Paths of another process, renumbered for this one: its configuration may have listed the interfaces in another order.
#[derive(Debug, Default)]
pub(crate) struct FormerPaths(Option<Vec<Option<Path>>>);

impl FormerPaths {
    /// Creates the mapping from the other process's interfaces. Without them, the numbers are assumed to be the same.
    pub(crate) fn new(former: Option<&[String]>, own: &Paths) -> Self {
        let here = |name: &String| {
            let index = own.interfaces().position(|own| own == name)?;
            u16::try_from(index + 1).ok().map(Path)
        };
        Self(former.map(|former| former.iter().map(here).collect()))
    }

    /// The endpoint with its path renumbered; `None` if there is no such path here.
    pub(crate) fn endpoint(&self, former: EndpointAddr) -> Option<EndpointAddr> {
        let path = match (&self.0, usize::from(former.path.0).checked_sub(1)) {
            (Some(paths), Some(index)) => (*paths.get(index)?)?,
            _ => former.path,
        };
        Some(EndpointAddr { path, ..former })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use super::*;

    #[test]
    fn another_process_may_have_numbered_its_paths_otherwise() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let own = Paths::new(&names(&["east", "west"]).into());
        let former = FormerPaths::new(Some(&names(&["gone", "west", "east"])), &own);
        let endpoint =
            |path| EndpointAddr { path: Path(path), ..EndpointAddr::new(Ipv4Addr::LOCALHOST.into(), 80) };
        let here = [0, 1, 2, 3, 4].map(|path| former.endpoint(endpoint(path)).map(|it| it.path.0));
        assert_eq!(here, [Some(0), None, Some(2), Some(1), None]);
        assert_eq!(FormerPaths::new(None, &own).endpoint(endpoint(2)), Some(endpoint(2)));
    }

    #[test]
    fn a_path_without_its_interface_is_unreachable_and_the_default_one_is_left_alone() {
        let paths = Paths::new(&["sheave-none".to_owned(), "lo".to_owned()].into());
        let socket = Socket::from(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        for missing in [1, 3] {
            let error = paths.bind(&socket, Path(missing)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NetworkUnreachable, "{error}");
        }
        paths.bind(&socket, Path::DEFAULT).unwrap();
        assert_eq!(socket.device().unwrap(), None);
        paths.bind(&socket, Path(2)).unwrap();
        assert_eq!(socket.device().unwrap().as_deref(), Some(&b"lo"[..]));
    }
}
