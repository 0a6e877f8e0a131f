//! TLS of a listener, with the certificate that is currently in the files. They are read for each connection, whose handshake costs
//! far more. An invalid certificate leaves the last good one in use.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::runtime::{Builder, Handle};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

/// Thread for TLS connections, which starts with the first server that needs it. A client that only starts a handshake costs it half
/// a millisecond, which the control loop must not lose. `None` if no thread can be started.
pub(super) fn thread() -> Option<&'static Handle> {
    static THREAD: OnceLock<Option<Handle>> = OnceLock::new();
    THREAD
        .get_or_init(|| {
            start().inspect_err(|error| tracing::warn!(%error, "TLS has no thread of its own")).ok()
        })
        .as_ref()
}

fn start() -> io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let run = move || runtime.block_on(std::future::pending::<()>());
    std::thread::Builder::new().name("tls".to_owned()).spawn(run)?;
    Ok(handle)
}

/// The files of a TLS server, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate chain, from the server's certificate to the last intermediate one.
    pub certificate: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

/// Certificate and key of a server. Clones share the cache.
#[derive(Clone, Debug)]
pub(super) struct Tls {
    files: Arc<TlsFiles>,
    loaded: Arc<Mutex<Loaded>>,
}

/// Contents that were read last.
#[derive(Debug, Default)]
struct Loaded {
    /// Certificate and key, valid or not; `None` if they could not be read.
    pem: Option<Pem>,
    /// Configuration with the last valid certificate.
    config: Option<Arc<ServerConfig>>,
    /// Whether an invalid certificate has been logged.
    failing: bool,
}

type Pem = (Vec<u8>, Vec<u8>);

/// Reason for an unusable certificate.
#[derive(Debug, thiserror::Error)]
enum TlsError {
    #[error("{0}: {1}")]
    Read(String, io::Error),
    #[error("not PEM: {0}")]
    Pem(#[from] pem::Error),
    #[error("{0}")]
    Tls(#[from] rustls::Error),
}

impl Tls {
    /// Reads the files, which may become valid later.
    pub(super) fn load(files: &TlsFiles) -> Self {
        let mut loaded = Loaded::default();
        loaded.refresh(files);
        Self { files: Arc::new(files.clone()), loaded: Arc::new(Mutex::new(loaded)) }
    }

    /// TLS acceptor for the next client; `None` before the first valid certificate.
    pub(super) async fn acceptor(&self) -> Option<TlsAcceptor> {
        let Self { files, loaded } = self.clone();
        let config = tokio::task::spawn_blocking(move || {
            let mut loaded = loaded.lock().unwrap_or_else(PoisonError::into_inner);
            loaded.refresh(&files);
            loaded.config.clone()
        });
        config.await.ok().flatten().map(TlsAcceptor::from)
    }
}

impl Loaded {
    fn refresh(&mut self, files: &TlsFiles) {
        let (pem, config) = match read(files) {
            Ok(pem) if self.pem.as_ref() == Some(&pem) => return,
            Ok(pem) => {
                let config = server_config(&pem);
                (Some(pem), config)
            }
            Err(error) => (None, Err(error)),
        };
        let changed = self.pem != pem;
        self.pem = pem;
        match config {
            Ok(config) => {
                tracing::info!(certificate = %files.certificate.display(), "a TLS certificate was read");
                self.config = Some(config);
                self.failing = false;
            }
            Err(error) => {
                if changed || !self.failing {
                    let meanwhile = match self.config {
                        Some(_) => "the last good one stays in use",
                        None => "connections are closed until it can",
                    };
                    tracing::warn!(
                        certificate = %files.certificate.display(), key = %files.key.display(), %error,
                        "a TLS certificate cannot be used: {meanwhile}"
                    );
                }
                self.failing = true;
            }
        }
    }
}

fn read(files: &TlsFiles) -> Result<Pem, TlsError> {
    let text =
        |path: &Path| std::fs::read(path).map_err(|error| TlsError::Read(path.display().to_string(), error));
    Ok((text(&files.certificate)?, text(&files.key)?))
}

/// Builds the configuration. Also checks that the key matches the certificate (rustls, `CertifiedKey::from_der`).
fn server_config((certificate, key): &Pem) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(key)?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests;
