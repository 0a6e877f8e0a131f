//! Test API server: the part of kube-apiserver 1.36 that Sheave needs, over HTTP/1.1, verified against recorded
//! transcripts.
//!
//! Independent of Sheave: objects are JSON, and whatever it refuses, a real API server would refuse as well. Deliberately
//! missing: TLS, HTTP/2, protobuf, YAML answers, tables, gzip, headers of flow control, conversion between versions of
//! custom kinds, their CEL rules, and all controllers.

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

/// Namespaces that exist from the start.
const NAMESPACES: &[&str] = &["default", "kube-system", "sheave-system"];

/// Running API server. Dropping it ends its thread and all connections.
pub struct ApiServer {
    shared: Arc<Shared>,
    server: Server,
}

impl ApiServer {
    /// Starts a server on a free port of the loopback interface.
    pub fn start() -> Self {
        Self::start_on(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }

    /// Starts a server on this address, in the network namespace of the calling thread. `Host::run` runs code in the
    /// namespace of a host.
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

    /// Also serves Karmada's Clusters, as its aggregated API server does.
    pub fn aggregate_clusters(&self) {
        self.shared.world().registry.aggregate();
    }

    /// Enables Karmada's admission webhook for MultiClusterServices.
    pub fn admit_as_karmada(&self) {
        self.shared.world().karmada_webhook = true;
    }

    /// Listen address.
    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// `http://<address>`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Registers a user, and returns the bearer token.
    pub fn token(&self, user: &str) -> String {
        self.shared.access().token(user)
    }

    /// Registers a user, and returns a token for another audience than the API server.
    pub fn token_for(&self, user: &str, audience: &str) -> String {
        self.shared.access().token_for(user, audience)
    }

    /// Makes a token invalid.
    pub fn revoke(&self, token: &str) {
        self.shared.access().revoke(token);
    }

    /// Registers a user, and returns a kubeconfig with the namespace `sheave-system`.
    pub fn kubeconfig(&self, user: &str) -> String {
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": self.url()}}],
            "users": [{"name": user, "user": {"token": self.token(user)}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user, "namespace": "sheave-system"}}],
        });
        // kubeconfigs are read as YAML, which includes JSON.
        config.to_string()
    }

    /// Stops listening, and closes all connections. Objects, history and the port stay.
    pub fn stop(&self) {
        self.server.stop().expect("the server's thread runs");
    }

    /// Listens again on the same port.
    pub fn resume(&self) {
        self.server.resume().expect("the port was kept");
    }

    /// Stores objects unchanged, bypassing HTTP, rules and permissions. An object whose `metadata.resourceVersion` is newer
    /// than all others keeps it. Watches see an ordinary write.
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

    /// Removes an object, bypassing HTTP and finalizers; `false` if there is none.
    pub fn unload(&self, plural: &str, namespace: Option<&str>, name: &str) -> bool {
        let mut world = self.shared.world();
        let served = any_of(&world.registry, plural);
        let gone = world.store.remove(&served, &store::entry::key(namespace, name));
        gone.is_some_and(|gone| {
            rules::definition::unfollow(&mut world, &served, &gone);
            true
        })
    }

    /// An object as stored.
    pub fn object(&self, plural: &str, namespace: Option<&str>, name: &str) -> Option<Value> {
        let mut world = self.shared.world();
        let served = any_of(&world.registry, plural);
        let entry = world.store.get(&served, &store::entry::key(namespace, name))?;
        Some(entry.object(&served.kind))
    }

    /// All objects of a kind, ordered by key.
    pub fn objects(&self, plural: &str) -> Vec<Value> {
        let (served, entries): (_, Vec<_>) = {
            let mut world = self.shared.world();
            let served = any_of(&world.registry, plural);
            let entries = world.store.shelf(&served.shelf).entries().values().cloned().collect();
            (served, entries)
        };
        // Serialized without the lock, so that the server is not blocked.
        entries.iter().map(|entry| entry.object(&served.kind)).collect()
    }

    /// The newest revision.
    pub fn revision(&self) -> u64 {
        self.shared.world().store.revision()
    }

    /// Skips revisions, as if other kinds had been written.
    pub fn skip_to(&self, revision: u64) {
        self.shared.world().store.skip_to(revision);
    }

    /// Drops all history: older watches and list pages get 410.
    pub fn compact(&self) {
        self.shared.world().store.compact();
    }

    /// Sets the interval of bookmarks for new watches.
    pub fn bookmark_every(&self, interval: Duration) {
        self.shared.world().bookmark_every = interval;
    }

    /// All requests so far, in the order of their answers.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.requests().clone()
    }

    /// All requests for changes so far.
    pub fn writes(&self) -> Vec<Request> {
        self.shared.requests().iter().filter(|request| request.is_write()).cloned().collect()
    }

    /// Clears the recorded requests.
    pub fn forget_requests(&self) {
        self.shared.requests().clear();
    }

    /// Restricts a user to the rules of these Roles and ClusterRoles, replacing earlier ones. Users that were never
    /// restricted may do everything.
    pub fn authorize(&self, user: &str, roles: &[Value]) {
        self.shared.access().authorize(user, roles);
    }

    /// Permissions of the user that no request has used.
    pub fn unused_rules(&self, user: &str) -> Vec<Permission> {
        self.shared.access().unused(user)
    }

    /// Requests that lacked permission.
    pub fn refused(&self) -> Vec<Permission> {
        self.shared.access().refused()
    }

    /// Switches for faults.
    pub fn faults(&self) -> Switches<'_> {
        Switches(&self.shared)
    }
}

