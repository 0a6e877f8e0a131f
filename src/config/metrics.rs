//! Section `metrics`: a second listener for Prometheus, and limits of series.

use std::net::{IpAddr, SocketAddr};

use serde_json::Value;
use sheave_console::http::metrics::SeriesLimits;
use sheave_console::http::server::guarded::Authorization;
use sheave_console::http::server::tls::TlsFiles;

use super::authorization;
use super::section::Section;
use super::values;
use super::values::ValueError;

/// Variable that the DaemonSet sets to the address of its node.
const NODE_IP: &str = "NODE_IP";
/// Prefix of a listen address on the node's own address.
const ON_NODE: &str = "$(NODE_IP):";
/// Default of `maxFrontends`: about twenty thousand series, which Prometheus accepts from one process by
/// default.
const FRONTENDS: usize = 1_000;
/// Upper limit of both; no table is larger.
const MOST: usize = 10_000_000;

/// Metrics listener and series limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Metrics {
    /// Address of the additional listener, if any. The admin server has metrics in any case.
    pub(crate) listen: Option<MetricsListen>,
    /// Clients that may scrape that listener. Only a loopback address may be open.
    pub(crate) authorization: Authorization,
    /// Certificate and key, if the listener uses TLS.
    pub(crate) tls: Option<TlsFiles>,
    /// How many frontends and endpoints get series of their own.
    pub(crate) limits: SeriesLimits,
}

impl Metrics {
    /// Port of the additional listener, if any.
    pub(crate) fn port(&self) -> Option<u16> {
        self.listen.map(MetricsListen::port)
    }

    /// Address of the additional listener, if any.
    ///
    /// # Errors
    /// If `$NODE_IP` is not set or is not an address, as text.
    pub(crate) fn addr(&self) -> Result<Option<SocketAddr>, String> {
        self.listen.map(MetricsListen::addr).transpose()
    }

    /// Protection of the additional listener.
    pub(crate) fn guard(&self) -> (&Authorization, Option<&TlsFiles>) {
        (&self.authorization, self.tls.as_ref())
    }
}

/// Listen address of the metrics listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricsListen {
    /// This address.
    At(SocketAddr),
    /// This port on the node's own address, which each process finds in its environment, since all share one
    /// configuration.
    OnNode(u16),
}

impl MetricsListen {
    fn addr(self) -> Result<SocketAddr, String> {
        self.addr_on(std::env::var(NODE_IP).ok().as_deref())
    }

    fn addr_on(self, node_ip: Option<&str>) -> Result<SocketAddr, String> {
        let port = match self {
            Self::At(addr) => return Ok(addr),
            Self::OnNode(port) => port,
        };
        let ip = node_ip
            .ok_or_else(|| format!("metrics.listen: ${NODE_IP} is not set; set it to the node's address"))?;
        let ip: IpAddr = ip
            .parse()
            .map_err(|_| format!("metrics.listen: ${NODE_IP} is \"{ip}\", which is not an IP address"))?;
        Ok(SocketAddr::new(ip, port))
    }

    fn port(self) -> u16 {
        match self {
            Self::At(addr) => addr.port(),
            Self::OnNode(port) => port,
        }
    }

    fn is_loopback(self) -> bool {
        matches!(self, Self::At(addr) if addr.ip().is_loopback())
    }
}

pub(super) fn read(section: &mut Section<'_>) -> Metrics {
    let listen = section.get("listen", None, values::optional(listen));
    let authorization = authorization::read(section);
    let tls = section.nested("tls", read_tls);
    if listen.is_some_and(|listen: MetricsListen| !listen.is_loopback()) {
        require_protection(section, &authorization, tls.is_some());
    }
    let limits = SeriesLimits {
        frontends: section.get("maxFrontends", FRONTENDS, values::between(0, MOST)),
        endpoints: section.get("maxEndpoints", 0, values::between(0, MOST)),
    };
    Metrics { listen, authorization, tls, limits }
}

/// Reports missing protection of a listener that other machines can reach.
fn require_protection(section: &mut Section<'_>, authorization: &Authorization, tls: bool) {
    let missing = |what: &str| {
        ValueError::from(format!("is missing, and metrics.listen is not a loopback address{what}"))
    };
    match authorization {
        Authorization::Open => {
            let hint = "write the path of a file with the bearer token that scrapers show, or authorization: kubernetes";
            section.report("tokenFile", missing("").hint(hint));
        }
        // The token of a scraper's account grants more than metrics.
        Authorization::Kubernetes if !tls => {
            let hint = "write tls: {certificate: FILE, key: FILE}";
            let message = missing(": scrapers would send their Kubernetes tokens unencrypted");
            section.report("tls", message.hint(hint));
        }
        Authorization::Kubernetes | Authorization::TokenFile(_) => {}
    }
}

fn read_tls(section: &mut Section<'_>) -> Option<TlsFiles> {
    let certificate = section.get("certificate", None, values::optional(values::path));
    let key = section.get("key", None, values::optional(values::path));
    match (certificate, key) {
        (Some(certificate), Some(key)) => Some(TlsFiles { certificate, key }),
        (None, None) => None,
        (certificate, _) => {
            let (absent, other) =
                if certificate.is_none() { ("certificate", "key") } else { ("key", "certificate") };
            section.report(absent, format!("is missing, and metrics.tls.{other} is given"));
            None
        }
    }
}

fn listen(value: &Value) -> Result<MetricsListen, ValueError> {
    let on_node = value.as_str().and_then(|text| text.strip_prefix(ON_NODE));
    if let Some(port) = on_node.and_then(|port| port.parse().ok()) {
        return Ok(MetricsListen::OnNode(port));
    }
    values::socket(value).map(MetricsListen::At).map_err(|wrong| {
        wrong.hint(
            "write it as \"$(NODE_IP):9843\", \"127.0.0.1:9843\" or \"[::1]:9843\"; a name is not resolved",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_the_node_is_of_either_family() {
        let on = |ip: &str| MetricsListen::OnNode(9843).addr_on(Some(ip)).map(|addr| addr.to_string());
        assert_eq!(on("192.0.2.7").as_deref(), Ok("192.0.2.7:9843"));
        assert_eq!(on("2001:db8::7").as_deref(), Ok("[2001:db8::7]:9843"));
        assert_eq!(
            on("gw-1").unwrap_err(),
            "metrics.listen: $NODE_IP is \"gw-1\", which is not an IP address"
        );
        assert_eq!(
            MetricsListen::OnNode(1).addr_on(None).unwrap_err(),
            "metrics.listen: $NODE_IP is not set; set it to the node's address"
        );
    }
}
