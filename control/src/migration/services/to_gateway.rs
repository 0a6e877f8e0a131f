//! A LoadBalancer Service as a Gateway with a route for each port. The Service stays as the backend, and becomes ClusterIP once the
//! Gateway is there.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use sheave_model::Protocol;

use super::super::draft::{left, reference};
use super::super::gateway_api::names::ObjectNames;
use super::super::gateway_api::{BackendDraft, GatewayDraft, ListenerDraft, ServicePortKey, source_ranges};
use super::ServiceDraft;
use crate::net::is_dns_label;
use crate::projection::{
    ADDRESS_POOL, BALANCE, CLIENT_SOURCE, IP_FAMILIES, PREFIX, SOURCE_RANGES, SOURCE_RANGES_OF_SERVICE,
};
use crate::sources::manifests::{FileProblem, RawObject};

const TRANSPARENT: &str = "transparent";

/// Settings shared by all Gateways.
pub(in crate::migration) struct GatewayContext<'a> {
    /// Keys of labels that AddressPools select by.
    pub(in crate::migration) pool_labels: &'a BTreeSet<String>,
    /// Ports that Gateways of ingress controllers serve.
    pub(in crate::migration) served: &'a BTreeSet<ServicePortKey>,
    pub(in crate::migration) names: &'a mut ObjectNames,
}

/// Where an annotation of a Service belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
enum AnnotationPlace {
    Gateway,
    Route,
    /// On the Service, where a route finds it.
    Backend,
    /// Nowhere; holds the advice.
    Nowhere(&'static str),
}

/// Where control/gateway-api.md has the annotation.
fn place(name: &str, value: &str) -> AnnotationPlace {
    match name.strip_prefix(PREFIX).unwrap_or_default() {
        "accept-proxy"
        | "max-connections"
        | "max-connection-rate"
        | "max-connections-per-client"
        | "max-connection-rate-per-client"
        | "connection-log"
        | "idle-timeout"
        | "idle-keepalives"
        | "renumber" => AnnotationPlace::Gateway,
        "client-source" | "max-connection-age" | "max-connection-age-grace" | "removed-endpoint-grace" => {
            AnnotationPlace::Route
        }
        // The addresses and the pool are translated with what the Service has.
        "addresses" | "address-pool" | "balance" | "health-check" | "slow-start" | "panic-threshold"
        | "overprovisioning" | "connect-timeout" => AnnotationPlace::Backend,
        "affinity-scope" if value.trim() == "port" => AnnotationPlace::Backend,
        "affinity-scope" => AnnotationPlace::Nowhere("the affinity of a route is that of its own listener"),
        "path" if value.trim() == "proxy" => AnnotationPlace::Backend,
        "path" => AnnotationPlace::Nowhere("Gateways are served by the proxy"),
        _ => AnnotationPlace::Nowhere("a Gateway has nothing like it"),
    }
}

impl ServiceDraft<'_> {
    fn spec(&self, field: &str) -> Option<&Value> {
        self.source.at(&["spec", field])
    }

    fn is_local(&self) -> bool {
        self.spec("externalTrafficPolicy").and_then(Value::as_str) == Some("Local")
    }

    fn leave(&mut self, field: &str, message: impl Into<String>) {
        self.left.push(left(self.source, field, message));
    }

    /// The Gateway, or what the Service lacks for one.
    pub(super) fn into_gateway(
        mut self,
        context: &mut GatewayContext<'_>,
    ) -> Result<GatewayDraft, Vec<FileProblem>> {
        let (namespace, name) = (self.source.namespace(), self.source.name());
        if !is_dns_label(namespace) || !is_dns_label(name) {
            self.leave("metadata.name", "no Service can have this name and namespace; nothing is made of it");
            return Err(self.left);
        }
        let (on_gateway, on_route) = self.place_annotations();
        let (listeners, served_elsewhere) = self.listeners(&on_route, context.served);
        if listeners.is_empty() {
            return Err(self.left);
        }
        self.report_fields();
        let mut draft = GatewayDraft::new(namespace, name, context.names);
        draft.comments.insert(0, format!("From {} ({})", reference(self.source), self.source.origin("")));
        draft.comments.extend(served_elsewhere);
        draft.ask_for(self.requested(), self.source);
        draft.listeners = listeners;
        draft.annotations = on_gateway;
        if let Some(ranges) = source_ranges::read(self.source, &mut self.left) {
            draft.annotations.insert(SOURCE_RANGES.to_owned(), ranges);
        }
        self.place_request(&mut draft);
        draft.select_labels(self.source, context.pool_labels);
        draft.comments.append(&mut self.comments);
        draft.comments.push(format!("Then: {}", self.become_cluster_ip()));
        draft.left.append(&mut self.left);
        Ok(draft)
    }

