//! Startup log: one line with role and privileges, and for a gateway a second line when its first routing table is in force.
//! Operators search for these fields, so they are never renamed.

use sheave_console::views::status::ProcessView;
use sheave_console::views::steering;
use sheave_dataplane::{memory_limit, small_settings};

use std::fs;
use std::net::SocketAddr;

use crate::config::Config;
use crate::gateway::capacity::Capacity;

/// Capabilities that affect a gateway, with their numbers (linux/capability.h).
const CAPABILITIES: [(u8, &str); 6] = [
    (10, "CAP_NET_BIND_SERVICE"),
    (12, "CAP_NET_ADMIN"),
    (13, "CAP_NET_RAW"),
    (21, "CAP_SYS_ADMIN"),
    (24, "CAP_SYS_RESOURCE"),
    (39, "CAP_BPF"),
];

/// Facts about a process, for any role.
pub(crate) struct StartupInfo {
    /// Role as in the status.
    pub(crate) role: &'static str,
    /// Address of the admin server.
    pub(crate) admin: SocketAddr,
    /// Source of the objects.
    pub(crate) source: String,
    /// Source of the Karmada control plane's objects, if there is one.
    pub(crate) karmada: Option<String>,
}

/// Logs the start of a gateway.
pub(crate) fn gateway(process: &StartupInfo, shares: &Capacity, config: &Config) {
    let StartupInfo { role, admin, source, karmada } = process;
    let Privileges { uid, capabilities } = Privileges::of_process();
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        role,
        node = config.node,
        %admin,
        source,
        karmada,
        class = config.load_balancer_class,
        workers = shares.workers,
        steering = steering::mode_name(config.steering),
        kernel = kernel(),
        uid,
        capabilities,
        open_files = shares.open_files,
        connections = shares.connections(),
        udp_flows = shares.flows(),
        memory_bytes = memory_limit(config.limits.memory),
        "starting"
    );
    for setting in small_settings() {
        tracing::warn!(sysctl = setting.sysctl, "{setting}");
    }
}

/// Logs the start of a controller; `identity` is its name in the Lease.
pub(crate) fn controller(process: &StartupInfo, identity: &str, config: &Config) {
    let StartupInfo { role, admin, source, karmada } = process;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        role,
        node = config.node,
        %admin,
        source,
        karmada,
        class = config.load_balancer_class,
        identity,
        lease = %config.lease,
        kernel = kernel(),
        uid = Privileges::of_process().uid,
        memory_bytes = memory_limit(None),
        "starting"
    );
}

/// Logs the state of a gateway when its first table is in force, or that it is still not ready, for example because the folder of
/// manifests is missing. `transparent` is whether endpoints see client addresses.
pub(crate) fn ready(view: &ProcessView, transparent: &str) {
    if let Some(why) = &view.not_ready {
        tracing::warn!(problems = view.problems, "not ready: {why}");
        return;
    }
    let steering = view.steering.as_ref();
    tracing::info!(
        generation = view.generation,
        frontends = view.frontends,
        problems = view.problems,
        from_snapshot = view.source.from_snapshot,
        sockets = steering.map(|steering| steering.sockets),
        steered = steering.map(|steering| steering.steered),
        steering_unavailable = steering.and_then(|steering| steering.unavailable.as_deref()),
        transparent,
        "ready: the first objects are in force"
    );
}

/// Privileges of the process that matter here.
#[derive(Debug, PartialEq, Eq)]
struct Privileges {
    /// Effective user ID.
    uid: String,
    /// Effective ones of [`CAPABILITIES`], or `none`.
    capabilities: String,
}

impl Privileges {
    fn of_process() -> Self {
        Self::parse(&fs::read_to_string("/proc/self/status").unwrap_or_default())
    }

    /// Parses /proc/self/status (proc(5)).
    fn parse(status: &str) -> Self {
        let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        // The fields are real, effective, saved and file system user ID.
        let uid = value("Uid:").and_then(|uids| uids.split_whitespace().nth(1));
        let effective = value("CapEff:").and_then(|mask| u64::from_str_radix(mask, 16).ok());
        let names = effective.map(|mask| {
            let held = CAPABILITIES.iter().filter(|(number, _)| mask & (1 << number) != 0);
            held.map(|(_, name)| *name).collect::<Vec<_>>().join(",")
        });
        let names = names.map(|names| if names.is_empty() { "none".to_owned() } else { names });
        let unknown = || "unknown".to_owned();
        Self { uid: uid.map_or_else(unknown, str::to_owned), capabilities: names.unwrap_or_else(unknown) }
    }
}

