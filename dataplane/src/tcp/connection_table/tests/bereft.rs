//! Tests of connections whose endpoint has left.

use super::*;
use crate::select::ActiveTable;
use crate::tcp::tests::rig::table_with;
use sheave_model::{RoutingTable, ServiceTimeouts};

/// Who has the frontend's address.
#[derive(Clone, Copy, PartialEq)]
enum Owner {
    Same,
    /// Another Service from the time on at which the endpoint leaves.
    Another,
}

/// Counts how many of two connections have ended some time after the first one's endpoint left, and when the first did. With `back`
/// the endpoint serves again after half the grace period.
fn ended_without_endpoint(grace: Option<Duration>, back: bool, owner: Owner) -> (usize, Duration) {
    let shared = Shared::for_tests(Timeouts::all(10 * HOUR));
    let table = Arc::clone(&shared.table);
    let rig = TableRig::with(shared, 8);
    let timeouts = ServiceTimeouts { removed_endpoint_grace: grace, ..ServiceTimeouts::default() };
    let with = |endpoint: std::net::SocketAddr| {
        let (_, table) = table_with(EndpointAddr::new(endpoint.ip(), endpoint.port()), timeouts);
        Arc::new(table)
    };
    let endpoints = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let here = endpoints.local_addr().unwrap();
    let began = now();
    table.store(with(here));
    rig.worker.begin_turn(began);
    let clients = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let client = TcpStream::connect(clients.local_addr().unwrap()).unwrap();
    let client_side = accepted(&clients).unwrap();
    rig.relay_for(client_side, connecting(here), Direction::new(), (10 * HOUR, None));
    let _endpoint = endpoints.accept().unwrap();
    rig.serve();
    turn_until(&rig, began, STEP, |after| after > Duration::from_secs(120));
    assert_eq!(rig.ended(), 0, "it serves");

    let left = began + Duration::from_secs(121);
    let without = with((Ipv4Addr::LOCALHOST, 9).into());
    table.store(if owner == Owner::Another { of_another(&without) } else { without });
    let mut returned = false;
    let ended = turn_until(&rig, left, STEP, |after| {
        if back && !returned && after > grace.unwrap_or_default() / 2 {
            returned = true;
            table.store(with(here));
        }
        rig.ended() > 0 || after > Duration::from_secs(600)
    });
    if rig.ended() > 0 {
        assert_eq!(end(&client), Ok(0), "FIN");
        assert_eq!(rig.closed(CloseReason::Removed), 1);
    }
    (rig.ended(), ended)
}

#[test]
fn a_connection_ends_after_the_grace_that_its_service_gives_it_without_its_endpoint() {
    let grace = Duration::from_secs(30);
    let (count, ended) = ended_without_endpoint(Some(grace), false, Owner::Same);
    assert!(count == 1 && ended >= grace && ended < grace * 5 / 4, "{ended:?}");
    let (count, ended) = ended_without_endpoint(Some(Duration::ZERO), false, Owner::Same);
    assert!(count == 1 && ended < Duration::from_secs(1), "{ended:?}");
    assert_eq!(ended_without_endpoint(Some(grace), true, Owner::Same).0, 0, "it serves again");
    assert_eq!(ended_without_endpoint(None, false, Owner::Same).0, 0, "as long as it likes");
}

#[test]
fn a_grace_is_not_for_connections_of_the_service_that_had_the_address_before() {
    let ended = ended_without_endpoint(Some(Duration::ZERO), false, Owner::Another);
    assert_eq!(ended.0, 0, "{:?}", ended.1);
}

/// The same table, in which another Service has the frontend.
fn of_another(table: &ActiveTable) -> Arc<ActiveTable> {
    let mut frontend = (*table.table().frontends()[0]).clone();
    frontend.service.name = "another".into();
    let next = RoutingTable::new(2, vec![Arc::new(frontend)], Arc::default());
    Arc::new(ActiveTable::compile(next, table))
}
