//! A wall clock that a case may step, for the processes that are given it: a library under them answers clock_gettime(2). Nothing else
//! on the machine sees it, the kernel's own time stamps included.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::process::Command;

use tempfile::TempDir;

/// A clock that goes with the machine's, but for its steps.
pub struct Clock(TempDir);

impl Clock {
    /// A clock that shows the right time.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/clock.c");
        // Rust links with the same compiler.
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-shared", "-fPIC", "-o"]).arg(folder.path().join("clock.so")).arg(source);
        assert!(compiler.status().expect("cc is there").success(), "{source} compiles");
        let clock = Self(folder);
        fs::write(clock.offset(), 0_i64.to_ne_bytes()).expect("a file is written");
        clock
    }

    /// Sets it to so many seconds before or after the machine's.
    pub fn set(&self, seconds: i64) {
        let offset = fs::OpenOptions::new().write(true).open(self.offset()).expect("the file is there");
        offset.write_all_at(&seconds.to_ne_bytes(), 0).expect("a file is written");
    }

    /// A command that becomes the process that has this clock.
    pub fn prefix(&self) -> Vec<String> {
        let library = self.0.path().join("clock.so");
        let variables = [("LD_PRELOAD", library), ("SHEAVE_TEST_CLOCK", self.offset())];
        let variables = variables.map(|(name, path)| format!("{name}={}", path.display()));
        std::iter::once("env".to_owned()).chain(variables).collect()
    }

    fn offset(&self) -> std::path::PathBuf {
        self.0.path().join("offset")
    }
}
