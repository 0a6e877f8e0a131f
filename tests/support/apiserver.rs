//! A test API server: what Sheave needs of a kube-apiserver 1.36, over HTTP/1.1, held to recorded transcripts.
//!
//! It knows nothing of Sheave: objects are JSON, and whatever it refuses, a real API server would refuse as well. Left
//! out on purpose: TLS, HTTP/2, protobuf, YAML answers, tables, gzip, flow control's headers, conversion between
//! versions of custom kinds, their CEL rules, and all controllers.

pub mod access;
pub mod faults;
mod handle;
pub mod kind;
pub mod record;
mod reply;
mod route;
mod rules;
mod selector;
mod server;
mod shared;
pub mod status;
mod store;
pub mod write;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use access::Permission;
use faults::{Fault, Matching, Past};
use kind::registry::Served;
use record::Request;
use server::Server;
use shared::{Shared, now};

/// Namespaces that are there from the beginning.
const NAMESPACES: &[&str] = &["default", "kube-system", "sheave-system"];

/// A running API server. It ends when dropped, with its thread and all connections.
pub struct ApiServer {
    shared: Arc<Shared>,
    server: Server,
}

impl ApiServer {
    /// Starts a server on a free port of the loopback interface.
    pub fn start() -> Self {
        Self::start_on(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }

    /// Starts a server on this address, in the network namespace of the calling thread; `Host::run` brings a thread into
    /// a host's.
    pub fn start_on(address: SocketAddr) -> Self {
        let shared = Arc::new(Shared::new());
        let server = Server::start(address, Arc::clone(&shared))
            .unwrap_or_else(|error| panic!("the API server cannot listen on {address}: {error}"));
        let server = Self { shared, server };
        let namespaces = NAMESPACES.iter().map(|name| {
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {"finalizers": ["kubernetes"]},
                   "status": {"phase": "Active"}})
        });
        server.load(namespaces);
        server
    }

    /// Serves Karmada's Clusters beside all else, by a server of their own as far as clients can tell.
    pub fn aggregate_clusters(&self) {
        self.shared.world().registry.aggregate();
    }

    /// Puts the admission webhook of Karmada before MultiClusterServices.
    pub fn admit_as_karmada(&self) {
        self.shared.world().karmada_webhook = true;
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// `http://<address>`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// The bearer token of a user, who is known from now on.
    pub fn token(&self, user: &str) -> String {
        self.shared.access().token(user)
    }

    /// A token of a user for another audience than the API server.
    pub fn token_for(&self, user: &str, audience: &str) -> String {
        self.shared.access().token_for(user, audience)
    }

    /// Nobody is known by the token any more.
    pub fn revoke(&self, token: &str) {
        self.shared.access().revoke(token);
    }

    /// A kubeconfig for a user, who is known from now on. Its namespace is `sheave-system`.
    pub fn kubeconfig(&self, user: &str) -> String {
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": self.url()}}],
            "users": [{"name": user, "user": {"token": self.token(user)}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user, "namespace": "sheave-system"}}],
        });
        // JSON is YAML, and kubeconfigs are read as YAML.
        config.to_string()
    }

    /// Goes away: nobody listens, and all connections are closed. Objects, history and the port stay.
    pub fn stop(&self) {
        self.server.stop().expect("the server's thread runs");
    }

    /// Comes back on the same port.
    pub fn resume(&self) {
        self.server.resume().expect("the port was kept");
    }

    /// Stores objects as they come, past HTTP, rules and rights. An object with a `metadata.resourceVersion` newer than
    /// all others keeps it. Watches see it as any write.
    pub fn load(&self, objects: impl IntoIterator<Item = Value>) {
        let moment = now();
        let mut world = self.shared.world();
        for object in objects {
            let served =
                world.registry.find_by_object(&object).unwrap_or_else(|| panic!("not served: {object}"));
            let object = if served.reshapes_events() { rules::event::to_core(object) } else { object };
            rules::definition::follow(&mut world, &served, &object);
            if served.shelf == "services" {
                claim(&mut world.allocations, &object);
            }
            world.store.put(&served, object, &moment, true);
        }
    }

    /// Removes an object past HTTP and finalizers; `false` if there is none.
    pub fn unload(&self, plural: &str, namespace: Option<&str>, name: &str) -> bool {
        let mut world = self.shared.world();
        let served = any_of(&world.registry, plural);
        let gone = world.store.remove(&served, &store::entry::key(namespace, name));
        gone.is_some_and(|gone| {
            rules::definition::unfollow(&mut world, &served, &gone);
            true
        })
    }

    /// An object as it is stored.
    pub fn object(&self, plural: &str, namespace: Option<&str>, name: &str) -> Option<Value> {
        let mut world = self.shared.world();
        let served = any_of(&world.registry, plural);
        let entry = world.store.get(&served, &store::entry::key(namespace, name))?;
        Some(entry.object(&served.kind))
    }

    /// All objects of a kind, in the order of their keys.
    pub fn objects(&self, plural: &str) -> Vec<Value> {
        let (served, entries): (_, Vec<_>) = {
            let mut world = self.shared.world();
            let served = any_of(&world.registry, plural);
            let entries = world.store.shelf(&served.shelf).entries().values().cloned().collect();
            (served, entries)
        };
        // Read while the server goes on.
        entries.iter().map(|entry| entry.object(&served.kind)).collect()
    }

    /// The newest revision.
    pub fn revision(&self) -> u64 {
        self.shared.world().store.revision()
    }

    /// Passes over revisions, as if other kinds had been written.
    pub fn skip_to(&self, revision: u64) {
        self.shared.world().store.skip_to(revision);
    }

    /// Forgets all history: watches and pages from before get 410.
    pub fn compact(&self) {
        self.shared.world().store.compact();
    }

    /// Sets the pace of bookmarks, for watches that begin from now on.
    pub fn bookmark_every(&self, interval: Duration) {
        self.shared.world().bookmark_every = interval;
    }

    /// All requests until now, in the order in which they were answered.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.requests().clone()
    }

    /// All requests for changes until now.
    pub fn writes(&self) -> Vec<Request> {
        self.shared.requests().iter().filter(|request| request.is_write()).cloned().collect()
    }

    /// Forgets the requests until now.
    pub fn forget_requests(&self) {
        self.shared.requests().clear();
    }

    /// Restricts a user to the rules of these Role and ClusterRole objects, in place of earlier ones. Users that were
    /// never restricted may do everything.
    pub fn authorize(&self, user: &str, roles: &[Value]) {
        self.shared.access().authorize(user, roles);
    }

    /// The user's permissions that no request needed until now.
    pub fn unused_rules(&self, user: &str) -> Vec<Permission> {
        self.shared.access().unused(user)
    }

    /// What users tried without permission.
    pub fn refused(&self) -> Vec<Permission> {
        self.shared.access().refused()
    }

    /// Switches for what goes wrong.
    pub fn faults(&self) -> Switches<'_> {
        Switches(&self.shared)
    }
}

