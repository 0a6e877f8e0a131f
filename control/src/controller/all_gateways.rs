//! Queries to all gateways on demand, at the listener where each answers the controller (`report.listen`).
//!
//! The leader knows the gateways from the objects that it watches, even while the API server is unavailable. A candidate watches
//! nothing, so it lists their EndpointSlices each time. No gateway is queried without a request.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, StatusCode};
use hyper::body::Bytes;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::ListParams;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::gateway_reports::report_port;
use super::gateway_request::{self, GatewayRequestError, MAX_REPORT_BYTES};
use super::token_file::TokenFile;
use super::{ControllerOptions, ControllerStatus};
use crate::api::gateway_report::{GatewayReport, PATH};
use crate::api::store::{SERVICE_NAME_LABEL, is_ready};
use crate::net;
use crate::sources::connection::Connection;

/// How many gateways are queried concurrently.
const AT_ONCE: usize = 128;
/// Timeout of one gateway at one address: longer than the 2 s after which it reports that a worker is stuck.
pub const GATEWAY_ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout of all gateways together, because a user waits. Enough for a status and then a report, and for addresses that drop
/// SYNs.
const ALL_GATEWAYS_TIMEOUT: Duration = Duration::from_secs(7);

/// A gateway, as the EndpointSlices of the gateways list it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownGateway {
    /// Name of its Node, or its address if the endpoint has no Node.
    pub node: String,
    /// Addresses of its Pods, sorted and without duplicates. During an upgrade a node has two Pods, mostly with the same
    /// addresses.
    pub addresses: Vec<IpAddr>,
    /// Addresses of its listener; empty if its Service has no port of that name.
    pub listeners: Vec<SocketAddr>,
    /// Whether one of its Pods is ready.
    pub ready: bool,
}

/// Client for queries to gateways. Clones share all state.
#[derive(Clone, Debug)]
pub struct GatewayClient {
    connection: Connection,
    options: watch::Receiver<ControllerOptions>,
    status: watch::Receiver<ControllerStatus>,
    /// Remembers whether reading failed, so that it is logged once.
    token_file: Arc<Mutex<Option<TokenFile>>>,
}

/// Access to one gateway.
#[derive(Clone, Debug)]
pub struct GatewayLink {
    listeners: Vec<SocketAddr>,
    token: Option<HeaderValue>,
    patience: Duration,
}

impl GatewayClient {
    pub(super) fn new(
        connection: Connection,
        options: watch::Receiver<ControllerOptions>,
        status: watch::Receiver<ControllerStatus>,
    ) -> Self {
        Self { connection, options, status, token_file: Arc::default() }
    }

    /// The known gateways, by node.
    ///
    /// # Errors
    /// If this controller does not lead and the API server does not list them.
    pub async fn gateways(&self) -> Result<Vec<KnownGateway>, kube::Error> {
        let followed = self.status.borrow().gateway_slices.clone();
        if let Some(slices) = followed {
            return Ok(known_gateways(slices.iter().map(Arc::as_ref)));
        }
        let service = self.options.borrow().gateways.clone();
        let slices: Api<EndpointSlice> = Api::namespaced(self.connection.writer(), &service.namespace);
        let label = format!("{SERVICE_NAME_LABEL}={}", service.name);
        let listed = slices.list(&ListParams::default().labels(&label)).await?;
        Ok(known_gateways(listed.iter()))
    }

    /// Sends a query to each gateway, ready ones first. `work` is the time that an answer takes beyond that of a query. `take` gets the
    /// answers as they arrive, and finally the gateways for which there was no time.
    pub async fn ask<T, F>(
        &self,
        mut gateways: Vec<KnownGateway>,
        work: Duration,
        question: impl Fn(GatewayLink) -> F,
        mut take: impl FnMut(KnownGateway, Option<T>),
    ) where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let deadline = Instant::now() + ALL_GATEWAYS_TIMEOUT + work;
        let patience = GATEWAY_ANSWER_TIMEOUT + work;
        let token = self.token().await;
        gateways.sort_by_key(|gateway| !gateway.ready);
        let mut gateways: Vec<Option<KnownGateway>> = gateways.into_iter().map(Some).collect();
        let (mut next, mut asking) = (0, JoinSet::new());
        loop {
            while asking.len() < AT_ONCE
                && let Some(Some(gateway)) = gateways.get(next)
            {
                let listeners = gateway.listeners.clone();
                let link = GatewayLink { listeners, token: token.clone(), patience };
                let (index, answer) = (next, question(link));
                asking.spawn(async move { (index, answer.await) });
                next += 1;
            }
            match timeout_at(deadline, asking.join_next()).await {
                Ok(Some(Ok((index, answer)))) => {
                    if let Some(gateway) = gateways[index].take() {
                        take(gateway, Some(answer));
                    }
                }
                Ok(Some(Err(error))) => {
                    tracing::error!(%error, bug = true, "a question to a gateway broke off");
                }
                Ok(None) | Err(_) => break,
            }
        }
        gateways.into_iter().flatten().for_each(|gateway| take(gateway, None));
    }

    /// The bearer token for gateways, from the file that the current options name.
    async fn token(&self) -> Option<HeaderValue> {
        let path = self.options.borrow().gateway_token.clone();
        let mut file = self.token_file.lock().await;
        TokenFile::follow(&mut file, path);
        file.as_mut()?.read().await
    }
}

