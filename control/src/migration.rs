//! Migration of the objects of other load balancers: MetalLB, kube-vip, ServiceLB of k3s, Cilium's LB-IPAM, and the TCP and UDP ports
//! of ingress-nginx. A pure function: it reports everything that it cannot translate and makes no silent guesses.

mod announcement;
mod cilium;
mod draft;
mod frr;
mod gateway_api;
mod ingress_nginx;
mod kube_vip;
mod metallb;
mod selectors;
mod service_lb;
mod services;

use std::collections::BTreeSet;

use serde_json::{Value, json};

pub use self::draft::NO_EQUIVALENT;

use self::announcement::AdvertisementKind;
use self::draft::PoolDraft;
use self::gateway_api::GatewayDraft;
use self::gateway_api::names::ObjectNames;
use self::ingress_nginx::IngressGateway;
use self::services::to_gateway::GatewayContext;
use crate::api::address_pool::{API_VERSION, AddressPoolSpec, KIND};
use crate::sources::manifests::{FileProblem, RawObject};

/// Label of each Namespace with its own name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// Largest number of entries in an AddressPool; see the rules of its definition.
const MAX_ENTRIES: usize = 256;

/// Target kind of LoadBalancer Services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceTarget {
    /// LoadBalancer Services of Sheave.
    Services,
    /// Gateways with a route for each port.
    GatewayApi,
}

/// Result of a migration.
#[derive(Clone, Copy, Debug)]
pub struct MigrationOptions<'a> {
    /// Class of the installation's LoadBalancer Services.
    pub load_balancer_class: &'a str,
    /// Controller of its GatewayClasses.
    pub gateway_controller: &'a str,
    /// Target kind of LoadBalancer Services.
    pub services: ServiceTarget,
}

/// Result of a migration.
#[derive(Debug, Default)]
pub struct Migration {
    /// Steps for the user, in this order.
    pub steps: Vec<String>,
    /// Lines of FRR's configuration, if routers need announcements.
    pub frr: Vec<String>,
    /// Migrated objects: AddressPools first, then Services, then Gateways, each with its ListenerSets and routes.
    pub objects: Vec<MigratedObject>,
    /// Fields without an equivalent, of objects that result in no migrated object.
    pub left: Vec<FileProblem>,
    /// Number of load balancers that need no change.
    pub unchanged: usize,
}

/// An object to apply.
#[derive(Debug)]
pub struct MigratedObject {
    /// Its origin, and notes for the user.
    pub comments: Vec<String>,
    /// Fields of the original without an equivalent.
    pub left: Vec<FileProblem>,
    /// The object.
    pub manifest: Value,
}

/// Findings of the individual translations.
#[derive(Debug, Default)]
struct Findings<'a> {
    pools: Vec<PoolDraft<'a>>,
    modes: BTreeSet<AdvertisementKind>,
    frr: Vec<String>,
    steps: Vec<String>,
    left: Vec<FileProblem>,
}

/// Translates the objects.
pub fn migrate(objects: &[RawObject], options: &MigrationOptions<'_>) -> Migration {
    let mut findings = Findings::default();
    metallb::translate(objects, &mut findings);
    cilium::translate(objects, &mut findings);
    kube_vip::translate(objects, &mut findings);
    service_lb::translate(objects, &mut findings);
    rename(&mut findings.pools, objects);
    cilium::report_names(&mut findings.pools);
    let pool_labels = pool_labels(&findings.pools, objects);
    let mut names = ObjectNames::of(objects);
    let mut ingress = ingress_nginx::translate(objects, &pool_labels, &mut names);
    let mut context =
        GatewayContext { pool_labels: &pool_labels, served: &ingress.served, names: &mut names };
    let (class, target) = (options.load_balancer_class, options.services);
    let services = services::translate(objects, class, target, &mut findings.pools, &mut context);
    let with_service = ingress.gateways.iter_mut();
    let with_service =
        with_service.filter_map(|IngressGateway { draft, service }| Some((draft, (*service)?)));
    services::check_gateways(objects, &mut findings.pools, with_service.collect());
    let gateways = ingress.gateways.into_iter().map(|it| it.draft).chain(services.gateways);
    let class = gateway_api::class_of(options.gateway_controller, objects);
    let gateways: Vec<MigratedObject> =
        gateways.flat_map(|draft| GatewayDraft::finish(draft, &class, &mut names)).collect();
    let mut steps = announcing(&findings.modes);
    steps.append(&mut findings.steps);
    if !gateways.is_empty() {
        steps.push(format!(
            "Install the Gateway API and GatewayClass {class}, as deploy/gateway-api/README.md says."
        ));
    }
    steps.extend(ingress.steps.into_iter().chain(services.steps));
    let pools = findings.pools.into_iter().filter(|pool| !pool.is_empty() || !pool.left.is_empty());
    let (some, none): (Vec<_>, Vec<_>) = pools.partition(|pool| !pool.is_empty());
    let mut left = findings.left;
    left.extend(none.into_iter().flat_map(|pool| pool.left));
    left.extend(ingress.left.into_iter().chain(services.left));
    let pools = some.into_iter().map(PoolDraft::finish);
    Migration {
        steps,
        frr: findings.frr,
        objects: pools.chain(services.objects).chain(gateways).collect(),
        left,
        unchanged: services.unchanged,
    }
}

