//! Program on a host: its output is kept for the failure report, and it never outlives its handle.

use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, ExitStatus};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::patience::{eventually_within, patience};

/// Number of output lines shown when a test fails.
const SHOWN_LINES: usize = 60;

/// Running program.
pub struct Process {
    what: String,
    child: Child,
    stdout: File,
    stderr: File,
}

/// Program that has ended.
pub struct Finished {
    what: String,
    status: ExitStatus,
    /// Whole standard output.
    pub stdout: String,
    /// Whole standard error.
    pub stderr: String,
}

impl Process {
    /// Starts a command, whose output is kept.
    pub fn start(what: String, mut command: Command) -> Self {
        let (stdout, stderr) = (unnamed_file(), unnamed_file());
        command.stdout(stdout.try_clone().expect("a second handle"));
        command.stderr(stderr.try_clone().expect("a second handle"));
        Self::spawn(what, command, (stdout, stderr))
    }

    /// Starts on a terminal, which gets all output.
    pub fn start_on_terminal(what: String, mut command: Command, terminal: OwnedFd) -> Self {
        command.stdin(terminal.try_clone().expect("a second handle"));
        command.stdout(terminal.try_clone().expect("a second handle")).stderr(terminal);
        Self::spawn(what, command, (unnamed_file(), unnamed_file()))
    }

    fn spawn(what: String, mut command: Command, (stdout, stderr): (File, File)) -> Self {
        let child = command.spawn().unwrap_or_else(|error| panic!("cannot start {what}: {error}"));
        Self { what, child, stdout, stderr }
    }

    /// Standard output so far.
    pub fn stdout(&self) -> String {
        contents(&self.stdout)
    }

    /// Standard error so far.
    pub fn stderr(&self) -> String {
        contents(&self.stderr)
    }

    /// Process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).expect("process ids are small");
        kill(Pid::from_raw(id), signal)
            .unwrap_or_else(|error| panic!("cannot signal {}: {error}", self.what));
    }

    /// Exit status, if the program has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Panics if the program has ended.
    pub fn expect_running(&mut self) {
        if let Some(status) = self.ended() {
            panic!("{} ended too early: {status}", self.what);
        }
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        eventually_within(patience(60.0), &format!("{} ends", self.what), || {
            self.ended().ok_or("still running")
        })
    }

    /// Waits for its end, and returns all of its output.
    pub fn finish(mut self) -> Finished {
        let status = self.wait();
        let (stdout, stderr) = (contents(&self.stdout), contents(&self.stderr));
        Finished { what: self.what.clone(), status, stdout, stderr }
    }

    fn report(&self) -> String {
        let mut report = String::new();
        for (name, text) in [("stdout", contents(&self.stdout)), ("stderr", contents(&self.stderr))] {
            let lines: Vec<&str> = text.lines().collect();
            let shown = lines.get(lines.len().saturating_sub(SHOWN_LINES)..).unwrap_or_default();
            if !shown.is_empty() {
                writeln!(report, "--- {} {name}\n{}", self.what, shown.join("\n"))
                    .expect("strings take text");
            }
        }
        report
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        if std::thread::panicking() {
            eprint!("{}", self.report());
        }
    }
}

impl Finished {
    /// Exit code; `None` if a signal ended it.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Returns standard output. Panics with all output unless the exit status is 0.
    pub fn expect_success(self) -> String {
        let Self { what, status, stdout, stderr } = self;
        assert!(status.success(), "{what}: {status}\n--- stdout\n{stdout}\n--- stderr\n{stderr}");
        stdout
    }
}

fn unnamed_file() -> File {
    tempfile::tempfile().expect("a temporary file")
}

/// Reads by position, since the handle shares its offset with the child that writes.
fn contents(file: &File) -> String {
    let mut bytes = vec![0; usize::try_from(file.metadata().map_or(0, |m| m.len())).expect("a small file")];
    let read: io::Result<()> = file.read_exact_at(&mut bytes, 0);
    read.map_or_else(
        |error| format!("(unreadable: {error})"),
        |()| String::from_utf8_lossy(&bytes).into_owned(),
    )
}
