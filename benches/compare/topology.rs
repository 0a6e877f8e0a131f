//! Three hosts on one machine: client, gateway and server, each a network namespace that lives as long as its thread.
//!
//! The ID of its thread identifies a namespace. No namespace has a global name, so the kernel removes all of them however
//! the process ends. Independent of what is measured.

use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use nix::sched::{CloneFlags, CpuSet, sched_setaffinity, unshare};
use nix::unistd::{Pid, gettid};

use crate::failure::{During, Failure};

/// Address of the server, which the client reaches through the gateway.
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 2);

/// `10.66.0.0/16`, the server's as a whole: as many endpoints.
pub(crate) fn endpoint(number: u16) -> Ipv4Addr {
    Ipv4Addr::from(0x0A42_0000 + u32::from(number))
}

/// Address of a frontend in `198.18.0.0/15`, which is local to the gateway as a whole (RFC 2544 reserves the block for
/// benchmarks).
pub(crate) fn frontend(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(0xC612_0000 + number % (1 << 17))
}

/// Address of a client in `10.64.0.0/15`, which is local to the client host as a whole.
pub(crate) fn client(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0A40_0000 + number % (1 << 17))
}

/// Main address of the client.
pub(crate) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
const GATEWAY_TO_CLIENT: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
const GATEWAY_TO_SERVER: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 1);

/// The same on every host: limits, so that none of the subjects meets the kernel's small defaults, and a congestion control
/// that leaves the pace to the receivers. It is the one that the kernel lets every namespace choose; what is inherited may
/// be one that paces by timers (bbr), which over links without loss or delay halves every rate and doubles its cost.
const SYSCTLS: [(&str, &str); 4] = [
    ("net/ipv4/tcp_congestion_control", "reno"),
    ("net/core/somaxconn", "65535"),
    ("net/ipv4/tcp_max_syn_backlog", "65535"),
    // Without an offset for each pair of addresses: behind rules that translate, the server sees a port again that it
    // remembers from the routed path, and takes a timestamp with another offset for an old duplicate (RFC 7323, 5.2).
    ("net/ipv4/tcp_timestamps", "2"),
];

/// Local ports that no load exhausts.
const PLENTIFUL_PORTS: [(&str, &str); 2] =
    [("net/ipv4/ip_local_port_range", "10000 65000"), ("net/ipv4/tcp_tw_reuse", "1")];

/// Which local ports the gateway has towards each endpoint. The other hosts stand for many, and have plenty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LocalPorts {
    /// Like the other hosts.
    #[default]
    Plentiful,
    /// Default of a namespace: 28,232 ports, each of them for a minute in TIME_WAIT where the gateway closed first.
    Default,
    /// Default ports, where a port in TIME_WAIT can be reused after a second (`tcp_tw_reuse`).
    Reused,
}

impl LocalPorts {
    fn sysctls(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Plentiful => &PLENTIFUL_PORTS,
            Self::Default => &[],
            Self::Reused => &PLENTIFUL_PORTS[1..],
        }
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// Host: a thread in a network namespace of its own. Threads and processes that it starts are in that namespace.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    name: &'static str,
    thread_id: Pid,
    jobs: Sender<Job>,
}

impl Host {
    fn start(name: &'static str, cores: Option<Vec<usize>>) -> Result<Self, Failure> {
        let (jobs, todo) = channel::<Job>();
        let (tell, born) = channel();
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let entered = enter_own_namespace(cores.as_deref());
                let alive = entered.is_ok();
                if tell.send(entered).is_ok() && alive {
                    work(&todo);
                }
            })
            .during("start a thread")?;
        let thread_id = born.recv().map_err(|_| Failure::ThreadGone(name))??;
        Ok(Self { name, thread_id, jobs })
    }

    /// Runs `job` on the host's own thread and waits for its result.
    pub(crate) fn call<T, F>(&self, job: F) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let (tell, answer) = channel();
        let job: Job = Box::new(move || drop(tell.send(job())));
        self.jobs.send(job).map_err(|_| Failure::ThreadGone(self.name))?;
        answer.recv().map_err(|_| Failure::ThreadGone(self.name))
    }

    /// Starts a thread on this host.
    pub(crate) fn spawn<T, F>(&self, body: F) -> Result<JoinHandle<T>, Failure>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.call(move || thread::Builder::new().spawn(body))?.during("start a thread")
    }

    /// Runs `ip` with these words on this host.
    pub(crate) fn ip(&self, words: &str) -> Result<(), Failure> {
        let owned = words.to_owned();
        let output = self.call(move || Command::new("ip").args(owned.split_whitespace()).output())?;
        let output = output.during("run `ip` (Debian package iproute2)")?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(Failure::program("ip", format!("`ip {words}` on the {}: {}", self.name, said.trim())))
    }

    /// Sets a sysctl. Runs on the host's thread, since `/proc/sys/net` shows the namespace of the thread that opens it.
    pub(crate) fn sysctl(&self, key: &'static str, value: &'static str) -> Result<(), Failure> {
        self.call(move || fs::write(format!("/proc/sys/{key}"), value))?
            .during(format!("set {key} on the {}", self.name))
    }
}

