//! From the objects of other load balancers to ours: MetalLB, kube-vip, ServiceLB of k3s, and Cilium's LB-IPAM. A pure function; what it
//! cannot say is reported, and nothing is guessed in silence.

mod announcement;
mod cilium;
mod draft;
mod frr;
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
use crate::api::address_pool::{API_VERSION, AddressPoolSpec, KIND};
use crate::sources::manifests::{FileProblem, RawObject};

/// The label of each Namespace with its name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// What an AddressPool may hold at most; see the rules of its definition.
const MAX_ENTRIES: usize = 256;

/// What becomes of other load balancers' objects.
#[derive(Debug, Default)]
pub struct Migration {
    /// What to do, in this order.
    pub steps: Vec<String>,
    /// Lines of FRR's configuration, if routers are to be told.
    pub frr: Vec<String>,
    /// AddressPools first, then Services.
    pub objects: Vec<MigratedObject>,
    /// What has no equivalent, of objects that nothing is made of.
    pub left: Vec<FileProblem>,
    /// Load balancers that need no change.
    pub unchanged: usize,
}

/// An object to apply.
#[derive(Debug)]
pub struct MigratedObject {
    /// Where it comes from, and what to know.
    pub comments: Vec<String>,
    /// What of it has no equivalent.
    pub left: Vec<FileProblem>,
    /// The object.
    pub manifest: Value,
}

/// What the parts find.
#[derive(Debug, Default)]
struct Findings<'a> {
    pools: Vec<PoolDraft<'a>>,
    modes: BTreeSet<AdvertisementKind>,
    frr: Vec<String>,
    steps: Vec<String>,
    left: Vec<FileProblem>,
}

/// Translates the objects for an installation of this class.
pub fn migrate(objects: &[RawObject], class: &str) -> Migration {
    let mut findings = Findings::default();
    metallb::translate(objects, &mut findings);
    cilium::translate(objects, &mut findings);
    kube_vip::translate(objects, &mut findings);
    service_lb::translate(objects, &mut findings);
    rename(&mut findings.pools, objects);
    cilium::report_names(&mut findings.pools);
    let services = services::translate(objects, class, &mut findings.pools);
    let mut steps = announcing(&findings.modes);
    steps.append(&mut findings.steps);
    steps.extend(services.steps);
    let pools = findings.pools.into_iter().filter(|pool| !pool.is_empty() || !pool.left.is_empty());
    let (some, none): (Vec<_>, Vec<_>) = pools.partition(|pool| !pool.is_empty());
    let mut left = findings.left;
    left.extend(none.into_iter().flat_map(|pool| pool.left));
    left.extend(services.left);
    Migration {
        steps,
        frr: findings.frr,
        objects: some.into_iter().map(PoolDraft::finish).chain(services.objects).collect(),
        left,
        unchanged: services.unchanged,
    }
}

/// Whether it is one of ours.
fn is_address_pool(object: &RawObject) -> bool {
    object.kind() == KIND && format!("{}/v1alpha1", object.group()) == API_VERSION
}

/// Two pools of one name, from several projects or namespaces, or one that has been migrated before.
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

/// How gateways are to be configured.
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

/// The fields that say something.
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
