//! Tests of the lifecycle of flows and listeners: idle, drain, close.

use super::*;
use crate::counters::FrontendCounters;
use crate::sys::mmsg::report_destination;
use crate::udp::frontend::{DRAIN_IDLE, SWEPT};
use sheave_model::{Frontend, ServiceTimeouts};
use socket2::Domain;

#[test]
fn a_flow_moves_when_its_endpoint_is_gone_and_stays_while_it_serves() {
    on_a_worker(async {
        let (first, second) = (endpoint(V4, b"1").await, endpoint(V4, b"2").await);
        let gateway = UdpGateway::start(V4, &[first], 10);
        let client = gateway.client();
        assert_eq!(client.exchange(b"a").await, b"1a");
        gateway.swap(&[first, second]);
        assert_eq!(client.exchange(b"b").await, b"1b");
        gateway.swap(&[second]);
        assert_eq!(client.exchange(b"c").await, b"2c");
        assert_eq!((gateway.flows(), gateway.endpoint_of(&client)), (1, Some(second)));
    });
}

/// With other ports reserved, or another number of workers, another worker may give the flow's port to another client.
#[test]
fn a_flow_that_is_handed_over_with_a_port_of_another_worker_ends_and_the_client_gets_a_new_one() {
    on_a_worker(async {
        let served = endpoint(V4, b"1").await;
        for (of_this_worker, kept) in [(true, 1), (false, 0)] {
            let (former, next) = (UdpGateway::start(V4, &[served], 10), UdpGateway::start(V4, &[served], 10));
            let client = former.client();
            assert_eq!(client.exchange(b"a").await, b"1a");
            let mut flows = former.execute(|udp| {
                udp.pause();
                udp.hand_over(10)
            });
            let [flow] = flows.as_mut_slice() else { panic!("{flows:?}") };
            flow.record.frontend = next.addr.socket_addr();
            let port = flow.record.port.unwrap();
            flow.record.port = Some(if of_this_worker { port } else { port / 4 * 4 });
            next.execute(|udp| udp.take_over(flows));
            assert_eq!(next.flows(), kept);
            former.execute(Udp::leave);
            client.0.connect(next.addr.socket_addr()).unwrap();
            assert_eq!(client.exchange(b"b").await, b"1b");
            assert_eq!((next.flows(), next.counters().flows_opened.get()), (1, 1 - kept as u64));
        }
    });
}

/// A loop like that of NAT behind the endpoint.
#[test]
fn an_endpoint_that_leads_back_to_the_frontend_gets_a_few_flows_and_no_more() {
    on_a_worker(async {
        let (outlet, served) = (AsyncSocket::bind((V4, 0)).await.unwrap(), endpoint(V4, b"1").await);
        let addr = outlet.local_addr().unwrap();
        let gateway = UdpGateway::start(V4, &[EndpointAddr::new(addr.ip(), addr.port())], 100);
        gateway.client().send(b"a");
        let send_back = |from: SocketAddr| {
            let frontend = gateway.frontend();
            let flows = frontend.flows.borrow();
            let links = flows.clients().filter_map(|client| flows.former(client));
            let mut sockets = links.map(|(_, link)| link.upstream.socket());
            let socket = sockets.find(|socket| socket.local_addr().unwrap().as_socket() == Some(from));
            socket.unwrap().send_to(b"a", &gateway.addr.socket_addr().into()).unwrap();
        };
        for _ in 0..4 {
            send_back(outlet.recv_from(&mut [0; 10]).await.unwrap().1);
        }
        until("it is noticed", || gateway.counters().dropped(DropReason::Loop) == 1).await;
        assert_eq!((gateway.flows(), gateway.counters().flows_opened.get()), (4, 4));
        gateway.swap(&[served]);
        assert_eq!(gateway.client().exchange(b"b").await, b"1b", "a program of the same host");
    });
}

#[test]
fn answers_that_are_there_already_reach_the_client_when_its_flow_moves() {
    on_a_worker(async {
        let first = UdpSocket::bind((V4, 0)).unwrap();
        first.set_nonblocking(true).unwrap();
        let addr = first.local_addr().unwrap();
        let second = endpoint(V4, b"2").await;
        let gateway = UdpGateway::start(V4, &[EndpointAddr::new(addr.ip(), addr.port())], 10);
        let client = gateway.client();
        client.send(b"a");
        let mut flow = None;
        until("the first endpoint is asked", || {
            flow = first.recv_from(&mut [0; 10]).ok();
            flow.is_some()
        })
        .await;
        gateway.swap(&[second]);
        // The gateway runs only after all of this was sent, and then receives the client's datagram first.
        client.send(b"c");
        let many: Vec<[u8; 1]> = (0..100).map(|number| [number]).collect();
        many.iter().for_each(|answer| assert_eq!(first.send_to(answer, flow.unwrap().1).unwrap(), 1));
        let mut answers = Vec::new();
        for _ in 0..=many.len() {
            answers.push(client.answer().await.unwrap());
        }
        let late: Vec<&[u8]> = answers.iter().map(Vec::as_slice).filter(|answer| *answer != b"2c").collect();
        assert_eq!(late, many, "each, and in its order");
        assert_eq!(gateway.counters().flows_repicked.get(), 1);
    });
}

