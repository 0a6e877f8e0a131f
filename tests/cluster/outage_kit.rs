//! Kit for cases about gateways and outages: Services with addresses but without a controller, what a gateway serves,
//! and what it should serve according to the API server. Independent of the cases.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde_json::{Value, json};

use crate::stage::{Sheave, Stage, published, service};
use crate::support::cluster::Cluster;
use crate::support::load::Load;
use crate::support::patience::{eventually_within, patience};
use crate::support::tcp;

/// Field manager in place of a controller.
const SOMEONE: &str = "someone";

/// Time limit in seconds for a gateway to get a change after its watches were refused. Its pauses double up to half a
/// minute.
pub(crate) const RECOVERY: f64 = 45.0;

/// Endpoints by frontend: for `203.0.113.10:80`, those like `10.1.0.7:8080` that new connections may use.
pub(crate) type Served = BTreeMap<String, BTreeSet<String>>;

/// Address of [`crate::stage::POOL`].
pub(crate) fn address(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(203, 0, 113, last))
}

/// Creates a Service with this address already in its status, as left by a controller.
pub(crate) fn published_service(cluster: &Cluster, name: &str, address: IpAddr) {
    service(cluster, name, "");
    publish(cluster, name, address);
}

/// Starts the endpoints and creates Service `web` with this [`address`], behind which the first of them is ready.
pub(crate) fn serve_web(cluster: &Cluster, stage: &Stage<'_>, last: u8) -> Vec<tcp::Server> {
    published_service(cluster, "web", address(last));
    stage.slice("web", &[0]);
    stage.endpoints()
}

/// Sets the address in the Service's status, and no other.
pub(crate) fn publish(cluster: &Cluster, name: &str, address: IpAddr) {
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": address, "ipMode": "Proxy"}]}}});
    cluster.merge_status("Service", name, SOMEONE, &status).expect("a Service takes a status");
}

/// Changes an object with another field manager than Sheave's.
pub(crate) fn change(cluster: &Cluster, kind: &str, name: &str, patch: &Value) {
    cluster.merge(kind, name, SOMEONE, patch).unwrap_or_else(|error| panic!("{kind} {name}: {error:?}"));
}

/// Endpoints by frontend of the case's namespace that the gateway serves.
pub(crate) fn served(gateway: &Sheave<'_>, cluster: &Cluster) -> Served {
    let routes = gateway.page("/api/routes");
    let ours = format!("{}/", cluster.namespace());
    let frontends = routes["frontends"].as_array().cloned().unwrap_or_default();
    let frontends =
        frontends.iter().filter(|it| it["service"].as_str().is_some_and(|it| it.starts_with(&ours)));
    frontends.map(|it| (frontend(&it["address"], &it["port"]), texts(&it["external"]["endpoints"]))).collect()
}

/// Endpoints by frontend that it should serve according to the API server.
pub(crate) fn wanted(cluster: &Cluster) -> Served {
    let slices = cluster.list("EndpointSlice");
    let mut wanted = Served::new();
    for service in cluster.list("Service") {
        let name = &service["metadata"]["name"];
        let of_it =
            slices.iter().filter(|it| it["metadata"]["labels"]["kubernetes.io/service-name"] == *name);
        let endpoints: BTreeSet<String> = of_it.flat_map(ready_endpoints).collect();
        for address in published(&service) {
            for port in service["spec"]["ports"].as_array().into_iter().flatten() {
                wanted.insert(frontend(&json!(address), &port["port"]), endpoints.clone());
            }
        }
    }
    wanted
}

/// Waits until the gateway serves exactly what the API server has.
pub(crate) fn wait_until_true_to_the_server(gateway: &Sheave<'_>, cluster: &Cluster) {
    eventually_within(patience(RECOVERY), "the gateway serves what the API server has", || {
        let (served, wanted) = (served(gateway, cluster), wanted(cluster));
        if served == wanted { Ok(()) } else { Err(format!("served {served:?}, wanted {wanted:?}")) }
    });
}

/// Waits until this endpoint answers behind the address.
pub(crate) fn wait_for_answer(stage: &Stage<'_>, address: IpAddr, port: u16, name: &str) {
    let what = format!("{name} serves {address}:{port}");
    eventually_within(patience(RECOVERY), &what, || match stage.ask(address, port) {
        Ok(answer) if answer == name => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

/// Load of clients on port 80 of these addresses, one after another.
pub(crate) fn load(stage: &Stage<'_>, addresses: Vec<IpAddr>) -> Load {
    const CLIENTS: usize = 2;
    Load::start(&stage.host, CLIENTS, move |_| {
        let address = addresses[fastrand::usize(..addresses.len())];
        tcp::ask(SocketAddr::new(address, 80)).map(drop)
    })
}

/// Waits until `/api/status` satisfies `probe`, and returns the status.
pub(crate) fn wait_for_status(sheave: &Sheave<'_>, what: &str, probe: impl Fn(&Value) -> bool) -> Value {
    eventually_within(patience(RECOVERY), what, || {
        let status = sheave.page("/api/status");
        if probe(&status) { Ok(status) } else { Err(status.to_string()) }
    })
}

/// Waits until the gateway has written a snapshot. It is complete if the gateway knew everything when it started.
pub(crate) fn wait_for_snapshot(gateway: &Sheave<'_>) {
    wait_for_status(gateway, "the snapshot is written", |status| {
        !status["source"]["snapshot"]["writtenAt"].is_null()
    });
}

/// Status of one kind in the source.
pub(crate) fn kind<'v>(status: &'v Value, kind: &str) -> &'v Value {
    let kinds = status["source"]["kinds"].as_array().expect("a source has kinds");
    kinds.iter().find(|it| it["kind"] == kind).unwrap_or_else(|| panic!("no {kind}: {status}"))
}

/// Value of a series without labels, or with labels as written.
pub(crate) fn metric(sheave: &Sheave<'_>, series: &str) -> Option<f64> {
    let text = sheave.text("/metrics");
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

fn frontend(address: &Value, port: &Value) -> String {
    format!("{}:{port}", address.as_str().unwrap_or_default())
}

fn texts(list: &Value) -> BTreeSet<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn ready_endpoints(slice: &Value) -> Vec<String> {
    let port = &slice["ports"][0]["port"];
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    let ready = endpoints.filter(|it| it["conditions"]["ready"] != false);
    ready.map(|it| frontend(&it["addresses"][0], port)).collect()
}
