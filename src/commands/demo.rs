//! `sheave demo`: a gateway to try in a minute, without a cluster and without privileges.
//!
//! It writes manifests to temporary folders, starts backends and two pretend clusters on loopback addresses, and runs the same gateway
//! on them that `sheave run` does.

mod backends;
mod clusters;
mod karmada;
mod manifests;

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;

use crate::commands::stdout;
use crate::config::Config;
use crate::exit::Exit;
use crate::process::gateway::{self, Lifetime, ObjectSource, Takeover};
use backends::Backends;
use clusters::Clusters;

/// Everything that the gateway meets. It ends, and the folders are removed, when dropped.
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
    let welcome = |admin| match stdout::print(&stage.welcome(admin)) {
        Exit::Ok => {}
        _ => tracing::warn!("the demo is running, but its instructions could not be printed"),
    };
    let (manifests, karmada) = (stage.manifests(), stage.karmada());
    let lifetime = Lifetime { takeover: Takeover::Never, duration, origin: None };
    gateway::run(&config, ObjectSource::Manifests(&manifests), Some(&karmada), lifetime, welcome).await
}

/// The user's configuration, as far as it fits the demo.
fn own_settings(mut config: Config) -> Config {
    // The demo's own servers must not get in the way of a gateway that runs here already.
    config.admin_listen.set_port(0);
    config.healthz_listen = None;
    config.metrics.listen = None;
    // Nobody routes to it.
    config.timeouts.lame_duck = Duration::ZERO;
    config.timeouts.drain = Duration::from_secs(1);
    // Its clusters are on loopback, whatever the user's of the same name are behind.
    config.clusters.clear();
    // That of the demo's manifests, whatever class the user configured.
    config.load_balancer_class = manifests::CLASS.to_owned();
    config
}

impl Stage {
    async fn prepare() -> io::Result<Self> {
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

    /// What the gateways' own cluster has.
    fn manifests(&self) -> PathBuf {
        self.folder.path().join("manifests")
    }

    /// What the Karmada control plane has.
    fn karmada(&self) -> PathBuf {
        self.folder.path().join("karmada")
    }

    /// What to try.
    fn welcome(&self, admin: SocketAddr) -> String {
        use manifests::{ECHO_PORT, VIP, WEB_PORT};
        let web = self.manifests().join("web.yaml");
        let web = web.display();
        let fleet = self.welcome_to_the_fleet();
        format!(
            "The status page, for a browser:

  PAGE  http://{admin}/

Sheave forwards two Services, each with three endpoints. In another terminal, try:

  TCP   curl http://{VIP}:{WEB_PORT}/
  UDP   bash -c 'exec 3<>/dev/udp/{VIP}/{ECHO_PORT}; echo hello >&3; head -n 1 <&3'

Change the table while it runs: in {web}
set an endpoint's `ready: true` to `ready: false` and try again, or remove it.

{fleet}
What the gateway knows, and why a client goes where it goes:

  curl http://{admin}/api/routes
  curl 'http://{admin}/api/explain?service=demo/web'
  curl http://{admin}/metrics

Ctrl-C ends the demo.
"
        )
    }

    /// What to try with the pretend clusters.
    fn welcome_to_the_fleet(&self) -> String {
        let shop = format!("http://{}:{}/", manifests::VIP, karmada::SHOP_PORT);
        let (folder, switch) = (self.karmada(), self.clusters.switch);
        let (service, east) = (folder.join("shop.yaml"), folder.join("east.yaml"));
        let (service, east) = (service.display(), east.display());
        format!(
            "It also forwards the MultiClusterService demo/shop over two pretend clusters, three of four connections to east:

  FLEET   for i in $(seq 100); do curl -s {shop}; done | sort | uniq -c

Change the weights or drain a cluster by the annotations in {service}
(sheave.dev/cluster-weights, sheave.dev/drain: east), or by the Cluster itself, then count again:

  DRAIN   sed -i 's/drain: \"false\"/drain: \"true\"/' {east}
  RETURN  sed -i 's/drain: \"true\"/drain: \"false\"/' {east}

Stop a cluster's backends. No connection fails: clients that are refused there are sent to the other cluster, and after a
few failures no new client is sent there:

  STOP    curl http://{switch}/east/stop
  START   curl http://{switch}/east/start
"
        )
    }
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
