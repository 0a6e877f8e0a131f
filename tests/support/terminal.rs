//! Program on a pseudo-terminal, which is the controlling terminal of its session.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Command, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use nix::pty::{Winsize, openpty};
use nix::sys::signal::Signal;
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::ttyname;

use super::host::Host;
use super::patience::eventually;
use super::process::Process;
use super::usage::{self, Usage};

/// After how many looks a text is drawn again.
const REDRAWN_EVERY: u16 = 4;

/// Terminal with a program.
pub struct Terminal {
    process: Process,
    keyboard: File,
    /// Kept to read its settings after the program has ended.
    line: OwnedFd,
    before: Termios,
    output: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Starts a program on a host, on a terminal of 80 columns and 24 lines.
    pub fn start(host: &Host, program: &str, arguments: &[&str]) -> Self {
        Self::open((80, 24), |line| host.start_on_terminal(line, program, arguments))
    }

    /// Opens a terminal of this many columns and lines, on which `start` starts a program.
    pub fn open((columns, lines): (u16, u16), start: impl FnOnce(OwnedFd) -> Process) -> Self {
        let size = Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pair = openpty(Some(&size), None).expect("a pseudo-terminal");
        let before = tcgetattr(&pair.slave).expect("a terminal has settings");
        let keyboard = File::from(pair.master);
        let mut screen = keyboard.try_clone().expect("a second handle");
        let output = Arc::<Mutex<Vec<u8>>>::default();
        let written = Arc::clone(&output);
        thread::spawn(move || {
            let mut part = [0; 4096];
            // Reading fails (EIO) once the other side is closed.
            while let Ok(length @ 1..) = screen.read(&mut part) {
                let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
                written.extend_from_slice(&part[..length]);
            }
        });
        let line = pair.slave.try_clone().expect("a second handle");
        let process = start(pair.slave);
        Self { process, keyboard, line, before, output }
    }

    /// All output, with escape sequences.
    pub fn output(&self) -> String {
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&output).into_owned()
    }

    /// Bytes drawn so far.
    pub fn drawn(&self) -> usize {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Resources that the program has used so far.
    pub fn usage(&self) -> Usage {
        usage::of(self.process.id())
    }

    /// Presses keys.
    pub fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("keys are taken");
    }

    /// Changes the width of the window, which causes a redraw, and waits for this text. Without another width now and then, a text that
    /// comes later would be drawn over another one, of which the letters that both have stay.
    pub fn until_drawn(&mut self, columns: u16, text: &str) {
        let (from, mut tries) = (self.drawn(), 0);
        eventually(&format!("{text:?} is on the screen"), || {
            if tries % REDRAWN_EVERY == 0 {
                self.resize(columns + tries / REDRAWN_EVERY % 2);
            }
            tries += 1;
            self.process.expect_running();
            let output = self.output();
            let drawn = output.get(from..).unwrap_or_default();
            if drawn.contains(text) { Ok(()) } else { Err(output) }
        });
    }

    fn resize(&self, columns: u16) {
        let name = ttyname(&self.line).expect("a terminal has a name");
        let mut stty = Command::new("stty");
        let resized = stty.arg("-F").arg(name).args(["cols", &columns.to_string()]).status();
        assert!(resized.expect("stty").success());
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Waits for the end of the program, and panics unless the terminal is restored: its settings, screen and cursor.
    pub fn wait_until_restored(&mut self) -> ExitStatus {
        let status = self.process.wait();
        let after = tcgetattr(&self.line).expect("a terminal has settings");
        assert_eq!(
            (after.local_flags, after.input_flags),
            (self.before.local_flags, self.before.input_flags)
        );
        assert_eq!(after.output_flags, self.before.output_flags);
        eventually("the screen and the cursor are back", || {
            let output = self.output();
            let last = |sequence: &str| output.rfind(sequence);
            let screen = last("\u{1b}[?1049l") > last("\u{1b}[?1049h");
            let cursor = last("\u{1b}[?25h") > last("\u{1b}[?25l");
            if screen && cursor { Ok(()) } else { Err(output) }
        });
        status
    }
}
