//! How to reach an API server: in-cluster or by a kubeconfig, with one client for reading and one for writing, and new
//! ones when the credentials were renewed.

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

/// Set in every Pod (kubelet, `getServiceEnvVarMap`).
const IN_CLUSTER: &str = "KUBERNETES_SERVICE_HOST";
/// An address that swallows packets is given up after so long, and asked again later.
const CONNECT: Duration = Duration::from_secs(5);
/// A write that was not answered by then counts as lost: the leader must not wait longer than its lease lasts.
const WRITE: Duration = Duration::from_secs(8);
/// Credentials are read again at most so often: all that use the connection are refused at the same time, and reading
/// may run a plugin.
const REOPEN: Duration = Duration::from_secs(5);
/// A plugin that takes longer than this is waited for no further; what it brings in the end is used all the same.
const REREAD: Duration = Duration::from_secs(10);

/// What we call ourselves in the API server's logs; roles are added.
const AGENT: &str = concat!("sheave/", env!("CARGO_PKG_VERSION"));

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
    /// The kubeconfig of the environment has no such context, or it cannot be used.
    #[error("kubeconfig context {context}: {error}")]
    Context {
        /// Its name.
        context: String,
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
    /// What we call ourselves.
    agent: HeaderValue,
    clients: RwLock<Clients>,
    /// Held while the credentials are read again.
    reopened: tokio::sync::Mutex<Reopened>,
}

/// Where the configuration comes from.
#[derive(Clone, Debug)]
enum Source {
    File(PathBuf, Option<String>),
    /// This context, of `$KUBECONFIG` or `~/.kube/config`.
    Context(String),
    /// Tokens and certificates of Pods are re-read by the client itself.
    InCluster,
    /// By `$KUBECONFIG` or `~/.kube/config`.
    Inferred,
}

#[derive(Clone)]
struct Clients {
    /// What they were made by.
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
    /// What the kubeconfig file held.
    text: Option<Vec<u8>>,
    /// What has begun, and was not waited for to the end.
    reading: Option<Reading>,
}

/// Credentials that are being read.
#[derive(Debug)]
struct Reading {
    /// What the kubeconfig file held when it began.
    text: Option<Vec<u8>>,
    /// Whether there are new clients.
    renewed: oneshot::Receiver<bool>,
    /// That it takes long was said.
    slow: bool,
}

impl Connection {
    /// By the kubeconfig at `path`; without one as a Pod does, or by `$KUBECONFIG` or `~/.kube/config` outside of Pods.
    /// Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// If the configuration cannot be read or its credentials cannot be used.
    pub async fn open(path: Option<&Path>) -> Result<Self, ConnectError> {
        Self::open_by(path, None, HeaderValue::from_static(AGENT)).await
    }

