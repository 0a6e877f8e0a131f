//! Host: an unnamed network namespace, so that nothing is left when the test process ends, however it ends, and any number of tests can
//! run in parallel.

use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::panic::resume_unwind;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use nix::errno::Errno;
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;
use nix::sched::{CloneFlags, setns, unshare};

use super::patience::eventually;
use super::process::{Finished, Process};

/// Job for the host's own thread.
type Job = Box<dyn FnOnce() + Send>;

/// System folders, so that programs are found whatever the caller's `PATH` is.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Flag of a route to an address of the host (`RTF_LOCAL` in linux/ipv6_route.h).
const RTF_LOCAL: u32 = 0x8000_0000;

/// Machine of the test network.
///
/// Its own thread lives as long as the host and starts every process. Processes die with the thread that started them
/// (`PR_SET_PDEATHSIG`), so that not even a killed test leaves one behind.
pub struct Host {
    name: String,
    namespace: Arc<File>,
    jobs: Mutex<Option<Sender<Job>>>,
    thread: Option<JoinHandle<()>>,
}

impl Host {
    /// A host with only a loopback interface, which is up.
    pub fn new(name: &str) -> Self {
        let (jobs, inbox) = channel::<Job>();
        let (tell, made) = channel();
        let body = move || {
            let namespace = unshare(CloneFlags::CLONE_NEWNET)
                .map_err(io::Error::from)
                .and_then(|()| File::open("/proc/thread-self/ns/net"));
            tell.send(namespace).expect("the maker of a host waits for it");
            inbox.iter().for_each(|job| job());
        };
        let thread = thread::Builder::new().name(format!("host {name}")).spawn(body).expect("a thread");
        let namespace = made.recv().expect("the host's thread answers").unwrap_or_else(|error| {
            panic!(
                "cannot make a network namespace ({error}): \
                 run tests/run, or unshare -Urmn cargo test --test e2e"
            )
        });
        let jobs = Mutex::new(Some(jobs));
        let host = Self { name: name.to_owned(), namespace: Arc::new(namespace), jobs, thread: Some(thread) };
        host.ip(&["link set lo up".to_owned()]);
        // A new namespace copies the IPv4 setting of the machine, where container engines enable it.
        host.sysctl("ipv4/ip_forward", "0");
        host.sysctl("ipv6/conf/all/forwarding", "0");
        host
    }

