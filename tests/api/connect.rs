//! Connections of controller tests to the test API server, in the same way as Sheave, and helpers to observe
//! it.

use std::fmt::Display;
use std::time::Duration;

use sheave_control::api::store::ServiceKey;
use sheave_control::controller::election::{Election, LeaseTiming};
use sheave_control::sources::connection::Connection;
use tempfile::NamedTempFile;

use crate::support::apiserver::ApiServer;
use crate::support::patience::{eventually, io_deadline};

/// Lease of the default configuration.
pub(crate) fn lease() -> ServiceKey {
    ServiceKey::new("sheave-system", "sheave-controller")
}

/// Timing for tests: a leader has a second to stop before others start.
pub(crate) fn short() -> LeaseTiming {
    LeaseTiming {
        lease: Duration::from_secs(3),
        deadline: Duration::from_secs(2),
        retry: Duration::from_millis(100),
    }
}

/// File with a user's kubeconfig.
pub(crate) fn kubeconfig(server: &ApiServer, user: &str) -> NamedTempFile {
    let file = NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), server.kubeconfig(user)).expect("a kubeconfig");
    file
}

/// Connection of a user.
pub(crate) async fn connect(server: &ApiServer, user: &str) -> Connection {
    let file = kubeconfig(server, user);
    Connection::open(Some(file.path())).await.expect("a connection")
}

/// Candidate with the name of its user.
pub(crate) async fn candidate(server: &ApiServer, user: &str) -> Election {
    Election::start(&connect(server, user).await, &lease(), user.to_owned(), short())
}

/// Waits for a future, with a deadline.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(io_deadline(), future).await.unwrap_or_else(|_| panic!("{what} does not come"))
}

/// Repeats `probe` until it returns `Ok`, while the runtime continues.
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