    /// As [`Self::open`], by a `context` of the kubeconfig in place of its current one, and with the process's `role` in the API
    /// server's logs. A context is never a Pod's: with it the in-cluster credentials are left out.
    ///
    /// # Errors
    /// As [`Self::open`].
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
                let source = Source::File(path.to_owned(), context.map(str::to_owned));
                (source, from_file(path, context).await?)
            }
            (None, Some(context)) => (Source::Context(context.to_owned()), from_context(context).await?),
            (None, None) if std::env::var_os(IN_CLUSTER).is_some() => match Config::incluster() {
                Ok(config) => (Source::InCluster, config),
                Err(_) => (Source::Inferred, Config::infer().await?),
            },
            (None, None) => (Source::Inferred, Config::infer().await?),
        };
        let reopened = tokio::sync::Mutex::new(Reopened { at: None, text: source.text(), reading: None });
        let clients = RwLock::new(Clients::new(config, &agent)?);
        Ok(Self { shared: Arc::new(Shared { source, agent, clients, reopened }) })
    }

    /// Another one to the same server, for another thread: a client works on the runtime in which it was made. Must be called
    /// inside that runtime.
    ///
    /// # Errors
    /// If the credentials cannot be used any more.
    pub(crate) fn separate(&self) -> Result<Self, ConnectError> {
        let Shared { source, agent, .. } = &*self.shared;
        let clients = Clients::new(Config::clone(&self.clients().config), agent)?;
        // The file may be another by now than what these were made by: unknown, it is read again after the first failure.
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

    /// The API server's URL.
    pub fn server(&self) -> Arc<str> {
        self.clients().server
    }

    /// Checksums of the certificates by which the server is trusted, one for each; none where the system's are. Clusters have
    /// authorities of their own, and those are known while the server is away.
    pub fn authorities(&self) -> Arc<BTreeSet<String>> {
        self.clients().authorities
    }

    /// For lists and watches: an answer may take as long as it likes.
    pub(crate) fn reader(&self) -> Client {
        self.clients().reader
    }

    /// For single requests: an answer that does not come within seconds is an error, and nothing is retried.
    pub(crate) fn writer(&self) -> Client {
        self.clients().writer
    }

    /// Reads the credentials again, as after the server refused them, which takes some seconds at most. Answers whether there
    /// are new clients. Those that were handed out before go on with the old ones.
    pub(crate) async fn reopen(&self) -> bool {
        self.reopen_if(|_, _| true).await
    }

    /// The same, but only if the kubeconfig file is another than it was: a server that cannot be reached may have moved, or
    /// have a certificate of another authority.
    pub(crate) async fn reopen_if_changed(&self) -> bool {
        self.reopen_if(|old, new| new.is_some() && old != new).await
    }

    async fn reopen_if(&self, wanted: impl Fn(Option<&[u8]>, Option<&[u8]>) -> bool) -> bool {
        // Somebody else does it: the clients are new as soon as they can be.
        let Ok(mut last) = self.shared.reopened.try_lock() else { return false };
        if last.reading.is_none() {
            let Some(reading) = self.start_reading(&last, wanted) else { return false };
            last.at = Some(Instant::now());
            last.reading = Some(reading);
        }
        // It stays there while it lasts, even if this is dropped: plugins that hang must not pile up.
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

    /// Begins to read the credentials again, if it is time and there is a reason to.
    fn start_reading(
        &self,
        last: &Reopened,
        wanted: impl Fn(Option<&[u8]>, Option<&[u8]>) -> bool,
    ) -> Option<Reading> {
        if matches!(self.shared.source, Source::InCluster) || last.at.is_some_and(|at| at.elapsed() < REOPEN)
        {
            return None;
        }
        let text = self.shared.source.text();
        if !wanted(last.text.as_deref(), text.as_deref()) {
            return None;
        }
        let (tell, renewed) = oneshot::channel();
        let (shared, runtime) = (Arc::clone(&self.shared), Handle::current());
        // A thread of its own: plugins are waited for without yielding, and the process must be able to end meanwhile.
        std::thread::spawn(move || {
            // Nobody may wait any more.
            tell.send(runtime.block_on(shared.read_again())).unwrap_or_default();
        });
        Some(Reading { text, renewed, slow: false })
    }

    fn clients(&self) -> Clients {
        self.shared.clients.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// To a server without TLS or credentials.
    #[cfg(test)]
    pub(crate) fn to(url: &str) -> Self {
        let agent = HeaderValue::from_static(AGENT);
        Self::with(Clients::new(Config::new(url.parse().unwrap()), &agent).unwrap())
    }

    /// By this client.
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
                source: Source::InCluster,
                agent,
                clients: RwLock::new(clients),
                reopened,
            }),
        }
    }
}

impl Shared {
    /// Puts clients with the credentials of now in the place of the old ones. Answers whether it did.
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

impl Source {
    /// The kubeconfig file, if that is what was given and it can be read.
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
        // Retries are decided where it is known what they are for: by default a call may last minutes.
        config.default_retry = false;
        let reader = Client::try_from(config.clone()).map_err(failed)?;
        config.read_timeout = Some(WRITE);
        config.reset_reader_on_write = true;
        config.write_timeout = Some(WRITE);
        let writer = Client::try_from(config).map_err(failed)?;
        Ok(Self { config: given, server: server.into(), authorities, reader, writer })
    }
}

/// A checksum tells authorities apart; it proves nothing, and need not.
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

/// The namespace of a context, as kubectl takes it for names without one: of the current context unless `context` names another,
/// and of `$KUBECONFIG` or `~/.kube/config` without a `path`. None if nothing gives one.
pub fn default_namespace(path: Option<&Path>, context: Option<&str>) -> Option<String> {
    let kubeconfig = path.map_or_else(Kubeconfig::read, Kubeconfig::read_from).ok()?;
    let name = context.or(kubeconfig.current_context.as_deref())?;
    let named = kubeconfig.contexts.iter().find(|context| context.name == name)?;
    named.context.as_ref()?.namespace.clone()
}

#[cfg(test)]
mod tests;