    /// Path by which other processes can open the namespace.
    pub fn namespace_path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.namespace.as_raw_fd())
    }

    /// Runs `action` inside the host and waits for the result. Sockets that it creates stay in the host.
    pub fn run<T: Send>(&self, action: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            enter(&self.namespace);
            action()
        };
        thread::scope(|scope| scope.spawn(inside).join()).unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Runs `action` inside the host on a new thread.
    pub fn spawn<T: Send + 'static>(&self, action: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let namespace = Arc::clone(&self.namespace);
        thread::spawn(move || {
            enter(&namespace);
            action()
        })
    }

    /// Starts a program inside the host. It is killed when the handle is dropped.
    pub fn start<S: AsRef<str>>(&self, program: &str, arguments: &[S]) -> Process {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", program]).args(arguments.iter().map(AsRef::as_ref));
        command.env("PATH", PATH).stdin(Stdio::null());
        let what = format!("{program} on host {}", self.name);
        self.on_own_thread(move || Process::start(what, command))
    }

    /// Starts a program inside the host as the session leader on this terminal. It is killed when the handle is dropped.
    pub fn start_on_terminal(&self, terminal: OwnedFd, program: &str, arguments: &[&str]) -> Process {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "setsid", "--ctty", program]).args(arguments);
        command.env("PATH", PATH).env("TERM", "xterm").env_remove("NO_COLOR");
        let what = format!("{program} on a terminal of host {}", self.name);
        self.on_own_thread(move || Process::start_on_terminal(what, command, terminal))
    }

    /// Runs a program inside the host to its end.
    pub fn finish<S: AsRef<str>>(&self, program: &str, arguments: &[S]) -> Finished {
        self.start(program, arguments).finish()
    }

    /// Runs lines of `ip -batch`, each of which must succeed, and waits until the IPv6 addresses that they add accept packets. Without `nodad`
    /// that would take more than a second, so such addresses are not waited for.
    pub fn ip(&self, lines: &[String]) {
        let mut batch = tempfile::NamedTempFile::new().expect("a temporary file");
        io::Write::write_all(&mut batch, lines.join("\n").as_bytes()).expect("a batch file is written");
        let path = batch.path().display().to_string();
        self.finish("ip", &["-batch", path.as_str()]).expect_success();
        let added: Vec<Ipv6Addr> = lines.iter().filter_map(|line| added_address(line)).collect();
        if !added.is_empty() {
            self.run(|| added.into_iter().for_each(wait_until_local));
        }
    }

    /// Adds addresses to the host.
    pub fn own(&self, addresses: impl IntoIterator<Item = IpAddr>) {
        let line = |ip: IpAddr| match ip {
            IpAddr::V4(_) => format!("addr add {ip}/32 dev lo"),
            IpAddr::V6(_) => format!("addr add {ip}/128 dev lo nodad"),
        };
        self.ip(&addresses.into_iter().map(line).collect::<Vec<_>>());
    }

    /// Links an interface of another host to a port of this host's bridge `br0`, both up.
    pub fn plug(&self, port: &str, host: &Host, interface: &str) {
        let peer = host.namespace_path();
        self.ip(&[
            format!("link add {port} type veth peer name {interface} netns {peer}"),
            format!("link set {port} master br0 up"),
        ]);
        host.ip(&[format!("link set {interface} up")]);
        self.wait_for_carrier(port);
    }

    /// Waits until the interface transmits. That end of a veth pair which is up first has its carrier from the other one, and drops what it is
    /// given until a work queue of the kernel has noticed (`linkwatch_do_dev` in net/core/link_watch.c). That takes seconds while others
    /// change interfaces, in whatever namespace.
    pub fn wait_for_carrier(&self, interface: &str) {
        let transmits = |it: InterfaceAddress| {
            it.interface_name == interface && it.flags.contains(InterfaceFlags::IFF_RUNNING)
        };
        let probe = || if getifaddrs()?.any(transmits) { Ok(()) } else { Err(Errno::ENETDOWN) };
        self.run(|| eventually(&format!("{interface} of {} transmits", self.name), probe));
    }

    /// Sets a value below `/proc/sys/net` of the namespace. Writes only if it differs, since containers often have it read-only.
    pub fn sysctl(&self, name: &str, value: &str) {
        let path = format!("/proc/sys/net/{name}");
        let set = || match fs::read_to_string(&path)? {
            present if present.trim() == value => Ok(()),
            _ => fs::write(&path, value),
        };
        self.run(set).unwrap_or_else(|error: io::Error| panic!("cannot set {path}: {error}"));
    }

    fn on_own_thread<T: Send + 'static>(&self, action: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, answer) = channel();
        let job: Job = Box::new(move || drop(tell.send(action())));
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.as_ref().expect("the host is up").send(job).expect("the host's thread lives");
        answer.recv().expect("the host's thread does its job")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn enter(namespace: &File) {
    setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET).expect("the namespace can be entered");
}

/// The address that a line of `ip -batch` adds, if it is an IPv6 address without duplicate address detection.
fn added_address(line: &str) -> Option<Ipv6Addr> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["addr" | "address", "add" | "replace", address, ..] if words.contains(&"nodad") => {
            address.split('/').next()?.parse().ok()
        }
        _ => None,
    }
}

/// The kernel adds the local route of an address from a work queue, after the address and the route to its subnet, also on loopback
/// (`addrconf_dad_work` in net/ipv6/addrconf.c). Until then a sender gets "no route to host", or waits for a
/// neighbor.
fn wait_until_local(ip: Ipv6Addr) {
    let destination = format!("{:032x} 80 ", ip.to_bits());
    let is_local = |route: &str| {
        let flags = || u32::from_str_radix(route.split_whitespace().nth(8)?, 16).ok();
        route.starts_with(&destination) && flags().is_some_and(|flags| flags & RTF_LOCAL != 0)
    };
    eventually(&format!("{ip} is local"), || {
        let routes = fs::read_to_string("/proc/thread-self/net/ipv6_route")?;
        if routes.lines().any(is_local) { Ok(()) } else { Err(io::Error::from(Errno::EADDRNOTAVAIL)) }
    });
}
