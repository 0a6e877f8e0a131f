//! keepalived on the gateways' hosts, to compare with: one VRRP instance with the IPv4 addresses of all Services. Each host serves them itself.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::marks::Gateways;
use crate::segment::{PORT, Segment, Shape, gateway_address, service_address};
use crate::support::patience::eventually;
use crate::support::process::Process;
use crate::support::tcp;
use crate::support::world::Family;

/// Its configuration, beside the other files of a gateway.
const CONFIG: &str = "keepalived.conf";
/// Those that a process that was killed left name a zombie, or another process.
const PID_FILES: [&str; 2] = ["keepalived.pid", "vrrp.pid"];
/// Where Debian has it.
pub(crate) const PROGRAM: &str = "/usr/sbin/keepalived";

/// Its hosts and processes.
pub(crate) struct Keepalived {
    segment: Segment,
    running: BTreeMap<u8, Process>,
    /// Of processes that were replaced.
    earlier_masters: usize,
    _servers: Vec<tcp::Server>,
}

impl Keepalived {
    /// Hosts that have this time between advertisements in seconds, and do not run it yet.
    pub(crate) fn new(shape: Shape, advert: &str) -> Self {
        let segment = Segment::new(shape);
        for number in segment.numbers() {
            let text = config(number, shape.services, advert);
            fs::write(segment.own_folder(number).join(CONFIG), text).expect("a file is written");
        }
        let servers = segment.numbers().into_iter().map(|number| server(&segment, number)).collect();
        Self { segment, running: BTreeMap::new(), earlier_masters: 0, _servers: servers }
    }

    /// Hosts that all run it.
    pub(crate) fn running(shape: Shape, advert: &str) -> Self {
        let mut all = Self::new(shape, advert);
        all.segment.numbers().into_iter().for_each(|number| all.start_on(number));
        all
    }

    /// Starts it in a guest, with a server.
    pub(crate) fn script_for_guest(&self, number: u8) -> String {
        let own = gateway_address(Family::V4, number);
        format!(
            "cat >/bin/answer <<'END'\n#!/bin/sh\nread question\nprintf 'server {own}:1\\n?'\nEND\nchmod +x /bin/answer\n\
             nc -ll -p {PORT} -e /bin/answer >/dev/null 2>&1 </dev/null &\n\
             setsid /bin/keepalived {} >/run/log 2>&1 </dev/null &\nsleep 0.1",
            self.arguments(number).join(" ")
        )
    }

    fn arguments(&self, number: u8) -> Vec<String> {
        let path = |name: &str| self.segment.own_folder(number).join(name).display().to_string();
        let [pid, vrrp] = PID_FILES.map(path);
        [
            "--dont-fork",
            "--log-console",
            "--vrrp",
            "--use-file",
            &path(CONFIG),
            "--pid",
            &pid,
            "--vrrp_pid",
            &vrrp,
        ]
        .map(str::to_owned)
        .to_vec()
    }

    fn start_on(&mut self, number: u8) {
        // What a process that was killed left.
        for service in 1..=self.segment.services() {
            let address = format!("{}/32", service_address(Family::V4, service));
            drop(self.segment.host(number).finish("ip", &["addr", "del", &address, "dev", "eth0"]));
        }
        for file in PID_FILES {
            drop(fs::remove_file(self.segment.own_folder(number).join(file)));
        }
        let process = self.segment.host(number).start(PROGRAM, &self.arguments(number));
        if let Some(former) = self.running.insert(number, process) {
            self.earlier_masters += masters(&former);
        }
    }
}

fn config(number: u8, services: u8, advert: &str) -> String {
    let mut text = format!(
        "global_defs {{\n router_id gw-{number}\n vrrp_version 3\n}}\nvrrp_instance segment {{\n state BACKUP\n interface eth0\n \
         virtual_router_id 51\n priority {}\n advert_int {advert}\n virtual_ipaddress {{\n",
        100 - number
    );
    for service in 1..=services {
        writeln!(text, "  {}/32", service_address(Family::V4, service)).expect("strings take text");
    }
    text + " }\n}\n"
}

/// Answers as an endpoint behind that gateway does.
fn server(segment: &Segment, number: u8) -> tcp::Server {
    let own = SocketAddr::new(gateway_address(Family::V4, number), 1);
    tcp::Server::start(segment.host(number), (Ipv4Addr::UNSPECIFIED, PORT).into(), move |mut stream| {
        let mut question = [0];
        stream.read_exact(&mut question)?;
        write!(stream, "server {own}\n?")
    })
}

/// How often this process has become the master.
fn masters(process: &Process) -> usize {
    process.stdout().matches("Entering MASTER STATE").count()
        + process.stderr().matches("Entering MASTER STATE").count()
}

impl Gateways for Keepalived {
    const HEARTBEATS: &'static str = "ip protocol 112";

    fn segment(&self) -> &Segment {
        &self.segment
    }

    /// The process and the one that it has for VRRP: the kernel would end that, too, but as planned.
    fn signal(&mut self, number: u8, signal: Signal) {
        let process = self.running.get_mut(&number).expect("it runs");
        let id = process.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).expect("it runs");
        for child in children.split_whitespace().filter_map(|id| id.parse().ok()) {
            kill(Pid::from_raw(child), signal).expect("it is there");
        }
        process.signal(signal);
        if signal == Signal::SIGKILL {
            process.wait();
        }
    }

    fn start(&mut self, number: u8) {
        self.start_on(number);
    }

    /// It has no hold-down.
    fn forgive(&mut self, _number: u8) {}

    fn wait_until_ready(&self) {
        // A split may have left clients with the hardware address of another host.
        self.segment.client.ip(&["neigh flush dev eth0".to_owned()]);
        eventually("the one with the highest priority is the master", || {
            match self.segment.owner(Family::V4, 1) {
                Ok(1) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
    }

    fn moves(&self) -> usize {
        self.earlier_masters + self.running.values().map(masters).sum::<usize>()
    }

    fn families(&self) -> &'static [Family] {
        &[Family::V4]
    }
}
