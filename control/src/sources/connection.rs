//! Connection to an API server: in-cluster or with a kubeconfig, with one client for reads and one for writes, and new clients
//! when the credentials were renewed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

/// Environment variable of every Pod (kubelet, `getServiceEnvVarMap`).
const IN_CLUSTER: &str = "KUBERNETES_SERVICE_HOST";
/// Timeout of a connection, for addresses that drop packets.
const CONNECT: Duration = Duration::from_secs(5);
/// Timeout of a write: the leader must not wait longer than its lease lasts.
const WRITE: Duration = Duration::from_secs(8);
/// Shortest interval between reads of the credentials: all users of the connection are refused at the same time, and reading may
/// run a plugin.
const REOPEN: Duration = Duration::from_secs(5);
/// Longest wait for a plugin. Its result is still used when it arrives later.
const REREAD: Duration = Duration::from_secs(10);

/// User agent in the API server's logs; the role is appended.
const AGENT: &str = concat!("sheave/", env!("CARGO_PKG_VERSION"));

/// Reason why there is no connection.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The kubeconfig file is not usable.
    #[error("kubeconfig {}: {error}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The error.
        error: KubeconfigError,
    },
    /// The kubeconfig from the environment has no such context, or the context is not usable.
    #[error("kubeconfig context {context}: {error}")]
    Context {
        /// Name of the context.
        context: String,
        /// The error.
        error: KubeconfigError,
    },
    /// There is neither an in-cluster configuration nor a kubeconfig.
    #[error(
        "no API server is configured: run inside a cluster, or set `kubeconfig` in the config or $KUBECONFIG ({0})"
    )]
    Nowhere(#[from] InferConfigError),
    /// The credentials are not usable.
    #[error("API server {server}: {error}")]
    Client {
        /// URL of the server.
        server: String,
        /// The error.
        error: Box<kube::Error>,
    },
}

/// Clients of one API server. Opening sends no request, so an unavailable server is no error here. Clones share the clients, so
/// that all of them get new credentials.
#[derive(Clone, Debug)]
pub struct Connection {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    source: ClientConfigSource,
    /// User agent.
    agent: HeaderValue,
    clients: RwLock<Clients>,
    /// Held while the credentials are read again.
    reopened: tokio::sync::Mutex<Reopened>,
}

/// Where the configuration of the clients is read.
#[derive(Clone, Debug)]
enum ClientConfigSource {
    File(PathBuf, Option<String>),
    /// This context in `$KUBECONFIG` or `~/.kube/config`.
    Context(String),
    /// In-cluster configuration. The client itself reads tokens and certificates again.
    InCluster,
    /// `$KUBECONFIG` or `~/.kube/config`.
    Inferred,
}

#[derive(Clone)]
struct Clients {
    /// Configuration that the clients were created with.
    config: Arc<Config>,
    server: Arc<str>,
    authorities: Arc<BTreeSet<String>>,
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
    /// Contents of the kubeconfig file.
    text: Option<Vec<u8>>,
    /// A read that was started and not awaited to its end.
    reading: Option<Reading>,
}

/// A read of the credentials in progress.
#[derive(Debug)]
struct Reading {
    /// Contents of the kubeconfig file when it started.
    text: Option<Vec<u8>>,
    /// Resolves to whether there are new clients.
    renewed: oneshot::Receiver<bool>,
    /// Whether a slow read was logged.
    slow: bool,
}

impl Connection {
    /// Opens a connection with the kubeconfig at `path`. Without a path it uses the in-cluster configuration, or outside of Pods
    /// `$KUBECONFIG` or `~/.kube/config`. Must be called within a Tokio runtime.
    ///
    /// # Errors
    /// If the configuration cannot be read or its credentials are not usable.
    pub async fn open(path: Option<&Path>) -> Result<Self, ConnectError> {
        Self::open_by(path, None, HeaderValue::from_static(AGENT)).await
    }

    /// Like [`Self::open`], with a `context` in place of the kubeconfig's current one, and with the process's `role` in the user
    /// agent. With a context, the in-cluster configuration is never used.
    ///
    /// # Errors
    /// See [`Self::open`].
    pub async fn open_as(
        path: Option<&Path>,
        context: Option<&str>,
        role: &str,
    ) -> Result<Self, ConnectError> {
        let agent = HeaderValue::try_from(format!("{AGENT} ({role})"));
        Self::open_by(path, context, agent.unwrap_or(HeaderValue::from_static(AGENT))).await
    }

