//! Scene of most cases about the controller: a machine, and a controller that can be started, stopped and crashed. Independent
//! of the cases.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::stage::{Home, Role, Sheave, Stage, published};
use crate::support::cluster::Cluster;
use crate::support::patience::{eventually_within, patience};
use crate::support::road::Road;

/// Finalizer of Sheave.
pub(crate) const FINALIZER: &str = "sheave.dev/load-balancer-cleanup";
/// User name of a controller at the test API server.
pub(crate) const CONTROLLER: &str = "system:serviceaccount:sheave-system:sheave-controller";
/// Lease of the controllers.
pub(crate) const LEASE: &str = "sheave-system/sheave-controller";

/// Machine with a controller that is not running yet.
pub(crate) struct Scene<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) stage: &'a Stage<'a>,
    pub(crate) road: &'a Road<'a>,
    home: Home,
}

/// Runs a case in a scene whose controller has these additional keys in its configuration.
pub(crate) fn play(name: &str, config: &str, case: impl FnOnce(&Scene<'_>)) {
    let cluster = Cluster::start(name);
    let stage = Stage::new(&cluster);
    let road = stage.road();
    let home = stage.home(Role::Controller, &road, config);
    case(&Scene { cluster: &cluster, stage: &stage, road: &road, home });
}

impl Scene<'_> {
    /// Starts the controller, and waits until it leads and has listed everything.
    pub(crate) fn start(&self) -> Sheave<'_> {
        let mut controller = self.stage.start(&self.home);
        wait_until_leading(&controller);
        controller.wait_until_ready();
        controller
    }

    /// Kills it without any cleanup.
    pub(crate) fn crash(&self, controller: Sheave<'_>) {
        controller.kill();
        give_up_lease(self.cluster, LEASE);
    }
}

/// Releases a Lease, so that the next controller need not wait for it to expire. That it would wait is tested in `leadership`.
pub(crate) fn give_up_lease(cluster: &Cluster, lease: &str) {
    let nobody = json!({"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}});
    cluster.merge("Lease", lease, "someone", &nobody).expect("the Lease takes it");
}

pub(crate) fn wait_until_leading(controller: &Sheave<'_>) {
    eventually_within(patience(40.0), "the controller leads", || {
        let status = controller.page("/api/status");
        if status["controller"]["leading"] == true { Ok(()) } else { Err(status.to_string()) }
    });
}

/// Waits until an object satisfies a condition, and returns it.
pub(crate) fn wait_for(
    cluster: &Cluster,
    (kind, name): (&str, &str),
    what: &str,
    is_so: impl Fn(&Value) -> bool,
) -> Value {
    eventually_within(patience(30.0), &format!("{kind} {name} {what}"), || {
        let object = cluster.get(kind, name).ok_or_else(|| "no such object".to_owned())?;
        if is_so(&object) { Ok(object) } else { Err(object.to_string()) }
    })
}

/// Types of our conditions.
pub(crate) fn our_conditions(object: &Value) -> Vec<&str> {
    let conditions = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let kinds = conditions.iter().filter_map(|condition| condition["type"].as_str());
    kinds.filter(|kind| kind.starts_with("sheave.dev/")).collect()
}

/// Whether the object has our finalizer.
pub(crate) fn is_held(object: &Value) -> bool {
    has_finalizer(object, FINALIZER)
}

/// Whether the object has this finalizer.
pub(crate) fn has_finalizer(object: &Value, name: &str) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|all| all.contains(&json!(name)))
}

/// Whether a Service has nothing of ours: no finalizer, no condition, no address of the cases' pools.
pub(crate) fn is_clean(service: &Value) -> bool {
    let ours = published(service).iter().any(|ip| ip.to_string().starts_with("203.0.113."));
    !is_held(service) && our_conditions(service).is_empty() && !ours
}

/// Waits until a Service has nothing of ours, and returns it.
pub(crate) fn wait_until_clean(cluster: &Cluster, name: &str) -> Value {
    wait_for(cluster, ("Service", name), "carries nothing of ours", is_clean)
}

/// Services that are not ours, with their revisions.
pub(crate) struct Bystanders<'c> {
    cluster: &'c Cluster,
    versions: BTreeMap<&'static str, Value>,
}

impl<'c> Bystanders<'c> {
    /// Creates a Service of another class with an address, one without a class, and one of type ClusterIP. The last one has
    /// conditions and a finalizer of others.
    pub(crate) fn new(cluster: &'c Cluster) -> Self {
        const PORTS: &str = "ports: [{name: http, port: 80, protocol: TCP}]";
        cluster.apply(&format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: theirs}}\nspec: {{type: LoadBalancer, loadBalancerClass: \
             example.com/lb, {PORTS}}}\nstatus: {{loadBalancer: {{ingress: [{{ip: 198.51.100.7}}]}}}}\n---\napiVersion: \
             v1\nkind: Service\nmetadata: {{name: classless}}\nspec: {{type: LoadBalancer, {PORTS}}}\n---\napiVersion: \
             v1\nkind: Service\nmetadata: {{name: internal, finalizers: [example.com/keep]}}\nspec: {{{PORTS}}}\nstatus: \
             {{conditions: [{{type: example.com/Seen, status: \"True\", reason: Seen, message: \"\", lastTransitionTime: \
             \"2026-01-01T00:00:00Z\"}}]}}\n",
        ));
        let mut bystanders = Self { cluster, versions: BTreeMap::new() };
        for name in ["theirs", "classless", "internal"] {
            let version = bystanders.version(name);
            bystanders.versions.insert(name, version);
        }
        bystanders
    }

    /// Checks that they have not been written since.
    pub(crate) fn expect_untouched(&self) {
        for (name, before) in &self.versions {
            assert_eq!(self.version(name), *before, "Service {name} was written to");
        }
    }

    fn version(&self, name: &str) -> Value {
        let service = self.cluster.get("Service", name).expect("nobody deletes bystanders");
        service["metadata"]["resourceVersion"].clone()
    }
}
