//! Tests of `sheave trace --fleet`: a client's packets are followed through all gateways, each on a machine of its own.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::Value;
use sheave_control::api::gateway_report::AUDIENCE;

use crate::scene::wait_until_leading;
use crate::stage::{ENDPOINTS, Home, POOL, Role, Sheave, Stage, pool, service, wait_for_addresses};
use crate::support::cluster::{Account, Cluster};
use crate::support::patience::{eventually_within, patience};
use crate::support::process::Finished;
use crate::support::road::Road;
use crate::support::tcp;

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(172, 16, 0, 9));
const WEB: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 36));
/// Port of the gateways' reports.
const REPORT: u16 = 9842;

/// Links a gateway's machine to that of the controller and the client.
fn link(hub: &Stage<'_>, number: u8, gateway: &Stage<'_>) {
    let peer = gateway.host.namespace_path();
    hub.host.ip(&[
        format!("link add gw-{number} type veth peer name eth0 netns {peer}"),
        format!("addr add 192.168.{number}.1/24 dev gw-{number}"),
        format!("link set gw-{number} up"),
    ]);
    gateway.host.ip(&[
        format!("addr add 192.168.{number}.2/24 dev eth0"),
        "link set eth0 up".to_owned(),
        format!("route add default via 192.168.{number}.1"),
    ]);
    hub.host.wait_for_carrier(&format!("gw-{number}"));
}

fn start<'s>(cluster: &Cluster, stage: &'s Stage<'_>, road: &Road<'_>, number: u8) -> Sheave<'s> {
    cluster.apply(&format!("apiVersion: v1\nkind: Node\nmetadata: {{name: gw-{number}}}\n"));
    let config = format!("report: {{listen: \"192.168.{number}.2:{REPORT}\", authorization: kubernetes}}\n");
    let kubeconfig = cluster.kubeconfig(Account::Gateway, road);
    stage.start(&stage.home_on(&format!("gw-{number}"), Role::Gateway, &kubeconfig, &config))
}

/// Tells the controller of the gateways, and of one at its own machine that nobody runs.
fn gateways_are_known(cluster: &Cluster) {
    let endpoint = |node: u8, ip: &str| {
        format!("{{addresses: [{ip}], nodeName: gw-{node}, conditions: {{ready: true}}}}")
    };
    let endpoints =
        [endpoint(1, "192.168.1.2"), endpoint(2, "192.168.2.2"), endpoint(3, "192.168.1.1")].join(", ");
    cluster.apply(&format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: gateways-traces, namespace: sheave-system, labels: \
         {{kubernetes.io/service-name: sheave-gateways}}}}\naddressType: IPv4\nports: [{{name: report, port: {REPORT}, protocol: \
         TCP}}]\nendpoints: [{endpoints}]\n"
    ));
}

/// The machine of the client and the controller, from where traces are asked for.
struct Hub<'s, 'c> {
    stage: &'s Stage<'c>,
    home: &'s Home,
    web: String,
    folder: &'s Path,
}

impl Hub<'_, '_> {
    fn trace(&self, more: &[&str]) -> Finished {
        let client = CLIENT.to_string();
        let words = [&[self.web.as_str(), "--client", &client, "--fleet"][..], more].concat();
        self.stage.command(self.home, "trace", &words)
    }

    /// Traces with a capture of this time into a file of this name, while the client opens connections.
    fn capture(&self, time: &str, name: &str) -> Finished {
        let (traced, file) = (AtomicBool::new(false), self.folder.join(name).display().to_string());
        thread::scope(|threads| {
            threads.spawn(|| {
                // Some of them may fail, and nothing tells when the capture has begun.
                while !traced.load(Ordering::Relaxed) {
                    drop(self.ask());
                }
            });
            let told = self.trace(&["--capture", time, "--pcap", &file]);
            traced.store(true, Ordering::Relaxed);
            told
        })
    }

    fn ask(&self) -> std::io::Result<tcp::Answer> {
        self.stage.host.run(|| tcp::ask_from(CLIENT, SocketAddr::new(WEB, 80)))
    }

    /// Leads the client to a gateway.
    fn leads_to(&self, number: u8) {
        self.stage.host.ip(&[format!("route replace {WEB}/32 via 192.168.{number}.2 src {CLIENT}")]);
        eventually_within(patience(30.0), "the client is served", || {
            self.ask().map(drop).map_err(|error| error.to_string())
        });
    }

