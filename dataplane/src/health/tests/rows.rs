//! Tests of consecutive failures when workers report faster than the health task reads.

use arc_swap::ArcSwap;

use super::*;
use crate::health::{ConnectedFrom, Health, ProbeBudget};
use crate::select::ActiveTable;

fn refused() -> std::io::Error {
    std::io::ErrorKind::ConnectionRefused.into()
}

/// Like a listener whose queue is full now and then.
#[tokio::test]
async fn an_endpoint_that_refuses_every_second_connection_is_not_ejected() {
    let endpoint = serving();
    let frontend = frontend(Protocol::Tcp, &[endpoint], None);
    let addr = frontend.addr;
    let active = Arc::new(ActiveTable::compile(table([frontend]), &ActiveTable::default()));
    let mut health = Health::new(Arc::default(), ProbeBudget::of(0));
    let reports = health.reports();
    let workers: Vec<_> = (0..2)
        .map(|_| {
            let (reports, active) = (Arc::clone(&reports), Arc::clone(&active));
            tokio::task::spawn_blocking(move || {
                let frontend = active.get(addr).unwrap();
                for _ in 0..100_000 {
                    let at = std::time::Instant::now();
                    reports.failed(&active, frontend, endpoint, ConnectedFrom::Gateway, refused(), at);
                    reports.answered(endpoint, || Some(frontend));
                }
            })
        })
        .collect();
    let table = ArcSwap::new(active);
    let follow = async {
        loop {
            health.changed(&table).await;
            assert!(health.take_changed().is_none_or(|_| health.unhealthy().next().is_none()));
        }
    };
    let done = async {
        for worker in workers {
            worker.await.unwrap();
        }
    };
    tokio::select! {
        () = follow => unreachable!(),
        () = done => {}
    }
    assert_eq!(health.counts().ejections, 0);
}

#[tokio::test]
async fn one_that_refuses_a_burst_and_is_asked_no_more_is_ejected() {
    let frontend = frontend(Protocol::Tcp, &[refusing()], None);
    let addr = frontend.addr;
    let mut dataplane = start(&[], PATIENCE, frontend);
    let burst = async {
        let clients: Vec<_> = (0..8).map(|_| tokio::spawn(is_served(addr))).collect();
        for client in clients {
            assert!(!client.await.unwrap());
        }
    };
    burst.await;
    until_unhealthy(&mut dataplane, 1).await;
    assert_eq!(dataplane.health_counts().ejections, 1);
}

/// What a client sends may be all that has failed: a second SYN before the first is answered.
#[tokio::test]
async fn what_clients_may_have_caused_ejects_only_where_the_gateway_fails_as_well() {
    for (endpoint, ejections) in [(serving(), 0), (refusing(), 1)] {
        let frontend = frontend(Protocol::Tcp, &[endpoint], None);
        let addr = frontend.addr;
        let (none, table) = (ActiveTable::default(), Arc::new(table([frontend])));
        let mut health = Health::new(Arc::default(), ProbeBudget::of(0));
        health.follow(none.table(), &sheave_model::diff(none.table(), &table));
        let active = Arc::new(ActiveTable::compile(table, &none));
        let table = ArcSwap::new(Arc::clone(&active));
        let reports = health.reports();
        for _ in 0..5 {
            let at = std::time::Instant::now();
            let frontend = active.get(addr).unwrap();
            reports.failed(&active, frontend, endpoint, ConnectedFrom::ByClient, refused(), at);
            timeout(Duration::from_millis(50), health.changed(&table)).await.ok();
            health.take_changed();
            tokio::time::pause();
            tokio::time::advance(Duration::from_secs(1)).await;
            tokio::time::resume();
        }
        assert_eq!(health.counts().ejections, ejections);
    }
}