    async fn open_by(
        path: Option<&Path>,
        context: Option<&str>,
        agent: HeaderValue,
    ) -> Result<Self, ConnectError> {
        let (source, config) = match (path, context) {
            (Some(path), context) => {
                let source = ClientConfigSource::File(path.to_owned(), context.map(str::to_owned));
                (source, from_file(path, context).await?)
            }
            (None, Some(context)) => {
                (ClientConfigSource::Context(context.to_owned()), from_context(context).await?)
            }
            (None, None) if std::env::var_os(IN_CLUSTER).is_some() => match Config::incluster() {
                Ok(config) => (ClientConfigSource::InCluster, config),
                Err(_) => (ClientConfigSource::Inferred, Config::infer().await?),
            },
            (None, None) => (ClientConfigSource::Inferred, Config::infer().await?),
        };
        let reopened = tokio::sync::Mutex::new(Reopened { at: None, text: source.text(), reading: None });
        let clients = RwLock::new(Clients::new(config, &agent)?);
        Ok(Self { shared: Arc::new(Shared { source, agent, clients, reopened }) })
    }

    /// A connection to the same server for another thread, because a client only works on the runtime in which it was created.
    /// Must be called within that runtime.
    ///
    /// # Errors
    /// If the credentials are no longer usable.
    pub(crate) fn separate(&self) -> Result<Self, ConnectError> {
        let Shared { source, agent, .. } = &*self.shared;
        let clients = Clients::new(Config::clone(&self.clients().config), agent)?;
        // The file may have changed since these clients were created. With unknown contents, it is read again after the first
        // failure.
        let reopened = Reopened { at: None, text: None, reading: None };
        Ok(Self {
            shared: Arc::new(Shared {
                source: source.clone(),
                agent: agent.clone(),
                clients: RwLock::new(clients),
                reopened: tokio::sync::Mutex::new(reopened),
            }),
        })
    }

    /// URL of the API server.
    pub fn server(&self) -> Arc<str> {
        self.clients().server
    }

    /// Checksums of the CA certificates that the server is verified with, one for each; empty if the system's are used. Each
    /// cluster has its own authorities, and they are known even while the server is unavailable.
    pub fn authorities(&self) -> Arc<BTreeSet<String>> {
        self.clients().authorities
    }

    /// Client for lists and watches, without a timeout for the answer.
    pub(crate) fn reader(&self) -> Client {
        self.clients().reader
    }

    /// Client for single requests: an answer that takes more than a few seconds is an error, and requests are not retried.
    pub(crate) fn writer(&self) -> Client {
        self.clients().writer
    }

    /// Reads the credentials again, as after the server refused them, which takes a few seconds at most. Returns whether there
    /// are new clients. Clients that were handed out before keep their credentials.
    pub(crate) async fn reopen(&self) -> bool {
        self.reopen_if(|_, _| true).await
    }

    /// Like [`Self::reopen`], but only if the kubeconfig file has changed: an unreachable server may have moved, or have a
    /// certificate from another authority.
    pub(crate) async fn reopen_if_changed(&self) -> bool {
        self.reopen_if(|old, new| new.is_some() && old != new).await
    }

    async fn reopen_if(&self, wanted: impl Fn(Option<&[u8]>, Option<&[u8]>) -> bool) -> bool {
        // Another caller is doing it; clients are replaced as soon as possible.
        let Ok(mut last) = self.shared.reopened.try_lock() else { return false };
        if last.reading.is_none() {
            let Some(reading) = self.start_reading(&last, wanted) else { return false };
            last.at = Some(Instant::now());
            last.reading = Some(reading);
        }
        // The read stays here until it ends, even if this future is dropped, so that hanging plugins do not accumulate.
        let Some(reading) = &mut last.reading else { return false };
        if let Ok(renewed) = timeout(REREAD, &mut reading.renewed).await {
            let text = last.reading.take().and_then(|reading| reading.text);
            let renewed = renewed.unwrap_or(false);
            if renewed {
                last.text = text;
            }
            return renewed;
        }
        if !std::mem::replace(&mut reading.slow, true) {
            tracing::warn!(
                seconds = REREAD.as_secs(),
                "the credentials take long to be read again (a plugin?); the old ones stay in use meanwhile"
            );
        }
        false
    }

    /// Starts to read the credentials again, if enough time has passed and `wanted` is true.
    fn start_reading(
        &self,
        last: &Reopened,
        wanted: impl Fn(Option<&[u8]>, Option<&[u8]>) -> bool,
    ) -> Option<Reading> {
        if matches!(self.shared.source, ClientConfigSource::InCluster)
            || last.at.is_some_and(|at| at.elapsed() < REOPEN)
        {
            return None;
        }
        let text = self.shared.source.text();
        if !wanted(last.text.as_deref(), text.as_deref()) {
            return None;
        }
        let (tell, renewed) = oneshot::channel();
        let (shared, runtime) = (Arc::clone(&self.shared), Handle::current());
        // A separate thread: plugins block it, and the process must be able to end meanwhile.
        std::thread::spawn(move || {
            // Fails if the receiver is gone.
            tell.send(runtime.block_on(shared.read_again())).unwrap_or_default();
        });
        Some(Reading { text, renewed, slow: false })
    }

