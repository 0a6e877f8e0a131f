//! `sheave demo`: a gateway to try in a minute, without a cluster and without privileges.
//!
//! It writes real manifests to a folder of its own, starts a few backends on loopback addresses, and runs on them the
//! same gateway that `sheave run` does. It must not know how the gateway works.

mod backends;
mod manifests;

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use crate::config::Config;
use crate::exit::Exit;
use crate::gateway::{self, Source};
use crate::output;
use backends::Backends;

/// Runs the demo until a signal, or for as long as `duration` says.
pub(crate) async fn run(config: Config, duration: Option<Duration>) -> Exit {
    let (folder, _backends) = match prepare().await {
        Ok(ready) => ready,
        Err(error) => {
            eprintln!("sheave: the demo cannot start: {error}");
            return Exit::Unavailable;
        }
    };
    let config = own_settings(config);
    let welcome = |admin| match output::print(&welcome(folder.path(), admin)) {
        Exit::Ok => {}
        _ => tracing::warn!("the demo runs on, but what to try could not be shown"),
    };
    gateway::run(&config, Source::Manifests(folder.path()), None, duration, welcome).await
}

/// The user's configuration, as far as it fits the demo.
fn own_settings(mut config: Config) -> Config {
    // The demo's own servers must not get in the way of a gateway that runs here already.
    config.admin_listen.set_port(0);
    config.healthz_listen = None;
    config.timeouts.drain = Duration::from_secs(1);
    // What its manifests say, whatever class the user's Services have.
    config.load_balancer_class = manifests::CLASS.to_owned();
    config
}

async fn prepare() -> io::Result<(TempDir, Backends)> {
    let backends = Backends::start().await?;
    let folder = tempfile::Builder::new().prefix("sheave-demo-").tempdir()?;
    let web = manifests::service("web", "TCP", manifests::WEB_PORT, &backends.web);
    let echo = manifests::service("echo", "UDP", manifests::ECHO_PORT, &backends.echo);
    fs::write(folder.path().join("web.yaml"), web)?;
    fs::write(folder.path().join("echo.yaml"), echo)?;
    Ok((folder, backends))
}

/// What to try.
fn welcome(folder: &Path, admin: std::net::SocketAddr) -> String {
    use manifests::{ECHO_PORT, VIP, WEB_PORT};
    let web = folder.join("web.yaml");
    let web = web.display();
    format!(
        "Sheave forwards two Services, each with three endpoints. In another terminal, try:

  TCP   curl http://{VIP}:{WEB_PORT}/
  UDP   bash -c 'exec 3<>/dev/udp/{VIP}/{ECHO_PORT}; echo hello >&3; head -n 1 <&3'

Change the table while it runs: in {web}
set an endpoint's `ready: true` to `ready: false` and try again, or remove it. Then look:

  curl http://{admin}/api/routes
  curl 'http://{admin}/api/explain?service=demo/web'
  curl http://{admin}/metrics

Ctrl-C ends the demo.
"
    )
}

#[cfg(test)]
mod tests {
    use sheave_control::projection::{Placement, Projector};
    use sheave_control::source::files;
    use sheave_control::store::Store;

    use super::*;
    use crate::app::projection_options;
    use crate::config::Overrides;

    #[test]
    fn its_services_are_served_whatever_class_the_user_configured() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.yaml");
        fs::write(&file, "loadBalancerClass: example.com/other\n").unwrap();
        let overrides = Overrides { node: Some("n".to_owned()) };
        let config = own_settings(Config::load(Some(&file), &overrides).unwrap());
        let endpoint = "127.0.0.81:8080".parse().unwrap();
        let web = manifests::service("web", "TCP", manifests::WEB_PORT, &[endpoint]);
        let manifest = folder.path().join("web.yaml");
        fs::write(&manifest, web).unwrap();

        let mut store = Store::default();
        store.replace(files::load(&manifest).objects);
        let dirty = store.take_dirty();
        let projection =
            Projector::new(projection_options(&config, Placement::Alone)).project(store.objects(), &dirty);
        assert_eq!(projection.table.frontends().len(), 1);
    }
}
