//! What the kernel has dropped at a socket (`SO_MEMINFO`, include/uapi/linux/sock_diag.h).

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

/// `SK_MEMINFO_VARS`: so many numbers there are.
const NUMBERS: usize = 9;
/// `SK_MEMINFO_DROPS`
const DROPS: usize = 8;

/// Packets dropped at the socket since it was made: by its filter, or since its queues were full. It wraps around.
///
/// # Errors
/// As getsockopt(2).
pub(crate) fn of(socket: impl AsFd) -> io::Result<u32> {
    let mut numbers = [0_u32; NUMBERS];
    let mut length = size_of_val(&numbers) as libc::socklen_t;
    // SAFETY: the descriptor is open for the time of the borrow, and the kernel writes no more than `length` bytes, which
    // `numbers` has.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            ptr::from_mut(&mut numbers).cast(),
            &raw mut length,
        )
    };
    if outcome == 0 { Ok(numbers[DROPS]) } else { Err(io::Error::last_os_error()) }
}
