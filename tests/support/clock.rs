//! Wall clock that a test can step, for selected processes: a preloaded library replaces clock_gettime(2). The rest of the machine is
//! not affected, including the kernel's own time stamps.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::process::Command;

use tempfile::TempDir;

/// Clock that follows the machine's, except for its steps.
pub struct Clock(TempDir);

impl Clock {
    /// A clock that shows the right time.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/clock.c");
        // rustc uses the same compiler to link.
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-shared", "-fPIC", "-o"]).arg(folder.path().join("clock.so")).arg(source);
        assert!(compiler.status().expect("cc is there").success(), "{source} compiles");
        let clock = Self(folder);
        fs::write(clock.offset(), 0_i64.to_ne_bytes()).expect("a file is written");
        clock
    }

    /// Sets the offset from the machine's clock, in seconds.
    pub fn set(&self, seconds: i64) {
        let offset = fs::OpenOptions::new().write(true).open(self.offset()).expect("the file is there");
        offset.write_all_at(&seconds.to_ne_bytes(), 0).expect("a file is written");
    }

    /// Command prefix that runs a process with this clock.
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
