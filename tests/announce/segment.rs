//! The segment: a bridge, and hosts on it.
//!
//! ```text
//!                     ┌── client       10.5.0.2
//! bridge, 10.5.0.0/16 ┼── server       10.5.0.3   endpoints, and the router of all (10.5.0.1 answers pings there)
//!      fd05::/64      ├── gw-1, gw-2, ...   10.5.1.1, 10.5.1.2, ...
//! ```
//! Services have addresses of 10.5.100.0/24 and fd05::64:0/112. An endpoint answers with the address of the gateway that it saw,
//! so a client learns from one connection who has the address.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::addresses::TARGET;
pub(crate) use crate::addresses::{PORT, gateway_address, on_segment, service_address};
use crate::manifests::{Manifests, POOL};
use crate::support::host::Host;
use crate::support::http;
use crate::support::patience::{eventually, eventually_within, patience};
use crate::support::process::Process;
use crate::support::tcp;
use crate::support::world::Family;

/// Where every admin server listens, in its own namespace.
const ADMIN: &str = "127.0.0.1:9841";
/// The key of all gateways.
pub(crate) const KEY: &str = "the first key of this segment";

/// How long a probe waits: a SYN that is lost is sent again after a second, which would be the clients' own.
const PROBE: Duration = Duration::from_millis(100);

/// What the gateways of a segment have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) gateways: u8,
    /// Services, each with an address of either family.
    pub(crate) services: u8,
    /// Further Services, with 64 IPv4 addresses each.
    pub(crate) many: u8,
    /// The AddressPools, as a text of manifests.
    pub(crate) pools: &'static str,
    /// `announce.mode`.
    pub(crate) mode: &'static str,
    /// Further keys of `announce`.
    pub(crate) announce: &'static str,
    /// Further keys of the configuration.
    pub(crate) config: &'static str,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            gateways: 3,
            services: 1,
            many: 0,
            pools: POOL,
            mode: "l2",
            announce: "holdDown: 1s",
            config: "",
        }
    }
}

/// A second bridge with the addresses of the first, to which all gateways have an interface `eth1`, and one more client at 10.5.0.9.
pub(crate) struct SecondBridge {
    _bridge: Host,
    pub(crate) client: Host,
}

/// The bridge and everybody on it.
pub(crate) struct Segment {
    shape: Shape,
    bridge: Host,
    pub(crate) client: Host,
    pub(crate) server: Host,
    gateways: BTreeMap<u8, GatewayHost>,
    /// Of Nodes, as in a manifest.
    labels: BTreeMap<u8, &'static str>,
    /// Where the only endpoint of each Service is, if Services have the policy `Local`.
    local: Option<u8>,
    folder: TempDir,
    _endpoints: Vec<tcp::Server>,
}

/// A gateway, whether it runs or not.
struct GatewayHost {
    host: Host,
    process: Option<Process>,
}

impl Segment {
    /// A segment whose gateways do not run yet.
    pub(crate) fn new(shape: Shape) -> Self {
        let bridge = Host::new("bridge");
        bridge.ip(&["link add br0 type bridge forward_delay 0".to_owned(), "link set br0 up".to_owned()]);
        let (client, server) = (Host::new("client"), Host::new("server"));
        join(&bridge, "client", &client, |family| vec![on_segment(family, 0, 2)]);
        join(&bridge, "server", &server, |family| vec![on_segment(family, 0, 3), on_segment(family, 0, 1)]);
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(folder.path().join("keys")).expect("a folder is made");
        fs::write(folder.path().join("keys/first"), KEY).expect("a key is written");
        let endpoints = Family::BOTH.map(|family| {
            tcp::Server::who_am_i(&server, SocketAddr::new(on_segment(family, 0, 3), TARGET), "server")
        });
        let mut segment = Self {
            bridge,
            client,
            server,
            gateways: BTreeMap::new(),
            labels: BTreeMap::new(),
            local: None,
            folder,
            _endpoints: endpoints.into(),
            shape,
        };
        for number in 1..=shape.gateways {
            let host = Host::new(&format!("gw-{number}"));
            join(&segment.bridge, &port_of(number), &host, |family| vec![gateway_address(family, number)]);
            host.ip(&Family::BOTH.map(|family| format!("route add default via {}", on_segment(family, 0, 1))));
            segment.gateways.insert(number, GatewayHost { host, process: None });
            let own = segment.own_folder(number);
            fs::create_dir_all(own.join("state")).expect("folders are made");
            fs::create_dir_all(own.join("manifests")).expect("folders are made");
            fs::write(own.join("config.yaml"), segment.config(number)).expect("a file is written");
            segment.write_manifests(number);
        }
        segment
    }

