//! Tests of traffic watches over clients and endpoints: what is open, and the traffic since the watch began.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::thread;

use sheave_model::{EndpointAddr, Protocol};
use socket2::{Domain, Socket, Type};

use super::*;
use crate::worker::Command;
use crate::{ClientCounts, TrafficWatch};

const PATIENCE: Duration = Duration::from_secs(20);

/// An echo server.
fn echoing(protocol: Protocol, ip: IpAddr) -> SocketAddr {
    match protocol {
        Protocol::Tcp => {
            let server = TcpListener::bind((ip, 0)).unwrap();
            let addr = server.local_addr().unwrap();
            thread::spawn(move || {
                server.incoming().for_each(|stream| drop(thread::spawn(|| echo(&stream.unwrap()))));
            });
            addr
        }
        Protocol::Udp => {
            let server = UdpSocket::bind((ip, 0)).unwrap();
            let addr = server.local_addr().unwrap();
            thread::spawn(move || {
                let mut buffer = [0; 2048];
                while let Ok((length, from)) = server.recv_from(&mut buffer) {
                    server.send_to(&buffer[..length], from).unwrap();
                }
            });
            addr
        }
    }
}

fn echo(mut stream: &TcpStream) {
    let mut buffer = [0; 2048];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..length]).is_err() {
            return;
        }
    }
}

/// Two workers in front of an echo server.
fn serving(protocol: Protocol, ip: IpAddr) -> (Dataplane, FrontendAddr) {
    serving_with(2, protocol, ip)
}

fn serving_with(workers: usize, protocol: Protocol, ip: IpAddr) -> (Dataplane, FrontendAddr) {
    let serves = echoing(protocol, ip);
    let mut dataplane = dataplane_of(workers, 100);
    let mut frontend = frontend(1, Algorithm::Random, &[(1, 100)]);
    let mut backend = frontend.backends[0].clone();
    backend.endpoints[0].addr = EndpointAddr::new(serves.ip(), serves.port());
    frontend.backends = Arc::new([backend]);
    let kind = if protocol == Protocol::Tcp { Type::STREAM } else { Type::DGRAM };
    frontend.addr = FrontendAddr { ip, port: free_address(ip, kind).port(), protocol };
    let addr = frontend.addr;
    dataplane.apply(table([frontend]));
    assert_eq!(dataplane.failures().count(), 0);
    (dataplane, addr)
}

struct Client(Socket);

