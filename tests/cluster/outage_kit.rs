//! What cases about gateways and outages share: Services that have their addresses without a controller, what a gateway
//! says that it serves, and what it should serve by the API server. It knows no case.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde_json::{Value, json};

use crate::stage::{Sheave, Stage, published, service};
use crate::support::cluster::Cluster;
use crate::support::load::Load;
use crate::support::patience::{eventually_within, patience};
use crate::support::tcp;

/// Who stands in for a controller.
const SOMEONE: &str = "someone";

/// How long a gateway may take to hear of a change after its watches were refused: pauses double up to half a minute.
pub(crate) const RECOVERY: f64 = 45.0;

/// Endpoints by frontend: `203.0.113.10:80`, and `10.1.0.7:8080` of those that new connections may go to.
pub(crate) type Served = BTreeMap<String, BTreeSet<String>>;

/// An address of [`crate::stage::POOL`].
pub(crate) fn address(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(203, 0, 113, last))
}

/// A Service whose status has this address already, as a controller leaves it.
pub(crate) fn published_service(cluster: &Cluster, name: &str, address: IpAddr) {
    service(cluster, name, "");
    publish(cluster, name, address);
}

/// Puts the address, and no other, into the Service's status.
pub(crate) fn publish(cluster: &Cluster, name: &str, address: IpAddr) {
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": address, "ipMode": "Proxy"}]}}});
    cluster.merge_status("Service", name, SOMEONE, &status).expect("a Service takes a status");
}

/// Changes an object as someone else than Sheave.
pub(crate) fn change(cluster: &Cluster, kind: &str, name: &str, patch: &Value) {
    cluster.merge(kind, name, SOMEONE, patch).unwrap_or_else(|error| panic!("{kind} {name}: {error:?}"));
}

/// What the gateway serves of the case's namespace.
pub(crate) fn served(gateway: &Sheave<'_>, cluster: &Cluster) -> Served {
    let routes = gateway.page("/api/routes");
    let ours = format!("{}/", cluster.namespace());
    let frontends = routes["frontends"].as_array().cloned().unwrap_or_default();
    let frontends =
        frontends.iter().filter(|it| it["service"].as_str().is_some_and(|it| it.starts_with(&ours)));
    frontends.map(|it| (frontend(&it["address"], &it["port"]), texts(&it["external"]["endpoints"]))).collect()
}

/// What it should serve, by what the API server has now.
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

/// Clients that ask all the time behind port 80 of these addresses, one after another.
pub(crate) fn load(stage: &Stage<'_>, addresses: Vec<IpAddr>) -> Load {
    const CLIENTS: usize = 2;
    Load::start(&stage.host, CLIENTS, move |_| {
        let address = addresses[fastrand::usize(..addresses.len())];
        tcp::ask(SocketAddr::new(address, 80)).map(drop)
    })
}

/// Waits until `/api/status` is as `probe` wants it, and answers it.
pub(crate) fn wait_for_status(sheave: &Sheave<'_>, what: &str, probe: impl Fn(&Value) -> bool) -> Value {
    eventually_within(patience(RECOVERY), what, || {
        let status = sheave.page("/api/status");
        if probe(&status) { Ok(status) } else { Err(status.to_string()) }
    })
}

/// Waits until the gateway has a snapshot on the disk: of everything, if it knew everything when it was started.
pub(crate) fn wait_for_snapshot(gateway: &Sheave<'_>) {
    wait_for_status(gateway, "the snapshot is written", |status| {
        !status["source"]["snapshot"]["writtenAt"].is_null()
    });
}

/// What the source says of one kind.
pub(crate) fn kind<'v>(status: &'v Value, kind: &str) -> &'v Value {
    let kinds = status["source"]["kinds"].as_array().expect("a source has kinds");
    kinds.iter().find(|it| it["kind"] == kind).unwrap_or_else(|| panic!("no {kind}: {status}"))
}

/// The value of a series without labels, or with them as written.
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