    /// Adds a second bridge.
    pub(crate) fn add_bridge(&self) -> SecondBridge {
        let bridge = Host::new("bridge-2");
        bridge.ip(&["link add br0 type bridge forward_delay 0".to_owned(), "link set br0 up".to_owned()]);
        let client = Host::new("client-2");
        let at = on_segment(Family::V4, 0, 9);
        join(&bridge, "client", &client, |family| if family == Family::V4 { vec![at] } else { Vec::new() });
        for number in self.numbers() {
            bridge.plug(&port_of(number), self.host(number), "eth1");
            self.host(number).ip(&[
                format!("addr add {}/16 dev eth1 noprefixroute", on_segment(Family::V4, 2, number)),
                format!("route add {at} dev eth1"),
            ]);
        }
        SecondBridge { _bridge: bridge, client }
    }

    /// A segment whose gateways all run, and where every Service has an owner.
    pub(crate) fn running(shape: Shape) -> Self {
        let mut segment = Self::new(shape);
        (1..=segment.shape.gateways).for_each(|number| segment.start(number));
        segment.wait_until_all_eligible();
        segment.wait_until_owned();
        segment
    }

    /// Folder of the files of a gateway.
    pub(crate) fn own_folder(&self, number: u8) -> PathBuf {
        self.folder.path().join(format!("gw-{number}"))
    }

    fn config(&self, number: u8) -> String {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let own = self.own_folder(number).display().to_string();
        format!(
            "node: gw-{number}\nadmin: {{listen: \"{ADMIN}\"}}\nstateDir: {own}/state\nworkers: 1\n\
             announce: {{mode: {mode}, heartbeat: {{keys: {keys}}}, {announce}}}\n{config}\n",
            keys = path("keys"),
            mode = self.shape.mode,
            announce = self.shape.announce,
            config = self.shape.config,
        )
    }