impl Client {
    fn open(from: IpAddr, to: FrontendAddr) -> Self {
        let kind = if to.protocol == Protocol::Tcp { Type::STREAM } else { Type::DGRAM };
        let socket = Socket::new(Domain::for_address(to.socket_addr()), kind, None).unwrap();
        socket.bind(&SocketAddr::new(from, 0).into()).unwrap();
        socket.connect(&to.socket_addr().into()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(socket)
    }

    fn exchange(&self, bytes: usize) {
        (&self.0).write_all(&vec![7; bytes]).unwrap();
        (&self.0).read_exact(&mut vec![0; bytes]).unwrap();
    }
}

/// Traffic of each network since the last call, and what it has open.
fn count(watch: &mut TrafficWatch) -> BTreeMap<String, ClientCounts> {
    let traffic = watch.count(PATIENCE).expect("the workers answer");
    let mut clients = BTreeMap::<String, ClientCounts>::new();
    for (client, _, counts) in traffic.iter() {
        *clients.entry(client.to_string()).or_default() += counts;
    }
    clients
}

fn counts(open: u64, opened: u64, bytes: u64) -> ClientCounts {
    ClientCounts { open, opened, client_bytes: bytes, endpoint_bytes: bytes }
}

fn endpoint_bytes(dataplane: &Dataplane, addr: FrontendAddr) -> (u64, u64) {
    let table = dataplane.table();
    let (_, load) = table.get(addr).unwrap().loads().next().unwrap();
    (load.client_bytes(), load.endpoint_bytes())
}

fn what_was_before_is_not_counted(protocol: Protocol, ip: IpAddr, prefix: &str) {
    let (dataplane, to) = serving(protocol, ip);
    let expect = |watch: &mut TrafficWatch, expected: ClientCounts| {
        assert_eq!(count(watch), BTreeMap::from([(prefix.to_owned(), expected)]));
    };
    let client = Client::open(ip, to);
    client.exchange(10);
    let mut watch = dataplane.observer().watch_traffic();
    expect(&mut watch, counts(1, 0, 0));
    client.exchange(7);
    let other = Client::open(ip, to);
    other.exchange(2);
    expect(&mut watch, counts(2, 1, 9));
    expect(&mut watch, counts(2, 0, 0));
    assert_eq!(endpoint_bytes(&dataplane, to), (9, 9));
    drop(watch);
    client.exchange(5);
    let mut watch = dataplane.observer().watch_traffic();
    expect(&mut watch, counts(2, 0, 0));
    client.exchange(3);
    expect(&mut watch, counts(2, 0, 3));
    assert_eq!(endpoint_bytes(&dataplane, to), (12, 12));
}

#[test]
fn tcp_over_ipv4() {
    what_was_before_is_not_counted(Protocol::Tcp, Ipv4Addr::LOCALHOST.into(), "127.0.0.0/24");
}

#[test]
fn tcp_over_ipv6() {
    what_was_before_is_not_counted(Protocol::Tcp, Ipv6Addr::LOCALHOST.into(), "::/56");
}

#[test]
fn udp_over_ipv4() {
    what_was_before_is_not_counted(Protocol::Udp, Ipv4Addr::LOCALHOST.into(), "127.0.0.0/24");
}

#[test]
fn udp_over_ipv6() {
    what_was_before_is_not_counted(Protocol::Udp, Ipv6Addr::LOCALHOST.into(), "::/56");
}

#[test]
fn what_ends_between_two_counts_is_counted_once() {
    let (dataplane, to) = serving(Protocol::Tcp, Ipv4Addr::LOCALHOST.into());
    let mut watch = dataplane.observer().watch_traffic();
    assert_eq!(count(&mut watch), BTreeMap::new());
    let mut together = BTreeMap::<String, ClientCounts>::new();
    let mut add = |watch: &mut TrafficWatch| {
        for (client, counts) in count(watch) {
            let sum = together.entry(client).or_default();
            sum.open = 0;
            *sum += counts;
        }
        together.clone()
    };
    for number in 0..20 {
        let client = Client::open([127, 0, 1 + number % 2, 9].into(), to);
        client.exchange(100);
        if number % 5 == 0 {
            add(&mut watch);
        }
    }
    let expected = |open: [u64; 2]| {
        let sums = open.map(|open| counts(open, 10, 1000));
        BTreeMap::from([("127.0.1.0/24".to_owned(), sums[0]), ("127.0.2.0/24".to_owned(), sums[1])])
    };
    let started = Instant::now();
    loop {
        let together = add(&mut watch);
        assert!(together.values().all(|sum| sum.opened <= 10 && sum.bytes() <= 2000), "{together:?}");
        let open = || together.values().map(|sum| sum.open).collect::<Vec<_>>();
        if together.len() == 2 && together == expected([open()[0], open()[1]]) {
            break;
        }
        assert!(started.elapsed() < PATIENCE, "{together:?}");
    }
    assert_eq!(endpoint_bytes(&dataplane, to), (2000, 2000));
}

#[test]
fn more_than_one_turn_can_walk_over_are_all_counted() {
    // Each client uses four descriptors of this process.
    crate::sys::raise_open_files();
    let (dataplane, to) = serving_with(1, Protocol::Tcp, Ipv4Addr::LOCALHOST.into());
    // One after the other, so that none waits in the server's queue.
    let open = |_| {
        let client = Client::open(Ipv4Addr::LOCALHOST.into(), to);
        client.exchange(1);
        client
    };
    let clients: Vec<Client> = (0..1500).map(open).collect();
    let mut watch = dataplane.observer().watch_traffic();
    assert_eq!(count(&mut watch)["127.0.0.0/24"], counts(1500, 0, 0));
    clients.iter().for_each(|client| client.exchange(1));
    assert_eq!(count(&mut watch)["127.0.0.0/24"], counts(1500, 0, 1500));
}

#[test]
fn a_worker_that_is_started_again_is_counted_again() {
    let (mut dataplane, to) = serving(Protocol::Tcp, Ipv4Addr::LOCALHOST.into());
    let mut watch = dataplane.observer().watch_traffic();
    for worker in [0, 1] {
        dataplane.workers[worker].send(Command::Panic);
    }
    let started = Instant::now();
    while dataplane.worker_restarts() < 2 {
        dataplane.retry();
        assert!(started.elapsed() < PATIENCE);
    }
    let client = Client::open(Ipv4Addr::LOCALHOST.into(), to);
    client.exchange(1);
    assert_eq!(count(&mut watch)["127.0.0.0/24"].open, 1);
    client.exchange(4);
    assert_eq!(count(&mut watch)["127.0.0.0/24"], counts(1, 0, 4));
}

#[test]
fn workers_that_do_not_answer_are_waited_for_in_the_next_count() {
    let mut dataplane = dataplane_of(2, 100);
    dataplane.workers[1].send(Command::Panic);
    let started = Instant::now();
    while dataplane.runs() {
        assert!(started.elapsed() < PATIENCE);
    }
    let mut watch = dataplane.observer().watch_traffic();
    assert!(watch.count(Duration::from_millis(1)).is_none());
    while dataplane.worker_restarts() < 1 {
        dataplane.retry();
        assert!(started.elapsed() < PATIENCE);
    }
    assert!(watch.count(PATIENCE).is_some());
}
