//! Gateway process: the real binary in the gateway host, operated through manifest files, signals and the admin server.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::ops::RangeBounds;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use super::fleet::{self, Cluster, Exposure};
use super::host::Host;
use super::http::{self, Response};
use super::manifest::{App, GATEWAY_NODE, file, nodes};
use super::patience::{eventually, eventually_within, patience};
use super::process::Process;
use super::seccomp::{Otherwise, Refused};
use super::usage::{self, Usage};
use super::world::World;

/// Address of the admin server. Each gateway host has its own loopback.
const ADMIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9841);
/// Manifest file that [`Gateway::apply`] replaces.
pub const APPS: &str = "apps.yaml";

/// Configuration file.
const CONFIG: &str = "config.yaml";
/// Manifest file that [`Gateway::expose`] replaces.
const EXPOSURES: &str = "exposures.yaml";
/// Manifest file that [`Gateway::set_clusters`] replaces.
const CLUSTERS: &str = "clusters.yaml";

/// Variable with the value of `steering` for every gateway whose case sets none. With `always`, the same cases show that
/// clients see no difference.
const STEERING: &str = "SHEAVE_TEST_STEERING";

/// Variable that, if `end`, makes a system call outside of the profile of `deploy` end every gateway whose case refuses
/// nothing else.
const SECCOMP: &str = "SHEAVE_TEST_SECCOMP";

/// Seccomp setting for such gateways.
fn unnamed() -> Option<Refused> {
    let profiled = std::env::var(SECCOMP).is_ok_and(|mode| mode == "end");
    profiled.then_some(Refused::Unnamed(Otherwise::End))
}

/// Variable with the value of `path` for every gateway whose case sets none. With `kernel`, the same cases show that clients see no
/// difference.
const PATH: &str = "SHEAVE_TEST_PATH";

fn data_path() -> Option<String> {
    std::env::var(PATH).ok().filter(|path| !path.is_empty())
}

/// Whether the kernel carries what it can.
pub fn by_kernel() -> bool {
    data_path().is_some_and(|path| path != "proxy")
}

/// Whether gateways steer all frontends.
pub fn steers() -> bool {
    steering().as_deref() == Some("always")
}

fn steering() -> Option<String> {
    std::env::var(STEERING).ok().filter(|mode| !mode.is_empty())
}

/// Settings that differ from the defaults.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Worker threads. Two by default, so that what workers share is always tested.
    pub workers: u8,
    /// Timeout of connection attempts to endpoints.
    pub connect: &'static str,
    /// Idle timeout of TCP connections.
    pub idle: &'static str,
    /// Idle timeout of UDP flows.
    pub udp_idle: &'static str,
    /// Lame duck time after SIGTERM. Zero by default, so that cases do not wait.
    pub lame_duck: &'static str,
    /// Time limit of the drain.
    pub drain: &'static str,
    /// Address of `/healthz` for load balancers in front; empty for none.
    pub healthz: &'static str,
    /// Additional keys of the configuration file.
    pub config: &'static str,
    /// `RLIMIT_NOFILE`, soft and hard.
    pub open_files: Option<u32>,
    /// Capabilities to drop, as named by setpriv(1).
    pub without: &'static [&'static str],
    /// System calls that the kernel refuses.
    pub refused: Option<Refused>,
    /// Whether to restrict it to one core.
    pub one_core: bool,
    /// Whether there is a service manager, which receives notifications.
    pub managed: bool,
    /// Command prefix that runs the gateway.
    pub behind: Vec<String>,
    /// Program, if not the one under test.
    pub program: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            workers: 2,
            connect: "2s",
            idle: "1h",
            udp_idle: "60s",
            lame_duck: "0s",
            drain: "60s",
            healthz: "",
            config: "",
            open_files: None,
            without: &[],
            refused: None,
            one_core: false,
            managed: false,
            behind: Vec::new(),
            program: None,
        }
    }
}

