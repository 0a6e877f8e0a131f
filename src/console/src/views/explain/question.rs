//! Question: a Service, Gateway or route, and which of its clients and frontends. The command line and the admin server parse it with the
//! same functions.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::Deserialize;
use sheave_control::api::gateway_api::RouteKind;
use sheave_control::api::store::ServiceKey;
use sheave_dataplane::server_name;
use sheave_model::Protocol;

/// Service, and which of its clients and frontends the answer is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Service or MultiClusterService; an object of the Gateway API has its namespace and name here.
    pub service: ServiceKey,
    /// Set if it is about an object of the Gateway API.
    pub gateway_api: Option<GatewayApiObject>,
    /// Whether the MultiClusterService is meant even if a Service has the same name.
    pub multi_cluster: bool,
    /// Selects frontends by port.
    pub port: Option<Port>,
    /// Selects frontends by protocol.
    pub protocol: Option<Protocol>,
    /// Selects frontends by address.
    pub address: Option<IpAddr>,
    /// `None` = any client outside the cluster.
    pub client: Option<Client>,
    /// Server name that the client asks for, in lower case without a dot at its end.
    pub sni: Option<String>,
}

/// Object of the Gateway API, with the namespace and name of the question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GatewayApiObject {
    /// A Gateway, or only this listener of it.
    Gateway(Option<String>),
    /// A route.
    Route(RouteKind),
}

impl GatewayApiObject {
    /// The object of this kind, in any spelling that kubectl knows; `None` if it is no kind of the Gateway API that is explained.
    pub(crate) fn named(kind: &str) -> Option<Self> {
        let kind = kind.to_ascii_lowercase();
        let kind = kind.strip_suffix(".gateway.networking.k8s.io").unwrap_or(&kind);
        match kind.strip_suffix('s').unwrap_or(kind) {
            "gateway" | "gtw" => Some(Self::Gateway(None)),
            "tcproute" => Some(Self::Route(RouteKind::Tcp)),
            "udproute" => Some(Self::Route(RouteKind::Udp)),
            "tlsroute" => Some(Self::Route(RouteKind::Tls)),
            _ => None,
        }
    }

    /// The kind as in manifests.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Gateway(_) => "Gateway",
            Self::Route(kind) => kind.name(),
        }
    }

    /// The listener, if it names one.
    pub(crate) fn listener(&self) -> Option<&str> {
        match self {
            Self::Gateway(listener) => listener.as_deref(),
            Self::Route(_) => None,
        }
    }
}

/// A port of the Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Port {
    /// Number of the frontend's or the Service's port.
    Number(u16),
    /// Name of the Service's port.
    Name(String),
}

/// Client of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// Source address.
    pub ip: IpAddr,
    /// Source port, if known.
    pub port: Option<u16>,
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => SocketAddr::new(self.ip, port).fmt(f),
            None => self.ip.fmt(f),
        }
    }
}

/// Parses `namespace/name`.
pub(crate) fn parse_service(text: &str) -> Result<ServiceKey, String> {
    let word = |word: &str| {
        !word.is_empty() && word.chars().all(|char| char.is_ascii_alphanumeric() || "-.".contains(char))
    };
    match text.split_once('/') {
        Some((namespace, name)) if word(namespace) && word(name) => Ok(ServiceKey::new(namespace, name)),
        _ => Err("write it as NAMESPACE/NAME, as shop/web".to_owned()),
    }
}

/// Parses the number or name of a port.
pub(crate) fn parse_port(text: &str) -> Result<Port, String> {
    let named = text.chars().any(|char| char.is_ascii_alphabetic())
        && text.chars().all(|char| char.is_ascii_alphanumeric() || char == '-');
    match text.parse() {
        Ok(number) if number > 0 => Ok(Port::Number(number)),
        _ if named => Ok(Port::Name(text.to_owned())),
        _ => Err("this is neither a port number (1 to 65535) nor the name of a Service port".to_owned()),
    }
}

/// Parses `TCP` or `UDP`.
pub(crate) fn parse_protocol(text: &str) -> Result<Protocol, String> {
    Protocol::named(&text.to_ascii_uppercase()).ok_or_else(|| "this is not TCP or UDP".to_owned())
}

/// Parses `ip` or `ip:port`; IPv6 with a port is in brackets.
pub(crate) fn parse_client(text: &str) -> Result<Client, String> {
    let with_port = |addr: SocketAddr| Client { ip: addr.ip().to_canonical(), port: Some(addr.port()) };
    let without = |ip: IpAddr| Client { ip: ip.to_canonical(), port: None };
    let read = text.parse().map(without).or_else(|_| text.parse().map(with_port));
    read.map_err(|_| "write it as an address, or as address:port ([address]:port for IPv6)".to_owned())
}

