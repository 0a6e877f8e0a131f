//! Tests of elections over HTTP: the Lease on the wire, and that two never lead at once whatever the server does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use sheave_control::controller::election::{Election, Leadership};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::connect::{candidate, lease, observe, soon};
use crate::support::apiserver::ApiServer;
use crate::support::apiserver::faults::{Fault, Matching};
use crate::support::patience::eventually;

fn spec(server: &ApiServer) -> Value {
    let lease = lease();
    let stored = server.object("leases", Some(&lease.namespace), &lease.name).expect("the Lease is there");
    stored["spec"].clone()
}

/// Checks a MicroTime with its fraction: the server refuses any other number of digits.
fn assert_micro_time(time: &Value) {
    let text = time.as_str().expect("a time");
    let fraction = text.strip_suffix('Z').and_then(|it| it.rsplit_once('.')).expect("a fraction").1;
    assert_eq!(fraction.len(), 6, "{text}");
}

#[tokio::test]
async fn the_winner_makes_the_lease_and_who_resigns_makes_room() {
    let server = Arc::new(ApiServer::start());
    let mut first = candidate(&server, "a").await;
    soon("leadership", first.won()).await.unwrap();
    let made = spec(&server);
    assert_eq!((&made["holderIdentity"], &made["leaseDurationSeconds"]), (&"a".into(), &3.into()));
    assert_eq!(made["leaseTransitions"], 0);
    assert_micro_time(&made["acquireTime"]);
    assert_micro_time(&made["renewTime"]);

    let mut second = candidate(&server, "b").await;
    let seen = Arc::clone(&server);
    observe("a first look", move || {
        let looked = seen.requests().iter().any(|it| it.user == "b" && it.verb == "get");
        looked.then_some(()).ok_or("no request")
    })
    .await;
    assert!(!second.leadership().holds());
    let right = first.leadership();
    first.resign().await;
    assert!(!right.holds());
    soon("leadership", second.won()).await.unwrap();
    let taken = spec(&server);
    assert_eq!((&taken["holderIdentity"], &taken["leaseTransitions"]), (&"b".into(), &1.into()));
    second.resign().await;
    assert_eq!(
        (&spec(&server)["holderIdentity"], &spec(&server)["leaseDurationSeconds"]),
        (&"".into(), &1.into())
    );
}

/// Leadership of each candidate, in its own view.
type Rights = Arc<Mutex<BTreeMap<String, Leadership>>>;

/// Leads whenever possible and reports it, after checking that no other candidate is leader.
async fn lead(mut election: Election, name: String, rights: Rights, won: mpsc::UnboundedSender<String>) {
    loop {
        election.won().await.unwrap();
        let right = election.leadership();
        {
            let mut rights = rights.lock().expect("no candidate panics");
            let others: Vec<_> = rights.iter().filter(|(it, right)| **it != name && right.holds()).collect();
            assert!(others.is_empty(), "{name} leads beside {others:?}");
            rights.insert(name.clone(), right);
        }
        won.send(name.clone()).expect("the test listens");
        election.lost().await.unwrap();
    }
}

#[tokio::test]
async fn two_never_lead_at_once_whatever_the_server_does_to_the_leader() {
    let server = Arc::new(ApiServer::start());
    let rights = Rights::default();
    let (tell, mut winners) = mpsc::unbounded_channel();
    let mut candidates = JoinSet::new();
    for name in ["a", "b", "c"] {
        let election = candidate(&server, name).await;
        candidates.spawn(lead(election, name.to_owned(), Arc::clone(&rights), tell.clone()));
    }
    let next = |faults: &'static str| format!("a leader after: {faults}");
    let mut leader = soon("a first leader", winners.recv()).await.expect("candidates run");
    let faults = [
        ("hung requests", "*", Fault::Swallow),
        ("refused updates", "update", Fault::conflict()),
        ("unavailable", "*", Fault::unavailable()),
        ("too many requests", "*", Fault::too_many_requests(1)),
    ];
    for (what, verb, fault) in faults {
        while let Ok(name) = winners.try_recv() {
            leader = name;
        }
        server.faults().plan(Matching::new(verb, "leases").by(&leader), usize::MAX, fault);
        let winner = soon(&next(what), winners.recv()).await.expect("candidates run");
        assert_ne!(winner, leader, "after: {what}");
        server.faults().clear();
        leader = winner;
    }
    // A candidate whose answers are lost may keep leading, since its writes took effect. What matters is that there is a
    // leader afterwards.
    server.faults().plan(Matching::new("update", "leases"), 20, Fault::LoseAnswer);
    let seen = Arc::clone(&server);
    observe("all lost answers", move || match seen.faults().outstanding() {
        0 => Ok(()),
        left => Err(format!("{left} to come")),
    })
    .await;
    let all = Arc::clone(&rights);
    observe("a leader after lost answers", move || {
        let rights = all.lock().expect("no candidate panics");
        let leading = rights.values().filter(|it| it.holds()).count();
        if leading == 1 { Ok(()) } else { Err(format!("{leading} lead")) }
    })
    .await;
    assert!(candidates.try_join_next().is_none(), "no candidate has panicked");
}

/// A projection of many Services with little CPU time keeps the controller's thread busy. Renewals must not wait for it.
#[tokio::test]
async fn renewals_do_not_wait_for_what_the_leader_does() {
    let server = ApiServer::start();
    let mut first = candidate(&server, "a").await;
    soon("leadership", first.won()).await.unwrap();
    let right = first.leadership();
    // This thread is blocked meanwhile, for longer than a term of two seconds.
    eventually("thirty renewals, one in 100 ms", || {
        let renewals = server.requests().iter().filter(|it| it.user == "a" && it.verb == "update").count();
        if renewals >= 30 { Ok(()) } else { Err(format!("{renewals} renewals")) }
    });
    assert!(right.holds(), "the Lease was lost meanwhile");
    first.resign().await;
}
