//! Manifests for Sheave: the Service that every row uses, and those of the scenes.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use sheave_test_support::host::Host;
use sheave_test_support::load::Load;
use sheave_test_support::patience::let_pass;

use super::configure::save;
use super::{CLOSED_BY_CLIENTS, REMOVED, Task, WITH_AFFINITY, address};
use crate::entrant::{Entrant, Scene};
use crate::failure::{During, Failure};
use crate::ports::{DATAGRAM, MANY, ONCE, TCP, UDP};
use crate::topology::{SERVER, endpoint, frontend};

/// Interval of edits: just longer than the pause after which an edit counts as complete (50 ms), so that each edit
/// gives a table.
const EDIT_EVERY: Duration = Duration::from_millis(55);

/// Number of other Services on pages and in scrapes: about as many frontends as have series by default.
const SHOWN_SERVICES: u32 = 1_000;

/// Writes the folder of manifests for `task` into `dir` and answers where it is.
pub(super) fn write(task: Task, dir: &Path) -> Result<String, Failure> {
    let scene = task.entrant.scene;
    let folder = dir.join("manifests");
    fs::create_dir_all(&folder).during("make a folder for manifests")?;
    save(&folder, "bench.yaml", &bench(task.entrant))?;
    match scene {
        Scene::Usual | Scene::Local => {}
        Scene::Services(count) => save_many(&folder, count)?,
        Scene::Watched(_) => save_many(&folder, SHOWN_SERVICES)?,
        Scene::Records(_) => {
            let text = small("affine", (WITH_AFFINITY, ONCE), &[SERVER], "  sessionAffinity: ClientIP\n");
            save(&folder, "affine.yaml", &text)?;
        }
        Scene::Swapping => edit(dir, 1)?,
        Scene::Flows(_) => {
            let text = small("removed", (REMOVED, DATAGRAM), &[SERVER], "");
            save(&folder, "removed.yaml", &text.replace("protocol: TCP", "protocol: UDP"))?;
        }
        Scene::DefaultPorts | Scene::ReusedPorts => {
            let endpoints: Vec<_> = (0..task.endpoints).map(endpoint).collect();
            save(&folder, "many.yaml", &small("many", (CLOSED_BY_CLIENTS, MANY), &endpoints, ""))?;
        }
    }
    Ok(folder.display().to_string())
}

fn save_many(folder: &Path, count: u32) -> Result<(), Failure> {
    let service = |number| small(&format!("s{number}"), (frontend(number), ONCE), &[SERVER], "");
    save(folder, "services.yaml", &(0..count).map(service).collect::<String>()).map(drop)
}

/// Starts to edit a manifest repeatedly, in `dir`, the folder of the manifests.
pub(crate) fn keep_editing(gateway: &Host, dir: &Path) -> Load {
    let (dir, number) = (dir.to_owned(), AtomicU8::new(0));
    Load::start_restless(gateway, 1, move |_| {
        let_pass(EDIT_EVERY);
        edit(&dir, number.fetch_add(1, Ordering::Relaxed))
    })
}

/// Changes the endpoint of a Service without load. Replaces the whole file atomically.
fn edit(dir: &Path, number: u8) -> Result<(), Failure> {
    let endpoint = Ipv4Addr::new(10, 2, 0, 10 + number % 2);
    let draft = save(dir, "edited.draft", &small("edited", (frontend(0), ONCE), &[endpoint], ""))?;
    let file = dir.join("manifests/edited.yaml");
    fs::rename(&draft, &file).during(format!("put {} in place", file.display()))
}

/// Deletes the Service with UDP flows, which was written to `dir`.
pub(crate) fn remove_udp(dir: &Path) -> Result<(), Failure> {
    let file = dir.join("manifests/removed.yaml");
    fs::remove_file(&file).during(format!("delete {}", file.display()))
}

/// A Service with one TCP port.
fn small(name: &str, (address, port): (Ipv4Addr, u16), endpoints: &[Ipv4Addr], spec: &str) -> String {
    let endpoint = |endpoint| format!("{{addresses: [{endpoint}], conditions: {{ready: true}}}}");
    let endpoints = endpoints.iter().map(endpoint).collect::<Vec<_>>().join(", ");
    format!(
        "---
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: default}}
spec:
  type: LoadBalancer
  loadBalancerClass: sheave.dev/l4
{spec}  ports: [{{name: p, port: {port}, protocol: TCP}}]
status:
  loadBalancer: {{ingress: [{{ip: {address}}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}-1, namespace: default, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: IPv4
endpoints: [{endpoints}]
ports: [{{name: p, port: {port}, protocol: TCP}}]
"
    )
}

fn bench(entrant: Entrant) -> String {
    let policy = if entrant.scene == Scene::Local { "  externalTrafficPolicy: Local\n" } else { "" };

    let ports = |indent| {
        let mut text = String::new();
        for (ports, protocol) in [(&TCP[..], "TCP"), (&UDP[..], "UDP")] {
            for port in ports {
                text.push_str(&format!("{indent}- {{name: p{port}, port: {port}, protocol: {protocol}}}\n"));
            }
        }
        text
    };
    let (service_ports, slice_ports) = (ports("  "), ports(""));
    let address = address(entrant.subject);
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: bench, namespace: default}}
spec:
  type: LoadBalancer
  loadBalancerClass: sheave.dev/l4
{policy}  ports:
{service_ports}status:
  loadBalancer: {{ingress: [{{ip: {address}}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: bench-1, namespace: default, labels: {{kubernetes.io/service-name: bench}}}}
addressType: IPv4
endpoints:
- {{addresses: [{SERVER}], conditions: {{ready: true}}, nodeName: gateway}}
ports:
{slice_ports}"
    )
}
