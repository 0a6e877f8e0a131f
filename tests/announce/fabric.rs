//! The fabric: a router with FRR, behind it a client, and on its other side gateways, each with FRR of its own.
//!
//! ```text
//! client 10.7.0.2 ── router ── bridge, 10.6.0.0/16 ┬── gw-1, gw-2, ...   10.6.1.1, 10.6.1.2, ...
//!                              fd06::/64           └── server            10.6.0.3   endpoints
//! ```
//! Services have addresses of 198.51.100.0/24 and 2001:db8:100::/112, which are in nobody's subnet. FRR on gateways and router runs with the
//! files of deploy/examples/bgp-frr.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::frr::{Frr, time_of_day};
use crate::segment::{PORT, gateway_of};
use crate::support::host::Host;
use crate::support::http;
use crate::support::patience::{eventually_within, patience};
use crate::support::process::Process;
use crate::support::tcp;
use crate::support::world::Family;

const ADMIN: &str = "127.0.0.1:9841";
const TARGET: u16 = 8080;
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/examples/bgp-frr");
/// How long a probe waits: a SYN that is lost is sent again after a second.
const PROBE: Duration = Duration::from_millis(300);

/// An address beside the router.
pub(crate) fn in_fabric(family: Family, third: u8, fourth: u8) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(10, 6, third, fourth).into(),
        Family::V6 => Ipv6Addr::new(0xfd06, 0, 0, 0, 0, 0, third.into(), fourth.into()).into(),
    }
}

/// The address of a Service, which is counted from 1.
pub(crate) fn routed_address(family: Family, number: u8) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(198, 51, 100, number).into(),
        Family::V6 => Ipv6Addr::new(0x2001, 0xdb8, 0x100, 0, 0, 0, 0, number.into()).into(),
    }
}

/// The address with the prefix of a host.
pub(crate) fn route(family: Family, number: u8) -> String {
    format!("{}/{}", routed_address(family, number), family.host_prefix())
}

/// What differs from one fabric to another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FabricShape {
    pub(crate) gateways: u8,
    /// Services, each with an address of either family.
    pub(crate) services: u8,
    /// The families that gateways have addresses of.
    pub(crate) families: &'static [Family],
    /// Further Services, with 32 addresses of each family.
    pub(crate) many: u8,
    /// The router's AS; that of the gateways is 64513.
    pub(crate) router_as: &'static str,
    /// Further keys of `announce.bgp`.
    pub(crate) bgp: &'static str,
    /// Further keys of the configuration.
    pub(crate) config: &'static str,
}

impl Default for FabricShape {
    fn default() -> Self {
        Self {
            gateways: 2,
            services: 1,
            families: &Family::BOTH,
            many: 0,
            router_as: "64512",
            bgp: "drain: 3s",
            config: "",
        }
    }
}

/// The router and everybody around it.
pub(crate) struct Fabric {
    shape: FabricShape,
    pub(crate) router: Host,
    pub(crate) router_frr: Frr,
    pub(crate) client: Host,
    _server: Host,
    gateways: BTreeMap<u8, RoutedGateway>,
    folder: TempDir,
    _endpoints: Vec<tcp::Server>,
    /// The Services under the policy `Local`, with the gateways whose nodes have an endpoint.
    local: BTreeMap<u8, BTreeSet<u8>>,
}

struct RoutedGateway {
    host: Host,
    frr: Option<Frr>,
    process: Option<Process>,
}