/// Running gateway, which is killed when dropped.
pub struct Gateway<'w> {
    process: Process,
    host: &'w Host,
    folder: TempDir,
    /// Program and arguments.
    command: Vec<String>,
    /// Socket of the service manager, if any.
    notifications: Option<UnixDatagram>,
}

impl<'w> Gateway<'w> {
    /// Starts the gateway on the apps and waits until it is ready.
    pub fn start(world: &'w World, apps: &[App]) -> Self {
        Self::start_with(world, apps, &Settings::default())
    }

    /// Like [`Gateway::start`], with other settings.
    pub fn start_with(world: &'w World, apps: &[App], settings: &Settings) -> Self {
        Self::launch(world, prepared_folder(apps), &[], settings)
    }

    /// Starts the gateway with a Karmada control plane in addition to its own cluster, and waits until it is ready.
    pub fn start_in_fleet(
        world: &'w World,
        exposures: &[Exposure],
        clusters: &[Cluster],
        settings: &Settings,
    ) -> Self {
        let folder = prepared_folder(&[]);
        let karmada = folder.path().join("karmada");
        fs::create_dir(&karmada).expect("a folder is made");
        fs::write(karmada.join(EXPOSURES), fleet::exposures(exposures)).expect("a file is written");
        fs::write(karmada.join(CLUSTERS), fleet::clusters(clusters)).expect("a file is written");
        let flag = ["--karmada-manifests".to_owned(), karmada.display().to_string()];
        Self::launch(world, folder, &flag, settings)
    }

    fn launch(world: &'w World, folder: TempDir, sources: &[String], settings: &Settings) -> Self {
        let config = folder.path().join(CONFIG);
        fs::write(&config, settings.yaml(&folder)).expect("a file is written");
        let path = |name: PathBuf| name.display().to_string();
        let mut command: Vec<String> = Vec::new();
        if let Some(limit) = settings.open_files {
            command.extend(["prlimit".to_owned(), format!("--nofile={limit}:{limit}"), "--".to_owned()]);
        }
        if !settings.without.is_empty() {
            let dropped = settings.without.iter().map(|capability| format!("-{capability}"));
            let dropped = dropped.collect::<Vec<_>>().join(",");
            command.extend(["setpriv".to_owned(), format!("--bounding-set={dropped}"), "--".to_owned()]);
        }
        if settings.one_core {
            command.extend(["taskset".to_owned(), "--cpu-list".to_owned(), first_core()]);
        }
        command.extend(settings.refused.or_else(unnamed).into_iter().flat_map(Refused::prefix));
        command.extend_from_slice(&settings.behind);
        let manifests = path(folder.path().join("manifests"));
        let program = settings.program.as_deref().unwrap_or(Path::new(crate::program::path()));
        command.push(program.display().to_string());
        command.extend(["run", "--manifests", &manifests, "--node", GATEWAY_NODE].map(str::to_owned));
        command.extend(["--config".to_owned(), path(config)]);
        command.extend_from_slice(sources);
        let notifications = settings.managed.then(|| {
            let socket = folder.path().join("notify");
            command.splice(0..0, ["env".to_owned(), format!("NOTIFY_SOCKET={}", path(socket.clone()))]);
            UnixDatagram::bind(socket).expect("a socket for notifications")
        });
        if by_kernel() {
            forward(&world.gateway);
        }
        let process = launch_on(&world.gateway, &command);
        let mut gateway = Self { process, host: &world.gateway, folder, command, notifications };
        gateway.wait_until_ready();
        if steers() && settings.may_steer() {
            let unavailable = &gateway.steering()["unavailable"];
            assert!(unavailable.is_null(), "{STEERING}=always, but: {unavailable}");
        }
        gateway
    }

    /// Sets the program of processes that are started later.
    pub fn install(&mut self, program: &Path) {
        let run = self.command.iter().position(|it| it == "run").expect("the command of a gateway");
        self.command[run - 1] = program.display().to_string();
    }

