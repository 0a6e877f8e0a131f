//! Tests of credentials that are replaced while a process runs, from the view of writers.

use sheave_control::controller::election::Election;
use sheave_control::sources::connection::Connection;

use super::connect::{kubeconfig, lease, short, soon};
use crate::support::apiserver::ApiServer;

#[tokio::test]
async fn who_writes_goes_by_the_credentials_of_the_moment() {
    let server = ApiServer::start();
    let file = kubeconfig(&server, "a");
    let known = server.kubeconfig("a");
    std::fs::write(file.path(), known.replace(&server.token("a"), "expired")).expect("a kubeconfig");
    let connection = Connection::open(Some(file.path())).await.expect("a connection");
    let mut candidate = Election::start(&connection, &lease(), "a".to_owned(), short());
    std::fs::write(file.path(), known).expect("a kubeconfig");
    soon("leadership", candidate.won()).await.unwrap();
    let requests = server.requests();
    assert_eq!(requests[0].status, Some(401), "{requests:?}");
    assert!(requests.iter().all(|request| request.user_agent.starts_with("sheave/")), "{requests:?}");
}
