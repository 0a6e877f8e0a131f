//! LoadBalancer Services: translates their annotations, and finds those that must be created again.
//!
//! A Service is printed unchanged, with annotations added. Annotations of other projects stay, so that a migration can be
//! reverted.

mod addresses;
mod annotations;
pub(super) mod to_gateway;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::{Map, Value};

use self::addresses::PoolAddresses;
use self::annotations::ForeignAnnotations;
use self::to_gateway::GatewayContext;
use super::draft::{PoolDraft, left, reference, texts};
use super::gateway_api::{GatewayDraft, addresses as gateway_addresses};
use super::{MigratedObject, ServiceTarget};
use crate::api::names::SHARED_FINALIZER;
use crate::net;
use crate::projection::{ADDRESS_POOL, ADDRESSES, BALANCE};
use crate::sources::manifests::{FileProblem, RawObject};

/// Fields that the API server or kubectl adds.
const OF_SERVER: [&str; 6] =
    ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink"];
/// Fields that belong to the deleted Service. On the new one, no controller would remove the finalizers.
const OF_LIFE: [&str; 3] = ["finalizers", "deletionTimestamp", "deletionGracePeriodSeconds"];
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Result for the Services.
#[derive(Debug, Default)]
pub(super) struct MigratedServices {
    pub(super) objects: Vec<MigratedObject>,
    /// Gateways in place of Services.
    pub(super) gateways: Vec<GatewayDraft>,
    pub(super) steps: Vec<String>,
    /// Open questions about Services that result in no migrated object.
    pub(super) left: Vec<FileProblem>,
    pub(super) unchanged: usize,
}

/// Meaning of a Service's class for the migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
enum ClassChange {
    /// The Service has the right class.
    Ours,
    /// The Service has no class, and the API server does not allow adding one.
    Unclassified,
    /// The Service has the class of a load balancer that is replaced, so it must be created again.
    Recreate,
    /// The Service belongs to a load balancer that the migration does not cover.
    Foreign,
}

/// A load balancer and its requests.
#[derive(Debug)]
struct ServiceDraft<'a> {
    source: &'a RawObject,
    target: ServiceTarget,
    class: ClassChange,
    wishes: ForeignAnnotations,
    /// Addresses in its status.
    published: Vec<IpAddr>,
    /// Annotations to add.
    added: BTreeMap<&'static str, String>,
    comments: Vec<String>,
    left: Vec<FileProblem>,
}

/// Whether it is a Service of type LoadBalancer.
pub(super) fn is_load_balancer(object: &RawObject) -> bool {
    object.kind() == "Service"
        && object.group().is_empty()
        && object.at(&["spec", "type"]).and_then(Value::as_str) == Some("LoadBalancer")
}

