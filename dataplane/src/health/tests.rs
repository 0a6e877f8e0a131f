//! Tests of a whole data plane with real endpoints on loopback, some of which fail.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::limits::capacity::CapacityLimits;
use crate::{Dataplane, Options, Settings, SteeringMode, Timeouts};
use sheave_model::test_util::{self, table};
use sheave_model::{
    Algorithm, Check, CheckKind, EndpointAddr, Frontend, FrontendAddr, HealthPolicy, Path, Protocol,
};

mod checked;
mod follow;
mod grpc;
mod real_traffic;
mod rows;
mod trials;

const PATIENCE: Duration = Duration::from_secs(20);
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A frontend over these endpoints.
fn frontend(protocol: Protocol, endpoints: &[EndpointAddr], check: Option<Check>) -> Frontend {
    let numbers: Vec<(u32, u16)> = (0..).zip(endpoints).map(|(number, _)| (number, 100)).collect();
    let mut frontend = test_util::frontend(1, Algorithm::RoundRobin, &numbers);
    let mut backend = test_util::backend("local", 100, &numbers);
    for (endpoint, addr) in backend.endpoints.iter_mut().zip(endpoints) {
        endpoint.addr = *addr;
    }
    frontend.addr = FrontendAddr { ip: own_address(), port: 8080, protocol };
    frontend.service.protocol = protocol;
    frontend.backends = Arc::new([backend]);
    frontend.health = Arc::new(HealthPolicy { check, ..HealthPolicy::default() });
    frontend
}

/// An address of the loopback network that no other test uses, in this process or another.
fn own_address() -> IpAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, high | 128, low, NEXT.fetch_add(1, Ordering::Relaxed)).into()
}

/// An endpoint where nothing listens.
fn refusing() -> EndpointAddr {
    EndpointAddr::new(own_address(), 8080)
}

/// An endpoint that accepts connections and keeps them open until the other side closes.
fn serving() -> EndpointAddr {
    serve(TcpListener::bind((HERE, 0)).unwrap())
}

fn serve(listener: TcpListener) -> EndpointAddr {
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                stream.write_all(b"!").ok();
                stream.read_to_end(&mut Vec::new()).ok();
            });
        }
    });
    EndpointAddr::new(addr.ip(), addr.port())
}

fn start(paths: &[&str], connect: Duration, frontend: Frontend) -> Dataplane {
    let timeouts =
        Timeouts { connect, idle: PATIENCE, udp_idle: PATIENCE, udp_unanswered: PATIENCE, drain: PATIENCE };
    let paths = paths.iter().map(|name| (*name).to_owned()).collect();
    let options = Options {
        workers: 2,
        settings: Settings {
            timeouts,
            busy_poll: Duration::ZERO,
            capacity: CapacityLimits { descriptors: 1024, connections: 512 },
            udp_flows: 16,
        },
        listening_sockets: 16,
        steering: SteeringMode::Never,
        paths,
        connection_log: crate::ConnectionLog::new().0,
        kernel_path: crate::KernelPathOptions::default(),
        held: false,
    };
    let mut dataplane = Dataplane::start(options).unwrap();
    dataplane.apply(table([frontend]));
    assert_eq!(dataplane.failures().count(), 0);
    dataplane
}

/// Applies health changes until `count` endpoints are unhealthy.
async fn until_unhealthy(dataplane: &mut Dataplane, count: usize) {
    let follow = async {
        while dataplane.unhealthy().count() != count {
            dataplane.changed().await;
            dataplane.refresh();
        }
    };
    timeout(PATIENCE, follow).await.expect("nothing is noticed");
}

/// Applies health changes until `what` completes.
async fn following<T>(dataplane: &mut Dataplane, what: impl Future<Output = T>) -> T {
    let follow = async {
        loop {
            dataplane.changed().await;
            dataplane.refresh();
        }
    };
    tokio::select! {
        () = follow => unreachable!(),
        done = timeout(PATIENCE, what) => done.expect("it takes too long"),
    }
}

/// Whether a client of the frontend reaches an endpoint.
async fn is_served(addr: FrontendAddr) -> bool {
    // The reset may arrive before connect returns.
    let Ok(mut stream) = TcpStream::connect(SocketAddr::new(addr.ip, addr.port)).await else { return false };
    matches!(stream.read(&mut [0]).await, Ok(1))
}

fn retries(dataplane: &Dataplane, addr: FrontendAddr) -> u64 {
    dataplane.counters(addr).iter().filter_map(|worker| Some(worker.tcp()?.connect_retries.get())).sum()
}
