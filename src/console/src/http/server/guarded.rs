//! Listener that is open to the network, with its authorization and TLS.

use std::path::{Path, PathBuf};

use axum::Router;
use sheave_control::delegated_auth::DelegatedAuth;
use sheave_control::sources::connection::Connection;
use tokio::net::TcpListener;

use super::bearer::{self, Access};
use super::tls::{Tls, TlsFiles};
use super::{Connections, Server};

/// Page of a listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    /// Section of the configuration.
    pub(crate) section: &'static str,
    /// Path of the page.
    pub(crate) path: &'static str,
    /// Required audience of Kubernetes tokens; `None` = that of the API server.
    pub(crate) audience: Option<&'static str>,
}

/// Clients that may use a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authorization {
    /// Anyone who can connect.
    Open,
    /// Clients with the bearer token of this file.
    TokenFile(PathBuf),
    /// Clients whose bearer token the API server accepts, and whom it authorizes to get the path.
    Kubernetes,
}

/// Listener with authorization and TLS.
#[derive(Debug)]
pub struct GuardedListener {
    listener: TcpListener,
    access: Access,
    tls: Option<Tls>,
}

impl GuardedListener {
    /// Guards the `listener` of a page. A token or certificate that cannot be read is only logged, since it may appear
    /// later.
    ///
    /// # Errors
    /// If tokens must be checked by an API server, and there is none.
    pub(crate) fn new(
        listener: TcpListener,
        Page { section, path, audience }: Page,
        (authorization, tls): (&Authorization, Option<&TlsFiles>),
        connection: Option<&Connection>,
    ) -> Result<Self, String> {
        let access = match (authorization, connection) {
            (Authorization::Open, _) => Access::Open,
            (Authorization::TokenFile(file), _) => token_file(section, file),
            (Authorization::Kubernetes, Some(connection)) => {
                Access::Kubernetes(DelegatedAuth::new(connection.clone(), path, audience))
            }
            (Authorization::Kubernetes, None) => {
                return Err(format!(
                    "{section}.authorization: kubernetes needs an API server, and there is none"
                ));
            }
        };
        Ok(Self { listener, access, tls: tls.map(Tls::load) })
    }

    /// Whether anyone who can connect is answered.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.access, Access::Open)
    }

    /// Restricts the routes of `router` further: to clients that have the right to `path`, too, if the API server decides.
    pub(crate) fn restrict(&self, router: Router, path: &'static str) -> Router {
        bearer::also_guarded(router, &self.access, path)
    }

    /// Serves `router` until the result is dropped.
    pub fn serve(self, router: Router, connections: Connections) -> Server {
        let Self { listener, access, tls } = self;
        Server::start_over(listener, bearer::guarded(router, access), connections, tls)
    }
}

fn token_file(section: &str, file: &Path) -> Access {
    if let Err(error) = bearer::read(file) {
        tracing::warn!(file = %file.display(), %error, "{section}.tokenFile cannot be read: requests get 503 until it can");
    }
    Access::TokenFile(file.into())
}
