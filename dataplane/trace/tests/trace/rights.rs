//! A process without rights.

use std::env::current_exe;
use std::sync::atomic::AtomicBool;

use sheave_model::{FrontendAddr, Protocol};
use sheave_trace::capture::{Bounds, capture};
use sheave_trace::{conntrack, link, neighbour, packet_filter, path_mtu, route, segment, socket};

use crate::network::{addr, connect, ip, soon};
use crate::support::host::Host;

#[test]
fn a_missing_right_is_named() {
    let [gateway, other] = ["gateway", "other"].map(Host::new);
    connect(&gateway, "eth0", &other, "eth0", 1);
    let program = current_exe().unwrap();
    let arguments = ["--inh-caps=-all", "--bounding-set=-all", "--", program.to_str().unwrap()];
    let case = ["--exact", "--ignored", "rights::without_rights"];
    let finished = gateway.finish("setpriv", &[&arguments[..], &case].concat());
    assert!(finished.expect_success().contains("1 passed"));
}

#[test]
#[ignore = "runs without rights, in the case above"]
fn without_rights() {
    let (here, there) = (ip("10.9.1.1"), ip("10.9.1.2"));
    let frontend = FrontendAddr { ip: here, port: 80, protocol: Protocol::Tcp };
    let links = link::links().unwrap();
    let link = links.iter().find(|link| link.name == "eth0").unwrap();
    assert!(route::output(None, there).unwrap().interface.is_some());
    assert!(route::input(there, here, link.index).is_ok() && neighbour::entry(there, link.index).is_ok());
    assert!(socket::of_client(there, frontend.socket_addr(), soon()).is_ok());
    assert!(socket::listening(addr(here, 80), soon()).is_ok());
    let unseen = [
        (segment::who_has(there, link, soon()).map(drop), "who answers for the address", "CAP_NET_RAW"),
        (path_mtu::probe(there, None, 1500, soon()).map(drop), "the path MTU", "CAP_NET_RAW"),
        (conntrack::flows(there, frontend, soon()).map(drop), "tracked connections", "CAP_NET_ADMIN"),
        (packet_filter::base_chains(there, soon()).map(drop), "nftables' packet filters", "CAP_NET_ADMIN"),
    ];
    for (result, what, right) in unseen {
        let text = result.unwrap_err().to_string();
        assert_eq!(text, format!("cannot see {what}: the right {right} is missing"));
    }
    let captured = capture(&[], &Bounds::default(), &AtomicBool::new(true), &mut Vec::new());
    assert_eq!(captured.unwrap_err().to_string(), "cannot see packets: the right CAP_NET_RAW is missing");
}
