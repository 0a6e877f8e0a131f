//! `sheave demo`: a gateway to try within a minute, without a cluster and without privileges.
//!
//! Writes manifests to temporary folders, starts backends and two pretend clusters on loopback addresses, and runs on them the same
//! gateway as `sheave run`.

mod backends;
mod clusters;
mod instructions;
mod karmada;
mod manifests;

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use sheave_console::exit::Exit;
use sheave_console::stdout;
use tempfile::TempDir;

use crate::config::{ADMIN_LISTEN, Config};
use crate::process::gateway::{self, Lifetime, ObjectSource, Takeover};
use backends::Backends;
use clusters::Clusters;
use instructions::Instructions;

/// Environment of the gateway: backends, clusters and manifests. Dropping it ends them and removes the folders.
struct Stage {
    folder: TempDir,
    clusters: Clusters,
    _backends: Backends,
}

/// Runs the demo until a signal, or for `duration`.
pub(crate) async fn run(config: Config, duration: Option<Duration>) -> Exit {
    let stage = match Stage::prepare().await {
        Ok(stage) => stage,
        Err(error) => {
            eprintln!("sheave: the demo cannot start: {error}");
            return Exit::Unavailable;
        }
    };
    let config = own_settings(config);
    let started = |admin| match stdout::print(&stage.instructions(admin)) {
        Exit::Ok => {}
        _ => tracing::warn!("the demo is running, but its instructions could not be printed"),
    };
    let (manifests, karmada) = (stage.manifests(), stage.karmada());
    let lifetime = Lifetime { takeover: Takeover::Never, duration, origin: None };
    gateway::run(&config, ObjectSource::Manifests(&manifests), Some(&karmada), lifetime, started).await
}

/// The user's configuration, with the settings that do not fit the demo replaced.
fn own_settings(mut config: Config) -> Config {
    // The demo's servers must not conflict with a gateway that already runs here.
    if std::net::TcpListener::bind(config.admin_listen).is_err() {
        config.admin_listen.set_port(0);
    }
    config.healthz_listen = None;
    config.metrics.listen = None;
    // No load balancer routes to the demo.
    config.lame_duck = Duration::ZERO;
    config.timeouts.drain = Duration::from_secs(1);
    // The demo's clusters are on loopback, so the user's settings for clusters of the same name do not apply.
    config.clusters.clear();
    // The class of the demo's manifests, regardless of the configured one.
    config.load_balancer_class = manifests::CLASS.to_owned();
    config
}

impl Stage {
    async fn prepare() -> io::Result<Self> {
        expect_free_frontends()?;
        let backends = Backends::start().await?;
        let clusters = Clusters::start().await?;
        let folder = tempfile::Builder::new().prefix("sheave-demo-").tempdir()?;
        let web = manifests::service("web", "TCP", manifests::WEB_PORT, &backends.web);
        let echo = manifests::service("echo", "UDP", manifests::ECHO_PORT, &backends.echo);
        let stage = Self { folder, clusters, _backends: backends };
        fs::create_dir(stage.manifests())?;
        fs::write(stage.manifests().join("web.yaml"), web)?;
        fs::write(stage.manifests().join("echo.yaml"), echo)?;
        fs::create_dir(stage.karmada())?;
        fs::write(stage.karmada().join("shop.yaml"), karmada::shop())?;
        for cluster in &stage.clusters.members {
            let file = format!("{}.yaml", cluster.name);
            fs::write(stage.karmada().join(file), karmada::member(cluster))?;
        }
        Ok(stage)
    }

    /// Manifests of the gateways' own cluster.
    fn manifests(&self) -> PathBuf {
        self.folder.path().join("manifests")
    }

    /// Manifests of the Karmada control plane.
    fn karmada(&self) -> PathBuf {
        self.folder.path().join("karmada")
    }

    /// Text with the commands to try.
    fn instructions(&self, admin: SocketAddr) -> String {
        let program = std::env::args_os().next().unwrap_or_else(|| "sheave".into());
        let instructions = Instructions {
            program: &program.to_string_lossy(),
            admin,
            admin_is_default: admin == ADMIN_LISTEN,
            manifests: &self.manifests(),
            karmada: &self.karmada(),
            switch: self.clusters.switch,
        };
        instructions.text()
    }
}

/// Checks that the demo's frontends are free. The gateway itself would serve the other frontends and retry these.
///
/// # Errors
/// If an address is in use, most likely by another demo.
fn expect_free_frontends() -> io::Result<()> {
    use manifests::{ECHO_PORT, VIP, WEB_PORT};
    let taken = |port, protocol, error: io::Error| {
        let message = format!("{VIP}:{port}/{protocol}: {error}. Is another demo running?");
        io::Error::new(error.kind(), message)
    };
    for port in [WEB_PORT, karmada::SHOP_PORT] {
        std::net::TcpListener::bind((VIP, port)).map_err(|error| taken(port, "TCP", error))?;
    }
    std::net::UdpSocket::bind((VIP, ECHO_PORT)).map_err(|error| taken(ECHO_PORT, "UDP", error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use sheave_control::api::store::Store;
    use sheave_control::projection::{Projector, Role};

    use super::*;
    use crate::config::Overrides;
    use crate::gateway::options::projection_options;

    #[test]
    fn its_services_are_served_whatever_class_the_user_configured() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.yaml");
        fs::write(&file, "loadBalancerClass: example.com/other\n").unwrap();
        let overrides = Overrides::of_node("n");
        let config = own_settings(Config::load(Some(&file), &overrides).unwrap());
        let endpoint = "127.0.0.81:8080".parse().unwrap();
        let web = manifests::service("web", "TCP", manifests::WEB_PORT, &[endpoint]);
        let manifest = folder.path().join("web.yaml");
        fs::write(&manifest, web).unwrap();

        let mut store = Store::default();
        store.replace(&sheave_control::sources::manifests::load(&manifest).objects);
        let dirty = store.take_dirty();
        let projection =
            Projector::new(projection_options(&config, Role::Standalone)).project(store.objects(), &dirty);
        assert_eq!(projection.table.frontends().len(), 1);
    }
}
