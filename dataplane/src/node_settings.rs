//! Settings of the node's kernel that are too small for a gateway: they are reported, not changed.
//!
//! Only those that stand in the way whatever the traffic is. What more traffic may need is in deploy/sizing.md.

use std::fmt;
use std::fs;
use std::path::Path;

use crate::sys::port_range;

/// Where the kernel shows its settings and counters.
const PROC: &str = "/proc";
/// Default of Linux since 5.4 (`SOMAXCONN` in linux/socket.h).
const ACCEPT_QUEUE: u64 = 4096;
/// Default of Linux (`SK_RMEM_MAX` in net/core/sock.c), with the smallest overhead of a page.
const RECEIVE_BUFFER: u64 = 212_992;
/// Ports of the default range of Linux, rounded down.
const LOCAL_PORTS: u64 = 28_000;
/// Ports of Services of type NodePort, by default (`--service-node-port-range` of kube-apiserver).
const NODE_PORTS: std::ops::RangeInclusive<u16> = 30_000..=32_767;
/// A table of the kernel is nearly full from this share on, in percent.
const NEARLY_FULL: u64 = 80;

/// A setting to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmallSetting {
    /// The setting, as `sysctl` names it.
    pub sysctl: &'static str,
    /// Its value, as the kernel shows it.
    pub value: String,
    /// Consequence of its value.
    pub effect: String,
    /// What to do.
    pub advice: String,
}

impl fmt::Display for SmallSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sysctl, value, effect, advice } = self;
        write!(f, "{sysctl} is {value}: {effect}; {advice}")
    }
}

/// Settings of this network namespace that are too small. One that cannot be read is left out: the kernel lacks that part, or a container hides it.
pub fn small_settings() -> Vec<SmallSetting> {
    read(Path::new(PROC))
}

fn read(proc: &Path) -> Vec<SmallSetting> {
    let mut small: Vec<SmallSetting> = [
        at_least(proc, "net.core.somaxconn", ACCEPT_QUEUE, |value| {
            format!("of a burst of new connections, those beyond {value} for each listener wait for a retry of the client")
        }),
        at_least(proc, "net.core.rmem_max", RECEIVE_BUFFER, |_| "bursts of UDP datagrams are lost".to_owned()),
        at_least(proc, "net.ipv4.tcp_syncookies", 1, |_| {
            "a flood of SYNs keeps clients from connecting".to_owned()
        }),
    ]
    .into_iter()
    .flatten()
    .collect();
    small.extend(local_ports(proc));
    small.extend(connection_tracking(proc));
    small.extend(neighbours(proc, "net.ipv4.neigh.default.gc_thresh3", "arp_cache"));
    small.extend(neighbours(proc, "net.ipv6.neigh.default.gc_thresh3", "ndisc_cache"));
    small
}

