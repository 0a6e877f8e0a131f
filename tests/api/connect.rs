//! How tests of the controller reach the test API server as Sheave does, and look at it meanwhile.

use std::fmt::Display;
use std::time::Duration;

use sheave_control::api::store::ServiceKey;
use sheave_control::controller::election::{Election, Timing};
use sheave_control::sources::connection::Connection;
use tempfile::NamedTempFile;

use crate::support::apiserver::ApiServer;
use crate::support::patience::{eventually, io_deadline};

/// The Lease that the configuration names by default.
pub(crate) fn lease() -> ServiceKey {
    ServiceKey::new("sheave-system", "sheave-controller")
}

/// Times that tests can wait for; a leader has a second to stop before others start.
pub(crate) fn short() -> Timing {
    Timing {
        lease: Duration::from_secs(3),
        deadline: Duration::from_secs(2),
        retry: Duration::from_millis(100),
    }
}

/// A file with a user's kubeconfig.
pub(crate) fn kubeconfig(server: &ApiServer, user: &str) -> NamedTempFile {
    let file = NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), server.kubeconfig(user)).expect("a kubeconfig");
    file
}

/// A user's connection.
pub(crate) async fn connect(server: &ApiServer, user: &str) -> Connection {
    let file = kubeconfig(server, user);
    Connection::open(Some(file.path())).await.expect("a connection")
}

/// A candidate under its user's name.
pub(crate) async fn candidate(server: &ApiServer, user: &str) -> Election {
    Election::start(&connect(server, user).await, &lease(), user.to_owned(), short())
}

/// Awaits what must come.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(io_deadline(), future).await.unwrap_or_else(|_| panic!("{what} does not come"))
}

/// Looks until `probe` answers `Ok`, while the runtime goes on.
pub(crate) async fn observe<T, E>(
    what: &'static str,
    probe: impl FnMut() -> Result<T, E> + Send + 'static,
) -> T
where
    T: Send + 'static,
    E: Display,
{
    tokio::task::spawn_blocking(move || eventually(what, probe)).await.expect("it was seen")
}