    /// The file of a gateway.
    fn file(&self, name: &str) -> Vec<u8> {
        fs::read(self.folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

#[track_caller]
fn expect(told: &Finished, code: i32, parts: &[&str]) {
    let is_so = told.code() == Some(code) && parts.iter().all(|part| told.stdout.contains(part));
    assert!(is_so, "expected {code} and {parts:?}: {:?}\n{}{}", told.code(), told.stdout, told.stderr);
}

fn has(file: &[u8], text: &str) -> bool {
    file.windows(text.len()).any(|part| part == text.as_bytes())
}

#[test]
fn a_client_is_followed_through_all_gateways() {
    let cluster = Cluster::simulated("traces");
    let (hub, one, two) = (Stage::new(&cluster), Stage::new(&cluster), Stage::new(&cluster));
    let roads = [&hub, &one, &two].map(Stage::road);
    hub.host.ip(&[format!("route del local {POOL} dev lo"), format!("addr add {CLIENT}/32 dev lo")]);
    (1..).zip([&one, &two]).for_each(|(number, gateway)| link(&hub, number, gateway));
    let _gateways = (start(&cluster, &one, &roads[1], 1), start(&cluster, &two, &roads[2], 2));
    gateways_are_known(&cluster);
    let token = cluster.token(Account::Controller, AUDIENCE).display().to_string();
    let home = hub.home(Role::Controller, &roads[0], &format!("gateways: {{tokenFile: {token}}}\n"));
    let leader = hub.start(&home);
    wait_until_leading(&leader);
    pool(&cluster, "traces", &WEB.to_string());
    service(&cluster, "web", "");
    one.slice("web", &[0]);
    wait_for_addresses(&cluster, "web");
    let (first, _second) = (one.endpoints(), two.endpoints());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let web = format!("{}/web", cluster.namespace());
    let hub = Hub { stage: &hub, home: &home, web, folder: folder.path() };

    hub.leads_to(1);
    // Longer than others may wait for an answer of a gateway.
    let told = hub.capture("6s", "a.pcap");
    let elsewhere = "saw none: the client's packets do not come here";
    expect(&told, 0, &["ok: on gw-1: a connection through this gateway goes to ", elsewhere, "gw-3     -"]);
    assert!(told.stdout.contains("no connection: Connection refused"), "{}", told.stdout);
    let (taken, other) = (hub.file("a-gw-1.pcap"), hub.file("a-gw-2.pcap"));
    assert!(taken.len() > 1000 && taken.len() > other.len(), "{} {}", taken.len(), other.len());
    // The endpoint's answer has its name.
    assert!(!has(&taken, "endpoint-0"), "there are headers alone");
    assert!(told.stdout.contains(&format!("packets are in {}", hub.folder.join("a-gw-2.pcap").display())));
    // Nobody's file is written over, and the others are saved.
    fs::remove_file(hub.folder.join("a-gw-2.pcap")).expect("a file");
    let again = hub.capture("2s", "a.pcap");
    assert!(
        again.code() == Some(70) && again.stderr.contains("a-gw-1.pcap: File exists"),
        "{}",
        again.stderr
    );
    hub.file("a-gw-2.pcap");

    // The endpoint of one gateway is gone.
    drop(first);
    let refuses = format!("{}:8080, refuses connections", ENDPOINTS[0]);
    expect(&hub.trace(&[]), 1, &["doubtful: on gw-1: the only endpoint, ", &refuses]);
    expect(&hub.capture("2s", "b.pcap"), 1, &["STOPPED: on gw-1: the only endpoint, ", &refuses, elsewhere]);

    hub.leads_to(2);
    expect(&hub.capture("2s", "c.pcap"), 0, &["ok: on gw-2: a connection through this gateway goes to "]);
    let quiet = hub.trace(&["--capture", "1s", "--pcap", &hub.folder.join("d.pcap").display().to_string()]);
    let nowhere = "no packet of 172.16.0.9 came to any of 2 gateways; they may come to gw-3";
    expect(&quiet, 1, &["doubtful: on gw-1: the only endpoint, "]);
    let _first = one.endpoints();
    let quiet = hub.trace(&["--capture", "1s", "--pcap", &hub.folder.join("e.pcap").display().to_string()]);
    expect(&quiet, 1, &[nowhere, "ip neigh"]);
    expect(&hub.stage.command(hub.home, "trace", &["shop/none", "--fleet"]), 65, &["STOPPED"]);
    wrong_questions(&leader);
}

/// Questions that the page refuses, and its answer to programs.
fn wrong_questions(leader: &Sheave<'_>) {
    for (path, part) in [
        ("/api/fleet/trace?service=web", "write it as NAMESPACE/NAME"),
        ("/api/fleet/trace/46?service=shop/web", "capture for 1 to 45 seconds"),
        ("/api/fleet/capture/gw-9", "there is no gateway on node gw-9"),
        ("/api/fleet/capture/gw-3", "no connection"),
    ] {
        let text = leader.text(path);
        assert!(text.contains(part), "{path}: {text}");
    }
    let view: Value = leader.page("/api/fleet/trace?service=shop/none");
    assert_eq!(view["gateways"].as_array().map(Vec::len), Some(2), "{view}");
}