/// Allocates the addresses and ports of a loaded Service, so that no other Service gets them. If they are taken already,
/// both Services keep them, as after a restore of etcd.
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

/// The kind with this plural, which may be qualified with its group.
fn any_of(registry: &kind::registry::Registry, plural: &str) -> Arc<Served> {
    let named =
        |served: &&Arc<Served>| served.kind.plural == plural || served.kind.qualified_plural() == plural;
    registry.all().iter().find(named).map_or_else(|| panic!("{plural} is not served"), Arc::clone)
}

/// Switches for faults, initially off.
pub struct Switches<'a>(&'a Shared);

impl Switches<'_> {
    /// Resets every connection with a watch, and returns the number of watches.
    pub fn cut_watches(&self) -> usize {
        self.0.cut_watches()
    }

    /// Number of open watches.
    pub fn open_watches(&self) -> usize {
        self.0.watches()
    }

    /// Sets whether new watches are answered with 503.
    pub fn refuse_watches(&self, refuse: bool) {
        self.0.faults().refuse_watches = refuse;
    }

    /// Sets the delay of every answer.
    pub fn delay(&self, delay: Option<Duration>) {
        self.0.faults().delay = delay;
    }

    /// Plans a fault for the next `times` requests that match.
    pub fn plan(&self, matching: Matching, times: usize, fault: Fault) {
        self.0.faults().plan(matching, times, fault);
    }

    /// Number of planned faults that are still to happen.
    pub fn outstanding(&self) -> usize {
        self.0.faults().outstanding()
    }

    /// Makes reads at resourceVersion 0 see the current state, even after later writes.
    pub fn freeze_cached_reads(&self) {
        let mut faults = self.0.faults();
        let mut world = self.0.world();
        let revision = world.store.revision();
        let shelves =
            world.store.shelves().map(|(name, shelf)| (name.clone(), shelf.entries().clone())).collect();
        faults.past = Some(Past { revision, shelves });
    }

    /// Sets whether the server of aggregated kinds is away. These kinds then answer 503 and their watches end, while all
    /// others continue.
    pub fn aggregated_away(&self, away: bool) {
        self.0.faults().aggregated_away = away;
        let mut world = self.0.world();
        let world = &mut *world;
        for served in world.registry.all().iter().filter(|served| away && served.aggregated) {
            world.store.shelf(&served.shelf).close();
        }
    }

    /// Sets whether the first list or watch of each custom kind gets 429, as while its storage is initialized.
    pub fn slow_definitions(&self, slow: bool) {
        self.0.faults().slow_definitions = slow;
    }

    /// Resets all faults.
    pub fn clear(&self) {
        self.0.faults().clear();
    }
}