/// Takes what a loaded Service has, so that no other is given it. What is taken already stays with both, as it does
/// after a restore of etcd.
fn claim(allocations: &mut write::Allocations, service: &Value) {
    let spec = &service["spec"];
    for address in spec["clusterIPs"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        allocations.take_address(address).unwrap_or_default();
    }
    let ports = spec["ports"].as_array().into_iter().flatten().map(|port| &port["nodePort"]);
    let ports = ports.chain([&spec["healthCheckNodePort"]]).filter_map(Value::as_u64);
    for port in ports.filter_map(|port| u16::try_from(port).ok()) {
        allocations.take_port(port).unwrap_or_default();
    }
}

/// The kind with this plural; with its group where two have the same.
fn any_of(registry: &kind::registry::Registry, plural: &str) -> Arc<Served> {
    let named =
        |served: &&Arc<Served>| served.kind.plural == plural || served.kind.qualified_plural() == plural;
    registry.all().iter().find(named).map_or_else(|| panic!("{plural} is not served"), Arc::clone)
}

/// Switches for what goes wrong. Everything is off at first.
pub struct Switches<'a>(&'a Shared);

impl Switches<'_> {
    /// Resets every connection on which a watch runs; tells how many watches that were.
    pub fn cut_watches(&self) -> usize {
        self.0.cut_watches()
    }

    /// How many watches run now.
    pub fn open_watches(&self) -> usize {
        self.0.watches()
    }

    /// Answers new watches with 503, or no longer.
    pub fn refuse_watches(&self, refuse: bool) {
        self.0.faults().refuse_watches = refuse;
    }

    /// Delays every answer, or no longer.
    pub fn delay(&self, delay: Option<Duration>) {
        self.0.faults().delay = delay;
    }

    /// Plans a fault for the next `times` requests that match.
    pub fn plan(&self, matching: Matching, times: usize, fault: Fault) {
        self.0.faults().plan(matching, times, fault);
    }

    /// How many planned faults have not happened yet.
    pub fn outstanding(&self) -> usize {
        self.0.faults().outstanding()
    }

    /// From now on reads at resourceVersion 0 see the present moment, whatever is written later.
    pub fn freeze_cached_reads(&self) {
        let mut faults = self.0.faults();
        let mut world = self.0.world();
        let revision = world.store.revision();
        let shelves =
            world.store.shelves().map(|(name, shelf)| (name.clone(), shelf.entries().clone())).collect();
        faults.past = Some(Past { revision, shelves });
    }

    /// Takes the server behind aggregated kinds away: they answer 503 and their watches end, all else goes on. Or brings it
    /// back.
    pub fn aggregated_away(&self, away: bool) {
        self.0.faults().aggregated_away = away;
        let mut world = self.0.world();
        let world = &mut *world;
        for served in world.registry.all().iter().filter(|served| away && served.aggregated) {
            world.store.shelf(&served.shelf).close();
        }
    }

    /// Answers the first list or watch of each custom kind with 429, as while its storage is made.
    pub fn slow_definitions(&self, slow: bool) {
        self.0.faults().slow_definitions = slow;
    }

    /// Switches everything off.
    pub fn clear(&self) {
        self.0.faults().clear();
    }
}
