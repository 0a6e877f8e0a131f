//! How to reach an API server: in-cluster or by a kubeconfig, with one client for reading and one for writing. It must not
//! know what is read or written.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use thiserror::Error;

/// Set in every Pod (kubelet, `getServiceEnvVarMap`).
const IN_CLUSTER: &str = "KUBERNETES_SERVICE_HOST";
/// An address that swallows packets is given up after so long, and asked again later.
const CONNECT: Duration = Duration::from_secs(5);
/// A write that was not answered by then counts as lost: the leader must not wait longer than its lease lasts.
const WRITE: Duration = Duration::from_secs(8);

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

/// Clients of one API server. Nothing has been sent yet: a server that is away is no error here.
#[derive(Clone)]
pub struct Connection {
    server: String,
    reader: Client,
    writer: Client,
}

impl Connection {
    /// By the kubeconfig at `path`; without one as a Pod does, or by `$KUBECONFIG` or `~/.kube/config` outside of Pods.
    /// Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// If the configuration cannot be read or its credentials cannot be used.
    pub async fn open(path: Option<&Path>) -> Result<Self, ConnectError> {
        let config = match path {
            Some(path) => from_file(path)
                .await
                .map_err(|error| ConnectError::Kubeconfig { path: path.to_owned(), error })?,
            None if std::env::var_os(IN_CLUSTER).is_some() => match Config::incluster() {
                Ok(config) => config,
                Err(_) => Config::infer().await?,
            },
            None => Config::infer().await?,
        };
        Self::new(config)
    }

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
        Ok(Self { reader, writer, server })
    }

    /// The API server's URL.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// For lists and watches: an answer may take as long as it likes.
    pub(crate) fn reader(&self) -> Client {
        self.reader.clone()
    }

    /// For single requests: an answer that does not come within seconds is an error, and nothing is retried.
    pub(crate) fn writer(&self) -> Client {
        self.writer.clone()
    }
}

async fn from_file(path: &Path) -> Result<Config, KubeconfigError> {
    Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &KubeConfigOptions::default()).await
}
