//! Kernel rules on the gateway: forwarding in place of a program, and the return path for a program that connects from the
//! client's address.

use std::fs;

use sheave_test_support::host::Host;

use super::{Task, address};
use crate::entrant::{Scene, Subject};
use crate::failure::{During, Failure};
use crate::ports::{TCP, UDP};
use crate::topology::{SERVER, frontend};

/// Timeouts of connections that have ended, in seconds. With the default of two minutes, a few seconds of the connect row
/// would fill the table (`nf_conntrack_max`).
const FORGET_AFTER: [&str; 4] = [
    "netfilter/nf_conntrack_tcp_timeout_time_wait",
    "netfilter/nf_conntrack_tcp_timeout_close",
    "netfilter/nf_conntrack_tcp_timeout_close_wait",
    "netfilter/nf_conntrack_tcp_timeout_last_ack",
];

/// Number of Services without load in kube-proxy's table.
const OTHER_SERVICES: u32 = 1_000;

/// Connection tracking, and nothing else.
const TRACKING: &str = "table ip compare {
    chain forward {
        type filter hook forward priority filter;
        ct state established accept
    }
}
";

/// Return path of the kernel's Documentation/networking/tproxy.rst: packets for a transparent socket are delivered locally,
/// although their address is the client's.
const RETURN_PATH: &str = "table inet compare {
    chain divert {
        type filter hook prerouting priority mangle;
        meta l4proto tcp socket transparent 1 meta mark set 1 accept
    }
}
";
const RETURN_ROUTE: [&str; 2] =
    ["ip rule %s fwmark 1 lookup 100", "ip route %s local default dev lo table 100"];

/// Installed rules. Dropping them removes them, so that no other subject pays for connection tracking.
pub(super) struct Rules<'a> {
    gateway: &'a Host,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// None but those that turn connection tracking on.
    Tracked,
    KubeProxy,
    Ipvs,
    /// Those that Sheave leaves in the kernel.
    Left,
    ReturnPath,
}

impl<'a> Rules<'a> {
    /// Installs what the task needs, if anything.
    pub(super) fn install(task: Task, gateway: &'a Host) -> Result<Option<Self>, Failure> {
        let kind = match (task.entrant.subject, task.entrant.scene) {
            (Subject::Tracked, _) => Kind::Tracked,
            (Subject::SheaveKernel, _) => Kind::Left,
            (Subject::KubeProxy, _) => Kind::KubeProxy,
            (Subject::Ipvs, _) => Kind::Ipvs,
            (Subject::Haproxy | Subject::Nginx, Scene::Local) => Kind::ReturnPath,
            _ => return Ok(None),
        };
        // From here on, `Drop` removes what was installed.
        let rules = Self { gateway, kind };
        match kind {
            Kind::Tracked => rules.read("nft -f -", TRACKING)?,
            // Once, so that the settings of connection tracking are there.
            Kind::Left => {
                rules.read("nft -f -", TRACKING)?;
                rules.run(&removal("ip"))?;
            }
            Kind::KubeProxy => rules.read("nft -f -", &kube_proxy(task.entrant.scene))?,
            Kind::Ipvs => rules.read("ipvsadm --restore", &virtual_server())?,
            Kind::ReturnPath => {
                rules.read("nft -f -", RETURN_PATH)?;
                RETURN_ROUTE.iter().try_for_each(|words| rules.run(&words.replace("%s", "add")))?;
            }
        }
        if kind != Kind::ReturnPath {
            FORGET_AFTER.iter().for_each(|key| gateway.sysctl(key, "1"));
        }
        Ok(Some(rules))
    }

    fn remove(&self) -> Result<(), Failure> {
        match self.kind {
            Kind::Tracked | Kind::KubeProxy => self.run(&removal("ip")),
            Kind::Left => self.run("nft delete table ip sheave && nft delete table ip6 sheave"),
            Kind::Ipvs => self.run("ipvsadm --clear"),
            Kind::ReturnPath => {
                RETURN_ROUTE.iter().try_for_each(|words| self.run(&words.replace("%s", "delete")))?;
                self.run(&removal("inet"))
            }
        }
    }

    /// Runs a command on the gateway with `text` as its input.
    fn read(&self, command: &str, text: &str) -> Result<(), Failure> {
        let file = tempfile::NamedTempFile::new().during("make a file for rules")?;
        fs::write(file.path(), text).during("write rules")?;
        self.run(&format!("{command} < {}", file.path().display()))
    }