impl GatewayLink {
    /// Whether its Service has a port for queries.
    pub fn can_be_asked(&self) -> bool {
        !self.listeners.is_empty()
    }

    /// Its answer to a path with a query string, at most `longest` bytes.
    ///
    /// # Errors
    /// If the gateway cannot be reached, or does not answer completely and in time.
    pub async fn get(&self, path: &str, longest: usize) -> Result<(StatusCode, Bytes), GatewayRequestError> {
        let mut answer = Err(GatewayRequestError::Silent(self.patience));
        for listener in &self.listeners {
            let headers = gateway_request::authorization(self.token.clone());
            answer = gateway_request::get(*listener, path, headers, longest, self.patience).await;
            // The address of the other family may work from here.
            if !matches!(answer, Err(GatewayRequestError::Connect(_))) {
                break;
            }
        }
        answer
    }

    /// Its report, which gateways of every version serve.
    ///
    /// # Errors
    /// If it does not answer, or refuses, or the answer is no report.
    pub async fn report(&self) -> Result<GatewayReport, GatewayRequestError> {
        let (status, body) = self.get(PATH, MAX_REPORT_BYTES).await?;
        if status != StatusCode::OK {
            return Err(GatewayRequestError::Refused(status));
        }
        Ok(GatewayReport::read(&body)?)
    }
}

fn known_gateways<'a>(slices: impl Iterator<Item = &'a EndpointSlice>) -> Vec<KnownGateway> {
    let mut gateways: BTreeMap<&str, KnownGateway> = BTreeMap::new();
    for slice in slices {
        let port = report_port(slice);
        for endpoint in slice.endpoints.iter().flatten() {
            let Some(address) = endpoint.addresses.first() else { continue };
            let Ok(ip) = net::parse_ip(address) else { continue };
            let node = endpoint.node_name.as_deref().unwrap_or(address);
            let gateway = gateways.entry(node).or_insert_with(|| KnownGateway {
                node: node.to_owned(),
                addresses: Vec::new(),
                listeners: Vec::new(),
                ready: false,
            });
            gateway.ready |= is_ready(endpoint);
            gateway.addresses.push(ip);
            gateway.listeners.extend(port.map(|port| SocketAddr::new(ip, port)));
        }
    }
    let mut gateways: Vec<KnownGateway> = gateways.into_values().collect();
    for gateway in &mut gateways {
        gateway.addresses.sort_unstable();
        gateway.addresses.dedup();
        gateway.listeners.sort_unstable();
        gateway.listeners.dedup();
    }
    gateways
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(ports: &str, endpoints: &str) -> EndpointSlice {
        let yaml = format!("{{addressType: IPv4, ports: [{ports}], endpoints: [{endpoints}]}}");
        serde_saphyr::from_str(&yaml).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_that_takes_longer_than_its_workers_may_take_is_heard() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let listeners = vec![listener.local_addr().unwrap()];
        let link = GatewayLink { listeners, token: None, patience: GATEWAY_ANSWER_TIMEOUT };
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::time::sleep(Duration::from_millis(2_500)).await;
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
            tokio::io::AsyncWriteExt::write_all(&mut stream, answer).await.unwrap();
            std::future::pending::<()>().await;
        });
        let answer = link.get("/api/status", 100).await;
        server.abort();
        assert!(matches!(answer, Ok((StatusCode::OK, _))), "{answer:?}");
    }

    #[test]
    fn a_node_is_one_gateway_whatever_its_pods_families_and_ports() {
        let slices = [
            slice(
                "{name: report, port: 9842}",
                "{addresses: [192.0.2.2], nodeName: gw-2, conditions: {ready: false}}, {addresses: [192.0.2.1], nodeName: gw-1}, \
                 {addresses: [192.0.2.1], nodeName: gw-1, conditions: {ready: false}}, {addresses: [x], nodeName: gw-9}, \
                 {addresses: []}",
            ),
            slice("{name: report, port: 9842}", "{addresses: ['2001:db8::1'], nodeName: gw-1}"),
            slice("{name: metrics, port: 1}", "{addresses: [192.0.2.3]}"),
        ];
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let gateway = |node: &str, addresses: &[&str], port: bool, ready| KnownGateway {
            node: node.to_owned(),
            addresses: addresses.iter().map(|it| ip(it)).collect(),
            listeners: addresses.iter().filter(|_| port).map(|it| SocketAddr::new(ip(it), 9842)).collect(),
            ready,
        };
        let expected = [
            gateway("192.0.2.3", &["192.0.2.3"], false, true),
            gateway("gw-1", &["192.0.2.1", "2001:db8::1"], true, true),
            gateway("gw-2", &["192.0.2.2"], true, false),
        ];
        assert_eq!(known_gateways(slices.iter()), expected);
    }
}
