//! The hold-down of this gateway in a file, for the process after this one. The file exists while a gateway takes part: a process that finds it
//! comes after a process that did not end as planned. Written where the hold-down changes, seldom and by another thread.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::task::JoinHandle;

use crate::membership::{HoldDown, MembershipOptions};

/// The file's name in the folder of the process's state.
const NAME: &str = "hold-down";
const HEADING: &str = "sheave hold-down 1";
/// How long the end of the process waits for it to be written.
const LAST_WRITE: Duration = Duration::from_millis(200);
/// Longer files are somebody else's.
const LONGEST: u64 = 1024;

pub(super) struct HoldDownFile {
    path: PathBuf,
    node: Arc<str>,
    /// Hold-down in the file, or about to be written.
    written: Option<HoldDown>,
    writing: Option<JoinHandle<()>>,
}

impl HoldDownFile {
    pub(super) fn new(folder: &Path, node: Arc<str>) -> Self {
        Self { path: folder.join(NAME), node, written: None, writing: None }
    }

    /// The hold-down of the process before this one, if it was lost. A file that is torn, another node's or of the future says nothing; of
    /// one that is so old that its losses would be forgiven, the loss alone counts.
    pub(super) fn read(&self, options: &MembershipOptions) -> Option<HoldDown> {
        let metadata = fs::metadata(&self.path).ok()?;
        if !metadata.is_file() || metadata.len() > LONGEST {
            return None;
        }
        let (hold_down, written) = parse(&fs::read_to_string(&self.path).ok()?, &self.node)?;
        let age = SystemTime::now().duration_since(written).ok()?;
        let base = HoldDown { time: options.hold_down, doubles: false };
        // It is written again when they are forgiven, a hold-down and the longest one after the last loss.
        let old = age > hold_down.time.saturating_add(options.longest_hold_down * 2);
        Some(if old { base } else { hold_down })
    }

    /// Has the file written, if it has another hold-down and is not just being written.
    pub(super) fn update(&mut self, hold_down: HoldDown) {
        let busy = self.writing.as_ref().is_some_and(|writing| !writing.is_finished());
        if busy || self.written == Some(hold_down) {
            return;
        }
        self.written = Some(hold_down);
        let (path, text) = (self.path.clone(), format(hold_down, SystemTime::now(), &self.node));
        self.writing = Some(tokio::task::spawn_blocking(move || {
            if let Err(error) = replace(&path, &text) {
                let path = path.display();
                tracing::warn!(%path, %error, "if this process is lost, the next one is not held down for longer");
            }
        }));
    }

    /// This process ends as planned.
    pub(super) async fn remove(self) {
        if let Some(writing) = self.writing {
            // A disk that hangs must not keep the process.
            tokio::time::timeout(LAST_WRITE, writing).await.ok();
        }
        fs::remove_file(self.path).ok();
    }
}

/// Not synchronised with the disk: what a power failure tears says nothing.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(&new, path)
}

fn format(HoldDown { time, doubles }: HoldDown, now: SystemTime, node: &str) -> String {
    let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    format!("{HEADING}\n{}\n{doubles}\n{seconds}\n{node}\n", time.as_millis())
}

/// Reads the hold-down of this node, and when it was written.
fn parse(text: &str, node: &str) -> Option<(HoldDown, SystemTime)> {
    let text = text.strip_prefix(HEADING)?.strip_prefix('\n')?.strip_suffix('\n')?;
    let text = text.strip_suffix(node)?.strip_suffix('\n')?;
    let mut lines = text.split('\n');
    let time = Duration::from_millis(lines.next()?.parse().ok()?);
    let doubles = lines.next()?.parse().ok()?;
    let written = UNIX_EPOCH.checked_add(Duration::from_secs(lines.next()?.parse().ok()?))?;
    lines.next().is_none().then_some((HoldDown { time, doubles }, written))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOST: HoldDown = HoldDown { time: Duration::from_secs(20), doubles: true };

    fn options() -> MembershipOptions {
        MembershipOptions::new("gw-1".into(), "fleet".into(), 7946)
    }

    /// Hold-down that a process finds this many seconds after it was written.
    fn found_after(seconds: i64, hold_down: HoldDown) -> Option<HoldDown> {
        let folder = tempfile::tempdir().unwrap();
        let time = Duration::from_secs(seconds.unsigned_abs());
        let now = SystemTime::now();
        let written = if seconds < 0 { now + time } else { now - time };
        fs::write(folder.path().join(NAME), format(hold_down, written, "gw-1")).unwrap();
        HoldDownFile::new(folder.path(), "gw-1".into()).read(&options())
    }

    #[test]
    fn what_a_process_left_counts_while_it_would_not_be_forgiven() {
        let base = HoldDown { time: options().hold_down, doubles: false };
        assert_eq!(found_after(0, LOST), Some(LOST));
        assert_eq!(found_after(130, LOST), Some(LOST));
        assert_eq!(found_after(145, LOST), Some(base));
        assert_eq!(found_after(-5, LOST), None, "a clock was set back");
    }

    #[test]
    fn what_is_torn_or_of_others_says_nothing() {
        let text = format(LOST, SystemTime::now(), "gw-1");
        assert_eq!(parse(&text, "gw-1").unwrap().0, LOST);
        for length in 0..text.len() {
            assert_eq!(parse(&text[..length], "gw-1"), None, "{:?}", &text[..length]);
        }
        for other in ["gw-2", "w-1", "other-gw-1"] {
            assert_eq!(parse(&text, other), None, "{other}");
        }
        for other in
            [text.replace("hold-down 1", "hold-down 2"), text.replace("true", "yes"), text.clone() + "\n"]
        {
            assert_eq!(parse(&other, "gw-1"), None, "{other}");
        }
    }

    #[tokio::test]
    async fn the_file_follows_the_hold_down_and_goes_at_a_planned_end() {
        let folder = tempfile::tempdir().unwrap();
        let file = || HoldDownFile::new(folder.path(), "gw-1".into());
        assert_eq!(file().read(&options()), None);
        let mut kept = file();
        for hold_down in [LOST, HoldDown { time: Duration::from_secs(40), ..LOST }] {
            kept.update(hold_down);
            kept.writing.take().unwrap().await.unwrap();
            kept.update(hold_down);
            assert!(kept.writing.is_none(), "nothing has changed");
            assert_eq!(file().read(&options()), Some(hold_down));
        }
        kept.remove().await;
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