/// Parses a server name.
pub(crate) fn parse_sni(text: &str) -> Result<String, String> {
    let name = server_name(text.as_bytes()).map(String::from);
    name.ok_or_else(|| "this is no server name: write a host name, as shop.example.com".to_owned())
}

/// Parses an address.
pub(crate) fn parse_address(text: &str) -> Result<IpAddr, String> {
    text.parse::<IpAddr>().map(|ip| ip.to_canonical()).map_err(|_| "this is not an IP address".to_owned())
}

/// Question as the query of a URL.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct QuestionQuery {
    service: String,
    #[serde(default)]
    multi_cluster: bool,
    /// `gateway`, `tcproute`, `udproute` or `tlsroute`; a Service if missing.
    kind: Option<String>,
    /// Name of a Gateway's listener.
    listener: Option<String>,
    port: Option<String>,
    protocol: Option<String>,
    address: Option<String>,
    client: Option<String>,
    sni: Option<String>,
}

impl QuestionQuery {
    /// Parses each value; the error names the wrong one.
    pub(crate) fn read(&self) -> Result<Question, String> {
        Ok(Question {
            service: read("service", &self.service, parse_service)?,
            gateway_api: self.gateway_api()?,
            multi_cluster: self.multi_cluster,
            port: self.port.as_ref().map(|text| read("port", text, parse_port)).transpose()?,
            protocol: self
                .protocol
                .as_ref()
                .map(|text| read("protocol", text, parse_protocol))
                .transpose()?,
            address: self.address.as_ref().map(|text| read("address", text, parse_address)).transpose()?,
            client: self.client.as_ref().map(|text| read("client", text, parse_client)).transpose()?,
            sni: self.sni.as_ref().map(|text| read("sni", text, parse_sni)).transpose()?,
        })
    }
}

impl QuestionQuery {
    fn gateway_api(&self) -> Result<Option<GatewayApiObject>, String> {
        let kind = self.kind.as_ref().map(|text| read("kind", text, parse_kind)).transpose()?;
        let listener =
            self.listener.as_ref().map(|text| read("listener", text, parse_listener)).transpose()?;
        match (kind, listener) {
            (Some(GatewayApiObject::Gateway(_)), listener) => Ok(Some(GatewayApiObject::Gateway(listener))),
            (kind, None) => Ok(kind),
            (_, Some(_)) => Err("only a Gateway has listeners: add kind=gateway".to_owned()),
        }
    }
}

fn parse_kind(text: &str) -> Result<GatewayApiObject, String> {
    GatewayApiObject::named(text)
        .ok_or_else(|| "this is not gateway, tcproute, udproute or tlsroute".to_owned())
}

/// Parses the name of a listener. That of a ListenerSet's listener begins with the namespace and name of the set.
pub(crate) fn parse_listener(text: &str) -> Result<String, String> {
    let is_name = |char: char| char.is_ascii_alphanumeric() || "-./".contains(char);
    if !text.is_empty() && text.chars().all(is_name) {
        Ok(text.to_owned())
    } else {
        Err("this is not the name of a listener".to_owned())
    }
}

fn read<T>(name: &str, text: &str, parse: fn(&str) -> Result<T, String>) -> Result<T, String> {
    parse(text).map_err(|why| format!("{name}={text:?}: {why}"))
}

impl Question {
    /// Path and query with which this page is asked.
    pub(crate) fn path(&self, page: &str) -> String {
        let mut path = format!("{page}?service={}", self.service);
        let parts = [
            ("multiCluster", self.multi_cluster.then(|| "true".to_owned())),
            ("kind", self.gateway_api.as_ref().map(|object| object.kind().to_ascii_lowercase())),
            ("listener", self.gateway_api.as_ref().and_then(|it| it.listener()).map(str::to_owned)),
            ("port", self.port.as_ref().map(ToString::to_string)),
            ("protocol", self.protocol.map(|protocol| protocol.to_string())),
            ("address", self.address.map(|ip| ip.to_string())),
            ("client", self.client.map(|client| client.to_string())),
            ("sni", self.sni.clone()),
        ];
        for (name, value) in parts {
            if let Some(value) = value {
                // Brackets are not allowed in a query (RFC 3986, section 3.4). These values contain no other special
                // characters.
                let value = value.replace('[', "%5B").replace(']', "%5D");
                path += &format!("&{name}={value}");
            }
        }
        path
    }
}