/// Keys of the labels of Services by which AddressPools select, migrated and existing ones.
fn pool_labels(pools: &[PoolDraft<'_>], objects: &[RawObject]) -> BTreeSet<String> {
    let there = objects.iter().filter(|it| is_address_pool(it));
    let there = there.filter_map(|it| it.at(&["spec", "serviceSelector"]).and_then(selectors::read));
    let made = pools.iter().filter_map(|it| it.spec.service_selector.clone());
    there.chain(made).flat_map(|selector| selectors::keys(&selector).cloned().collect::<Vec<_>>()).collect()
}

/// Whether it is an AddressPool of Sheave.
fn is_address_pool(object: &RawObject) -> bool {
    object.kind() == KIND && format!("{}/v1alpha1", object.group()) == API_VERSION
}

/// Renames pools with the same name, from several projects or namespaces or from an earlier migration.
fn rename(pools: &mut [PoolDraft<'_>], objects: &[RawObject]) {
    let ours = objects.iter().filter(|it| is_address_pool(it));
    let mut taken: BTreeSet<String> = ours.map(|it| it.name().to_owned()).collect();
    for pool in pools {
        let name = pool.name.clone();
        let mut number = 2;
        while !taken.insert(pool.name.clone()) {
            pool.name = format!("{name}-{number}");
            number += 1;
        }
        if pool.name != name {
            pool.comments
                .push(format!("There is another AddressPool {name}, so this one is called {}.", pool.name));
        }
    }
}

/// Steps for the configuration of the gateways.
fn announcing(modes: &BTreeSet<AdvertisementKind>) -> Vec<String> {
    let step = |mode: &AdvertisementKind| match mode {
        AdvertisementKind::L2 => {
            "In the configuration of the gateways: announce: {mode: l2, ...}, as deploy/examples/l2 has it."
        }
        AdvertisementKind::Bgp => {
            "In the configuration of the gateways: announce: {mode: bgp}, with FRR beside them, as deploy/examples/bgp-frr has it."
        }
    };
    let mut steps: Vec<String> = modes.iter().map(|mode| step(mode).to_owned()).collect();
    if modes.len() > 1 {
        steps.push("Choose: a gateway announces in one of both ways.".to_owned());
    }
    steps
}

impl PoolDraft<'_> {
    fn is_empty(&self) -> bool {
        self.spec.addresses.is_empty() && !self.spec.from_gateway_nodes
    }

    fn finish(mut self) -> MigratedObject {
        if self.spec.addresses.len() > MAX_ENTRIES {
            self.left(
                "spec.addresses",
                format!("an AddressPool holds {MAX_ENTRIES} entries at most; join some of these to ranges, or make two of it"),
            );
        }
        let mut comments =
            vec![format!("From {} ({})", draft::reference(self.source), self.source.origin(""))];
        comments.append(&mut self.comments);
        let manifest = json!({
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": self.name},
            "spec": without_defaults(&self.spec),
        });
        MigratedObject { comments, left: self.left, manifest }
    }
}

/// The spec without fields that have their default.
fn without_defaults(spec: &AddressPoolSpec) -> Value {
    let value = |spec| serde_json::to_value(spec).unwrap_or_default();
    let (mut value, defaults) = (value(spec), value(&AddressPoolSpec::default()));
    if let Value::Object(fields) = &mut value {
        fields.retain(|name, value| defaults.get(name) != Some(value));
    }
    value
}

#[cfg(test)]
mod tests;
