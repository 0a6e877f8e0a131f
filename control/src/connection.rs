//! How to reach an API server: in-cluster or by a kubeconfig, with one client for reading and one for writing, and new ones
//! when the credentials were renewed. It must not know what is read or written.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use thiserror::Error;
use tokio::time::Instant;

/// Set in every Pod (kubelet, `getServiceEnvVarMap`).
const IN_CLUSTER: &str = "KUBERNETES_SERVICE_HOST";
/// An address that swallows packets is given up after so long, and asked again later.
const CONNECT: Duration = Duration::from_secs(5);
/// A write that was not answered by then counts as lost: the leader must not wait longer than its lease lasts.
const WRITE: Duration = Duration::from_secs(8);
/// Credentials are read again at most so often: all that use the connection are refused at the same time, and reading
/// may run a plugin.
const REOPEN: Duration = Duration::from_secs(5);

/// Why there is no connection.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The kubeconfig file cannot be used.
    #[error("kubeconfig {}: {error}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: KubeconfigError,
    },
    /// Neither a Pod nor a kubeconfig.
    #[error(
        "no API server is configured: run inside a cluster, or set `kubeconfig` in the config or $KUBECONFIG ({0})"
    )]
    Nowhere(#[from] InferConfigError),
    /// The credentials cannot be used.
    #[error("API server {server}: {error}")]
    Client {
        /// Its URL.
        server: String,
        /// What is wrong.
        error: Box<kube::Error>,
    },
}

/// Clients of one API server. Nothing has been sent yet: a server that is away is no error here. Clones share the clients,
/// so that new credentials serve them all.
#[derive(Clone, Debug)]
pub struct Connection {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    source: Source,
    clients: RwLock<Clients>,
    /// Held while the credentials are read again.
    reopened: tokio::sync::Mutex<Reopened>,
}

/// Where the configuration comes from.
#[derive(Debug)]
enum Source {
    File(PathBuf),
    /// Tokens and certificates of Pods are re-read by the client itself.
    InCluster,
    /// By `$KUBECONFIG` or `~/.kube/config`.
    Inferred,
}

#[derive(Clone)]
struct Clients {
    server: Arc<str>,
    reader: Client,
    writer: Client,
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clients").field("server", &self.server).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Reopened {
    at: Option<Instant>,
    /// What the kubeconfig file held.
    text: Option<Vec<u8>>,
}

impl Connection {
    /// By the kubeconfig at `path`; without one as a Pod does, or by `$KUBECONFIG` or `~/.kube/config` outside of Pods.
    /// Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// If the configuration cannot be read or its credentials cannot be used.
    pub async fn open(path: Option<&Path>) -> Result<Self, ConnectError> {
        let (source, config) = match path {
            Some(path) => (Source::File(path.to_owned()), from_file(path).await?),
            None if std::env::var_os(IN_CLUSTER).is_some() => match Config::incluster() {
                Ok(config) => (Source::InCluster, config),
                Err(_) => (Source::Inferred, Config::infer().await?),
            },
            None => (Source::Inferred, Config::infer().await?),
        };
        let reopened = tokio::sync::Mutex::new(Reopened { at: None, text: source.text() });
        let clients = RwLock::new(Clients::new(config)?);
        Ok(Self { shared: Arc::new(Shared { source, clients, reopened }) })
    }

    /// The API server's URL.
    pub fn server(&self) -> Arc<str> {
        self.clients().server
    }

    /// For lists and watches: an answer may take as long as it likes.
    pub(crate) fn reader(&self) -> Client {
        self.clients().reader
    }

    /// For single requests: an answer that does not come within seconds is an error, and nothing is retried.
    pub(crate) fn writer(&self) -> Client {
        self.clients().writer
    }

    /// Reads the credentials again, as after the server refused them. Answers whether there are new clients. Those that
    /// were handed out before go on with the old ones.
    pub(crate) async fn reopen(&self) -> bool {
        self.reopen_if(|_, _| true).await
    }

    /// The same, but only if the kubeconfig file is another than it was: a server that cannot be reached may have moved, or
    /// have a certificate of another authority.
    pub(crate) async fn reopen_if_changed(&self) -> bool {
        self.reopen_if(|old, new| new.is_some() && old != new).await
    }

    async fn reopen_if(&self, wanted: impl Fn(Option<&[u8]>, Option<&[u8]>) -> bool) -> bool {
        let shared = &self.shared;
        let mut last = shared.reopened.lock().await;
        if last.at.is_some_and(|at| at.elapsed() < REOPEN) {
            return false;
        }
        let text = shared.source.text();
        if !wanted(last.text.as_deref(), text.as_deref()) {
            return false;
        }
        last.at = Some(Instant::now());
        match shared.source.read_again().await {
            Ok(None) => false,
            Ok(Some(clients)) => {
                last.text = text;
                *shared.clients.write().unwrap_or_else(PoisonError::into_inner) = clients;
                true
            }
            Err(error) => {
                tracing::warn!(%error, "the credentials cannot be read again; the old ones stay in use");
                false
            }
        }
    }

    fn clients(&self) -> Clients {
        self.shared.clients.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// To a server without TLS or credentials.
    #[cfg(test)]
    pub(crate) fn to(url: &str) -> Self {
        let clients = Clients::new(Config::new(url.parse().unwrap())).unwrap();
        let reopened = tokio::sync::Mutex::new(Reopened { at: None, text: None });
        Self {
            shared: Arc::new(Shared { source: Source::InCluster, clients: RwLock::new(clients), reopened }),
        }
    }
}

impl Source {
    /// The kubeconfig file, if that is what was given and it can be read.
    fn text(&self) -> Option<Vec<u8>> {
        match self {
            Self::File(path) => std::fs::read(path).ok(),
            Self::InCluster | Self::Inferred => None,
        }
    }

    async fn read_again(&self) -> Result<Option<Clients>, ConnectError> {
        let config = match self {
            Self::File(path) => from_file(path).await?,
            Self::InCluster => return Ok(None),
            Self::Inferred => Config::infer().await?,
        };
        Clients::new(config).map(Some)
    }
}

impl Clients {
    fn new(mut config: Config) -> Result<Self, ConnectError> {
        let server = config.cluster_url.to_string();
        let failed = |error| ConnectError::Client { server: server.clone(), error: Box::new(error) };
        config.connect_timeout = Some(CONNECT);
        // Retries are decided where it is known what they are for: by default a call may last minutes.
        config.default_retry = false;
        let reader = Client::try_from(config.clone()).map_err(failed)?;
        config.read_timeout = Some(WRITE);
        config.reset_reader_on_write = true;
        config.write_timeout = Some(WRITE);
        let writer = Client::try_from(config).map_err(failed)?;
        Ok(Self { server: server.into(), reader, writer })
    }
}

async fn from_file(path: &Path) -> Result<Config, ConnectError> {
    let failed = |error| ConnectError::Kubeconfig { path: path.to_owned(), error };
    let kubeconfig = Kubeconfig::read_from(path).map_err(failed)?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(failed)
}
