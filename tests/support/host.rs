//! Host: an unnamed network namespace, so that nothing is left when the test process ends, however it ends, and any number of tests can
//! run in parallel.

use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::panic::resume_unwind;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use nix::sched::{CloneFlags, setns, unshare};

use super::patience::eventually;
use super::process::{Finished, Process};

/// Job for the host's own thread.
type Job = Box<dyn FnOnce() + Send>;

/// System folders, so that programs are found whatever the caller's `PATH` is.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

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

    /// Runs lines of `ip -batch`, each of which must succeed.
    pub fn ip(&self, lines: &[String]) {
        let mut batch = tempfile::NamedTempFile::new().expect("a temporary file");
        io::Write::write_all(&mut batch, lines.join("\n").as_bytes()).expect("a batch file is written");
        let path = batch.path().display().to_string();
        self.finish("ip", &["-batch", path.as_str()]).expect_success();
    }

    /// Adds addresses to the host, and waits until they are usable. Without `nodad`, an IPv6 address is tentative until a work queue of
    /// the kernel has processed it, even on loopback (`ipv6_add_addr` in net/ipv6/addrconf.c).
    pub fn own(&self, addresses: impl IntoIterator<Item = IpAddr>) {
        let addresses = Vec::from_iter(addresses);
        let line = |ip: IpAddr| match ip {
            IpAddr::V4(_) => format!("addr add {ip}/32 dev lo"),
            IpAddr::V6(_) => format!("addr add {ip}/128 dev lo nodad"),
        };
        self.ip(&addresses.iter().copied().map(line).collect::<Vec<_>>());
        self.run(|| addresses.iter().copied().for_each(wait_for_address));
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

/// Waits until the address accepts packets. The route to an IPv6 address is added later than the address (`addrconf_dad_work` in
/// net/ipv6/addrconf.c); until then sending fails.
pub(crate) fn wait_for_address(ip: IpAddr) {
    eventually(&format!("{ip} is usable"), || UdpSocket::bind((ip, 0))?.connect((ip, 9)));
}
