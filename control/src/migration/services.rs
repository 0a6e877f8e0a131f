//! LoadBalancer Services: what their annotations mean to Sheave, and which of them have to be created anew.
//!
//! A Service is printed as it is, with annotations added: those of other projects stay, so that nothing stands in the way back.

mod annotations;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::{Map, Value};

use self::annotations::Wishes;
use super::draft::{PoolDraft, left, reference, texts};
use super::{MigratedObject, is_address_pool};
use crate::api::address_pool::Sharing;
use crate::net;
use crate::projection::{ADDRESS_POOL, ADDRESSES, AddressRange, BALANCE};
use crate::sources::manifests::{FileProblem, RawObject};

/// What the API server or kubectl writes to an object.
const OF_SERVER: [&str; 6] =
    ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink"];
/// What belongs to the life of the Service that is deleted: nobody would remove the finalizers from the new one.
const OF_LIFE: [&str; 3] = ["finalizers", "deletionTimestamp", "deletionGracePeriodSeconds"];
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What becomes of the Services.
#[derive(Debug, Default)]
pub(super) struct MigratedServices {
    pub(super) objects: Vec<MigratedObject>,
    pub(super) steps: Vec<String>,
    pub(super) unchanged: usize,
}

/// What its class means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
enum ClassChange {
    /// It is of the right class.
    Ours,
    /// It has no class, and gets none: the API server refuses that.
    Unclassified,
    /// It is of the class of a load balancer that is left behind.
    Recreate,
    /// It is of a load balancer that this is not about.
    Foreign,
}

/// A load balancer, and what it asks for.
#[derive(Debug)]
struct ServiceDraft<'a> {
    source: &'a RawObject,
    class: ClassChange,
    wishes: Wishes,
    /// Addresses that its status publishes.
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

