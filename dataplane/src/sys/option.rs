//! Socket options whose value is an `int`, and which neither nix nor socket2 has.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use libc::c_int;

/// Sets `option` of `level` to `value`.
///
/// # Errors
/// As setsockopt(2).
pub(crate) fn set_int(socket: impl AsFd, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
    let length = mem::size_of_val(&value) as libc::socklen_t;
    // SAFETY: the descriptor is open for the time of the borrow, and the option takes an int, which `value` is.
    let outcome = unsafe {
        libc::setsockopt(socket.as_fd().as_raw_fd(), level, option, ptr::from_ref(&value).cast(), length)
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
