//! Key input: parses the bytes that a terminal sends.
//!
//! The reader of crossterm 0.29 is not used. It delays a key that arrives together with a resize until the next key, and never ends
//! when the terminal has gone.

use std::io::{self, BufRead};
use std::str;
use std::thread;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::mpsc;

/// Keys that wait to be handled.
const QUEUED: usize = 64;
const ESCAPE: u8 = 0x1b;
/// How long the rest of a key may take: as long as ncurses and vim wait over networks, and too short to be noticed.
const REST: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Longest key sequence in bytes.
const LONGEST: usize = 4096;

/// Starts a thread that reads keys. The channel closes when the terminal has gone. The thread ends with the process, since nothing
/// else interrupts read(2) on a terminal.
pub(super) fn typed() -> mpsc::Receiver<KeyEvent> {
    let (out, keys) = mpsc::channel(QUEUED);
    thread::spawn(move || {
        while let Some(bytes) = read(&mut io::stdin().lock(), || follows(REST)) {
            for key in parse(&bytes) {
                if out.blocking_send(key).is_err() {
                    return;
                }
            }
        }
    });
    keys
}

/// Reads the next input; `None` when the terminal has gone. A key that arrives in two parts, as over a slow network, is joined if
/// `follows` reports more input.
fn read(input: &mut impl BufRead, follows: impl Fn() -> bool) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let part = input.fill_buf().ok().filter(|part| !part.is_empty())?;
        bytes.extend_from_slice(part);
        let length = part.len();
        input.consume(length);
        if bytes.len() > LONGEST || !is_cut(&bytes) || !follows() {
            return Some(bytes);
        }
    }
}

/// Whether the last key may be incomplete.
fn is_cut(bytes: &[u8]) -> bool {
    let last = bytes.iter().rposition(|byte| *byte == ESCAPE).map(|at| &bytes[at + 1..]);
    match last {
        Some([]) => true,
        Some([b'[' | b'O', sequence @ ..]) => !sequence.iter().any(is_last),
        _ => false,
    }
}

/// Whether more input arrives within this time.
fn follows(patience: Timespec) -> bool {
    let stdin = io::stdin();
    let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
    matches!(poll(&mut polled, Some(&patience)), Ok(1..))
}

/// Parses the keys that xterm-compatible terminals send, and skips unknown ones.
fn parse(mut bytes: &[u8]) -> Vec<KeyEvent> {
    let mut keys = Vec::new();
    while let Some((&first, rest)) = bytes.split_first() {
        let (code, left) = match (first, rest) {
            (ESCAPE, [b'[' | b'O', sequence @ ..]) => parse_sequence(sequence),
            (ESCAPE, _) => (Some(KeyCode::Esc), rest),
            (b'\r' | b'\n', _) => (Some(KeyCode::Enter), rest),
            (b'\t', _) => (Some(KeyCode::Tab), rest),
            (0x7f | 0x08, _) => (Some(KeyCode::Backspace), rest),
            (1..=26, _) => {
                let letter = char::from(first - 1 + b'a');
                keys.push(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL));
                (None, rest)
            }
            _ => parse_char(bytes),
        };
        keys.extend(code.map(KeyEvent::from));
        bytes = left;
    }
    keys
}

/// Parses what follows `ESC [`: parameters and a final byte (ECMA-48, 5.4).
fn parse_sequence(bytes: &[u8]) -> (Option<KeyCode>, &[u8]) {
    let Some(last) = bytes.iter().position(is_last) else { return (None, &[]) };
    let code = match (bytes[last], &bytes[..last]) {
        (b'A', _) => Some(KeyCode::Up),
        (b'B', _) => Some(KeyCode::Down),
        (b'C', _) => Some(KeyCode::Right),
        (b'D', _) => Some(KeyCode::Left),
        (b'H', _) | (b'~', b"1" | b"7") => Some(KeyCode::Home),
        (b'F', _) | (b'~', b"4" | b"8") => Some(KeyCode::End),
        (b'Z', _) => Some(KeyCode::BackTab),
        (b'~', b"5") => Some(KeyCode::PageUp),
        (b'~', b"6") => Some(KeyCode::PageDown),
        _ => None,
    };
    (code, &bytes[last + 1..])
}

fn is_last(byte: &u8) -> bool {
    (0x40..=0x7e).contains(byte)
}

/// Parses one character; skips a byte that begins none.
fn parse_char(bytes: &[u8]) -> (Option<KeyCode>, &[u8]) {
    let longest = bytes.len().min(4);
    let char = (1..=longest).find_map(|length| str::from_utf8(&bytes[..length]).ok()?.chars().next());
    let length = char.map_or(1, char::len_utf8);
    (char.filter(|char| !char.is_control()).map(KeyCode::Char), &bytes[length..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_and_everything_else_is_passed_over() {
        let codes = |bytes: &[u8]| parse(bytes).into_iter().map(|key| key.code).collect::<Vec<_>>();
        use KeyCode::{
            BackTab, Backspace, Char, Down, End, Enter, Esc, Home, PageDown, PageUp, Right, Tab, Up,
        };
        assert_eq!(codes(b"q\tj"), [Char('q'), Tab, Char('j')]);
        assert_eq!(codes("ä東\u{9b}x".as_bytes()), [Char('ä'), Char('東'), Char('x')]);
        assert_eq!(codes(b"\x1b[A\x1bOB\x1b[Z\x1b[5~\x1b[6~"), [Up, Down, BackTab, PageUp, PageDown]);
        assert_eq!(codes(b"\x1b[H\x1b[4~\x1b[1;5C\x1b"), [Home, End, Right, Esc]);
        assert_eq!(codes(b"\x7f\r\xff\xfe\x1b[200~\x1b[12"), [Backspace, Enter]);
        let interrupt = KeyEvent::new(Char('c'), KeyModifiers::CONTROL);
        assert_eq!(parse(b"\x03"), [interrupt]);
    }

    #[test]
    fn a_key_that_comes_in_parts_is_one() {
        /// Reader that returns one part for each read.
        struct Parts<'a>(Vec<&'a [u8]>);
        impl io::Read for Parts<'_> {
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                let Some(part) = self.0.pop() else { return Ok(0) };
                into[..part.len()].copy_from_slice(part);
                Ok(part.len())
            }
        }
        let codes = |mut parts: Vec<&[u8]>, more: bool| {
            parts.reverse();
            let mut input = io::BufReader::new(Parts(parts));
            let read = std::iter::from_fn(|| read(&mut input, || more));
            read.flat_map(|bytes| parse(&bytes)).map(|key| key.code).collect::<Vec<_>>()
        };
        use KeyCode::{Char, Esc, PageUp, Up};
        assert_eq!(codes(vec![b"\x1b", b"[", b"A", b"q"], true), [Up, Char('q')]);
        assert_eq!(codes(vec![b"j\x1b[5", b"~k"], true), [Char('j'), PageUp, Char('k')]);
        assert_eq!(codes(vec![b"\x1b", b"q"], false), [Esc, Char('q')], "nothing followed in time");
        assert_eq!(codes(vec![b"\x1b[A", b"x"], true), [Up, Char('x')]);
    }
}
