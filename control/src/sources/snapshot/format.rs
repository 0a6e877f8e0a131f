//! The lines of a snapshot, both ways. It must not know where they are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, Read as _, Write};
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::{Identity, Part, Snapshot, SnapshotError};
use crate::api::address_pool::AddressPool;
use crate::api::karmada::{Cluster, MultiClusterService, ResourceBinding, Work};
use crate::api::store::{Fleet, Objects, service_key, slice_owner};
use crate::text::{LONGEST_MESSAGE, cut_middle};

/// Changes with whatever an older version would misread. The kinds of a fleet are in a file of their own, which an older
/// version does not look for.
pub(super) const VERSION: u32 = 1;

/// Bytes of the first line, at most.
const LONGEST_HEADER: u64 = 64 << 10;
/// Bytes of another line, at most: several times as many as an API server takes of one object.
const LONGEST_LINE: u64 = 16 << 20;

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Header {
    sheave_snapshot: u32,
    sheave: String,
    server: String,
    cluster: String,
    /// Older versions neither write nor look for it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    authorities: BTreeSet<String>,
    /// As RFC 3339 has it.
    written_at: String,
}

/// What every version's first line has.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnyHeader {
    sheave_snapshot: u32,
}

/// A line behind the first, for writing.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum LineRef<'a> {
    Service(&'a Service),
    Slice(&'a EndpointSlice),
    Node(&'a Node),
    Namespace(&'a Namespace),
    Pool(&'a AddressPool),
    MultiClusterService(&'a MultiClusterService),
    Template(&'a Service),
    Work(&'a Work),
    Imported(&'a EndpointSlice),
    Binding(&'a ResourceBinding),
    Cluster(&'a Cluster),
    End(Footer),
}

/// A line behind the first, as read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum Line {
    Service(Box<Service>),
    Slice(Box<EndpointSlice>),
    Node(Box<Node>),
    Namespace(Box<Namespace>),
    Pool(Box<AddressPool>),
    MultiClusterService(Box<MultiClusterService>),
    Template(Box<Service>),
    Work(Box<Work>),
    Imported(Box<EndpointSlice>),
    Binding(Box<ResourceBinding>),
    Cluster(Box<Cluster>),
    End(Footer),
}

impl Line {
    /// Which file has such lines; none for the last line, which both have.
    fn part(&self) -> Option<Part> {
        match self {
            Self::Service(_) | Self::Slice(_) | Self::Node(_) | Self::Namespace(_) | Self::Pool(_) => {
                Some(Part::Local)
            }
            Self::MultiClusterService(_)
            | Self::Template(_)
            | Self::Work(_)
            | Self::Imported(_)
            | Self::Binding(_)
            | Self::Cluster(_) => Some(Part::Karmada),
            Self::End(_) => None,
        }
    }
}

/// The last line.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Footer {
    /// Lines between the first and this one.
    objects: u64,
    /// Of every byte before this line.
    crc32: u32,
}

/// Why lines are no snapshot of ours.
#[derive(Debug)]
pub(super) enum DecodeError {
    Io(io::Error),
    Damaged(String),
    OtherFormat(u32),
    OtherCluster { found: Box<Identity>, expected: Box<Identity> },
}

impl DecodeError {
    /// With the file that it is about.
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

/// Writes lines and sums them up. Line by line: the CRC is slow on the few bytes at a time that serde writes.
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

    fn object(&mut self, line: &LineRef<'_>) -> io::Result<()> {
        self.objects += 1;
        self.line(line)
    }
}

/// Writes the whole snapshot of this part of the objects.
pub(super) fn encode(header: &Header, objects: &Objects, part: Part, out: impl Write) -> io::Result<()> {
    let mut lines = Encoder { out, line: Vec::new(), crc: crc32fast::Hasher::new(), objects: 0 };
    lines.line(header)?;
    match part {
        Part::Local => encode_local(objects, &mut lines)?,
        Part::Karmada => encode_fleet(&objects.fleet, &mut lines)?,
    }
    let footer = Footer { objects: lines.objects, crc32: lines.crc.clone().finalize() };
    lines.line(&LineRef::End(footer))
}

fn encode_local(objects: &Objects, lines: &mut Encoder<impl Write>) -> io::Result<()> {
    for service in objects.services.values() {
        lines.object(&LineRef::Service(service))?;
    }
    for slice in objects.slices.values().flat_map(BTreeMap::values) {
        lines.object(&LineRef::Slice(slice))?;
    }
    for node in objects.nodes.values() {
        lines.object(&LineRef::Node(node))?;
    }
    for namespace in objects.namespaces.values() {
        lines.object(&LineRef::Namespace(namespace))?;
    }
    for pool in objects.pools.values() {
        lines.object(&LineRef::Pool(pool))?;
    }
    Ok(())
}

fn encode_fleet(fleet: &Fleet, lines: &mut Encoder<impl Write>) -> io::Result<()> {
    for service in fleet.services.values() {
        lines.object(&LineRef::MultiClusterService(service))?;
    }
    for template in fleet.templates.values() {
        lines.object(&LineRef::Template(template))?;
    }
    for work in fleet.works.values().flat_map(BTreeMap::values) {
        lines.object(&LineRef::Work(work))?;
    }
    for slice in fleet.imported.values().flat_map(BTreeMap::values) {
        lines.object(&LineRef::Imported(slice))?;
    }
    for binding in fleet.bindings.values() {
        lines.object(&LineRef::Binding(binding))?;
    }
    for cluster in fleet.clusters.values() {
        lines.object(&LineRef::Cluster(cluster))?;
    }
    Ok(())
}

// ---------------------------------------------------------------------------------------------------------------------

/// Gives lines and sums up those that were used.
struct Decoder<R> {
    input: R,
    line: Vec<u8>,
    number: u64,
}

impl<R: BufRead> Decoder<R> {
    /// The next line, with its end. A line that the file ends in is cut off, and of one without an end no more is read than
    /// there may be.
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

    /// Why the line that was given last is none.
    fn malformed(&self, error: &serde_json::Error) -> DecodeError {
        let why = cut_middle(error.to_string(), LONGEST_MESSAGE / 2);
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
        let line: Line = serde_json::from_slice(lines.next()?).map_err(|error| lines.malformed(&error))?;
        if let Line::End(footer) = line {
            break footer;
        }
        if line.part().is_some_and(|part| part != expected.part) {
            let why =
                format!("line {}: the object belongs into the file of the other API server", lines.number);
            return Err(DecodeError::Damaged(why));
        }
        crc.update(&lines.line);
        count += 1;
        take(&mut objects, line);
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

/// The format is looked at first: of another one nothing else is known.
fn read_header<R: BufRead>(lines: &Decoder<R>) -> Result<Header, DecodeError> {
    let malformed = |error| lines.malformed(&error);
    let AnyHeader { sheave_snapshot } = serde_json::from_slice(&lines.line).map_err(malformed)?;
    if sheave_snapshot != VERSION {
        return Err(DecodeError::OtherFormat(sheave_snapshot));
    }
    serde_json::from_slice(&lines.line).map_err(malformed)
}

fn take(objects: &mut Objects, line: Line) {
    match line {
        Line::Service(service) => {
            objects.services.insert(service_key(&service.metadata), service.into());
        }
        Line::Slice(slice) => {
            if let Some(owner) = slice_owner(&slice) {
                objects.slices.entry(owner).or_default().insert(name(&slice.metadata), slice.into());
            }
        }
        Line::Node(node) => {
            objects.nodes.insert(name(&node.metadata), node.into());
        }
        Line::Namespace(namespace) => {
            objects.namespaces.insert(name(&namespace.metadata), namespace.into());
        }
        Line::Pool(pool) => {
            objects.pools.insert(name(&pool.metadata), pool.into());
        }
        Line::MultiClusterService(service) => objects.fleet.put_service(*service),
        Line::Template(template) => objects.fleet.put_template(*template),
        Line::Work(work) => objects.fleet.put_work(*work),
        Line::Imported(slice) => objects.fleet.put_imported(*slice),
        Line::Binding(binding) => objects.fleet.put_binding(*binding),
        Line::Cluster(cluster) => objects.fleet.put_cluster(*cluster),
        // Handled by whoever reads the lines.
        Line::End(_) => {}
    }
}

fn name(metadata: &ObjectMeta) -> Arc<str> {
    metadata.name.as_deref().unwrap_or_default().into()
}
