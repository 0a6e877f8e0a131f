//! One entry of a ConfigMap: `"PORT": "NAMESPACE/SERVICE:PORT[:PROXY][:PROXY]"`, read as getStreamServices of ingress-nginx reads it
//! (internal/ingress/controller/controller.go). The first PROXY decodes headers of clients, the second one sends headers to endpoints.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use sheave_model::Protocol;

use super::super::draft::{left, reference};
use super::super::gateway_api::BackendDraft;
use super::text;
use crate::api::decode::field_path::FieldPath;
use crate::net::is_dns_label;
use crate::sources::manifests::{FileProblem, RawObject};

/// An entry that ingress-nginx would serve.
#[derive(Debug)]
pub(super) struct StreamEntry {
    pub(super) protocol: Protocol,
    /// Port that clients connect to.
    pub(super) port: u16,
    pub(super) backend: BackendDraft,
    /// Whether connections of clients begin with a PROXY header.
    pub(super) decodes: bool,
    /// Whether connections to endpoints begin with one.
    pub(super) encodes: bool,
    /// Its key and value.
    pub(super) field: String,
    pub(super) value: String,
    pub(super) left: Vec<FileProblem>,
}

/// Services by namespace and name.
pub(super) struct ServiceIndex<'a>(BTreeMap<(&'a str, &'a str), &'a RawObject>);

impl<'a> ServiceIndex<'a> {
    pub(super) fn of(objects: &'a [RawObject]) -> Self {
        let services = objects.iter().filter(|it| it.kind() == "Service" && it.group().is_empty());
        Self(services.map(|it| ((it.namespace(), it.name()), it)).collect())
    }
}

/// Reads the entries of a ConfigMap. What is no entry is reported.
pub(super) fn read(
    map: &RawObject,
    protocol: Protocol,
    reserved: &BTreeSet<u16>,
    services: &ServiceIndex<'_>,
    problems: &mut Vec<FileProblem>,
) -> Vec<StreamEntry> {
    let data = map.at(&["data"]).and_then(Value::as_object);
    let mut entries = Vec::new();
    for (key, value) in data.into_iter().flat_map(Map::iter) {
        let field = FieldPath::key("data").then_key(key).to_string();
        let reader = EntryReader { map, field: &field, protocol, services };
        match reader.read(key, value, reserved) {
            Ok(entry) => entries.push(entry),
            Err(why) => problems.push(reader.left(format!("{value}: {why}; it is left out"))),
        }
    }
    without_repeated(map, entries, problems)
}

/// Removes entries with the same port, such as 80 and 080: nginx refuses a configuration that listens twice.
fn without_repeated(
    map: &RawObject,
    entries: Vec<StreamEntry>,
    problems: &mut Vec<FileProblem>,
) -> Vec<StreamEntry> {
    let mut times: BTreeMap<u16, usize> = BTreeMap::new();
    for entry in &entries {
        *times.entry(entry.port).or_default() += 1;
    }
    let (single, repeated): (Vec<_>, Vec<_>) =
        entries.into_iter().partition(|entry| times.get(&entry.port) == Some(&1));
    for StreamEntry { field, value, port, .. } in repeated {
        let message = format!("{value:?}: another entry is for port {port}, too; both are left out");
        problems.push(left(map, &field, message));
    }
    single
}

/// Reads one entry of a ConfigMap.
struct EntryReader<'a> {
    map: &'a RawObject,
    field: &'a str,
    protocol: Protocol,
    services: &'a ServiceIndex<'a>,
}

/// The parts of a value.
struct Parts<'v> {
    namespace: &'v str,
    service: &'v str,
    port: &'v str,
    /// PROXY fields and what follows them.
    rest: Vec<&'v str>,
}

