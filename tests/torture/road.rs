//! Roads from a client to a server: direct, through a gateway in each of its modes, and through HAProxy. Each has lanes, so
//! that connections of different scripts do not interfere.

use std::fs;
use std::net::SocketAddr;

use tempfile::TempDir;

use crate::support::gateway::{Gateway, Settings};
use crate::support::manifest::{App, at};
use crate::support::patience::eventually;
use crate::support::process::Process;
use crate::support::tcp;
use crate::support::world::{Family, World};

/// Number of concurrent connections.
pub(crate) const LANES: u16 = 24;

/// Road from the client to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Road {
    /// The gateway's host only routes.
    Direct,
    /// Through the gateway.
    Gateway(Source),
    /// Through HAProxy in TCP mode, which splices where it can.
    HaProxy,
}

/// Source that the server sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Gateway,
    Transparent,
    ProxyV1,
    ProxyV2,
}

impl Source {
    pub(crate) const ALL: [Self; 4] = [Self::Gateway, Self::Transparent, Self::ProxyV1, Self::ProxyV2];

    /// Modes for UDP; version 1 of the PROXY protocol only supports TCP.
    pub(crate) const OF_UDP: [Self; 3] = [Self::Gateway, Self::Transparent, Self::ProxyV2];

    /// Modes that need no proxy.
    pub(crate) const OF_KERNEL: [Self; 2] = [Self::Gateway, Self::Transparent];

    /// Value of the annotation.
    fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Transparent => "transparent",
            Self::ProxyV1 => "proxy-v1",
            Self::ProxyV2 => "proxy-v2",
        }
    }
}

impl Road {
    fn number(self) -> u16 {
        match self {
            Self::Direct => 0,
            Self::Gateway(source) => 1 + source as u16,
            Self::HaProxy => 5,
        }
    }

    /// Address of a lane's server.
    pub(crate) fn server(self, lane: u16) -> SocketAddr {
        at(family(lane).backend(0), 10_000 + 100 * self.number() + lane)
    }

    /// Address that a lane's client connects to.
    pub(crate) fn entrance(self, lane: u16) -> SocketAddr {
        match self {
            Self::Direct => self.server(lane),
            Self::Gateway(_) => at(family(lane).vip(0), 20_000 + 100 * self.number() + lane),
            Self::HaProxy => at(family(lane).vip(1), 20_000 + 100 * self.number() + lane),
        }
    }
}

fn family(lane: u16) -> Family {
    Family::BOTH[usize::from(lane % 2)]
}

/// World with all roads.
pub(crate) struct Roads<'w> {
    pub(crate) gateway: Gateway<'w>,
    _haproxy: Process,
    _folder: TempDir,
}

impl<'w> Roads<'w> {
    /// Builds the roads; `steering` is the value in the configuration.
    pub(crate) fn new(world: &'w World, steering: &'static str) -> Self {
        for name in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            world.gateway.sysctl(name, "1");
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let apps = Source::ALL.map(app);
        let settings =
            Settings { config: steering, open_files: Some(16_384), udp_idle: "3s", ..Settings::default() };
        let gateway = Gateway::start_with(world, &apps, &settings);
        let haproxy = haproxy(world, &folder);
        Self { gateway, _haproxy: haproxy, _folder: folder }
    }

    /// Builds the roads where the kernel carries the Services that need no proxy.
    pub(crate) fn by_kernel(world: &'w World) -> Self {
        let roads = Self::new(world, "path: kernel\n");
        // TCP and UDP, over IPv4 and IPv6.
        let expected = f64::from(4 * LANES) * Source::OF_KERNEL.len() as f64;
        eventually("the kernel carries the Services", || {
            let carried = roads.gateway.metric("sheave_frontends_open", &["by=\"kernel\""]);
            if carried == expected { Ok(()) } else { Err(format!("{carried} of {expected} frontends")) }
        });
        roads
    }
}

/// A Service with a port for each lane.
fn app(source: Source) -> App {
    let road = Road::Gateway(source);
    let app = App::new(source.name(), &Family::BOTH.map(|family| family.vip(0)));
    let app = app.annotation("sheave.dev/client-source", source.name());
    let app = app.all_ready(Family::BOTH.map(|family| family.backend(0)));
    (0..LANES).fold(app, |app, lane| {
        let (port, target) = (road.entrance(lane).port(), road.server(lane).port());
        let app = app.tcp(port, target);
        if source == Source::ProxyV1 { app } else { app.udp(port, target) }
    })
}

fn haproxy(world: &World, folder: &TempDir) -> Process {
    let mut text =
        "defaults\n  mode tcp\n  option splice-auto\n  timeout connect 5s\n  timeout client 1h\n  \
                    timeout server 1h\n"
            .to_owned();
    for lane in 0..LANES {
        let (bind, server) = (Road::HaProxy.entrance(lane), Road::HaProxy.server(lane));
        text.push_str(&format!("listen l{lane}\n  bind {bind}\n  server s {server}\n"));
    }
    let file = folder.path().join("haproxy.cfg");
    fs::write(&file, text).expect("a file is written");
    let process = world.gateway.start("haproxy", &["-db", "-q", "-f", &file.display().to_string()]);
    for lane in 0..LANES {
        eventually("HAProxy listens", || world.gateway.run(|| tcp::connect(Road::HaProxy.entrance(lane))));
    }
    process
}