/// Translates the Services. Pools become shared among namespaces where their addresses are, and allow as many addresses for each
/// Service as one requests.
pub(super) fn translate(
    objects: &[RawObject],
    class: &str,
    target: ServiceTarget,
    pools: &mut [PoolDraft<'_>],
    gateways: &mut GatewayContext<'_>,
) -> MigratedServices {
    let load_balancers = objects.iter().filter(|it| is_load_balancer(it));
    let drafts = load_balancers.map(|it| ServiceDraft::read(it, class, target));
    let (foreign, mut drafts): (Vec<_>, Vec<_>) = drafts.partition(|it| it.class == ClassChange::Foreign);
    for draft in &mut drafts {
        draft.ask(pools);
    }
    addresses::share(&mut drafts);
    addresses::share_among_namespaces(&mut drafts, pools);
    addresses::raise_limits(&mut drafts, pools);
    let given = PoolAddresses::read(objects, pools);
    for draft in &mut drafts {
        draft.report_missing(&given);
    }
    if target == ServiceTarget::GatewayApi {
        return as_gateways(drafts, &foreign, gateways);
    }
    let mut services = MigratedServices { steps: steps(&drafts, class), ..MigratedServices::default() };
    services.left.extend(foreign.iter().filter_map(|draft| draft.unclear(class)));
    for draft in drafts {
        if draft.added.is_empty() && draft.left.is_empty() && draft.class != ClassChange::Recreate {
            services.unchanged += 1;
        } else {
            services.objects.push(draft.finish(class));
        }
    }
    services
}

fn as_gateways(
    drafts: Vec<ServiceDraft<'_>>,
    foreign: &[ServiceDraft<'_>],
    context: &mut GatewayContext<'_>,
) -> MigratedServices {
    let mut services = MigratedServices { steps: to_gateway::steps(&drafts), ..MigratedServices::default() };
    services.left.extend(foreign.iter().map(ServiceDraft::kept));
    let mut seen = BTreeSet::new();
    for draft in drafts {
        if !seen.insert((draft.source.namespace(), draft.source.name())) {
            let message = "another Service of this name was read before; nothing is made of this one";
            services.left.push(left(draft.source, "metadata.name", message));
            continue;
        }
        match draft.into_gateway(context) {
            Ok(gateway) => services.gateways.push(gateway),
            Err(mut why) => services.left.append(&mut why),
        }
    }
    services
}

/// Reports addresses that no pool has, and raises the limits of pools, for Gateways with the addresses of these Services.
pub(super) fn check_gateways(
    objects: &[RawObject],
    pools: &mut [PoolDraft<'_>],
    gateways: Vec<(&mut GatewayDraft, &RawObject)>,
) {
    let given = PoolAddresses::read(objects, pools);
    for (gateway, service) in gateways {
        addresses::check_gateway(gateway, service, pools, &given);
    }
}

fn steps(drafts: &[ServiceDraft<'_>], class: &str) -> Vec<String> {
    let mut steps = Vec::new();
    let unclassified = drafts.iter().filter(|it| it.class == ClassChange::Unclassified).count();
    if unclassified > 0 {
        steps.push(format!(
            "In the configuration of gateways and controllers: handleUnclassified: true. {unclassified} of the Services {} no \
             loadBalancerClass, and the API server lets none be set later. End the load balancer that serves them first: two would \
             write the same status.",
            if unclassified == 1 { "has" } else { "have" }
        ));
    }
    // Services that are created again lose their finalizers.
    let held = drafts.iter().filter(|it| it.class == ClassChange::Unclassified && it.has_shared_finalizer());
    let held = held.count();
    if held > 0 {
        steps.push(format!(
            "In the configuration of the controllers: sharedFinalizer: true. {held} of the Services {} the finalizer {SHARED_FINALIZER}, \
             which nobody else removes once the other load balancer is gone.",
            if held == 1 { "has" } else { "have" }
        ));
    }
    if drafts.iter().any(|it| it.class == ClassChange::Recreate) {
        steps.push(format!(
            "Some Services below get the class {class} in place of another one, which cannot be changed: delete each of these before \
             kubectl apply, which creates it anew. Its connections end; node ports and cluster addresses stay if the manifest has them."
        ));
    }
    steps
}

impl<'a> ServiceDraft<'a> {
    fn read(source: &'a RawObject, class: &str, target: ServiceTarget) -> Self {
        let mut left = Vec::new();
        let wishes = annotations::read(source, &mut left);
        let named = source.at(&["spec", "loadBalancerClass"]).and_then(Value::as_str);
        let class = match named {
            None => ClassChange::Unclassified,
            Some(named) if named == class => ClassChange::Ours,
            Some(named) if is_left_behind(named) || wishes.allocated => ClassChange::Recreate,
            Some(_) => ClassChange::Foreign,
        };
        let published = match target {
            ServiceTarget::Services => published(source),
            ServiceTarget::GatewayApi => gateway_addresses::of_status(source, &mut left),
        };
        Self { source, target, class, wishes, published, added: BTreeMap::new(), comments: Vec::new(), left }
    }

    fn has_shared_finalizer(&self) -> bool {
        texts(self.source.at(&["metadata", "finalizers"])).iter().any(|it| it == SHARED_FINALIZER)
    }

    /// Adds an annotation unless the Service already has it.
    fn add(&mut self, name: &'static str, value: String) {
        if !self.source.texts("annotations").contains_key(name) {
            self.added.insert(name, value);
        }
    }

    /// Translates the Service's own requests.
    fn ask(&mut self, pools: &[PoolDraft<'_>]) {
        if let Some((field, pool)) = self.wishes.pool.clone() {
            let found = pools.iter().find(|it| it.source.kind() != "ConfigMap" && it.source.name() == pool);
            if found.is_none() {
                let message = format!(
                    "{pool:?} is no IPAddressPool that was read; there must be an AddressPool of that name"
                );
                self.left.push(left(self.source, &field, message));
            }
            self.add(ADDRESS_POOL, found.map_or(pool, |found| found.name.clone()));
        }
        if !self.wishes.addresses.is_empty() {
            self.add(ADDRESSES, addresses::joined(&self.wishes.addresses));
        }
        if self.wishes.balance_maglev {
            self.add(BALANCE, "maglev".to_owned());
        }
        // A Service that is created again has no status that would preserve its address.
        if self.class == ClassChange::Recreate && self.requested().is_empty() {
            self.keep_published();
        }
    }

    /// The Problem of a Service with a class outside the migration that still requests an address.
    fn unclear(&self, class: &str) -> Option<FileProblem> {
        let request = self.wishes.request.as_ref()?;
        let message = format!(
            "{request} asks for an address, but no annotation shows that one was given, so the Service stays with the load balancer of \
             its class: if it is to move, delete it and create it anew with loadBalancerClass: {class}"
        );
        Some(left(self.source, "spec.loadBalancerClass", message))
    }

    /// Reports that the Service stays with the load balancer of its class.
    fn kept(&self) -> FileProblem {
        let class = self.source.at(&["spec", "loadBalancerClass"]).cloned().unwrap_or_default();
        let message =
            format!("{class}: the Service belongs to another load balancer, so no Gateway is made of it");
        left(self.source, "spec.loadBalancerClass", message)
    }

    fn finish(self, class: &str) -> MigratedObject {
        let mut manifest = self.source.fields.clone();
        manifest.remove("status");
        if let Some(Value::Object(metadata)) = manifest.get_mut("metadata") {
            metadata.retain(|name, _| !OF_SERVER.contains(&name.as_str()));
            let added = self.added.iter().map(|(name, value)| ((*name).to_owned(), value.clone().into()));
            if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
                annotations.remove(LAST_APPLIED);
                annotations.extend(added);
            } else if !self.added.is_empty() {
                metadata.insert("annotations".to_owned(), added.collect::<Map<_, _>>().into());
            }
        }
        let mut comments = vec![format!("{} ({})", reference(self.source), self.source.origin(""))];
        let added: Vec<String> = self.added.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
        if !added.is_empty() {
            comments.push(format!("added: {}", added.join(" ")));
        }
        if let (ClassChange::Recreate, Some(Value::Object(spec))) = (self.class, manifest.get_mut("spec")) {
            let before = spec.insert("loadBalancerClass".to_owned(), class.into());
            let before = before.as_ref().and_then(Value::as_str).unwrap_or_default();
            comments
                .push(format!("loadBalancerClass was {before:?}: delete this Service before kubectl apply"));
            if let Some(finalizers) = begin_anew(&mut manifest) {
                comments.push(format!(
                    "left out: finalizers {finalizers}; the old Service stays until they are removed"
                ));
            }
        }
        comments.extend(self.comments);
        MigratedObject { comments, left: self.left, manifest: manifest.into() }
    }
}

/// Addresses in the status of a Service.
fn published(service: &RawObject) -> Vec<IpAddr> {
    let ingress = service.at(&["status", "loadBalancer", "ingress"]).and_then(Value::as_array);
    let ingress = ingress.into_iter().flatten();
    ingress.filter_map(|ingress| net::parse_ip(ingress.get("ip")?.as_str()?).ok()).collect()
}

/// Removes fields that a new object must not have. Returns the finalizers, if there were any.
fn begin_anew(manifest: &mut Map<String, Value>) -> Option<String> {
    let metadata = manifest.get_mut("metadata")?.as_object_mut()?;
    let finalizers = texts(metadata.get("finalizers")).join(", ");
    metadata.retain(|name, _| !OF_LIFE.contains(&name.as_str()));
    Some(finalizers).filter(|finalizers| !finalizers.is_empty())
}

/// Whether it is the class of a load balancer that the migration covers.
fn is_left_behind(class: &str) -> bool {
    let domain = class.split('/').next().unwrap_or_default();
    domain.contains("metallb") || matches!(domain, "io.cilium" | "kube-vip.io")
}