    /// The annotations of the Gateway and of its routes.
    fn place_annotations(&mut self) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
        let (mut on_gateway, mut on_route) = (BTreeMap::new(), BTreeMap::new());
        if self.is_local() {
            on_route.insert(CLIENT_SOURCE.to_owned(), TRANSPARENT.to_owned());
        }
        // Requested of another load balancer.
        on_route.extend(self.added.get(BALANCE).map(|value| (BALANCE.to_owned(), value.clone())));
        for (name, value) in self.source.texts("annotations") {
            if !name.starts_with(PREFIX) {
                continue;
            }
            match place(&name, &value) {
                AnnotationPlace::Gateway => drop(on_gateway.insert(name, value)),
                AnnotationPlace::Route => drop(on_route.insert(name, value)),
                AnnotationPlace::Backend => {}
                AnnotationPlace::Nowhere(why) => {
                    self.leave(&format!("metadata.annotations[{name}]"), format!("{value:?}: {why}"));
                }
            }
        }
        (on_gateway, on_route)
    }

    /// One listener for each port, and comments about ports that another Gateway serves.
    fn listeners(
        &mut self,
        on_route: &BTreeMap<String, String>,
        served: &BTreeSet<ServicePortKey>,
    ) -> (Vec<ListenerDraft>, Vec<String>) {
        let source: &RawObject = self.source;
        let ports = source.at(&["spec", "ports"]).and_then(Value::as_array).into_iter().flatten();
        let (mut listeners, mut elsewhere, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
        for (index, entry) in ports.enumerate() {
            let named = entry.get("protocol").and_then(Value::as_str).filter(|name| !name.is_empty());
            let named = named.unwrap_or(Protocol::Tcp.name());
            let shown = entry.get("port").cloned().unwrap_or_default();
            let number = shown.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0);
            let why = match (Protocol::named(named), number) {
                (Some(protocol), Some(port)) if !seen.insert((protocol, port)) => {
                    format!("{port}/{protocol} is another port of the Service, too; it is left out")
                }
                (Some(protocol), Some(port)) => {
                    let (namespace, name) = (source.namespace().to_owned(), source.name().to_owned());
                    if served.contains(&(namespace.clone(), name.clone(), protocol, port)) {
                        elsewhere
                            .push(format!("{port}/{protocol} is served by the Gateway of ingress-nginx."));
                        continue;
                    }
                    listeners.push(ListenerDraft {
                        protocol,
                        port,
                        backend: BackendDraft { namespace, service: name, port },
                        annotations: on_route.clone(),
                        comments: Vec::new(),
                        left: Vec::new(),
                    });
                    continue;
                }
                (None, _) => {
                    format!("{named:?}: Sheave serves listeners of TCP and UDP alone; it is left out")
                }
                (_, None) => format!("{shown} is not a port (1 to 65535); it is left out"),
            };
            self.leave(&format!("spec.ports[{index}]"), why);
        }
        (listeners, elsewhere)
    }

    /// Reports what the Service has and a Gateway cannot have.
    fn report_fields(&mut self) {
        if let Some(port) = self.spec("healthCheckNodePort").and_then(Value::as_u64).filter(|port| *port != 0)
        {
            let message = format!(
                "{port}: a Gateway has no health check node port; load balancers in front of it may connect to one of its listeners"
            );
            self.leave("spec.healthCheckNodePort", message);
        }
    }

    /// Asks for a pool or for families where no address says all.
    fn place_request(&mut self, draft: &mut GatewayDraft) {
        if !draft.addresses.is_empty() {
            return;
        }
        let own = self.source.texts("annotations");
        let pool = own.get(ADDRESS_POOL).or_else(|| self.added.get(ADDRESS_POOL));
        draft.annotations.extend(pool.map(|pool| (ADDRESS_POOL.to_owned(), pool.clone())));
        let families = super::texts(self.spec("ipFamilies"));
        if let ([family], Some("SingleStack")) =
            (families.as_slice(), self.spec("ipFamilyPolicy").and_then(Value::as_str))
        {
            draft.annotations.insert(IP_FAMILIES.to_owned(), family.clone());
        }
        draft
            .comments
            .push("The Service has no address yet; the Gateway gets one of an AddressPool.".to_owned());
    }

    /// The command that ends the Service as a load balancer. The API server removes the class and the traffic policy by itself, and
    /// refuses source ranges on other types (pkg/registry/core/service/strategy.go, pkg/apis/core/validation).
    fn become_cluster_ip(&self) -> String {
        let mut patch = serde_json::json!({"spec": {"type": "ClusterIP"}});
        if self.spec("loadBalancerSourceRanges").is_some() {
            patch["spec"]["loadBalancerSourceRanges"] = Value::Null;
        }
        if self.source.texts("annotations").contains_key(SOURCE_RANGES_OF_SERVICE) {
            patch["metadata"]["annotations"][SOURCE_RANGES_OF_SERVICE] = Value::Null;
        }
        let (namespace, name) = (self.source.namespace(), self.source.name());
        format!("kubectl -n {namespace} patch service {name} --type merge -p '{patch}'")
    }
}

/// Steps for the Services, in order.
pub(super) fn steps(drafts: &[ServiceDraft<'_>]) -> Vec<String> {
    let mut steps = Vec::new();
    let local = drafts.iter().filter(|it| it.is_local()).count();
    if local > 0 {
        steps.push(format!(
            "{local} of the Services {} externalTrafficPolicy: Local, so the routes have {CLIENT_SOURCE}: {TRANSPARENT}. It needs \
             CAP_NET_ADMIN, and answers that come back through the gateway: those of endpoints on other nodes may not, and a route \
             uses them, too. If they do not, remove the annotation; endpoints see the gateway's address then.",
            if local == 1 { "has" } else { "have" }
        ));
    }
    if !drafts.is_empty() {
        steps.push(
            "Apply the Gateways and routes. Until the next step, an address that another load balancer serves is announced by both, and a \
             Gateway waits if a Service of Sheave has its address and port."
                .to_owned(),
        );
        steps.push(
            "Then make each Service ClusterIP, with the command above its Gateway, while the load balancer that served it still runs: it \
             releases the address and removes its finalizer. Node ports of the Service end with that; its endpoints, session affinity \
             and cluster address stay."
                .to_owned(),
        );
    }
    steps
}
