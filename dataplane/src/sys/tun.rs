//! TUN devices: network interfaces that exist while a process holds their descriptor.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

/// Device that creates the interfaces (Documentation/networking/tuntap.rst).
const CLONE_DEVICE: &str = "/dev/net/tun";

/// Checks that this process may open the device that creates interfaces. The permission to create one (CAP_NET_ADMIN) is only checked
/// on creation.
///
/// # Errors
/// Returns an error if open(2) fails.
pub fn check_tun() -> io::Result<()> {
    open().map(drop)
}

/// Creates an interface of this name. The kernel removes it with its addresses when the last copy of the descriptor is closed,
/// however the process ends. Needs CAP_NET_ADMIN.
///
/// # Errors
/// Returns an error if open(2) or `TUNSETIFF` fails: `EBUSY` if the interface exists. `InvalidInput` if the name is too long.
pub fn open_tun(name: &str) -> io::Result<OwnedFd> {
    let device = open()?;
    // SAFETY: all zeros is a valid `ifreq`: integers, and a union of integers and null pointers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed() as libc::c_char;
    }
    // Not an existing interface: a persistent one would outlive the process.
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_TUN_EXCL;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: the kernel reads and writes one `ifreq`, which outlives the call, and the descriptor is open.
    let made = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as libc::Ioctl, &raw mut request) };
    if made < 0 { Err(io::Error::last_os_error()) } else { Ok(device) }
}

fn open() -> io::Result<OwnedFd> {
    let device =
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(CLONE_DEVICE)?;
    Ok(device.into())
}
