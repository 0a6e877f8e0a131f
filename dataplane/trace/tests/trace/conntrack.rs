//! Connection tracking.

use std::net::{TcpListener, TcpStream, UdpSocket};

use sheave_model::{FrontendAddr, Protocol};
use sheave_trace::conntrack::{Losses, flows, table_use};

use crate::network::{addr, connect, on, soon};
use crate::support::for_both_families;
use crate::support::host::Host;
use crate::support::patience::eventually;
use crate::support::world::Family;

for_both_families!(a_translated_connection_shows_its_endpoint, an_unanswered_flow_is_not_replied);

const PORT: u16 = 80;

/// A client, a gateway that tracks connections and sends those to port 80 to an endpoint, and that endpoint.
fn gateway() -> [Host; 3] {
    let [gateway, client, endpoint] = ["gateway", "client", "endpoint"].map(Host::new);
    connect(&gateway, "client", &client, "eth0", 1);
    connect(&gateway, "endpoint", &endpoint, "eth0", 2);
    gateway.sysctl("ipv4/ip_forward", "1");
    gateway.sysctl("ipv6/conf/all/forwarding", "1");
    for family in Family::BOTH {
        endpoint.ip(&[format!("route add default via {}", on(family, 2, 1))]);
        client.ip(&[format!("route add default via {}", on(family, 1, 1))]);
        let (nft, to) = match family {
            Family::V4 => ("ip", on(family, 2, 2).to_string()),
            Family::V6 => ("ip6", format!("[{}]", on(family, 2, 2))),
        };
        let rules = format!(
            "add table {nft} n; add chain {nft} n p {{ type nat hook prerouting priority -100; }}; \
             add rule {nft} n p tcp dport {PORT} dnat to {to}:8080"
        );
        gateway.finish("nft", &[rules.as_str()]).expect_success();
    }
    [gateway, client, endpoint]
}

fn a_translated_connection_shows_its_endpoint(family: Family) {
    let [gateway, client, endpoint] = gateway();
    let listener = endpoint.run(|| TcpListener::bind((on(family, 2, 2), 8080)).unwrap());
    let frontend = FrontendAddr { ip: on(family, 1, 1), port: PORT, protocol: Protocol::Tcp };
    let stream = client.run(|| TcpStream::connect(frontend.socket_addr()).unwrap());
    let (_accepted, _) = listener.accept().unwrap();
    let found = eventually("the connection is replied", || {
        let found = gateway.run(|| flows(on(family, 1, 2), frontend, soon())).unwrap();
        if found.iter().any(|flow| flow.is_replied) { Ok(found) } else { Err(format!("{found:?}")) }
    });
    let [flow] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(flow.client, stream.local_addr().unwrap());
    assert_eq!(flow.reply_source, addr(on(family, 2, 2), 8080));
    assert!(flow.is_translated(frontend), "{flow:?}");
    let others = [
        (on(family, 1, 3), frontend),
        (on(family, 1, 2), FrontendAddr { port: 81, ..frontend }),
        (on(family, 1, 2), FrontendAddr { ip: on(family, 2, 1), ..frontend }),
        (on(family, 1, 2), FrontendAddr { protocol: Protocol::Udp, ..frontend }),
    ];
    for (client, frontend) in others {
        assert_eq!(gateway.run(|| flows(client, frontend, soon())), Ok(vec![]), "{client} {frontend:?}");
    }
}

fn an_unanswered_flow_is_not_replied(family: Family) {
    let [gateway, client, endpoint] = gateway();
    let there = FrontendAddr { ip: on(family, 2, 2), port: 53, protocol: Protocol::Udp };
    let server = endpoint.run(|| UdpSocket::bind(there.socket_addr()).unwrap());
    let socket = client.run(|| UdpSocket::bind((on(family, 1, 2), 0)).unwrap());
    socket.send_to(b"?", there.socket_addr()).unwrap();
    let mut buffer = [0; 8];
    let (_, from) = server.recv_from(&mut buffer).unwrap();
    let look = || gateway.run(|| flows(on(family, 1, 2), there, soon())).unwrap();
    let found = look();
    let [flow] = found.as_slice() else { panic!("{found:?}") };
    assert!(!flow.is_replied && !flow.is_translated(there), "{flow:?}");
    server.send_to(b"!", from).unwrap();
    socket.recv_from(&mut buffer).unwrap();
    assert!(look()[0].is_replied);
}

/// The limit is that of the machine, and applies to each network namespace by itself (`__nf_conntrack_alloc` in
/// net/netfilter/nf_conntrack_core.c), so this one is filled.
#[test]
fn a_full_table_drops() {
    let [gateway, client, endpoint] = gateway();
    let before = gateway.run(table_use).unwrap();
    assert!(before.count < before.max && before.losses.unwrap() == Losses::default(), "{before:?}");
    let there = on(Family::V4, 2, 2);
    let ports = 1..=u16::MAX;
    let flows = usize::try_from(before.max).unwrap() + 2000;
    let (sockets, last) = (flows.div_ceil(ports.len()), flows % ports.len());
    // Its answers would make the entries assured.
    endpoint
        .finish(
            "nft",
            &["add table ip f; add chain ip f i { type filter hook input priority 0; policy drop; }"],
        )
        .expect_success();
    client.run(|| {
        for place in 0..sockets {
            let socket = UdpSocket::bind((on(Family::V4, 1, 2), 0)).unwrap();
            let take = if place + 1 == sockets { last } else { ports.len() };
            ports.clone().take(take).for_each(|port| drop(socket.send_to(b"?", (there, port))));
        }
    });
    let after = gateway.run(table_use).unwrap();
    let losses = after.losses.unwrap();
    assert!(after.count * 100 >= after.max * 95, "{after:?}");
    assert!(losses.drop + losses.early_drop > 0, "{after:?}");
}