impl EntryReader<'_> {
    fn left(&self, message: String) -> FileProblem {
        left(self.map, self.field, message)
    }

    fn read(&self, key: &str, value: &Value, reserved: &BTreeSet<u16>) -> Result<StreamEntry, String> {
        let number = key.parse().map_err(|_| "the key is not a number".to_owned())?;
        let port = port(number).ok_or_else(|| format!("{number} is not a port (1 to 65535)"))?;
        if reserved.contains(&port) {
            return Err(format!("ingress-nginx keeps port {port} for itself, and ignores the entry"));
        }
        let value = value.as_str().ok_or("the value is not text")?;
        let parts = split(value)?;
        let mut left = Vec::new();
        let service_port = self.service_port(&parts, &mut left)?;
        let (decodes, encodes) = self.proxy(value, &parts.rest, &mut left);
        Ok(StreamEntry {
            protocol: self.protocol,
            port,
            backend: BackendDraft {
                namespace: parts.namespace.to_owned(),
                service: parts.service.to_owned(),
                port: service_port,
            },
            decodes,
            encodes,
            field: self.field.to_owned(),
            value: value.to_owned(),
            left,
        })
    }

    /// The PROXY fields. ingress-nginx ignores both of a UDP port, other words, and the second one if more follows.
    fn proxy(&self, value: &str, rest: &[&str], problems: &mut Vec<FileProblem>) -> (bool, bool) {
        let is_proxy = |index: usize| rest.get(index).is_some_and(|text| text.eq_ignore_ascii_case("PROXY"));
        let is_tcp = self.protocol == Protocol::Tcp;
        let decodes = is_tcp && is_proxy(0);
        let encodes = is_tcp && is_proxy(1) && rest.len() == 2;
        let used = [decodes, encodes];
        let ignored = rest
            .iter()
            .enumerate()
            .filter(|(index, text)| !text.is_empty() && !used.get(*index).copied().unwrap_or_default());
        for (_, text) in ignored {
            let message = format!("{value:?}: {text:?} has no effect in ingress-nginx here; it is left out");
            problems.push(self.left(message));
        }
        (decodes, encodes)
    }

    /// The number of the Service's port. A name needs the Service.
    fn service_port(&self, parts: &Parts<'_>, problems: &mut Vec<FileProblem>) -> Result<u16, String> {
        let number = parts.port.parse::<i64>().ok();
        let Some(service) = self.services.0.get(&(parts.namespace, parts.service)) else {
            let missing = format!("Service {}/{} was not read", parts.namespace, parts.service);
            let number = number
                .ok_or_else(|| format!("{missing}, so the number of its port {:?} is unknown", parts.port))?;
            let number = port(number).ok_or_else(|| format!("{number} is not a port (1 to 65535)"))?;
            let message = format!("{missing}: check that it exists and has port {number}/{}", self.protocol);
            problems.push(self.left(message));
            return Ok(number);
        };
        if text(service, &["spec", "type"]) == Some("ExternalName") {
            return Err(format!(
                "{} is of type ExternalName, which no route may use (CVE-2021-25740)",
                reference(service)
            ));
        }
        let fits =
            |(name, it): &(&str, u16)| number.map_or(*name == parts.port, |number| i64::from(*it) == number);
        let found = ports(service, self.protocol).find(fits).map(|(_, port)| port);
        found.ok_or_else(|| {
            format!("{} has no port {:?} with {}", reference(service), parts.port, self.protocol)
        })
    }
}

fn split(value: &str) -> Result<Parts<'_>, String> {
    let mut parts = value.split(':');
    let (Some(reference), Some(port)) = (parts.next(), parts.next()) else {
        return Err("it is not NAMESPACE/SERVICE:PORT".to_owned());
    };
    let Some((namespace, service)) = reference.split_once('/') else {
        return Err("it names no namespace".to_owned());
    };
    if port.is_empty() {
        return Err("it names no port".to_owned());
    }
    if !is_dns_label(namespace) || !is_dns_label(service) {
        return Err("it does not begin with the names of a Namespace and a Service".to_owned());
    }
    Ok(Parts { namespace, service, port, rest: parts.collect() })
}

fn port(number: i64) -> Option<u16> {
    u16::try_from(number).ok().filter(|port| *port != 0)
}

/// Names and numbers of the Service's ports with this protocol.
fn ports(service: &RawObject, protocol: Protocol) -> impl Iterator<Item = (&str, u16)> {
    let ports = service.at(&["spec", "ports"]).and_then(Value::as_array).into_iter().flatten();
    ports.filter_map(move |entry| {
        let text = |field: &str| entry.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
        let is_of = text("protocol").unwrap_or(Protocol::Tcp.name()) == protocol.name();
        let number = port(entry.get("port")?.as_i64()?).filter(|_| is_of)?;
        Some((text("name").unwrap_or_default(), number))
    })
}

/// Whether the Service has this port.
pub(super) fn has_port(service: &RawObject, protocol: Protocol, number: u16) -> bool {
    ports(service, protocol).any(|(_, port)| port == number)
}
