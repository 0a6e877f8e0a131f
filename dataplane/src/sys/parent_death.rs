//! Processes that end with the one that starts them.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid};

/// Has the kernel kill the process that `command` starts when the thread that starts it ends, whatever ends that thread: SIGKILL leaves
/// no time for a destructor (prctl(2), `PR_SET_PDEATHSIG`).
pub fn kill_with_parent(command: &mut Command) {
    let parent = Pid::this();
    let in_child = move || {
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        // The parent may have ended before the kernel knew.
        if getppid() == parent { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    };
    // SAFETY: the closure runs in the child between fork(2) and execve(2), where other threads may have left locks taken. It makes
    // two system calls; it takes no lock and allocates nothing.
    unsafe { command.pre_exec(in_child) };
}
