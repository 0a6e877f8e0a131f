//! Encoding and decoding of a snapshot's lines.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, BufRead, Read as _, Write};
use std::path::PathBuf;

use jiff::Timestamp;
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer as _, Serialize, Serializer};

use super::{Identity, Snapshot, SnapshotError};
use crate::api::kinds::{KINDS, Kind, KindVisitor, visit_kinds};
use crate::api::store::{ControlPlane, Objects};
use crate::text::{MAX_MESSAGE_BYTES, cut_middle};

/// Format version. It changes with anything that an older version would misread. A further kind of objects is no such change: an older
/// version refuses its lines, and still reads files without any. The kinds of a fleet are in a separate file,
/// which an older version does not look for.
pub(super) const VERSION: u32 = 1;

/// Largest length of the first line in bytes.
const LONGEST_HEADER: u64 = 64 << 10;
/// Largest length of any other line in bytes: several times the size of an object that an API server accepts.
const LONGEST_LINE: u64 = 16 << 20;

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Header {
    sheave_snapshot: u32,
    sheave: String,
    server: String,
    cluster: String,
    /// Older versions neither write nor read it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    authorities: BTreeSet<String>,
    /// In RFC 3339 format.
    written_at: String,
}

/// Field that the first line has in every version.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnyHeader {
    sheave_snapshot: u32,
}

/// A line after the first: a value under its name.
struct SnapshotLine<'a, T>(&'static str, &'a T);

impl<T: Serialize> Serialize for SnapshotLine<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([(self.0, self.1)])
    }
}

/// Name of the last line.
const END: &str = "end";

/// The last line.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Footer {
    /// Number of lines between the first and this one.
    objects: u64,
    /// CRC-32 of every byte before this line.
    crc32: u32,
}

/// Reason why a snapshot cannot be decoded.
#[derive(Debug)]
pub(super) enum DecodeError {
    Io(io::Error),
    Damaged(String),
    OtherFormat(u32),
    OtherCluster { found: Box<Identity>, expected: Box<Identity> },
}

impl DecodeError {
    /// Adds the path of the file.
    pub(super) fn at(self, path: PathBuf) -> SnapshotError {
        match self {
            Self::Io(error) => SnapshotError::Unreadable { path, error },
            Self::Damaged(why) => SnapshotError::Damaged { path, why },
            Self::OtherFormat(found) => SnapshotError::OtherFormat { path, found },
            Self::OtherCluster { found, expected } => SnapshotError::OtherCluster { path, found, expected },
        }
    }
}

impl Header {
    pub(super) fn new(identity: &Identity, written_at: Timestamp) -> Self {
        Self {
            sheave_snapshot: VERSION,
            sheave: env!("CARGO_PKG_VERSION").to_owned(),
            server: identity.server.clone(),
            cluster: identity.cluster.clone(),
            authorities: identity.authorities.clone(),
            written_at: written_at.to_string(),
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------------

/// Writes lines and computes their CRC. It works on whole lines, because the CRC is slow on the few bytes at a time that serde
/// writes.
struct Encoder<W> {
    out: W,
    line: Vec<u8>,
    crc: crc32fast::Hasher,
    objects: u64,
}

impl<W: Write> Encoder<W> {
    fn line(&mut self, line: &impl Serialize) -> io::Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, line)?;
        self.line.push(b'\n');
        self.crc.update(&self.line);
        self.out.write_all(&self.line)
    }
}

/// Writes the snapshot of one part of the objects.
pub(super) fn encode(
    header: &Header,
    objects: &Objects,
    part: ControlPlane,
    out: impl Write,
) -> io::Result<()> {
    let mut lines = Encoder { out, line: Vec::new(), crc: crc32fast::Hasher::new(), objects: 0 };
    lines.line(header)?;
    let mut written = KindWriter { part, objects, lines, error: None };
    visit_kinds(&mut written);
    let KindWriter { mut lines, error, .. } = written;
    error.map_or(Ok(()), Err)?;
    let footer = Footer { objects: lines.objects, crc32: lines.crc.clone().finalize() };
    lines.line(&SnapshotLine(END, &footer))
}

/// Writes the objects of each kind of one part.
struct KindWriter<'a, W> {
    part: ControlPlane,
    objects: &'a Objects,
    lines: Encoder<W>,
    error: Option<io::Error>,
}

impl<W: Write> KindVisitor for KindWriter<'_, W> {
    fn visit<K: Kind>(&mut self) {
        if K::ROW.plane != self.part || self.error.is_some() {
            return;
        }
        let lines = &mut self.lines;
        let written = K::all(self.objects).try_for_each(|object| {
            lines.objects += 1;
            lines.line(&SnapshotLine(K::ROW.line, &**object))
        });
        self.error = written.err();
    }
}

// ---------------------------------------------------------------------------------------------------------------------

/// Reads lines. The caller computes the CRC of those that it uses.
struct Decoder<R> {
    input: R,
    line: Vec<u8>,
    number: u64,
}