fn kernel() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease");
    release.map_or_else(|_| "unknown".to_owned(), |release| release.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use serde_json::Value;
    use tracing_subscriber::fmt;

    use super::*;
    use crate::config::Overrides;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The line that `log` writes.
    fn line(log: impl FnOnce()) -> Value {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = fmt().json().flatten_event(true).with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, log);
        let bytes = lines.0.lock().unwrap().clone();
        serde_json::from_slice(&bytes).unwrap()
    }

    fn config() -> Config {
        Config::load(None, &Overrides::of_node("gw-1")).unwrap()
    }

    fn process(role: &'static str, source: &str) -> StartupInfo {
        let admin = "127.0.0.1:9841".parse().unwrap();
        StartupInfo { role, admin, source: source.to_owned(), karmada: None }
    }

    #[test]
    fn a_gateway_says_all_that_its_operator_may_ask_for() {
        let mut config = config();
        config.workers = 3;
        config.limits.memory = Some(32 << 20);
        let shares = Capacity::of_process(&config);
        let line = line(|| gateway(&process("gateway", "/manifests"), &shares, &config));
        for (key, expected) in [
            ("message", Value::from("starting")),
            ("version", env!("CARGO_PKG_VERSION").into()),
            ("role", "gateway".into()),
            ("node", "gw-1".into()),
            ("admin", "127.0.0.1:9841".into()),
            ("source", "/manifests".into()),
            ("workers", 3.into()),
            ("steering", "auto".into()),
            ("memory_bytes", (32 << 20).into()),
        ] {
            assert_eq!(line[key], expected, "{key}: {line}");
        }
        for key in ["open_files", "connections", "udp_flows"] {
            assert!(line[key].as_u64().is_some_and(|limit| limit > 0), "{key}: {line}");
        }
        for key in ["kernel", "uid", "capabilities", "class"] {
            assert!(
                line[key].as_str().is_some_and(|text| !text.is_empty() && text != "unknown"),
                "{key}: {line}"
            );
        }
    }

    #[test]
    fn a_controller_says_who_it_is_to_the_others() {
        let process = process("controller", "https://10.0.0.1:6443/");
        let line = line(|| controller(&process, "pod-1_abc", &config()));
        assert_eq!((&line["role"], &line["identity"]), (&"controller".into(), &"pod-1_abc".into()), "{line}");
        assert!(line["lease"].is_string() && line["source"].is_string(), "{line}");
    }

    #[test]
    fn the_first_table_is_told_with_what_the_kernel_gave() {
        let view = ProcessView { generation: 1, frontends: 2, ..ProcessView::default() };
        let line = line(|| ready(&view, "not asked for"));
        assert_eq!(
            (&line["frontends"], &line["transparent"]),
            (&2.into(), &"not asked for".into()),
            "{line}"
        );
        assert!(line["message"].as_str().unwrap().starts_with("ready"), "{line}");
    }

    #[test]
    fn a_gateway_without_its_manifests_does_not_say_that_it_is_ready() {
        let why = "the manifest folder cannot be listed";
        let view = ProcessView { not_ready: Some(why.to_owned()), ..ProcessView::default() };
        let line = line(|| ready(&view, "not asked for"));
        assert_eq!((&line["level"], &line["message"]), (&"WARN".into(), &format!("not ready: {why}").into()));
    }

    #[test]
    fn effective_capabilities_are_named() {
        let status = "Uid:\t1000\t65532\t1000\t1000\nCapPrm:\t000001ffffffffff\nCapEff:\t0000008000001400\n";
        let read = Privileges::parse(status);
        assert_eq!(read.uid, "65532");
        assert_eq!(read.capabilities, "CAP_NET_BIND_SERVICE,CAP_NET_ADMIN,CAP_BPF");
        assert_eq!(Privileges::parse("Uid: 0 0 0 0\nCapEff: 0\n").capabilities, "none");
        assert_eq!(Privileges::parse("").capabilities, "unknown");
    }
}