    fn manifests(&self) -> Manifests<'_> {
        let Shape { pools, gateways, services, many, .. } = self.shape;
        Manifests { pools, gateways, services, many, labels: &self.labels, local: self.local }
    }

    fn write_manifests(&self, number: u8) {
        let path = self.own_folder(number).join("manifests/all.yaml");
        fs::write(path, self.manifests().text()).expect("a file is written");
    }

    /// Adds a file of keys, or removes it.
    pub(crate) fn set_key(&self, name: &str, key: Option<&str>) {
        let path = self.keys().join(name);
        match key {
            Some(key) => fs::write(path, key),
            None => fs::remove_file(path),
        }
        .expect("the folder of keys is writable");
    }

    /// Gives a gateway a key of its own, before it starts; or another one then.
    pub(crate) fn set_keys_of(&self, number: u8, key: &str) {
        let own = self.own_folder(number);
        fs::create_dir_all(own.join("keys")).expect("a folder is made");
        fs::write(own.join("keys/own"), key).expect("a key is written");
        let shared = self.keys().display().to_string();
        let config = self.config(number).replace(&shared, &own.join("keys").display().to_string());
        fs::write(own.join("config.yaml"), config).expect("a file is written");
    }

    /// Sets the labels of Nodes; the others have none.
    pub(crate) fn set_labels(&mut self, labels: &[(u8, &'static str)]) {
        self.labels = labels.iter().copied().collect();
        self.numbers().into_iter().for_each(|number| self.write_manifests(number));
    }

    /// Gives all Services `externalTrafficPolicy: Local`, and has the only endpoint of each on the node of this gateway.
    pub(crate) fn set_local_endpoint(&mut self, number: u8) {
        self.local = Some(number);
        self.numbers().into_iter().for_each(|number| self.write_manifests(number));
    }

    /// Takes the EndpointSlice of the gateways from the manifests of one.
    pub(crate) fn set_manifests_without_gateways(&self, number: u8) {
        let manifests = self.manifests();
        let manifests = manifests.text().replace(&manifests.gateway_slice(), "");
        fs::write(self.own_folder(number).join("manifests/all.yaml"), manifests).expect("a file is written");
    }

    /// Replaces the configuration of a gateway that does not run yet.
    pub(crate) fn set_config(&self, number: u8, config: &str) {
        fs::write(self.own_folder(number).join("config.yaml"), config).expect("a file is written");
    }

    /// Adds a file to the manifests of a gateway.
    pub(crate) fn add_manifest(&self, number: u8, name: &str, text: &str) {
        fs::write(self.own_folder(number).join("manifests").join(name), text).expect("a file is written");
    }

    /// Adds a host with the addresses 10.5.0.N and fd05::N.
    pub(crate) fn add_host(&self, name: &str, fourth: u8) -> Host {
        let host = Host::new(name);
        join(&self.bridge, name, &host, |family| vec![on_segment(family, 0, fourth)]);
        host
    }

    /// Gives the place of a gateway that does not run to a tap device, whose other end is a guest's.
    pub(crate) fn replace_port_by_tap(&self, number: u8) {
        let port = port_of(number);
        self.bridge.ip(&[
            format!("link del {port}"),
            format!("tuntap add dev {port} mode tap"),
            format!("link set {port} master br0 up"),
        ]);
    }

    /// Leads the link of a gateway through a host, which has the interfaces `gateway` and `bridge` then.
    pub(crate) fn lead_through(&self, number: u8, host: &Host) {
        let (port, path) = (port_of(number), host.namespace_path());
        self.bridge.ip(&[
            format!("link set {port} nomaster"),
            format!("link set {port} name gateway netns {path}"),
            format!("link add {port} type veth peer name bridge netns {path}"),
            format!("link set {port} master br0 up"),
        ]);
        host.ip(&["gateway", "bridge"].map(|name| format!("link set {name} up promisc on")));
        self.bridge.wait_for_carrier(&port);
    }

    /// Limits a gateway's link in both directions, as a switch with that port does: what does not fit waits for `queue` at most. The gateway's own
    /// queue has the kernel's usual discipline.
    pub(crate) fn limit_rate(&self, number: u8, rate: &str, queue: &str) {
        let limit = |device: &str| {
            format!("tc qdisc add dev {device} root handle 1: tbf rate {rate} burst 32kb latency {queue}")
        };
        let own = format!("{} && tc qdisc add dev eth0 parent 1:1 pfifo_fast", limit("eth0"));
        self.host(number).finish("sh", &["-c", own.as_str()]).expect_success();
        self.bridge.finish("sh", &["-c", limit(&port_of(number)).as_str()]).expect_success();
    }

    /// Number of Services.
    pub(crate) fn services(&self) -> u8 {
        self.shape.services
    }

    /// Starts a program beside the bridge.
    pub(crate) fn start_on_bridge(&self, program: &str, arguments: &[&str]) -> Process {
        self.bridge.start(program, arguments)
    }

    /// The hardware address of a gateway that is a namespace.
    pub(crate) fn mac(&self, number: u8) -> [u8; 6] {
        let link = self.host(number).finish("ip", &["-o", "link", "show", "dev", "eth0"]).expect_success();
        let mut words = link.split_whitespace().skip_while(|it| *it != "link/ether");
        let bytes = words.nth(1).expect("a hardware address").split(':');
        let bytes: Vec<u8> = bytes.map(|byte| u8::from_str_radix(byte, 16).expect("hexadecimal")).collect();
        bytes.try_into().expect("six bytes")
    }

    /// Has nothing pass between any two hosts of the segment, whose links stay up, or lets it pass again.
    pub(crate) fn silence(&self, silent: bool) {
        let word = if silent { "on" } else { "off" };
        let ports = self.numbers().into_iter().map(port_of).chain(["client", "server"].map(str::to_owned));
        let lines: Vec<String> = ports.map(|port| format!("link set dev {port} isolated {word}")).collect();
        let script = format!("printf '{}\n' | bridge -batch -", lines.join("\n"));
        self.bridge.finish("sh", &["-c", script.as_str()]).expect_success();
    }

    /// Folder of the keys.
    pub(crate) fn keys(&self) -> PathBuf {
        self.folder.path().join("keys")
    }

    /// Starts a gateway.
    pub(crate) fn start(&mut self, number: u8) {
        let process = self.launch(number, &[]);
        self.gateways.get_mut(&number).expect("it is there").process = Some(process);
    }

    /// Starts a gateway that lacks these capabilities.
    pub(crate) fn start_without(&mut self, number: u8, capabilities: &[&str]) {
        let dropped: Vec<String> = capabilities.iter().map(|name| format!("-{name}")).collect();
        let bounds = format!("--bounding-set={}", dropped.join(","));
        let process = self.launch_behind(&["setpriv", &bounds, "--"], number, &[]);
        self.gateways.get_mut(&number).expect("it is there").process = Some(process);
    }

    /// Starts a process that takes over from the one that runs, and waits for the end of that.
    pub(crate) fn upgrade(&mut self, number: u8) {
        let process = self.launch(number, &["--takeover"]);
        let former = self.gateways.get_mut(&number).expect("it is there").process.replace(process);
        former.expect("it runs").wait();
    }

    fn launch(&self, number: u8, flags: &[&str]) -> Process {
        self.launch_behind(&[], number, flags)
    }

    /// Arguments of the program that is a gateway.
    pub(crate) fn arguments(&self, number: u8) -> Vec<String> {
        let own = self.own_folder(number);
        let path = |name: &str| own.join(name).display().to_string();
        let (manifests, config) = (path("manifests"), path("config.yaml"));
        let node = port_of(number);
        ["run", "--manifests", &manifests, "--config", &config, "--node", &node].map(str::to_owned).to_vec()
    }

    fn launch_behind(&self, prefix: &[&str], number: u8, flags: &[&str]) -> Process {
        let arguments = self.arguments(number);
        let mut command = prefix.to_vec();
        command.push(sheave_test_support::program::path());
        command.extend(arguments.iter().map(String::as_str));
        command.extend_from_slice(flags);
        self.host(number).start(command[0], &command[1..])
    }

    /// The host of a gateway.
    pub(crate) fn host(&self, number: u8) -> &Host {
        &self.gateways.get(&number).expect("the segment has that gateway").host
    }

    /// All gateways.
    pub(crate) fn numbers(&self) -> Vec<u8> {
        self.gateways.keys().copied().collect()
    }

    /// Sends a signal to a gateway.
    pub(crate) fn signal(&self, number: u8, signal: Signal) {
        self.gateways[&number].process.as_ref().expect("it runs").signal(signal);
    }

    /// Waits for the end of a gateway.
    pub(crate) fn wait_for_end(&mut self, number: u8) {
        let process = self.gateways.get_mut(&number).expect("it is there").process.take();
        process.expect("it runs").wait();
    }

    /// Kills a gateway.
    pub(crate) fn kill(&mut self, number: u8) {
        self.signal(number, Signal::SIGKILL);
        self.wait_for_end(number);
    }

    /// The file with a gateway's hold-down, which is there while it takes part.
    pub(crate) fn hold_down_file(&self, number: u8) -> PathBuf {
        self.own_folder(number).join("state/hold-down")
    }

    /// Has a gateway that was killed start as one that never was: it does not wait for longer each time.
    pub(crate) fn forgive(&self, number: u8) {
        fs::remove_file(self.hold_down_file(number)).expect("it was there when the gateway was killed");
    }

    /// What a gateway logged.
    pub(crate) fn log(&self, number: u8) -> String {
        self.gateways[&number].process.as_ref().map(Process::stderr).unwrap_or_default()
    }

    /// The process of a gateway.
    pub(crate) fn process_id(&self, number: u8) -> u32 {
        self.gateways[&number].process.as_ref().expect("it runs").id()
    }

    /// Takes a gateway off the bridge.
    pub(crate) fn unplug(&self, number: u8) {
        self.bridge.ip(&[format!("link set {} down", port_of(number))]);
    }

    /// Puts it back.
    pub(crate) fn plug_in(&self, number: u8) {
        self.bridge.ip(&[format!("link set {} up", port_of(number))]);
    }

    /// Has a gateway drop what matches, as nft(8) writes it, of what it receives.
    pub(crate) fn drop_on(&self, number: u8, rule: &str) {
        let rules = format!(
            "table inet cut {{\n chain in {{\n type filter hook input priority 0;\n {rule} drop\n }}\n}}\n"
        );
        self.host(number).finish("nft", &[rules.as_str()]).expect_success();
    }

    /// Takes that back.
    pub(crate) fn accept_on(&self, number: u8) {
        self.host(number).finish("nft", &["delete table inet cut"]).expect_success();
    }

    /// What a gateway says of all.
    pub(crate) fn view(&self, number: u8) -> Value {
        self.try_view(number).unwrap_or_else(|error| panic!("gw-{number} does not answer: {error}"))
    }

    pub(crate) fn try_view(&self, number: u8) -> Result<Value, String> {
        let page = self.page(number, "/api/gateways")?;
        serde_json::from_str(&page).map_err(|error| format!("{error}: {page}"))
    }

    /// The sum of a metric's series whose lines begin so.
    pub(crate) fn metric(&self, number: u8, name: &str) -> f64 {
        let page = self.page(number, "/metrics").expect("it answers");
        let lines = page.lines().filter(|line| line.starts_with(name));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }

    /// The Problems that a gateway lists.
    pub(crate) fn problems(&self, number: u8) -> Vec<String> {
        let Ok(page) = self.page(number, "/api/routes") else { return Vec::new() };
        let routes: Value = serde_json::from_str(&page).expect("JSON");
        let problems = routes["problems"].as_array().cloned().unwrap_or_default();
        problems.iter().map(Value::to_string).collect()
    }

    /// A page of a gateway's admin server.
    pub(crate) fn page(&self, number: u8, path: &str) -> Result<String, String> {
        let admin = ADMIN.parse().expect("an address");
        let answer = self.host(number).run(|| http::get(admin, path)).map_err(|error| error.to_string())?;
        Ok(answer.body)
    }

    /// The gateways that run.
    pub(crate) fn running_numbers(&self) -> Vec<u8> {
        let running = self.gateways.iter().filter(|(_, gateway)| gateway.process.is_some());
        running.map(|(number, _)| *number).collect()
    }

    /// Waits until each gateway that runs may own addresses, and says so of the others. One that was fenced again and again waits for up to
    /// a minute before it does.
    pub(crate) fn wait_until_all_eligible(&self) {
        self.wait_until_eligible(self.running_numbers().len());
    }

    /// Waits until each gateway that runs in a namespace says so of this many.
    pub(crate) fn wait_until_eligible(&self, count: usize) {
        for number in self.running_numbers() {
            eventually_within(patience(90.0), &format!("gw-{number} sees {count} gateways"), || {
                let view = self.try_view(number)?;
                let members = view["members"].as_array().cloned().unwrap_or_default();
                let eligible = members.iter().filter(|it| it["state"] == "candidate" && it["agrees"] == true);
                if eligible.count() == count { Ok(()) } else { Err(view.to_string()) }
            });
        }
    }

    /// Waits until every Service is answered.
    pub(crate) fn wait_until_owned(&self) {
        for number in 1..=self.shape.services {
            for family in Family::BOTH {
                self.wait_for_owner(family, number);
            }
        }
    }

    /// Waits until a Service is answered; by which gateway.
    pub(crate) fn wait_for_owner(&self, family: Family, service: u8) -> u8 {
        eventually(&format!("service {service} is answered"), || self.owner(family, service))
    }

    /// Which gateway a new connection of the client gets to.
    pub(crate) fn owner(&self, family: Family, service: u8) -> io::Result<u8> {
        self.client.run(|| answering(service_address(family, service)))
    }

    /// Waits until this gateway alone has the addresses of the Service.
    pub(crate) fn wait_for_holder(&self, service: u8, number: u8) {
        for family in Family::BOTH {
            eventually(&format!("gw-{number} has the {family} address of service {service}"), || {
                let (holders, owner) = (self.holders(family, service), self.owner(family, service));
                if holders == [number] && owner.as_ref().ok() == Some(&number) {
                    Ok(())
                } else {
                    Err(format!("{holders:?} {owner:?}"))
                }
            });
        }
    }

    /// Which gateways have the address of a Service on an interface.
    pub(crate) fn holders(&self, family: Family, service: u8) -> Vec<u8> {
        let address = service_address(family, service).to_string();
        let has = |number: &u8| {
            let list =
                self.host(*number).finish("ip", &["-o", "addr", "show", "dev", "eth0"]).expect_success();
            list.split_whitespace().any(|word| word.split_once('/').is_some_and(|(ip, _)| ip == address))
        };
        self.numbers().into_iter().filter(has).collect()
    }
}

/// Which gateway answers a new connection at this address. The calling thread must be inside the client. Does not wait for a gateway
/// that hangs: its kernel takes connections for it.
pub(crate) fn answering(address: IpAddr) -> io::Result<u8> {
    let stream = tcp::connect_from(None, SocketAddr::new(address, PORT), PROBE)?;
    stream.set_read_timeout(Some(PROBE))?;
    Ok(gateway_of(tcp::ask_on(stream)?.peer.ip()))
}

/// The gateway with this address.
pub(crate) fn gateway_of(ip: IpAddr) -> u8 {
    match ip {
        IpAddr::V4(ip) => ip.octets()[3],
        IpAddr::V6(ip) => ip.octets()[15],
    }
}

fn port_of(number: u8) -> String {
    format!("gw-{number}")
}

/// Plugs a host into the bridge, with these addresses.
fn join(bridge: &Host, port: &str, host: &Host, addresses: impl Fn(Family) -> Vec<IpAddr>) {
    bridge.plug(port, host, "eth0");
    let all: Vec<IpAddr> = Family::BOTH.into_iter().flat_map(&addresses).collect();
    let add = |ip: &IpAddr| match ip {
        IpAddr::V4(_) => format!("addr add {ip}/16 dev eth0"),
        IpAddr::V6(_) => format!("addr add {ip}/64 dev eth0 nodad"),
    };
    host.ip(&all.iter().map(add).collect::<Vec<_>>());
}
