//! Program on a pseudo-terminal, which is the controlling terminal of its session.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use nix::pty::{Winsize, openpty};

use crate::usage::{self, Usage};

/// Size of a window on a large screen.
const SIZE: Winsize = Winsize { ws_row: 60, ws_col: 200, ws_xpixel: 0, ws_ypixel: 0 };

/// Program that draws on a terminal. It ends when its handle is dropped.
pub(crate) struct Terminal {
    child: Child,
    keyboard: File,
    drawn: Arc<AtomicU64>,
}

impl Terminal {
    /// Starts the program under test.
    pub(crate) fn start<S: AsRef<OsStr>>(arguments: &[S]) -> Self {
        let pair = openpty(Some(&SIZE), None).expect("a pseudo-terminal");
        let keyboard = File::from(pair.master);
        let mut screen = keyboard.try_clone().expect("a second handle");
        let drawn = Arc::<AtomicU64>::default();
        let seen = Arc::clone(&drawn);
        thread::spawn(move || {
            let mut part = vec![0; 64 << 10];
            // Reading fails (EIO) once the other side is closed.
            while let Ok(length @ 1..) = screen.read(&mut part) {
                seen.fetch_add(length as u64, Ordering::Relaxed);
            }
        });
        let other = || Stdio::from(pair.slave.try_clone().expect("a second handle"));
        // `setsid` executes the program, which keeps its process ID.
        let mut command = Command::new("setsid");
        command.args(["--ctty", env!("CARGO_BIN_EXE_sheave")]).args(arguments).env("TERM", "xterm-256color");
        let child = command.stdin(other()).stdout(other()).stderr(other()).spawn();
        Self { child: child.expect("setsid (Debian package util-linux)"), keyboard, drawn }
    }

    /// Resources used so far.
    pub(crate) fn usage(&mut self) -> Usage {
        let ended = self.child.try_wait().expect("a child can be asked after");
        assert!(ended.is_none(), "the program on the terminal ended: {ended:?}");
        usage::of(self.child.id())
    }

    /// Bytes drawn so far.
    pub(crate) fn drawn(&self) -> u64 {
        self.drawn.load(Ordering::Relaxed)
    }

    /// Presses a key.
    pub(crate) fn press(&mut self, key: char) {
        write!(self.keyboard, "{key}").expect("keys are taken");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