impl<R: BufRead> Decoder<R> {
    /// The next line, including its end. A line without an end is truncated by the end of the file, and no more is read of it
    /// than the largest length.
    fn next(&mut self) -> Result<&[u8], DecodeError> {
        self.line.clear();
        self.number += 1;
        let longest = if self.number == 1 { LONGEST_HEADER } else { LONGEST_LINE };
        let read = self.input.by_ref().take(longest).read_until(b'\n', &mut self.line);
        let read = read.map_err(DecodeError::Io)?;
        if self.line.ends_with(b"\n") {
            Ok(&self.line)
        } else if u64::try_from(read).is_ok_and(|read| read == longest) {
            Err(DecodeError::Damaged(format!("line {} is longer than {longest} bytes", self.number)))
        } else {
            Err(DecodeError::Damaged(format!("it is cut off in line {}", self.number)))
        }
    }

    /// The error for a malformed last line.
    fn malformed(&self, error: &serde_json::Error) -> DecodeError {
        let why = cut_middle(error.to_string(), MAX_MESSAGE_BYTES / 2);
        DecodeError::Damaged(format!("line {}: {why}", self.number))
    }
}

/// Reads a whole snapshot about `expected`.
pub(super) fn decode(input: impl BufRead, expected: &Identity) -> Result<Snapshot, DecodeError> {
    let mut lines = Decoder { input, line: Vec::new(), number: 0 };
    let mut crc = crc32fast::Hasher::new();
    crc.update(lines.next()?);
    let header = read_header(&lines)?;
    let written_at = header
        .written_at
        .parse()
        .map_err(|error| DecodeError::Damaged(format!("line 1: writtenAt: {error}")))?;
    let Header { server, cluster, authorities, sheave, .. } = header;
    let identity = Identity { part: expected.part, server, cluster, authorities };
    if !identity.agrees(expected) {
        return Err(DecodeError::OtherCluster {
            found: Box::new(identity),
            expected: Box::new(expected.clone()),
        });
    }
    let mut objects = Objects::default();
    let mut count = 0;
    let told = loop {
        let read = read_line(lines.next()?, expected.part, &mut objects);
        match read.map_err(|error| lines.malformed(&error))? {
            Read::End(footer) => break footer,
            Read::OtherPart => {
                let why = format!(
                    "line {}: the object belongs into the file of the other API server",
                    lines.number
                );
                return Err(DecodeError::Damaged(why));
            }
            Read::Object => {
                crc.update(&lines.line);
                count += 1;
            }
        }
    };
    let found = Footer { objects: count, crc32: crc.finalize() };
    if found != told {
        return Err(DecodeError::Damaged(format!("its last line tells of {told:?}, but it has {found:?}")));
    }
    if !lines.input.fill_buf().map_err(DecodeError::Io)?.is_empty() {
        return Err(DecodeError::Damaged("it goes on behind its last line".to_owned()));
    }
    Ok(Snapshot { identity, written_at, sheave, objects })
}

/// Reads the header. The format comes first: nothing is known about any other format.
fn read_header<R: BufRead>(lines: &Decoder<R>) -> Result<Header, DecodeError> {
    let malformed = |error| lines.malformed(&error);
    let AnyHeader { sheave_snapshot } = serde_json::from_slice(&lines.line).map_err(malformed)?;
    if sheave_snapshot != VERSION {
        return Err(DecodeError::OtherFormat(sheave_snapshot));
    }
    serde_json::from_slice(&lines.line).map_err(malformed)
}

/// Kind of a line after the first.
enum Read {
    /// An object, which was added to the others.
    Object,
    /// An object of the other file.
    OtherPart,
    /// The last line.
    End(Footer),
}

fn read_line(line: &[u8], part: ControlPlane, objects: &mut Objects) -> serde_json::Result<Read> {
    let mut deserializer = serde_json::Deserializer::from_slice(line);
    let read = deserializer.deserialize_map(LineReader { part, objects })?;
    deserializer.end()?;
    Ok(read)
}

/// Reads a line with one entry. The entry's name determines the type of its value, so it is decoded directly.
struct LineReader<'a> {
    part: ControlPlane,
    objects: &'a mut Objects,
}

impl<'de> Visitor<'de> for LineReader<'_> {
    type Value = Read;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object under the name of its kind")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Read, A::Error> {
        let Some(name) = map.next_key::<String>()? else { return Err(A::Error::invalid_length(0, &self)) };
        let read = if name == END {
            Read::End(map.next_value()?)
        } else if KINDS.iter().any(|row| row.line == name && row.plane == self.part) {
            let mut reader = ObjectReader { name: &name, objects: self.objects, map: &mut map, read: None };
            visit_kinds(&mut reader);
            reader.read.unwrap_or(Ok(()))?;
            Read::Object
        } else if KINDS.iter().any(|row| row.line == name) {
            map.next_value::<IgnoredAny>()?;
            Read::OtherPart
        } else {
            return Err(A::Error::unknown_variant(&name, &[]));
        };
        match map.next_key::<IgnoredAny>()? {
            None => Ok(read),
            Some(_) => Err(A::Error::custom("a second object in one line")),
        }
    }
}

/// Decodes the object of the kind whose lines have this name. Parts of a kind share one name.
struct ObjectReader<'a, 'de, A: MapAccess<'de>> {
    name: &'a str,
    objects: &'a mut Objects,
    map: &'a mut A,
    read: Option<Result<(), A::Error>>,
}

impl<'de, A: MapAccess<'de>> KindVisitor for ObjectReader<'_, 'de, A> {
    fn visit<K: Kind>(&mut self) {
        if self.read.is_none() && K::ROW.line == self.name {
            let read = self.map.next_value::<K::Object>();
            self.read = Some(read.map(|object| self.objects.put::<K>(object)));
        }
    }
}
