//! Permission to create network namespaces, either as root or through a user namespace.

use std::fs;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};

use crate::failure::{During, Failure};

/// Origin of the permission.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Right {
    /// The caller's own permission.
    Own,
    /// Root in a user namespace that was just entered.
    UserNamespace,
}

/// Obtains permission to create network namespaces. Must be called while the process has a single thread, as
/// `unshare(CLONE_NEWUSER)` requires.
///
/// # Errors
/// [`Failure::NotPermitted`] if neither way is possible.
pub(crate) fn obtain() -> Result<Right, Failure> {
    match unshare(CloneFlags::CLONE_NEWNET) {
        Ok(()) => return Ok(Right::Own),
        Err(Errno::EPERM) => {}
        Err(errno) => return Err(Failure::NotPermitted(errno)),
    }
    let (user, group) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET).map_err(Failure::NotPermitted)?;
    // Without privileges, a process may only map its own group after it has given up setgroups(2)
    // (user_namespaces(7)).
    for (file, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("0 {user} 1")),
        ("gid_map", format!("0 {group} 1")),
    ] {
        let path = format!("/proc/self/{file}");
        fs::write(&path, text).during(format!("write {path}"))?;
    }
    Ok(Right::UserNamespace)
}