    fn clients(&self) -> Clients {
        self.shared.clients.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A connection to a server without TLS or credentials.
    #[cfg(test)]
    pub(crate) fn to(url: &str) -> Self {
        let agent = HeaderValue::from_static(AGENT);
        Self::with(Clients::new(Config::new(url.parse().unwrap()), &agent).unwrap())
    }

    /// A connection with this client.
    #[cfg(test)]
    pub(crate) fn by(client: Client) -> Self {
        let config = Arc::new(Config::new(http::Uri::from_static("http://memory")));
        let (reader, writer) = (client.clone(), client);
        Self::with(Clients { config, server: "memory".into(), authorities: Arc::default(), reader, writer })
    }

    #[cfg(test)]
    fn with(clients: Clients) -> Self {
        let agent = HeaderValue::from_static(AGENT);
        let reopened = tokio::sync::Mutex::new(Reopened { at: None, text: None, reading: None });
        Self {
            shared: Arc::new(Shared {
                source: ClientConfigSource::InCluster,
                agent,
                clients: RwLock::new(clients),
                reopened,
            }),
        }
    }
}

impl Shared {
    /// Replaces the clients by ones with current credentials. Returns whether it did.
    async fn read_again(&self) -> bool {
        match self.source.read_again(&self.agent).await {
            Ok(Some(clients)) => {
                *self.clients.write().unwrap_or_else(PoisonError::into_inner) = clients;
                true
            }
            Ok(None) => false,
            Err(error) => {
                tracing::warn!(%error, "the credentials cannot be read again; the old ones stay in use");
                false
            }
        }
    }
}

impl ClientConfigSource {
    /// Contents of the kubeconfig file, if a file was given and can be read.
    fn text(&self) -> Option<Vec<u8>> {
        match self {
            Self::File(path, _) => std::fs::read(path).ok(),
            Self::Context(_) | Self::InCluster | Self::Inferred => None,
        }
    }

    async fn read_again(&self, agent: &HeaderValue) -> Result<Option<Clients>, ConnectError> {
        let config = match self {
            Self::File(path, context) => from_file(path, context.as_deref()).await?,
            Self::Context(context) => from_context(context).await?,
            Self::InCluster => return Ok(None),
            Self::Inferred => Config::infer().await?,
        };
        Clients::new(config, agent).map(Some)
    }
}

impl Clients {
    fn new(mut config: Config, agent: &HeaderValue) -> Result<Self, ConnectError> {
        let given = Arc::new(config.clone());
        config.headers.push((USER_AGENT, agent.clone()));
        let server = config.cluster_url.to_string();
        let authorities = Arc::new(authorities(&config));
        let failed = |error| ConnectError::Client { server: server.clone(), error: Box::new(error) };
        config.connect_timeout = Some(CONNECT);
        // Callers decide about retries: by default a request could last minutes.
        config.default_retry = false;
        let reader = Client::try_from(config.clone()).map_err(failed)?;
        config.read_timeout = Some(WRITE);
        config.reset_reader_on_write = true;
        config.write_timeout = Some(WRITE);
        let writer = Client::try_from(config).map_err(failed)?;
        Ok(Self { config: given, server: server.into(), authorities, reader, writer })
    }
}

/// Checksums distinguish authorities. They prove nothing, and need not.
fn authorities(config: &Config) -> BTreeSet<String> {
    let certificates = config.root_cert.iter().flatten();
    certificates.map(|certificate| format!("{:08x}", crc32fast::hash(certificate))).collect()
}

async fn from_file(path: &Path, context: Option<&str>) -> Result<Config, ConnectError> {
    let failed = |error| ConnectError::Kubeconfig { path: path.to_owned(), error };
    let kubeconfig = Kubeconfig::read_from(path).map_err(failed)?;
    Config::from_custom_kubeconfig(kubeconfig, &options(context)).await.map_err(failed)
}

async fn from_context(context: &str) -> Result<Config, ConnectError> {
    let config = Config::from_kubeconfig(&options(Some(context))).await;
    config.map_err(|error| ConnectError::Context { context: context.to_owned(), error })
}

fn options(context: Option<&str>) -> KubeConfigOptions {
    KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() }
}

/// Default namespace of a context, as in kubectl: of `context` or else the current context, in the kubeconfig at `path` or else
/// in `$KUBECONFIG` or `~/.kube/config`. `None` if no namespace is set.
pub fn default_namespace(path: Option<&Path>, context: Option<&str>) -> Option<String> {
    let kubeconfig = path.map_or_else(Kubeconfig::read, Kubeconfig::read_from).ok()?;
    let name = context.or(kubeconfig.current_context.as_deref())?;
    let named = kubeconfig.contexts.iter().find(|context| context.name == name)?;
    named.context.as_ref()?.namespace.clone()
}

#[cfg(test)]
mod tests;