fn work(todo: &Receiver<Job>) {
    while let Ok(job) = todo.recv() {
        job();
    }
}

fn enter_own_namespace(cores: Option<&[usize]>) -> Result<Pid, Failure> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(Failure::NotPermitted)?;
    if let Some(cores) = cores {
        let mut set = CpuSet::new();
        for core in cores {
            set.set(*core).during(format!("name core {core}"))?;
        }
        sched_setaffinity(Pid::from_raw(0), &set).during("pin a host to its cores")?;
    }
    Ok(gettid())
}

/// Cores of the hosts; `None` leaves them to the scheduler.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pinning {
    /// Cores of the gateway, and so of the proxies.
    pub(crate) gateway: Option<Vec<usize>>,
    /// Cores of client and server.
    pub(crate) ends: Option<Vec<usize>>,
}

/// Network: client 10.1.0.2 - 10.1.0.1 gateway 10.2.0.1 - 10.2.0.2 server.
#[derive(Debug)]
pub(crate) struct Topology {
    /// Generates the load.
    pub(crate) client: Host,
    /// Routes, and runs the proxies.
    pub(crate) gateway: Host,
    /// Answers.
    pub(crate) server: Host,
}

impl Topology {
    /// Builds the hosts and gives the gateway every address of `virtual_addresses`.
    pub(crate) fn build(
        pinning: &Pinning,
        virtual_addresses: &[Ipv4Addr],
        ports: LocalPorts,
    ) -> Result<Self, Failure> {
        let client = Host::start("client", pinning.ends.clone())?;
        let gateway = Host::start("gateway", pinning.gateway.clone())?;
        let server = Host::start("server", pinning.ends.clone())?;
        let plenty = LocalPorts::Plentiful;
        for (host, ports) in [(&client, plenty), (&gateway, ports), (&server, plenty)] {
            host.ip("link set lo up")?;
            for (key, value) in SYSCTLS.iter().chain(ports.sysctls()) {
                host.sysctl(key, value)?;
            }
        }
        gateway.sysctl("net/ipv4/ip_forward", "1")?;
        connect(&gateway, "to-client", GATEWAY_TO_CLIENT, &client, CLIENT)?;
        connect(&gateway, "to-server", GATEWAY_TO_SERVER, &server, SERVER)?;
        for address in virtual_addresses {
            gateway.ip(&format!("address add {address}/32 dev lo"))?;
        }
        gateway.ip("route add local 198.18.0.0/15 dev lo")?;
        client.ip("route add local 10.64.0.0/15 dev lo")?;
        gateway.ip(&format!("route add 10.64.0.0/15 via {CLIENT}"))?;
        server.ip("route add local 10.66.0.0/16 dev lo")?;
        gateway.ip(&format!("route add 10.66.0.0/16 via {SERVER}"))?;
        Ok(Self { client, gateway, server })
    }
}

/// Creates a veth pair from the gateway to `end`, which uses it as its default route.
fn connect(gateway: &Host, device: &str, near: Ipv4Addr, end: &Host, far: Ipv4Addr) -> Result<(), Failure> {
    let namespace = end.thread_id;
    gateway.ip(&format!("link add {device} type veth peer name uplink netns {namespace}"))?;
    gateway.ip(&format!("address add {near}/24 dev {device}"))?;
    gateway.ip(&format!("link set {device} up"))?;
    end.ip(&format!("address add {far}/24 dev uplink"))?;
    end.ip("link set uplink up")?;
    end.ip(&format!("route add default via {near}"))
}