    /// Starts a successor with the same command, except for these values of flags.
    pub fn successor(&self, flags: &[(&str, &str)]) -> Process {
        let mut command = self.command.clone();
        for (flag, value) in flags {
            let place = command.iter().position(|it| it == flag).expect("a flag that it has");
            command[place + 1] = (*value).to_owned();
        }
        command.push("--takeover".to_owned());
        launch_on(self.host, &command)
    }

    /// Makes a successor take over, and returns the former process.
    pub fn upgrade(&mut self) -> Process {
        let mut successor = self.successor(&[]);
        eventually_within(patience(20.0), "another process takes over", || {
            successor.expect_running();
            let log = successor.stderr();
            if log.contains("took over") { Ok(()) } else { Err(log) }
        });
        // Until then the predecessor answers on the admin address as well, with its own generation.
        eventually("the former process has left the admin address", || {
            let log = self.process.stderr();
            if log.contains("draining: new connections are not accepted") { Ok(()) } else { Err(log) }
        });
        std::mem::replace(&mut self.process, successor)
    }

    /// Makes this process the gateway, and returns the former one.
    pub fn adopt(&mut self, process: Process) -> Process {
        std::mem::replace(&mut self.process, process)
    }

    /// State directory.
    pub fn state_folder(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn wait_until_ready(&mut self) {
        eventually_within(patience(20.0), "the gateway is ready", || {
            self.process.expect_running();
            match self.host.run(|| http::get(ADMIN, "/readyz")) {
                Ok(response) if response.status == 200 => Ok(()),
                Ok(response) => Err(format!("{} {}", response.status, response.body)),
                Err(error) => Err(error.to_string()),
            }
        });
    }

    /// Replaces the apps, and waits for a new table.
    pub fn apply(&self, apps: &[App]) {
        self.until_a_new_table(|| self.write(APPS, &file(apps)));
    }

    /// Replaces the MultiClusterServices, and waits for a new table.
    pub fn expose(&self, exposures: &[Exposure]) {
        self.until_a_new_table(|| self.move_to("karmada", EXPOSURES, &fleet::exposures(exposures)));
    }

    fn until_a_new_table(&self, edit: impl FnOnce()) {
        let before = self.generation();
        edit();
        eventually("the gateway shows a new table", || {
            let now = self.generation();
            if now > before { Ok(()) } else { Err(format!("still generation {now}")) }
        });
        if by_kernel() {
            let table = self.generation();
            eventually("the kernel has the new table", || {
                let now = self.status()["generation"].as_u64().unwrap_or_default();
                if now >= table { Ok(()) } else { Err(format!("generation {now} of {table}")) }
            });
        }
    }

    /// Replaces the Cluster objects, without waiting for the effect.
    pub fn set_clusters(&self, clusters: &[Cluster]) {
        self.move_to("karmada", CLUSTERS, &fleet::clusters(clusters));
    }

    /// Replaces a manifest file atomically, without waiting for the effect.
    pub fn write(&self, name: &str, text: &str) {
        self.move_to("manifests", name, text);
    }

    fn move_to(&self, folder: &str, name: &str, text: &str) {
        let staged = self.folder.path().join("staged").join(name);
        fs::write(&staged, text).expect("a file is written");
        fs::rename(staged, self.folder.path().join(folder).join(name)).expect("a file is moved");
    }

    /// JSON of `/api/routes`.
    pub fn routes(&self) -> Value {
        serde_json::from_str(&self.get("/api/routes")).expect("/api/routes is JSON")
    }

    /// How clients reach the frontends, from `/api/routes`.
    pub fn steering(&self) -> Value {
        self.routes().get("steering").cloned().expect("routes say how they are reached")
    }

    /// Generation of the table.
    pub fn generation(&self) -> u64 {
        self.routes().get("generation").and_then(Value::as_u64).expect("routes have a generation")
    }

    /// Problems of `/api/routes`, as one line each.
    pub fn problems(&self) -> Vec<String> {
        let routes = self.routes();
        let problems = routes.get("problems").and_then(Value::as_array).expect("routes have problems");
        problems.iter().map(Value::to_string).collect()
    }

    /// Sum over all series of a metric whose line contains each of `labels`; 0 if there is none.
    pub fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let text = self.get("/metrics");
        let of_metric = text.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
                && labels.iter().all(|label| line.contains(label))
        });
        of_metric.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.get("/api/status")).expect("/api/status is JSON")
    }

    /// Response of the admin server, whatever its status.
    pub fn ask(&self, path: &str) -> Response {
        let response = self.host.run(|| http::get(ADMIN, path));
        response.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Connects to the admin server; see [`http::get_on`].
    pub fn connect(&self) -> TcpStream {
        self.host.run(|| TcpStream::connect(ADMIN)).expect("the admin server accepts")
    }

    /// Body of an admin page that must answer 200.
    pub fn get(&self, path: &str) -> String {
        let response = self.ask(path);
        assert_eq!(response.status, 200, "{path}: {}", response.body);
        response.body
    }

    /// Memory and processor time so far.
    pub fn usage(&self) -> Usage {
        usage::of(self.process.id())
    }

    /// Process ID.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Number of open file descriptors.
    pub fn open_files(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.process.id())).expect("the gateway runs").count()
    }

    /// The log so far.
    pub fn log(&self) -> String {
        self.process.stderr()
    }

    /// Waits until the log contains a text this many times. A separate thread writes the log, so it may lag behind.
    pub fn wait_for_log(&self, part: &str, times: impl RangeBounds<usize>) {
        eventually(&format!("the log has {part:?}"), || {
            let log = self.log();
            if times.contains(&log.matches(part).count()) { Ok(()) } else { Err(log) }
        });
    }

    /// Standard output so far.
    pub fn output(&self) -> String {
        self.process.stdout()
    }

    /// Warnings so far: Problems of objects, and log lines above `INFO`.
    pub fn warnings(&self) -> String {
        let log = self.log();
        // On a busy machine, or in a process that was stopped, any step may take long.
        let lines = log.lines().filter(|line| !line.contains("a step took long"));
        let loud = lines.filter(|line| line.contains("WARN") || line.contains("ERROR"));
        self.problems().into_iter().chain(loud.map(str::to_owned)).collect::<Vec<_>>().join("\n")
    }

    /// The next notification to its service manager.
    pub fn notification(&self) -> String {
        let socket = self.notifications.as_ref().expect("there is a service manager");
        socket.set_read_timeout(Some(patience(10.0))).expect("a deadline");
        let mut message = [0; 256];
        let length = socket.recv(&mut message).expect("it says something");
        String::from_utf8_lossy(&message[..length]).into_owned()
    }

    /// Makes it reload its configuration, and returns its log line about the result.
    pub fn read_again(&self) -> String {
        let lines = |log: &str| -> Vec<String> {
            log.lines().filter(|line| is_of_reload(line)).map(str::to_owned).collect()
        };
        let before = lines(&self.log()).len();
        self.hang_up();
        let mut last = String::new();
        eventually("the configuration is read again", || {
            let log = self.log();
            let mut lines = lines(&log);
            if lines.len() > before {
                last = lines.pop().expect("a line");
                Ok(())
            } else {
                Err(log)
            }
        });
        last
    }

    /// Replaces the keys of `settings` in its configuration and reloads it. Returns the log line about the result.
    pub fn reconfigure(&self, settings: &Settings) -> String {
        self.write_config(&settings.yaml(&self.folder));
        self.read_again()
    }

    /// Replaces its configuration file atomically.
    pub fn write_config(&self, text: &str) {
        let staged = self.folder.path().join("staged").join(CONFIG);
        fs::write(&staged, text).expect("a file is written");
        fs::rename(staged, self.config_file()).expect("a file is moved");
    }

    /// Path of its configuration file.
    pub fn config_file(&self) -> PathBuf {
        self.folder.path().join(CONFIG)
    }

    /// SIGHUP.
    pub fn hang_up(&self) {
        self.process.signal(Signal::SIGHUP);
    }

    /// Makes it start a successor.
    pub fn reload(&self) {
        self.process.signal(Signal::SIGUSR2);
    }

    /// Requests a drain.
    pub fn terminate(&self) {
        self.process.signal(Signal::SIGTERM);
    }

    /// Requests the end, as Ctrl-C does.
    pub fn interrupt(&self) {
        self.process.signal(Signal::SIGINT);
    }

    /// Waits until this key of its status is true.
    pub fn wait_for_status(&self, key: &str) {
        eventually(&format!("it is true: {key}"), || {
            let status = self.status();
            if status[key] == true { Ok(()) } else { Err(status) }
        });
    }

    /// Stops it for a while, like a busy machine.
    pub fn freeze(&self) {
        self.process.signal(Signal::SIGSTOP);
    }

    /// Resumes it.
    pub fn thaw(&self) {
        self.process.signal(Signal::SIGCONT);
    }

    /// Kills it without any cleanup.
    pub fn kill(&self) {
        self.process.signal(Signal::SIGKILL);
    }

    /// Panics if it has ended.
    pub fn expect_running(&mut self) {
        self.process.expect_running();
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        self.process.wait()
    }
}

