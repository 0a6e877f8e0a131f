//! Child processes that end with their parent.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid};

/// Makes the kernel kill the process that `command` starts when the thread that starts it ends, for any reason: SIGKILL does not let
/// destructors run (prctl(2), `PR_SET_PDEATHSIG`).
pub fn kill_with_parent(command: &mut Command) {
    let parent = Pid::this();
    let in_child = move || {
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        // The parent may have ended before the call.
        if getppid() == parent { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    };
    // SAFETY: the closure runs in the child between fork(2) and execve(2), where locks may be held by threads that do not exist there.
    // It makes two system calls, takes no lock and allocates no memory.
    unsafe { command.pre_exec(in_child) };
}
