//! `sheave top` on a terminal with a gateway of many Services: its processor time in each view.

use std::fmt::Write as _;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::objects;
use crate::options::Sizes;
use crate::process::Sheave;
use crate::report::Row;
use crate::support::patience::let_pass;
use crate::support::process::Process;
use crate::support::terminal::Terminal;

/// Views, with the keys that select them.
const VIEWS: [(&str, &str); 4] = [("services", "1"), ("endpoints", "2"), ("clusters", "3"), ("clients", "4")];
/// Columns and lines of a window on a large screen.
const WINDOW: (u16, u16) = (200, 60);
/// Time for a view to be filled for the first time.
const FILLED: Duration = Duration::from_secs(3);
/// Interval of connections: about 400 per second, distributed over all Services.
const SPACING: Duration = Duration::from_micros(2_500);
/// Port of all frontends.
const PORT: u16 = 8080;

/// Observes each view at rest, and then with traffic.
pub(super) fn run(sizes: &Sizes) -> Vec<Row> {
    let services = sizes.services;
    let endpoint = answer();
    let mut gateway = Sheave::start_on_manifest(&manifest(services, endpoint));
    gateway.ready();
    gateway.rest();
    let watched = sizes.idle / 3;
    let mut rows = watch(&format!("top of {services} Services, idle"), &gateway, watched, sizes.full);
    let clients = Clients::start(services);
    rows.extend(watch(&format!("top of {services} Services, busy"), &gateway, watched, sizes.full));
    let connections = clients.stop();
    if let Some(row) = rows.pop() {
        rows.push(row.note(format!("{connections} connections in all")));
    }
    rows
}

fn watch(case: &str, gateway: &Sheave, watched: Duration, full: bool) -> Vec<Row> {
    let admin = format!("http://{}", gateway.admin());
    let mut top = Terminal::open(WINDOW, |line| {
        // `setsid` executes the program, which keeps its process ID.
        let mut command = Command::new("setsid");
        command.args(["--ctty", env!("CARGO_BIN_EXE_sheave"), "top", "--admin", &admin]);
        command.env("TERM", "xterm-256color");
        Process::start_on_terminal("sheave top".to_owned(), command, line)
    });
    let mut rows: Vec<Row> = VIEWS
        .into_iter()
        .map(|(view, key)| {
            top.press(key);
            let_pass(FILLED);
            let (before, drawn) = (top.usage(), top.drawn());
            let_pass(watched);
            let cpu = top.usage().cpu.saturating_sub(before.cpu).as_secs_f64() / watched.as_secs_f64();
            let drawn = (top.drawn() - drawn) as f64 / 1e3 / watched.as_secs_f64();
            Row::new(case, &format!("{view}, CPU"), cpu * 100.0, "%")
                .at_most(1.0, full)
                .note(format!("draws {drawn:.1} kB/s"))
        })
        .collect();
    assert!(top.drawn() > 0, "nothing was drawn");
    rows.push(Row::new(case, "top, RSS", top.usage().resident_mib(), "MiB"));
    rows
}

/// Manifest of Services on loopback addresses, which need no network of their own. All have one endpoint.
fn manifest(services: u32, endpoint: SocketAddrV4) -> String {
    let mut text = String::new();
    for number in 0..services {
        let (name, address) = (objects::name(number), frontend(number));
        writeln!(
            text,
            "---
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: default}}
spec:
  type: LoadBalancer
  loadBalancerClass: sheave.dev/l4
  ports: [{{name: http, port: {PORT}, protocol: TCP}}]
status:
  loadBalancer: {{ingress: [{{ip: {address}}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}-1, namespace: default, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: IPv4
endpoints: [{{addresses: [{ip}], conditions: {{ready: true}}}}]
ports: [{{name: http, port: {port}, protocol: TCP}}]",
            ip = endpoint.ip(),
            port = endpoint.port(),
        )
        .expect("a String takes everything");
    }
    text
}

fn frontend(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x7f40_0000 + number)
}

/// Client address in one of 4,096 networks (/24), which are more than `top` has rows for.
fn client(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x7f80_0001 + (number % 4_096) * 256)
}

/// Starts an endpoint that sends a byte to each client, and ends with the process.
fn answer() -> SocketAddrV4 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = listener.local_addr().expect("a bound socket has an address").port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            // The client may have gone.
            drop(stream.and_then(|mut stream| stream.write_all(b".")));
        }
    });
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
}

/// Thread that connects to one Service after the other, until it is stopped.
struct Clients {
    over: Arc<AtomicBool>,
    visits: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Clients {
    fn start(services: u32) -> Self {
        let (over, visits) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (stop, count) = (Arc::clone(&over), Arc::clone(&visits));
        let thread = thread::spawn(move || {
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                // Far from the last one, since a table is sorted by address.
                number = (number + 7_919) % services;
                if visit(client(number), frontend(number)).is_ok() {
                    count.fetch_add(1, Ordering::Relaxed);
                }
                let_pass(SPACING);
            }
        });
        Self { over, visits, thread }
    }

    fn stop(self) -> u64 {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().expect("clients do not panic");
        let visits = self.visits.load(Ordering::Relaxed);
        assert!(visits > 0, "no client was served");
        visits
    }
}

/// Makes one connection, from the first to the last byte. A frontend beyond the limit of open files refuses
/// it.
fn visit(from: Ipv4Addr, to: Ipv4Addr) -> io::Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddrV4::new(from, 0).into())?;
    socket.connect(&SocketAddrV4::new(to, PORT).into())?;
    TcpStream::from(socket).read_exact(&mut [0])
}
