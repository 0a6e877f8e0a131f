//! The timeline in a file of the state folder, for the next process on this node: one JSON object on each line.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};

use super::event::Event;

/// Name of the file.
const NAME: &str = "events.jsonl";
/// Size at which it is written anew from memory, which holds the latest events.
const LONGEST: u64 = 8 << 20;

/// The file.
#[derive(Debug)]
pub(super) struct EventFile {
    path: PathBuf,
    /// Whether the file ends with a whole line, as far as this process knows: another one, or a full disk, may have torn it.
    whole: bool,
    /// Whether the last write failed, which is logged once.
    broken: bool,
}

impl EventFile {
    pub(super) fn in_folder(folder: &Path) -> Self {
        Self { path: folder.join(NAME), whole: false, broken: false }
    }

    /// The events of earlier processes. A line that is torn, or of another version, is left out.
    pub(super) fn read(&self) -> Vec<Event> {
        // Anything else, such as a pipe, might never be opened.
        let is_file = fs::metadata(&self.path).is_ok_and(|it| it.is_file());
        let Some(file) = is_file.then(|| File::open(&self.path).ok()).flatten() else { return Vec::new() };
        let lines = BufReader::new(file.take(LONGEST * 2)).split(b'\n').map_while(Result::ok);
        lines.filter_map(|line| serde_json::from_slice(&line).ok()).collect()
    }

    /// Appends events. If the file has become too long, it is replaced by `all`.
    pub(super) fn append(&mut self, new: &[Event], all: impl FnOnce() -> Vec<Event>) {
        let outcome = self.try_append(new, all);
        if let Err(error) = &outcome
            && !self.broken
        {
            let path = self.path.display();
            tracing::warn!(%path, %error, "events are kept in memory only, and are lost with this process");
        }
        self.broken = outcome.is_err();
        self.whole = outcome.is_ok();
    }

    fn try_append(&self, new: &[Event], all: impl FnOnce() -> Vec<Event>) -> io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.path)?;
        if file.metadata()?.len() < LONGEST {
            let end: &[u8] = if self.whole { b"" } else { b"\n" };
            return file.write_all(&[end, lines(new)?.as_slice()].concat());
        }
        let next = self.path.with_extension("new");
        fs::write(&next, lines(&all())?)?;
        fs::rename(&next, &self.path)
    }
}

fn lines(events: &[Event]) -> io::Result<Vec<u8>> {
    let mut lines = Vec::new();
    for event in events {
        serde_json::to_writer(&mut lines, event)?;
        lines.push(b'\n');
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::views::change::{Change, ChangeKind};

    fn event(text: &str) -> Event {
        let change = Change::new(ChangeKind::Gateway, None, Some(text.to_owned()));
        Event::new(Timestamp::UNIX_EPOCH, (None, change))
    }

    #[test]
    fn events_outlive_the_process_and_torn_lines_do_no_harm() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = EventFile::in_folder(folder.path());
        assert_eq!(file.read(), []);
        file.append(&[event("one")], Vec::new);
        let path = folder.path().join(NAME);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, [&whole[..], b"{\"time\":\"2026-", &[0xff]].concat()).unwrap();
        let mut file = EventFile::in_folder(folder.path());
        file.append(&[event("two"), event("three")], Vec::new);
        assert_eq!(file.read(), ["one", "two", "three"].map(event));
        fs::write(&path, vec![b'x'; usize::try_from(LONGEST).unwrap()]).unwrap();
        file.append(&[event("four")], || ["three", "four"].map(event).into());
        assert_eq!(file.read(), ["three", "four"].map(event));
    }

    #[test]
    fn a_folder_that_cannot_be_written_costs_nothing_but_the_file() {
        let mut file = EventFile::in_folder(Path::new("/proc/no-such-folder"));
        file.append(&[event("one")], Vec::new);
        assert!(file.broken);
        assert_eq!(file.read(), []);
    }
}