impl Fabric {
    /// A fabric where FRR runs, and no gateway does.
    pub(crate) fn new(shape: FabricShape) -> Self {
        let (router, client, server) = (Host::new("router"), Host::new("client"), Host::new("server"));
        router.ip(&[
            "link add br0 type bridge forward_delay 0".to_owned(),
            // FRR resets IPv6 sessions over a link that has no address of its own yet, which one of the kernel's making would be for seconds.
            "link set br0 addrgenmode none".to_owned(),
            "addr add fe80::1/64 dev br0 nodad".to_owned(),
            "link set br0 up".to_owned(),
        ]);
        for (name, value) in [
            ("ipv4/ip_forward", "1"),
            ("ipv6/conf/all/forwarding", "1"),
            ("ipv4/fib_multipath_hash_policy", "1"),
            ("ipv6/fib_multipath_hash_policy", "1"),
        ] {
            router.sysctl(name, value);
        }
        router.ip(&Family::BOTH.map(|family| match family {
            Family::V4 => format!("addr add {}/16 dev br0", in_fabric(family, 0, 1)),
            Family::V6 => format!("addr add {}/64 dev br0 nodad", in_fabric(family, 0, 1)),
        }));
        // "Discard routes" in deploy/announce.md.
        router.ip(&["0.0.0.0/0", "::/0"].map(|all| format!("route add blackhole {all} metric 4096")));
        join_client(&router, &client);
        join(&router, "server", &server, 0, 3, &Family::BOTH);
        let endpoints = Family::BOTH.map(|family| {
            tcp::Server::who_am_i(&server, SocketAddr::new(in_fabric(family, 0, 3), TARGET), "server")
        });
        let router_config = example("router.conf")
            .replace("192.0.2.0/24", "10.6.0.0/16")
            .replace("2001:db8::/64", "fd06::/64")
            .replace("64512", shape.router_as)
            .replace("192.0.2.1", "10.6.0.1");
        let router_frr = Frr::start(&router, &format!("debug bgp updates in\n{router_config}"));
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut fabric = Self {
            shape,
            router,
            router_frr,
            client,
            _server: server,
            gateways: BTreeMap::new(),
            folder,
            _endpoints: endpoints.into(),
            local: BTreeMap::new(),
        };
        for number in 1..=shape.gateways {
            let host = Host::new(&format!("gw-{number}"));
            join(&fabric.router, &format!("gw-{number}"), &host, 1, number, shape.families);
            // The strictest setting must not be in the way.
            host.sysctl("ipv4/conf/all/rp_filter", "1");
            let own = fabric.own_folder(number);
            fs::create_dir_all(own.join("manifests")).expect("a folder is made");
            fs::create_dir_all(own.join("state")).expect("a folder is made");
            fs::write(own.join("config.yaml"), fabric.config(number)).expect("a file is written");
            fabric.gateways.insert(number, RoutedGateway { host, frr: None, process: None });
            fabric.start_frr(number);
        }
        fabric.write_manifests();
        fabric
    }

    /// A fabric whose gateways all run, and whose router has all their routes.
    pub(crate) fn running(shape: FabricShape) -> Self {
        let mut fabric = Self::new(shape);
        (1..=shape.gateways).for_each(|number| fabric.start(number));
        let all: Vec<u8> = (1..=shape.gateways).collect();
        for &family in shape.families {
            for number in 1..=shape.services {
                fabric.wait_for_next_hops(family, number, &all);
            }
        }
        let sessions = all.len() * shape.families.len();
        eventually_within(patience(60.0), &format!("{sessions} BFD sessions"), || {
            let peers = fabric.router_frr.show(&fabric.router, "show bfd peers brief");
            let up = peers.lines().filter(|line| line.trim_end().ends_with("up")).count();
            if up == sessions { Ok(()) } else { Err(peers) }
        });
        fabric
    }