/// Translates them. Pools are shared among namespaces where addresses are.
pub(super) fn translate(objects: &[RawObject], class: &str, pools: &mut [PoolDraft<'_>]) -> MigratedServices {
    let load_balancers = objects.iter().filter(|it| is_load_balancer(it));
    let drafts = load_balancers.map(|it| ServiceDraft::read(it, class));
    let mut drafts: Vec<ServiceDraft<'_>> = drafts.filter(|it| it.class != ClassChange::Foreign).collect();
    let given = given(objects, pools);
    for draft in &mut drafts {
        draft.ask(pools, &given);
    }
    share(&mut drafts, &given);
    share_among_namespaces(&drafts, pools);
    let mut services = MigratedServices { steps: steps(&drafts, class), ..MigratedServices::default() };
    for draft in drafts {
        if draft.added.is_empty() && draft.left.is_empty() && draft.class != ClassChange::Recreate {
            services.unchanged += 1;
        } else {
            services.objects.push(draft.finish(class));
        }
    }
    services
}

/// What the AddressPools give: those that are made, and those that are there.
fn given(objects: &[RawObject], pools: &[PoolDraft<'_>]) -> Vec<AddressRange> {
    let there = objects.iter().filter(|it| is_address_pool(it));
    let there = there.flat_map(|it| texts(it.at(&["spec", "addresses"])));
    let made = pools.iter().flat_map(|it| it.spec.addresses.iter().cloned());
    there.chain(made).filter_map(|entry| AddressRange::read(&entry, false).ok()).collect()
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
    if drafts.iter().any(|it| it.class == ClassChange::Recreate) {
        steps.push(format!(
            "Some Services below get the class {class} in place of another one, which cannot be changed: delete each of these before \
             kubectl apply, which creates it anew. Its connections end; node ports and cluster addresses stay if the manifest has them."
        ));
    }
    steps
}

impl<'a> ServiceDraft<'a> {
    fn read(source: &'a RawObject, class: &str) -> Self {
        let mut left = Vec::new();
        let wishes = annotations::read(source, &mut left);
        let named = source.at(&["spec", "loadBalancerClass"]).and_then(Value::as_str);
        let class = match named {
            None => ClassChange::Unclassified,
            Some(named) if named == class => ClassChange::Ours,
            Some(named) if is_left_behind(named) || wishes.allocated => ClassChange::Recreate,
            Some(_) => ClassChange::Foreign,
        };
        let ingress = source.at(&["status", "loadBalancer", "ingress"]).and_then(Value::as_array);
        let published = ingress
            .into_iter()
            .flatten()
            .filter_map(|ingress| net::parse_ip(ingress.get("ip")?.as_str()?).ok())
            .collect();
        Self { source, class, wishes, published, added: BTreeMap::new(), comments: Vec::new(), left }
    }

    /// Adds an annotation, unless the Service has it already.
    fn add(&mut self, name: &'static str, value: String) {
        if !self.source.texts("annotations").contains_key(name) {
            self.added.insert(name, value);
        }
    }

    /// What it asks for by itself.
    fn ask(&mut self, pools: &[PoolDraft<'_>], given: &[AddressRange]) {
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
            self.add(ADDRESSES, joined(&self.wishes.addresses));
        }
        if self.wishes.balance_maglev {
            self.add(BALANCE, "maglev".to_owned());
        }
        // A Service that is created anew has no status to keep its address by.
        if self.class == ClassChange::Recreate && self.requested().is_empty() {
            self.keep_published(given);
        }
    }

    /// The addresses that it asks for by value.
    fn requested(&self) -> Vec<IpAddr> {
        let field = self.source.at(&["spec", "loadBalancerIP"]).and_then(Value::as_str);
        let field = field.and_then(|text| net::parse_ip(text).ok());
        let own = self.source.texts("annotations");
        let annotated = own.get(ADDRESSES).or_else(|| self.added.get(ADDRESSES));
        let annotated = annotated.into_iter().flat_map(|list| list.split(','));
        let mut all: Vec<IpAddr> = annotated.filter_map(|text| net::parse_ip(text).ok()).collect();
        if all.is_empty() {
            all.extend(field);
        }
        all
    }

    /// Asks for the addresses that it has, those too that no pool is known to give: another one may be made, or come from elsewhere.
    fn keep_published(&mut self, given: &[AddressRange]) {
        if self.published.is_empty() {
            return;
        }
        self.add(ADDRESSES, joined(&self.published));
        self.comments.push("sheave.dev/addresses keeps the addresses that it has.".to_owned());
        let is_given = |ip: &&IpAddr| given.iter().any(|range| range.spans(**ip));
        let none: Vec<IpAddr> = self.published.iter().filter(|ip| !is_given(ip)).copied().collect();
        if !none.is_empty() {
            let message = format!(
                "{}: no pool that was read has it; there must be an AddressPool with it",
                joined(&none)
            );
            self.left.push(left(self.source, "status.loadBalancer.ingress", message));
        }
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

/// Takes away what a new object must not have; the finalizers, if there are any.
fn begin_anew(manifest: &mut Map<String, Value>) -> Option<String> {
    let metadata = manifest.get_mut("metadata")?.as_object_mut()?;
    let finalizers = texts(metadata.get("finalizers")).join(", ");
    metadata.retain(|name, _| !OF_LIFE.contains(&name.as_str()));
    Some(finalizers).filter(|finalizers| !finalizers.is_empty())
}

/// Classes of load balancers that this is about.
fn is_left_behind(class: &str) -> bool {
    let domain = class.split('/').next().unwrap_or_default();
    domain.contains("metallb") || matches!(domain, "io.cilium" | "kube-vip.io")
}

fn joined(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Services of one sharing key: they share an address if they ask for the same one.
fn share(drafts: &mut [ServiceDraft<'_>], given: &[AddressRange]) {
    let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, draft) in drafts.iter().enumerate() {
        if let Some((_, key)) = &draft.wishes.sharing_key {
            groups.entry(key.clone()).or_default().push(index);
        }
    }
    for group in groups.values().filter(|group| group.len() > 1) {
        for index in group {
            let Some(draft) = drafts.get_mut(*index) else { continue };
            if draft.requested().is_empty() {
                draft.keep_published(given);
            }
            let Some((field, key)) =
                draft.wishes.sharing_key.clone().filter(|_| draft.requested().is_empty())
            else {
                continue;
            };
            let message = format!(
                "{key:?}: Services share an address only if they ask for it; give all Services with this key the same annotation \
                 {ADDRESSES}"
            );
            draft.left.push(left(draft.source, &field, message));
        }
    }
}

/// A pool with an address that Services of several namespaces ask for.
fn share_among_namespaces(drafts: &[ServiceDraft<'_>], pools: &mut [PoolDraft<'_>]) {
    let mut namespaces: BTreeMap<IpAddr, BTreeSet<&str>> = BTreeMap::new();
    for draft in drafts {
        for ip in draft.requested() {
            namespaces.entry(ip).or_default().insert(draft.source.namespace());
        }
    }
    for (ip, namespaces) in namespaces.iter().filter(|(_, namespaces)| namespaces.len() > 1) {
        for pool in pools.iter_mut().filter(|pool| pool.spans(*ip) && pool.spec.sharing != Sharing::Cluster) {
            pool.spec.sharing = Sharing::Cluster;
            let names: Vec<&str> = namespaces.iter().copied().collect();
            pool.comments
                .push(format!("sharing: Cluster, since Services of {} share {ip}.", names.join(", ")));
        }
    }
}
