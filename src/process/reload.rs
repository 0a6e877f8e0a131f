//! SIGHUP: reloads the configuration, and applies what can change while the process runs. A file with a mistake changes nothing.

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::sync::Arc;

use sheave_console::views::validation::ConfigMistake;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::service_manager;
use super::signals::Hangup;
use crate::config::changes::{ConfigChanges, ProcessParts, merge};
use crate::config::{Config, ConfigOrigin};
use crate::logging;

/// Configuration of a process, and the signal to reload it.
#[derive(Debug)]
pub(crate) struct Reloads {
    /// `None` if SIGHUP does not reload.
    requests: Option<(Signal, ConfigOrigin)>,
    hangup: Hangup,
    parts: ProcessParts,
    in_force: Arc<Config>,
    /// Whether the last request is not answered yet.
    pending: bool,
}

impl Reloads {
    /// Replaces the default action of the signal, if it means a reload.
    ///
    /// # Errors
    /// If the handler cannot be installed.
    pub(crate) fn listen(
        origin: Option<ConfigOrigin>,
        parts: ProcessParts,
        config: &Config,
        hangup: Hangup,
    ) -> io::Result<Self> {
        let requests = match (hangup, origin) {
            (Hangup::ReadsAgain { .. }, Some(origin)) => Some((signal(SignalKind::hangup())?, origin)),
            (Hangup::ReadsAgain { .. } | Hangup::Ends | Hangup::Ignored, _) => None,
        };
        Ok(Self { requests, hangup, parts, in_force: Arc::new(config.clone()), pending: false })
    }

    /// Configuration in force.
    pub(crate) fn in_force(&self) -> &Config {
        &self.in_force
    }

    /// Reloads the configuration at each signal, and passes it to `apply`, which returns whether it could be applied. Cancel safe,
    /// except that a reload in progress is lost.
    pub(crate) async fn follow(&mut self, apply: impl AsyncFn(Arc<Config>) -> bool) -> Infallible {
        loop {
            let origin = self.requested().await;
            let Some(file) = origin.file.clone() else {
                tracing::warn!(
                    "SIGHUP: there is no configuration to read again, since --config was not given"
                );
                continue;
            };
            self.pending = true;
            service_manager::reloading();
            let reading = {
                let file = file.clone();
                tokio::task::spawn_blocking(move || origin.read_again(&file)).await
            };
            match reading {
                Ok(Ok(config)) => self.put_in_force(&file, config, &apply).await,
                Ok(Err(mistakes)) => refuse(&file, &mistakes),
                Err(error) => tracing::error!(bug = true, %error, "the configuration was not read again"),
            }
            self.pending = false;
            service_manager::reloaded();
        }
    }

    /// Refuses further reloads, since the process is about to end.
    pub(crate) async fn refuse(&mut self) -> Infallible {
        loop {
            if !std::mem::take(&mut self.pending) {
                self.requested().await;
            }
            tracing::warn!(
                "SIGHUP: the configuration is not read again, since this process does not serve any more"
            );
        }
    }

    /// Waits for the signal. Cancel safe.
    async fn requested(&mut self) -> ConfigOrigin {
        loop {
            let Some((signal, origin)) = &mut self.requests else { return std::future::pending().await };
            if signal.recv().await.is_none() {
                return std::future::pending().await;
            }
            if !self.hangup.asks_for_the_end() {
                return origin.clone();
            }
        }
    }

    async fn put_in_force(&mut self, file: &Path, config: Config, apply: &impl AsyncFn(Arc<Config>) -> bool) {
        let (config, mut changes) = merge(&self.in_force, config, self.parts);
        if changes.is_empty() {
            tracing::info!(file = %file.display(), "read the configuration again: nothing has changed");
            return;
        }
        let config = Arc::new(config);
        if config.logging != self.in_force.logging && !logging::set_level(config.logging.level) {
            let (level, live) = changes.live.into_iter().partition(|key| *key == "logging.level");
            changes.live = live;
            changes.unused.extend::<Vec<_>>(level);
        }
        if !apply(Arc::clone(&config)).await {
            // The caller ends this future, and logs the reason.
            return std::future::pending().await;
        }
        self.in_force = config;
        announce(file, &changes);
    }
}

fn refuse(file: &Path, mistakes: &[ConfigMistake]) {
    let mistakes = mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    tracing::error!(
        file = %file.display(),
        mistakes,
        "the configuration cannot be read again: nothing has changed, and the former one stays in force"
    );
}

/// Logs the changed keys, each once.
fn announce(file: &Path, changes: &ConfigChanges) {
    let list = |keys: &[&str]| (!keys.is_empty()).then(|| keys.join(", "));
    let ConfigChanges { live, upgrade, restart, unused } = changes;
    let (file, in_force, unused) = (file.display(), list(live), list(unused));
    if upgrade.is_empty() && restart.is_empty() {
        tracing::info!(%file, in_force, unused, "read the configuration again");
        return;
    }
    tracing::warn!(
        %file,
        in_force,
        unused,
        needs_upgrade = list(upgrade),
        needs_restart = list(restart),
        "read the configuration again: some keys change only with an upgrade (SIGUSR2, systemctl reload, kubectl rollout restart) or \
         with a restart"
    );
}