    /// Where passwords are.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn own_folder(&self, number: u8) -> PathBuf {
        self.folder.path().join(format!("gw-{number}"))
    }

    fn config(&self, number: u8) -> String {
        format!(
            "node: gw-{number}\nadmin: {{listen: \"{ADMIN}\"}}\nstateDir: {own}/state\nworkers: 1\n\
             announce: {{mode: bgp, bgp: {{{bgp}}}}}\n{config}\n",
            own = self.own_folder(number).display(),
            bgp = self.shape.bgp,
            config = self.shape.config,
        )
    }

    /// Has a Service served by gateways with an endpoint alone, and tells all gateways which these are.
    pub(crate) fn set_local(&mut self, service: u8, gateways: &[u8]) {
        self.local.insert(service, gateways.iter().copied().collect());
        self.write_manifests();
    }

    fn write_manifests(&self) {
        let text = self.manifests();
        for number in self.gateways.keys() {
            let folder = self.own_folder(*number).join("manifests");
            fs::write(folder.join("new"), &text).expect("a file is written");
            fs::rename(folder.join("new"), folder.join("all.yaml")).expect("a file is renamed");
        }
    }

    fn manifests(&self) -> String {
        let mut text = String::from(
            "apiVersion: sheave.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: fabric}\nspec: {addresses: [198.51.100.0/24, \
             \"2001:db8:100::/112\", 10.6.200.0/24, 198.18.0.0/16, \"2001:db8:200::/48\"], maxPerService: 64}\n",
        );
        for number in 1..=self.shape.services {
            let addresses = Family::BOTH.map(|family| routed_address(family, number)).to_vec();
            text += &service(&format!("web-{number}"), &addresses, self.local.get(&number));
        }
        for number in 0..self.shape.many {
            let addresses = (0..32).flat_map(|index| {
                let v6 = Ipv6Addr::new(0x2001, 0xdb8, 0x200, 0, 0, 0, number.into(), 1 + index);
                [Ipv4Addr::new(198, 18, number, 1 + index as u8).into(), v6.into()]
            });
            text += &service(&format!("many-{number}"), &addresses.collect::<Vec<IpAddr>>(), None);
        }
        text
    }

    /// Starts FRR on a gateway.
    pub(crate) fn start_frr(&mut self, number: u8) {
        self.start_frr_with(number, str::to_owned);
    }

    /// Starts FRR on a gateway with a configuration that was edited.
    pub(crate) fn start_frr_with(&mut self, number: u8, edit: impl Fn(&str) -> String) {
        let [v4, v6] = Family::BOTH.map(|family| in_fabric(family, 0, 1).to_string());
        let config = example("frr.conf")
            .replace("192.0.2.1", &v4)
            .replace("2001:db8::1", &v6)
            .replace("64512", self.shape.router_as);
        let config = self.rendered(number, &edit(&config));
        let gateway = self.gateways.get_mut(&number).expect("it is there");
        gateway.frr = Some(Frr::start(&gateway.host, &config));
    }

    /// What the DaemonSet's first step makes of FRR's configuration on the node of a gateway.
    fn rendered(&self, number: u8, config: &str) -> String {
        let ips: Vec<String> =
            self.shape.families.iter().map(|family| in_fabric(*family, 1, number).to_string()).collect();
        render(&format!("gw-{number}"), &ips.join(","), self.folder.path(), config).expect("it is rendered")
    }

    /// Kills FRR on a gateway.
    pub(crate) fn kill_frr(&mut self, number: u8) {
        self.gateways.get_mut(&number).and_then(|gateway| gateway.frr.take()).expect("it runs").kill();
    }

    /// Starts a gateway.
    pub(crate) fn start(&mut self, number: u8) {
        let process = self.launch(number, &[]);
        self.gateways.get_mut(&number).expect("it is there").process = Some(process);
    }

    /// Starts a process that takes over from the one that runs, and waits for the end of that.
    pub(crate) fn upgrade(&mut self, number: u8) {
        let process = self.launch(number, &["--takeover"]);
        let former = self.gateways.get_mut(&number).expect("it is there").process.replace(process);
        former.expect("it runs").wait();
    }

    fn launch(&self, number: u8, flags: &[&str]) -> Process {
        let own = self.own_folder(number);
        let path = |name: &str| own.join(name).display().to_string();
        let (manifests, config) = (path("manifests"), path("config.yaml"));
        let mut arguments = vec!["run", "--manifests", &manifests, "--config", &config];
        arguments.extend_from_slice(flags);
        self.host(number).start(sheave_test_support::program::path(), &arguments)
    }

    pub(crate) fn host(&self, number: u8) -> &Host {
        &self.gateways[&number].host
    }

    /// Sends a signal to a gateway; the time of the day before.
    pub(crate) fn signal(&self, number: u8, signal: Signal) -> Duration {
        let now = time_of_day();
        self.gateways[&number].process.as_ref().expect("it runs").signal(signal);
        now
    }

    /// Waits for the end of a gateway.
    pub(crate) fn wait_for_end(&mut self, number: u8) {
        let process = self.gateways.get_mut(&number).expect("it is there").process.take();
        process.expect("it runs").wait();
    }

    /// Takes the machine of a gateway away: nothing runs there any more, and nobody says so.
    pub(crate) fn lose_machine(&mut self, number: u8) -> Duration {
        let now = time_of_day();
        self.router.ip(&[format!("link set gw-{number} down")]);
        self.signal(number, Signal::SIGKILL);
        self.wait_for_end(number);
        self.kill_frr(number);
        now
    }

    /// What a gateway's admin server answers.
    pub(crate) fn view(&self, number: u8, path: &str) -> Result<Value, String> {
        let admin = ADMIN.parse().expect("an address");
        let answer = self.host(number).run(|| http::get(admin, path)).map_err(|error| error.to_string())?;
        serde_json::from_str(&answer.body).map_err(|error| format!("{error}: {}", answer.body))
    }

    /// The gateways to which the router's kernel sends packets for a Service.
    pub(crate) fn next_hops(&self, family: Family, number: u8) -> BTreeSet<u8> {
        self.next_hop_addresses(family, number).into_iter().map(gateway_of).collect()
    }

    /// The addresses to which it sends them.
    pub(crate) fn next_hop_addresses(&self, family: Family, number: u8) -> BTreeSet<IpAddr> {
        let address = routed_address(family, number).to_string();
        let version = if family == Family::V4 { "-4" } else { "-6" };
        let arguments = ["-j", version, "route", "show", address.as_str()];
        let text = self.router.finish("ip", &arguments).expect_success();
        let routes: Value = serde_json::from_str(&text).unwrap_or_default();
        let mut hops = BTreeSet::new();
        for route in routes.as_array().into_iter().flatten() {
            let several = route["nexthops"].as_array().into_iter().flatten();
            for hop in several.chain([route]) {
                hops.extend(hop["gateway"].as_str().and_then(|it| it.parse::<IpAddr>().ok()));
            }
        }
        hops
    }

    /// Waits until these are the gateways of a Service.
    pub(crate) fn wait_for_next_hops(&self, family: Family, number: u8, gateways: &[u8]) {
        let expected: BTreeSet<u8> = gateways.iter().copied().collect();
        eventually_within(patience(60.0), &format!("{} by {gateways:?}", route(family, number)), || {
            let hops = self.next_hops(family, number);
            if hops == expected { Ok(()) } else { Err(format!("{hops:?}")) }
        });
    }

    /// How many host routes the router has of these pools.
    pub(crate) fn route_count(&self, family: Family) -> usize {
        let version = if family == Family::V4 { "-4" } else { "-6" };
        let text =
            self.router.finish("ip", &["-j", version, "route", "show", "proto", "bgp"]).expect_success();
        let routes: Value = serde_json::from_str(&text).unwrap_or_default();
        routes.as_array().map_or(0, Vec::len)
    }

    /// Which gateway answers a new connection of the client.
    pub(crate) fn answering(&self, family: Family, number: u8) -> io::Result<u8> {
        self.client.run(|| {
            let to = SocketAddr::new(routed_address(family, number), PORT);
            let stream = tcp::connect_from(None, to, PROBE)?;
            stream.set_read_timeout(Some(PROBE))?;
            Ok(gateway_of(tcp::ask_on(stream)?.peer.ip()))
        })
    }
}

