//! A controller with very many gateways that report to it: its writes when they appear, fail, flap and recover.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use crate::objects;
use crate::options::Sizes;
use crate::process::Sheave;
use crate::report::Row;
use crate::support::apiserver::ApiServer;
use crate::support::patience::{eventually_within, let_pass, patience};

use super::controller::{is_published, writes};

/// Number of Services of each gateway.
const SERVICES: u32 = 10;
/// Number of gateways in a slice.
const SLICE: u32 = 100;
/// Interval of new slices, and of flapping ones.
const SPACING: Duration = Duration::from_secs(2);
/// Two rounds of queries, and the longest delay of a condition whose message changes.
const SETTLED: Duration = Duration::from_secs(25);
/// Limit of writes for each Service: one for a changed condition, and one every 10 s for a changed message.
const FEW: f64 = 6.0;

/// Runs the case.
pub(super) fn run(sizes: &Sizes) -> Vec<Row> {
    let gateways = sizes.gateways;
    let case = format!("{gateways} gateways, {SERVICES} Services");
    let server = super::cluster(SERVICES, 2, false);
    let reporters = Reporters::start(gateways);
    let slices = gateways / SLICE;
    reporters.show(&server, 0, |_| true);
    let mut controller = Sheave::start("controller", &server);
    controller.ready();
    eventually_within(patience(30.0), "all Services are published", || {
        if server.objects("services").iter().all(is_published) { Ok(()) } else { Err("some are not") }
    });
    let_pass(SETTLED);
    let mut rows = Vec::new();
    let mut row = |what: &str, act: &dyn Fn()| {
        server.forget_requests();
        let cpu = controller.usage().cpu;
        act();
        let_pass(SETTLED);
        let (writes, events) = writes(&server);
        let cpu = controller.usage().cpu.saturating_sub(cpu).as_secs_f64();
        let figure = Row::new(&case, what, writes as f64 / f64::from(SERVICES), "")
            .at_most(FEW, true)
            .note(format!("writes per Service; {events} Events beside, {cpu:.2} s CPU"));
        rows.push(figure);
    };
    row("they come, a slice at a time", &|| {
        for slice in 1..slices {
            reporters.show(&server, slice, |_| true);
            let_pass(SPACING);
        }
    });
    row("they meet trouble, one by one", &|| {
        for gateway in 0..gateways {
            reporters.trouble(gateway, Some("address already in use"));
            let_pass(SPACING * 10 / gateways);
        }
    });
    row("half of them say it otherwise", &|| {
        for gateway in (0..gateways).step_by(2) {
            reporters.trouble(gateway, Some("permission denied"));
        }
    });
    row("a tenth is ready and not, in turn", &|| {
        for turn in 0..10 {
            reporters.show(&server, slices - 1, |_| turn % 2 == 1);
            let_pass(SPACING);
        }
    });
    row("they recover, one by one", &|| {
        for gateway in 0..gateways {
            reporters.trouble(gateway, None);
            let_pass(SPACING * 10 / gateways);
        }
    });
    rows
}

/// Server that answers for all gateways: each has an address of the loopback network, and all have the same port.
struct Reporters {
    port: u16,
    reports: Arc<Mutex<Vec<Value>>>,
}

/// Address of a gateway.
fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x7f10_0000 + number)
}

fn node(number: u32) -> String {
    format!("gateway-{number:04}")
}

impl Reporters {
    fn start(gateways: u32) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a free port");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let well = |number| json!({"node": node(number), "generation": 1});
        let reports = Arc::new(Mutex::new((0..gateways).map(well).collect::<Vec<_>>()));
        let shared = Arc::clone(&reports);
        // It ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let Ok(IpAddr::V4(own)) = stream.local_addr().map(|address| address.ip()) else { continue };
                let number = u32::from(own).wrapping_sub(u32::from(address(0))) as usize;
                let reports = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let body = reports.get(number).map(Value::to_string).unwrap_or_default();
                drop(reports);
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
                if stream.read(&mut [0; 4096]).is_ok() {
                    drop(stream.write_all((head + &body).as_bytes()));
                }
            }
        });
        Self { port, reports }
    }

    /// Sets what a gateway reports about each Service.
    fn trouble(&self, gateway: u32, why: Option<&str>) {
        let trouble = |service: u32, why: &str| {
            let address = objects::address(service);
            json!({"kind": "Service", "namespace": objects::NAMESPACE, "name": objects::name(service),
                "reason": "BindFailed", "message": format!("cannot listen on {address}:8080: {why}"),
                "frontend": {"address": address, "port": 8080, "protocol": "TCP"}})
        };
        let troubles: Vec<Value> =
            why.into_iter().flat_map(|why| (0..SERVICES).map(move |it| trouble(it, why))).collect();
        let report = json!({"node": node(gateway), "generation": 2, "troubles": troubles});
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)[gateway as usize] = report;
    }

    /// Stores the slice with this number.
    fn show(&self, server: &ApiServer, slice: u32, ready: impl Fn(u32) -> bool) {
        let first = slice * SLICE;
        let endpoints = (first..first + SLICE).map(|number| {
            json!({"addresses": [address(number)], "nodeName": node(number),
                "conditions": {"ready": ready(number), "serving": ready(number), "terminating": false}})
        });
        server.load([json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": format!("sheave-gateways-{slice}"), "namespace": "sheave-system",
                "labels": {"kubernetes.io/service-name": "sheave-gateways"}},
            "addressType": "IPv4", "ports": [{"name": "report", "port": self.port, "protocol": "TCP"}],
            "endpoints": endpoints.collect::<Vec<_>>()})]);
    }
}