    fn run(&self, command: &str) -> Result<(), Failure> {
        let finished = self.gateway.finish("sh", &["-c", command]);
        if finished.code() == Some(0) {
            return Ok(());
        }
        Err(Failure::program(command, finished.stderr.trim()))
    }
}

impl Drop for Rules<'_> {
    fn drop(&mut self) {
        if let Err(failure) = self.remove() {
            eprintln!("compare: rules stay in force on the gateway: {failure}");
        }
    }
}

/// Command that removes the table, whether or not it exists.
fn removal(family: &str) -> String {
    format!("nft 'add table {family} compare; delete table {family} compare'")
}

/// Rules that kube-proxy writes in mode `nftables` for LoadBalancer Services (pkg/proxy/nftables/proxier.go): a map from
/// address and port to the chain of a Service port, a random choice among its endpoints, and a chain for each endpoint.
/// External clients are masqueraded, except with the policy Local.
fn kube_proxy(scene: Scene) -> String {
    let masquerade = if scene == Scene::Local { "" } else { "jump mark-for-masquerade; " };
    let mut elements = Vec::new();
    let mut chains = String::new();
    let mut service = |name: String, to: String, protocol: &str, endpoints: &[String]| {
        elements.push(format!("{to} : goto external-{name}"));
        let numbered = endpoints.iter().enumerate();
        let choices: Vec<_> =
            numbered.clone().map(|(index, _)| format!("{index} : goto endpoint-{name}-{index}")).collect();
        for (index, endpoint) in numbered {
            let ip = endpoint.split(':').next().unwrap_or_default();
            chains.push_str(&format!(
                "chain endpoint-{name}-{index} {{ ip saddr {ip} jump mark-for-masquerade; \
                 meta l4proto {protocol} dnat to {endpoint}; }}\n"
            ));
        }
        let (count, choices) = (choices.len(), choices.join(", "));
        chains.push_str(&format!(
            "chain service-{name} {{ numgen random mod {count} vmap {{ {choices} }}; }}\n\
             chain external-{name} {{ {masquerade}goto service-{name}; }}\n"
        ));
    };
    let vip = address(Subject::KubeProxy);
    let used = TCP.into_iter().map(|port| (port, "tcp")).chain(UDP.into_iter().map(|port| (port, "udp")));
    for (port, protocol) in used {
        let endpoint = format!("{SERVER}:{port}");
        service(format!("p{port}"), format!("{vip} . {protocol} . {port}"), protocol, &[endpoint]);
    }
    for number in 0..OTHER_SERVICES {
        let endpoints = ["10.2.0.10:80", "10.2.0.11:80"].map(str::to_owned);
        service(format!("s{number}"), format!("{} . tcp . 80", frontend(number)), "tcp", &endpoints);
    }
    let elements = elements.join(",\n");
    format!(
        "table ip compare {{
map service-ips {{ type ipv4_addr . inet_proto . inet_service : verdict; elements = {{ {elements} }}; }}
map firewall-ips {{ type ipv4_addr . inet_proto . inet_service : verdict; }}
map no-endpoint-services {{ type ipv4_addr . inet_proto . inet_service : verdict; }}
chain mark-for-masquerade {{ meta mark set meta mark | 0x4000; }}
{chains}
chain services {{ ip daddr . meta l4proto . th dport vmap @service-ips; }}
chain firewall-check {{ ip daddr . meta l4proto . th dport vmap @firewall-ips; }}
chain service-endpoints-check {{ ip daddr . meta l4proto . th dport vmap @no-endpoint-services; }}
chain masquerading {{
    meta mark & 0x4000 == 0 return;
    meta mark set meta mark ^ 0x4000;
    masquerade fully-random;
}}
chain filter-prerouting {{
    type filter hook prerouting priority -110;
    ct state new jump firewall-check;
}}
chain filter-forward {{ type filter hook forward priority -110; ct state new jump service-endpoints-check; }}
chain nat-prerouting {{ type nat hook prerouting priority dstnat; jump services; }}
chain nat-postrouting {{ type nat hook postrouting priority srcnat; jump masquerading; }}
}}
"
    )
}

/// Rules in the format of `ipvsadm --save`: round robin (`rr`) with address translation (`-m`).
fn virtual_server() -> String {
    let vip = address(Subject::Ipvs);
    let used = TCP.into_iter().map(|port| ('t', port)).chain(UDP.into_iter().map(|port| ('u', port)));
    used.map(|(protocol, port)| {
        format!("-A -{protocol} {vip}:{port} -s rr\n-a -{protocol} {vip}:{port} -r {SERVER}:{port} -m\n")
    })
    .collect()
}