/// Like a publisher to which a client subscribes once.
#[test]
fn an_endpoint_that_serves_no_more_talks_to_its_client_for_the_time_of_a_drain_at_most() {
    on_a_worker(async {
        let former = UdpSocket::bind((V4, 0)).unwrap();
        former.set_nonblocking(true).unwrap();
        let addr = former.local_addr().unwrap();
        let gateway = UdpGateway::start(V4, &[EndpointAddr::new(addr.ip(), addr.port())], 10);
        let client = gateway.client();
        client.send(b"subscribe");
        let mut flow = None;
        until("the endpoint is asked", || {
            flow = former.recv_from(&mut [0; 10]).ok();
            flow.is_some()
        })
        .await;
        gateway.swap(&[endpoint(V4, b"2").await]);
        for _ in 0..2 {
            former.send_to(b"news", flow.unwrap().1).unwrap();
            assert_eq!(client.answer().await.unwrap(), b"news");
            gateway.skip(IDLE * 2 / 5);
        }
        former.send_to(b"news", flow.unwrap().1).unwrap();
        assert_eq!(client.answer().await.unwrap(), b"news");
        gateway.skip(IDLE / 4);
        until("the flow ends", || gateway.flows() == 0).await;
        assert_eq!(client.exchange(b"hello").await, b"2hello");
    });
}

#[test]
fn a_quiet_flow_ends_and_a_busy_one_does_not() {
    on_a_worker(async {
        let gateway = UdpGateway::start(V4, &[endpoint(V4, b"").await], 10);
        let (quiet, busy) = (gateway.client(), gateway.client());
        assert_eq!(quiet.exchange(b"a").await, b"a");
        assert_eq!(busy.exchange(b"b").await, b"b");
        for _ in 0..2 {
            gateway.skip(IDLE * 2 / 3);
            assert_eq!(busy.exchange(b"c").await, b"c");
        }
        until("the quiet flow ends", || gateway.flows() == 1).await;
        assert!(gateway.endpoint_of(&busy).is_some());
        gateway.skip(IDLE);
        until("the other ends too", || gateway.flows() == 0).await;
        assert_eq!(quiet.exchange(b"d").await, b"d", "and comes back as a new flow");
        assert_eq!(gateway.counters().flows_opened.get(), 3);
    });
}

#[test]
fn flows_end_in_time_when_the_timeout_becomes_shorter() {
    on_a_worker(async {
        let (shorter, endpoints) = (IDLE / 3, [endpoint(V4, b"").await]);
        let gateway = UdpGateway::start(V4, &endpoints, 10);
        let (quiet, busy) = (gateway.client(), gateway.client());
        for client in [&quiet, &busy] {
            assert_eq!(client.exchange(b"a").await, b"a");
        }
        let timeouts = ServiceTimeouts { idle: Some(shorter), ..ServiceTimeouts::default() };
        let frontend = frontend(gateway.addr, &[(endpoints[0], EndpointState::Ready)]);
        let table = &gateway.worker.shared.table;
        table.store(Arc::new(follow(&table.load(), [Frontend { timeouts, ..frontend }])));
        assert_eq!(busy.exchange(b"b").await, b"b");
        gateway.skip(shorter);
        until("the quiet flow ends", || gateway.endpoint_of(&quiet).is_none()).await;
    });
}

#[test]
fn many_flows_that_end_at_once_do_so_in_several_turns() {
    on_a_worker(async {
        let gateway = UdpGateway::start(V4, &[endpoint(V4, b"").await], 400);
        for number in 0..=SWEPT {
            let client =
                gateway.client_from(IpAddr::from([127, 1, (number / 200) as u8, (number % 200) as u8 + 1]));
            assert_eq!(client.exchange(b"a").await, b"a");
        }
        gateway.skip(IDLE);
        gateway.turn();
        assert_eq!(gateway.flows(), 1);
        gateway.turn();
        assert_eq!((gateway.flows(), gateway.execute(|udp| udp.next_deadline())), (0, None));
    });
}

