//! The right to make network namespaces: root has it, and whoever may make a user namespace gets it there.

use std::fs;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};

use crate::failure::{During, Failure};

/// Whose right it is.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Right {
    /// The caller's own.
    Own,
    /// That of root in a user namespace that was entered just now.
    UserNamespace,
}

/// Makes sure that network namespaces can be made. To be called while the process has one thread, as
/// `unshare(CLONE_NEWUSER)` demands.
///
/// # Errors
/// [`Failure::NotPermitted`] when neither way is open.
pub(crate) fn obtain() -> Result<Right, Failure> {
    match unshare(CloneFlags::CLONE_NEWNET) {
        Ok(()) => return Ok(Right::Own),
        Err(Errno::EPERM) => {}
        Err(errno) => return Err(Failure::NotPermitted(errno)),
    }
    let (user, group) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET).map_err(Failure::NotPermitted)?;
    // A process without privileges may map its own group only after it gave up setgroups(2), see user_namespaces(7).
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
