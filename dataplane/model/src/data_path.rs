//! Data paths: whether the proxy or the kernel carries a frontend's connections, and why the kernel cannot.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use crate::{
    Affinity, AffinityScope, Algorithm, ClientSource, Frontend, Path, Protocol, Route, ServiceLimits,
    ServiceTimeouts,
};

/// Data path that a Service asks for, or the configuration for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PathChoice {
    /// The proxy.
    #[default]
    Proxy,
    /// The kernel, unless it cannot do what the Service asks for.
    Kernel,
    /// The kernel, where it does all that the Service asks for exactly as the proxy does.
    Auto,
}

/// All choices with the names that users write.
pub const PATH_CHOICES: [(&str, PathChoice); 3] =
    [("proxy", PathChoice::Proxy), ("kernel", PathChoice::Kernel), ("auto", PathChoice::Auto)];

impl PathChoice {
    /// The name that users write.
    pub fn name(self) -> &'static str {
        match self {
            Self::Proxy => "proxy",
            Self::Kernel => "kernel",
            Self::Auto => "auto",
        }
    }

    /// The choice of this name; `None` if there is no such choice.
    pub fn named(name: &str) -> Option<Self> {
        PATH_CHOICES.into_iter().find_map(|(known, choice)| (known == name).then_some(choice))
    }
}

/// Reason why the proxy carries a frontend. Formats as what keeps it there, to follow "the proxy serves it: ".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProxyReason {
    /// The choice is [`PathChoice::Proxy`].
    Chosen,
    /// Traffic is split by weight over several parts.
    Split,
    /// TLS server names choose the backends.
    ServerNames,
    /// Endpoints or peers speak the PROXY protocol, which needs bytes in the stream.
    ProxyProtocol,
    /// The algorithm compares the loads of endpoints.
    LeastConnections,
    /// The algorithm takes turns, which the kernel does not do for each Service.
    RoundRobin,
    /// Affinity covers all ports of the Service.
    ServiceAffinity,
    /// The Service has limits.
    Limits,
    /// The Service has timeouts of its own.
    Timeouts,
    /// Connections are logged.
    ConnectionLog,
    /// New endpoints start slowly.
    SlowStart,
    /// An endpoint is reached by an interface of its own.
    Interface,
    /// An endpoint has an address of the other family.
    Family,
    /// The frontend or an endpoint has a loopback or link-local address, which the kernel does not forward.
    NotRoutable,
}

impl fmt::Display for ProxyReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Chosen => "path is proxy",
            Self::Split => "its traffic is split over several backends",
            Self::ServerNames => "TLS server names choose its backends",
            Self::ProxyProtocol => "it uses the PROXY protocol",
            Self::LeastConnections => "only the proxy balances by least-connections",
            Self::RoundRobin => "only the proxy balances by round-robin",
            Self::ServiceAffinity => "its affinity covers all ports of the Service",
            Self::Limits => "it has limits of connections",
            Self::Timeouts => "it has timeouts of its own",
            Self::ConnectionLog => "its connections are logged",
            Self::SlowStart => "its endpoints start slowly",
            Self::Interface => "an endpoint is reached by an interface of its own",
            Self::Family => "an endpoint has an address of the other family",
            Self::NotRoutable => "an address is loopback or link-local",
        })
    }
}

impl Frontend {
    /// Whether the kernel can carry the frontend's connections and is asked to. Depends on nothing but the frontend.
    ///
    /// # Errors
    /// Returns the first reason why the proxy carries them.
    pub fn kernel_path(&self) -> Result<(), ProxyReason> {
        let asked = match self.path {
            PathChoice::Proxy => return Err(ProxyReason::Chosen),
            PathChoice::Kernel => self.algorithm_named && self.algorithm == Algorithm::LeastConnections,
            PathChoice::Auto => self.algorithm_named,
        };
        let protocol = |source| matches!(source, ClientSource::ProxyV1 | ClientSource::ProxyV2);
        let sources = self.client_sources;
        let algorithm = match self.algorithm {
            _ if self.affinity != Affinity::None || !asked => None,
            Algorithm::LeastConnections => Some(ProxyReason::LeastConnections),
            Algorithm::RoundRobin => Some(ProxyReason::RoundRobin),
            Algorithm::Maglev | Algorithm::Random => None,
        };
        let service_affinity =
            matches!(self.affinity, Affinity::ClientIp { scope: AffinityScope::Service, .. });
        let limited = ServiceLimits { client_prefix: self.limits.client_prefix, ..ServiceLimits::default() };
        let reasons = [
            (self.server_names.is_some(), ProxyReason::ServerNames),
            (self.split.is_some(), ProxyReason::Split),
            (
                self.proxied_by.is_some() || protocol(sources.external) || protocol(sources.internal),
                ProxyReason::ProxyProtocol,
            ),
            (service_affinity, ProxyReason::ServiceAffinity),
            (self.limits != limited, ProxyReason::Limits),
            (self.timeouts != ServiceTimeouts::default(), ProxyReason::Timeouts),
            (self.addr.protocol == Protocol::Tcp && !self.logged.is_none(), ProxyReason::ConnectionLog),
            (self.health.slow_start > Duration::ZERO, ProxyReason::SlowStart),
        ];
        let holds = reasons.into_iter().find_map(|(holds, reason)| holds.then_some(reason));
        match algorithm.or(holds).or_else(|| self.unreachable_by_kernel()) {
            Some(reason) => Err(reason),
            None => Ok(()),
        }
    }

    /// Why the kernel cannot forward to an endpoint.
    fn unreachable_by_kernel(&self) -> Option<ProxyReason> {
        let own = (!is_routable(self.addr.ip)).then_some(ProxyReason::NotRoutable);
        let routes = [&self.external, &self.internal];
        let mut endpoints = routes.into_iter().flat_map(Route::candidates);
        own.or_else(|| {
            endpoints.find_map(|&candidate| {
                let endpoint = self.endpoint(candidate).addr;
                if endpoint.path != Path::DEFAULT {
                    Some(ProxyReason::Interface)
                } else if endpoint.ip.is_ipv4() != self.addr.ip.is_ipv4() {
                    Some(ProxyReason::Family)
                } else {
                    (!is_routable(endpoint.ip)).then_some(ProxyReason::NotRoutable)
                }
            })
        })
    }
}

/// The kernel drops packets between 127.0.0.0/8 and other networks as martian (`ip_route_input_slow` in net/ipv4/route.c), and a
/// link-local address means nothing without an interface.
fn is_routable(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests;