/// A setting as the kernel shows it.
fn text(proc: &Path, sysctl: &str) -> Option<String> {
    let text = fs::read_to_string(proc.join("sys").join(sysctl.replace('.', "/"))).ok()?;
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn number(proc: &Path, sysctl: &str) -> Option<u64> {
    text(proc, sysctl)?.parse().ok()
}

fn at_least(
    proc: &Path,
    sysctl: &'static str,
    least: u64,
    effect: impl FnOnce(u64) -> String,
) -> Option<SmallSetting> {
    let value = number(proc, sysctl).filter(|value| *value < least)?;
    let advice = format!("set it to {least}");
    Some(SmallSetting { sysctl, value: value.to_string(), effect: effect(value), advice })
}

/// The range that connections to endpoints take their ports from: too few, or ports on which other programs of the node are reached.
fn local_ports(proc: &Path) -> Option<SmallSetting> {
    const SYSCTL: &str = "net.ipv4.ip_local_port_range";
    let value = text(proc, SYSCTL)?;
    let range = port_range::parse(&value)?;
    let reserved = text(proc, "net.ipv4.ip_local_reserved_ports").unwrap_or_default();
    let reserved = port_range::parse_list(&reserved);
    let usable = range.clone().filter(|port| !reserved.contains(port));
    let (effect, advice) = if usable.clone().any(|port| NODE_PORTS.contains(&port)) {
        (
            "connections to endpoints may take ports that kube-proxy needs as node ports".to_owned(),
            "set net.ipv4.ip_local_reserved_ports to 30000-32767, or let the range begin at 32768".to_owned(),
        )
    } else {
        let count = usable.count() as u64;
        if count >= LOCAL_PORTS {
            return None;
        }
        (format!("one endpoint has at most {count} connections"), "set it to 32768 60999 or more".to_owned())
    };
    Some(SmallSetting { sysctl: SYSCTL, value, effect, advice })
}

fn connection_tracking(proc: &Path) -> Option<SmallSetting> {
    const SYSCTL: &str = "net.netfilter.nf_conntrack_max";
    let (count, max) = (number(proc, "net.netfilter.nf_conntrack_count")?, number(proc, SYSCTL)?);
    nearly_full(SYSCTL, count, max, "when none are left, new connections are dropped")
}

/// Neighbours, of all network namespaces of the node: clients and endpoints in its subnets.
fn neighbours(proc: &Path, sysctl: &'static str, cache: &str) -> Option<SmallSetting> {
    // One line for each CPU below the head; the number of entries is the same in all of them (`neigh_stat_seq_show`).
    let table = fs::read_to_string(proc.join("net/stat").join(cache)).ok()?;
    let count = table.lines().nth(1)?.split_whitespace().next()?;
    let count = u64::from_str_radix(count, 16).ok()?;
    nearly_full(
        sysctl,
        count,
        number(proc, sysctl)?,
        "when none are left, machines of the node's subnets are not reached",
    )
}

fn nearly_full(sysctl: &'static str, count: u64, max: u64, effect: &str) -> Option<SmallSetting> {
    let percent = (count * 100).checked_div(max)?;
    (percent >= NEARLY_FULL).then(|| SmallSetting {
        sysctl,
        value: max.to_string(),
        effect: format!("{percent} % of the entries are in use; {effect}"),
        advice: "raise it".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder like /proc in which the settings have these values.
    fn proc(settings: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in settings {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    fn told(settings: &[(&str, &str)]) -> Vec<String> {
        read(proc(settings).path()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_defaults_of_linux_are_enough() {
        let defaults = [
            ("sys/net/core/somaxconn", "4096\n"),
            ("sys/net/core/rmem_max", "212992\n"),
            ("sys/net/ipv4/tcp_syncookies", "1\n"),
            ("sys/net/ipv4/ip_local_port_range", "32768\t60999\n"),
            ("sys/net/ipv4/ip_local_reserved_ports", "\n"),
            ("sys/net/netfilter/nf_conntrack_max", "262144\n"),
            ("sys/net/netfilter/nf_conntrack_count", "209715\n"),
            ("sys/net/ipv4/neigh/default/gc_thresh3", "1024\n"),
            ("net/stat/arp_cache", "entries  allocs\n00000332  00000000\n"),
        ];
        assert_eq!(told(&defaults), Vec::<String>::new());
        assert_eq!(told(&[]), Vec::<String>::new(), "nothing can be read");
    }

    #[test]
    fn what_is_too_small_is_told_with_its_effect_and_what_to_do() {
        let small = [
            ("sys/net/core/somaxconn", "128\n"),
            ("sys/net/core/rmem_max", "65536\n"),
            ("sys/net/ipv4/tcp_syncookies", "0\n"),
            ("sys/net/ipv4/ip_local_port_range", "40000\t40999\n"),
            ("sys/net/netfilter/nf_conntrack_max", "1000\n"),
            ("sys/net/netfilter/nf_conntrack_count", "800\n"),
            ("sys/net/ipv4/neigh/default/gc_thresh3", "1024\n"),
            ("net/stat/arp_cache", "entries  allocs\n00000334  00000000\n"),
            ("sys/net/ipv6/neigh/default/gc_thresh3", "0\n"),
            ("net/stat/ndisc_cache", "entries  allocs\n00000001  00000000\n"),
        ];
        assert_eq!(
            told(&small),
            [
                "net.core.somaxconn is 128: of a burst of new connections, those beyond 128 for each listener wait for a retry of the client; set it to 4096",
                "net.core.rmem_max is 65536: bursts of UDP datagrams are lost; set it to 212992",
                "net.ipv4.tcp_syncookies is 0: a flood of SYNs keeps clients from connecting; set it to 1",
                "net.ipv4.ip_local_port_range is 40000 40999: one endpoint has at most 1000 connections; set it to 32768 60999 or more",
                "net.netfilter.nf_conntrack_max is 1000: 80 % of the entries are in use; when none are left, new connections are dropped; raise it",
                "net.ipv4.neigh.default.gc_thresh3 is 1024: 80 % of the entries are in use; when none are left, machines of the node's subnets are not reached; raise it",
            ]
        );
    }

    #[test]
    fn a_range_with_node_ports_is_told_unless_they_are_reserved() {
        let range = ("sys/net/ipv4/ip_local_port_range", "10240\t65535\n");
        let taken = told(&[range]);
        assert!(taken[0].contains("kube-proxy needs as node ports"), "{taken:?}");
        let reserved = ("sys/net/ipv4/ip_local_reserved_ports", "8080,30000-32767\n");
        assert_eq!(told(&[range, reserved]), Vec::<String>::new());
        let part = ("sys/net/ipv4/ip_local_reserved_ports", "30000-32766\n");
        assert_eq!(told(&[range, part]).len(), 1, "one is left");
    }
}