#[test]
fn a_closed_listener_closes_its_socket_at_once_and_its_flows_a_few_at_a_time() {
    for ip in [V4, V6] {
        on_a_worker(async move {
            let (first, second) = (endpoint(ip, b"1").await, endpoint(ip, b"2").await);
            let gateway = UdpGateway::start(ip, &[first], 400);
            let client = gateway.client();
            assert_eq!(client.exchange(b"a").await, b"1a");
            let others: Vec<Client> = (0..SWEPT).map(|_| gateway.client()).collect();
            for other in &others {
                assert_eq!(other.exchange(b"b").await, b"1b");
            }
            let state = Rc::downgrade(&gateway.frontend());
            gateway.swap(&[]);
            gateway.execute(|udp| udp.close(gateway.addr));
            assert_eq!((gateway.counters.flows_active.get(), state.strong_count()), (SWEPT as u64 + 1, 0));
            client.send(b"c");
            assert_eq!(client.answer().await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
            until("all flows have ended", || gateway.execute(|udp| udp.is_drained())).await;
            assert!(!gateway.execute(|udp| udp.has_work()));

            // The frontend serves again.
            gateway.swap(&[second]);
            let socket = bind_shared(gateway.addr.socket_addr());
            gateway.execute(|udp| udp.listen(gateway.addr, socket, Arc::clone(&gateway.counters)));
            assert_eq!(client.exchange(b"d").await, b"2d");
        });
    }
}

#[test]
fn flows_of_a_closed_listener_end_in_several_turns() {
    on_a_worker(async {
        let gateway = UdpGateway::start(V4, &[endpoint(V4, b"").await], 400);
        let clients: Vec<Client> = (0..=SWEPT).map(|_| gateway.client()).collect();
        for client in &clients {
            assert_eq!(client.exchange(b"a").await, b"a");
        }
        gateway.execute(|udp| udp.close(gateway.addr));
        let mut turns = 0;
        while gateway.execute(|udp| udp.has_work()) {
            gateway.turn();
            turns += 1;
        }
        assert!((4..10).contains(&turns), "{turns}");
        assert!(gateway.execute(|udp| udp.is_drained()));
    });
}

#[test]
fn a_draining_listener_serves_its_flows_until_they_are_quiet() {
    on_a_worker(async {
        let gateway = UdpGateway::start(V4, &[endpoint(V4, b"").await], 10);
        let (known, stranger) = (gateway.client(), gateway.client());
        assert_eq!(known.exchange(b"a").await, b"a");
        gateway.execute(Udp::drain);
        stranger.send(b"b");
        assert_eq!(known.exchange(b"c").await, b"c");
        until("the stranger is refused", || gateway.counters().dropped(DropReason::Draining) == 1).await;
        let took = gateway.finished().await;
        assert!(took <= DRAIN_IDLE, "{took:?}");
    });
}

#[test]
fn a_listener_without_flows_is_finished_as_soon_as_it_drains() {
    on_a_worker(async {
        let gateway = UdpGateway::start(V4, &[], 10);
        gateway.execute(Udp::drain);
        assert!(gateway.execute(|udp| udp.is_drained()));
        let stranger = gateway.client();
        stranger.send(b"a");
        assert_eq!(stranger.answer().await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    });
}

/// A worker whose turn began with the former state of a frontend receives datagrams for its current state.
#[test]
fn a_steered_frontend_that_opens_within_a_turn_serves_what_came_since() {
    on_a_worker(async {
        let (gateway, serving) = (UdpGateway::start(V4, &[], 10), endpoint(V4, b"1").await);
        let (steered, counters) = (Arc::new(SteeredFrontends::default()), Arc::new(UdpCounters::default()));
        let inlet = bind_shared((gateway.addr.ip, 0).into());
        report_destination(&inlet, Domain::IPV4).unwrap();
        let addr =
            FrontendAddr { port: inlet.local_addr().unwrap().as_socket().unwrap().port(), ..gateway.addr };
        steered.insert(addr, &Arc::from([FrontendCounters::Udp(Arc::clone(&counters))]));
        let nobody = FrontendAddr { port: 1, ..addr };
        gateway.execute(|udp| {
            udp.steered = SteeredUdp::new(steered, &udp.context);
            udp.steer(nobody, Arc::clone(&inlet));
        });
        let table = &gateway.worker.shared.table;
        let swap =
            |endpoints: &[_]| table.store(Arc::new(follow(&table.load(), [frontend(addr, endpoints)])));
        swap(&[]);
        let client = Client(UdpSocket::bind((addr.ip, 0)).unwrap());
        client.0.set_nonblocking(true).unwrap();
        client.0.connect(addr.socket_addr()).unwrap();
        gateway.execute(|udp| {
            swap(&[(serving, EndpointState::Ready)]);
            client.send(b"a");
            assert_eq!(udp.steered.batch(&mut udp.frontends, nobody, &inlet), Progress::Drained);
        });
        assert_eq!(client.answer().await.unwrap(), b"1a");
        assert_eq!(counters.dropped(DropReason::NoEndpoint), 0);
    });
}
