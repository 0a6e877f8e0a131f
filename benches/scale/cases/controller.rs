//! A controller with Services that are not published yet; then both roles at rest.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::objects;
use crate::options::Sizes;
use crate::process::Sheave;
use crate::report::Row;
use crate::support::apiserver::ApiServer;
use crate::support::patience::{eventually_within, let_pass, patience};

use super::{ENDPOINTS, cluster};

/// Response time of an API server that writes to a disk.
const DISK: Duration = Duration::from_millis(10);

/// Publishes everything, then idles; before that, with a slower server.
pub(super) fn run(sizes: &Sizes) -> Vec<Row> {
    let services = sizes.services;
    let case = format!("{services} Services pending");
    let server = cluster(services, ENDPOINTS, false);
    server.faults().delay(Some(DISK));
    let (controller, slow) = publish(&server, services);
    drop((controller, server));
    let server = cluster(services, ENDPOINTS, false);
    let (controller, took) = publish(&server, services);
    controller.rest();
    let usage = controller.usage();
    let (writes, events) = writes(&server);
    let row = |what: &str, value: f64, unit| Row::new(&case, what, value, unit);
    let mut rows = vec![
        row("start to all published", took.as_secs_f64(), "s").at_most(20.0, sizes.full),
        row("each answer 10 ms later", slow.as_secs_f64(), "s").at_most(20.0, sizes.full),
        row("writes per Service", writes as f64 / f64::from(services), "")
            .note(format!("finalizer and status; {events} Events beside")),
        row("controller, CPU", usage.cpu.as_secs_f64(), "s"),
        row("controller, peak RSS", usage.peak_mib(), "MiB"),
        row("controller, settled RSS", usage.resident_mib(), "MiB"),
    ];
    let mut gateway = Sheave::start("gateway", &server);
    gateway.ready();
    gateway.rest();
    controller.rest();
    rows.extend(idle(sizes, &server, &controller, &gateway));
    rows
}

/// Starts a controller, and returns the time until all Services are published.
fn publish(server: &ApiServer, services: u32) -> (Sheave, Duration) {
    let started = Instant::now();
    let mut controller = Sheave::start("controller", server);
    controller.ready();
    // Only the last Service is polled, since polling all of them takes half a core.
    let last = objects::name(services - 1);
    eventually_within(patience(180.0), "the last Service is published", || {
        let service = server.object("services", Some(objects::NAMESPACE), &last);
        if service.as_ref().is_some_and(is_published) { Ok(()) } else { Err("it is not") }
    });
    eventually_within(patience(180.0), "all Services are published", || {
        let_pass(Duration::from_millis(250));
        let left = server.objects("services").iter().filter(|service| !is_published(service)).count();
        if left == 0 { Ok(()) } else { Err(format!("{left} are not")) }
    });
    (controller, started.elapsed())
}

fn idle(sizes: &Sizes, server: &ApiServer, controller: &Sheave, gateway: &Sheave) -> Vec<Row> {
    let case = format!("{} Services, idle", sizes.services);
    let before = [controller.usage().cpu, gateway.usage().cpu];
    server.forget_requests();
    let_pass(sizes.idle);
    let (writes, events) = writes(server);
    let seconds = sizes.idle.as_secs_f64();
    let cpu = |sheave: &Sheave, before: Duration| {
        sheave.usage().cpu.saturating_sub(before).as_secs_f64() / seconds * 100.0
    };
    let row = |what: &str, value: f64, unit| Row::new(&case, what, value, unit);
    vec![
        row("writes per minute", (writes + events) as f64 * 60.0 / seconds, "")
            .at_most(0.0, true)
            .note("beside the Lease"),
        row("controller, CPU", cpu(controller, before[0]), "%"),
        row("gateway, CPU", cpu(gateway, before[1]), "%"),
        row("gateway, settled RSS", gateway.usage().resident_mib(), "MiB"),
    ]
}

/// Number of writes to objects, and of Events, without Leases.
pub(super) fn writes(server: &ApiServer) -> (usize, usize) {
    let writes = server.writes();
    let count = |kind: &str| writes.iter().filter(|write| write.resource == kind).count();
    (writes.len() - count("leases") - count("events"), count("events"))
}

pub(super) fn is_published(service: &Value) -> bool {
    service["status"]["loadBalancer"]["ingress"].as_array().is_some_and(|ingress| !ingress.is_empty())
        && service["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty())
}
