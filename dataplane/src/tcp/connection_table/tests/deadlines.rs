//! Tests of how connections end at each kind of deadline.

use std::io::ErrorKind::ConnectionReset;
use std::net::Shutdown;

use super::*;

/// How the stream ends after the data already received: FIN, or an error.
fn ending(mut stream: &TcpStream) -> Result<(), std::io::ErrorKind> {
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.read_to_end(&mut Vec::new()).map(drop).map_err(|error| error.kind())
}

#[test]
fn whichever_time_is_over_what_rests_finishes_and_what_is_under_way_is_reset() {
    let (idle, drain) = (Duration::from_secs(100), Duration::from_secs(60));
    for reason in [CloseReason::Idle, CloseReason::Removed, CloseReason::Aborted] {
        let (addr, _) = table_towards(EndpointAddr::new(Ipv4Addr::LOCALHOST.into(), 9));
        let rig = TableRig::with(Shared::for_tests(Timeouts { drain, ..Timeouts::all(idle) }), 8);
        let [rests, half_closed, streams] = [(); 3].map(|()| connection(&rig, idle));
        half_closed.0.shutdown(Shutdown::Write).unwrap();
        rig.turn();
        if reason == CloseReason::Removed {
            rig.table.borrow_mut().remove_frontend(addr);
        }
        let time = if reason == CloseReason::Aborted { drain } else { 2 * idle };
        turn_until(&rig, now(), STEP, |after| {
            // The client receives each part of the answer before the next one is sent.
            (&streams.1).write_all(b"x").ok();
            rig.serve();
            SockRef::from(&streams.0).set_tcp_quickack(true).unwrap();
            rig.ended() == 3 || after > time
        });
        if reason == CloseReason::Aborted {
            rig.table.borrow_mut().end_all();
        }
        assert_eq!(ending(&rests.0), Ok(()), "{reason:?}");
        assert_eq!(ending(&half_closed.0), Err(ConnectionReset), "{reason:?}");
        if reason != CloseReason::Idle {
            assert_eq!(ending(&streams.0), Err(ConnectionReset), "{reason:?}");
        }
        assert!(rig.closed(reason) >= 2, "{reason:?}");
    }
}