/// Makes a host forward packets, as the kernel path needs it.
pub fn forward(host: &Host) {
    host.sysctl("ipv4/ip_forward", "1");
    host.sysctl("ipv6/conf/all/forwarding", "1");
}

fn launch_on(host: &Host, command: &[String]) -> Process {
    let (program, arguments) = command.split_first().expect("a command has a program");
    host.start(program, arguments)
}

/// Whether a log line is about the result of a reload.
fn is_of_reload(line: &str) -> bool {
    line.contains("read the configuration again") || line.contains("configuration cannot be read again")
}

/// Number of the first core that this process may use.
fn first_core() -> String {
    let cores = sched_getaffinity(Pid::this()).expect("a process has cores");
    let first = (0..CpuSet::count()).find(|core| cores.is_set(*core) == Ok(true));
    first.expect("a process has a core").to_string()
}

/// Folder with everything that a gateway needs, except its configuration.
fn prepared_folder(apps: &[App]) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for name in ["manifests", "staged", "state"] {
        fs::create_dir(folder.path().join(name)).expect("a folder is made");
    }
    fs::write(folder.path().join("manifests/nodes.yaml"), nodes()).expect("a file is written");
    fs::write(folder.path().join("manifests").join(APPS), file(apps)).expect("a file is written");
    folder
}

impl Settings {
    fn yaml(&self, folder: &TempDir) -> String {
        let Self { workers, connect, idle, udp_idle, lame_duck, drain, healthz, config, .. } = self;
        let state = folder.path().join("state").display().to_string();
        let steering = steering().filter(|_| !config.contains("steering:"));
        let steering = steering.map(|mode| format!("steering: {mode}\n")).unwrap_or_default();
        let path = data_path().filter(|_| !config.contains("path:"));
        let path = path.map(|path| format!("path: {path}\n")).unwrap_or_default();
        format!(
            "workers: {workers}\nadmin: {{listen: \"{ADMIN}\"}}\nhealthz: {{listen: \"{healthz}\"}}\n\
             stateDir: {state}\n\
             timeouts: {{connect: {connect}, idle: {idle}, udpIdle: {udp_idle}, lameDuck: {lame_duck}, drain: {drain}}}\n\
             logging: {{format: text, level: info}}\n{steering}{path}{config}"
        )
    }

    /// Whether steering is possible and not disabled.
    fn may_steer(&self) -> bool {
        let lacks = |capability: &str| self.without.contains(&capability);
        !lacks("net_admin") && !lacks("bpf") && !self.config.contains("steering:")
    }
}
