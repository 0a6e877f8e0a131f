//! What becomes of frontends for which there are no descriptors.

use std::time::Duration;

use super::*;
use crate::model::Algorithm;
use crate::sys::Errno;
use crate::table::fixture::{frontend, table};

/// With room for so many sockets.
fn dataplane(listening_sockets: usize) -> Dataplane {
    let second = Duration::from_secs(1);
    let timeouts = Timeouts { connect: second, idle: second, udp_idle: second };
    Dataplane::start(Options {
        workers: 1,
        timeouts,
        busy_poll: Duration::ZERO,
        udp_flows: 1,
        listening_sockets,
        steering: SteeringMode::Never,
        paths: Arc::default(),
    })
    .unwrap()
}

/// Frontends with these numbers, on addresses that no interface has and a port that needs no privilege.
fn frontends(numbers: impl IntoIterator<Item = u32>) -> RoutingTable {
    table(numbers.into_iter().map(|number| {
        let mut frontend = frontend(number, Algorithm::Random, &[(1, 100)]);
        frontend.addr.port = 8080;
        frontend
    }))
}

#[test]
fn beyond_the_room_frontends_stay_closed_until_others_leave() {
    let mut dataplane = dataplane(2);
    dataplane.apply(frontends(1..=4));
    let failed: Vec<_> =
        dataplane.failures().map(|failure| (failure.frontend.addr, failure.error.raw_os_error())).collect();
    let none_left = Some(Errno::EMFILE as i32);
    let addrs: Vec<_> = frontends(3..=4).frontends().iter().map(|frontend| frontend.addr).collect();
    assert_eq!(failed, [(addrs[0], none_left), (addrs[1], none_left)]);
    let revision = dataplane.failures_revision();
    dataplane.retry();
    assert_eq!((dataplane.failures().count(), dataplane.failures_revision()), (2, revision));
    dataplane.apply(frontends(2..=4));
    dataplane.retry();
    let failed: Vec<_> = dataplane.failures().map(|failure| failure.frontend.addr).collect();
    assert_eq!(failed, addrs[1..]);
    assert!(dataplane.failures_revision() > revision);
    dataplane.apply(frontends([4]));
    dataplane.retry();
    assert_eq!(dataplane.failures().count(), 0);
}