/// Runs `render` of the example, with these names in the folder of passwords; the error if it fails.
pub(crate) fn render(node: &str, ips: &str, passwords: &Path, config: &str) -> Result<String, String> {
    let mut command = Command::new("sh");
    command.arg(format!("{EXAMPLES}/render")).arg(passwords).env("NODE_NAME", node).env("NODE_IPS", ips);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    child.stdin.take().expect("a pipe").write_all(config.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

fn example(name: &str) -> String {
    let path = format!("{EXAMPLES}/{name}");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn service(name: &str, addresses: &[IpAddr], local: Option<&BTreeSet<u8>>) -> String {
    let list: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let number = name.bytes().map(u32::from).sum::<u32>() % 200 + u32::from(name.starts_with('m')) * 256;
    let policy = if local.is_some() { "Local" } else { "Cluster" };
    let mut text = format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop, annotations: \
         {{sheave.dev/addresses: \"{list}\"}}}}\n\
         spec: {{type: LoadBalancer, loadBalancerClass: sheave.dev/l4, ipFamilyPolicy: RequireDualStack, externalTrafficPolicy: {policy}, \
         ipFamilies: [IPv4, IPv6], clusterIP: 10.96.{high}.{low}, clusterIPs: [10.96.{high}.{low}, \"fd96::{number:x}\"], \
         healthCheckNodePort: {port}, ports: [{{port: {PORT}, targetPort: {TARGET}}}]}}\n",
        list = list.join(","),
        high = number / 256,
        low = number % 256,
        port = if local.is_some() { 32000 + number } else { 0 },
    );
    for family in Family::BOTH {
        let suffix = family.to_string().to_lowercase();
        let nodes = local.map_or_else(
            || vec!["elsewhere".to_owned()],
            |gateways| gateways.iter().map(|number| format!("gw-{number}")).collect(),
        );
        // The first is the server. An address under two nodes would be of the first one everywhere.
        let endpoints: Vec<String> = nodes
            .iter()
            .zip(3..)
            .map(|(node, last)| {
                let address = in_fabric(family, 0, last);
                format!("{{addresses: [\"{address}\"], nodeName: {node}, conditions: {{ready: true}}}}")
            })
            .collect();
        writeln!(
            text,
            "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {name}-{suffix}, namespace: shop, \
             labels: {{kubernetes.io/service-name: {name}}}}}\naddressType: {family}\nports: [{{port: {TARGET}}}]\n\
             endpoints: [{endpoints}]",
            endpoints = endpoints.join(", "),
        )
        .expect("strings take text");
    }
    text
}

/// Connects the client, in a network of its own.
fn join_client(router: &Host, client: &Host) {
    let path = client.namespace_path();
    router.ip(&[
        format!("link add client type veth peer name eth0 netns {path}"),
        "link set client up".to_owned(),
        "addr add 10.7.0.1/24 dev client".to_owned(),
        "addr add fd07::1/64 dev client nodad".to_owned(),
    ]);
    client.ip(&[
        "link set eth0 up".to_owned(),
        "addr add 10.7.0.2/24 dev eth0".to_owned(),
        "addr add fd07::2/64 dev eth0 nodad".to_owned(),
        "route add default via 10.7.0.1".to_owned(),
        "route add default via fd07::1".to_owned(),
    ]);
    router.wait_for_carrier("client");
}

/// Plugs a host into the router's bridge. Its link-local address ends as the others do: routers have it as the next hop.
fn join(router: &Host, port: &str, host: &Host, third: u8, fourth: u8, families: &[Family]) {
    let peer = host.namespace_path();
    router.ip(&[
        format!("link add {port} type veth peer name eth0 netns {peer}"),
        format!("link set {port} master br0 up"),
    ]);
    host.ip(&["link set eth0 addrgenmode none".to_owned(), "link set eth0 up".to_owned()]);
    router.wait_for_carrier(port);
    for &family in families {
        let ip = in_fabric(family, third, fourth);
        match family {
            Family::V4 => host.ip(&[format!("addr add {ip}/16 dev eth0")]),
            Family::V6 => host.ip(&[
                format!("addr add {ip}/64 dev eth0 nodad"),
                format!("addr add fe80::{third:x}:{fourth:x}/64 dev eth0 nodad"),
            ]),
        }
        host.ip(&[format!("route add default via {}", in_fabric(family, 0, 1))]);
    }
}
