//! Tests of session affinity in a pick, by the rules of kube-proxy.

use super::*;

const ENDPOINTS: [(u32, u16); 5] = [(1, 100), (2, 100), (3, 100), (4, 100), (5, 100)];

fn sticky() -> Frontend {
    Frontend { affinity: STICKY, ..frontend(1, Algorithm::LeastConnections, &ENDPOINTS) }
}

/// Creates a record for another endpoint than the hash's.
fn stuck_elsewhere(
    frontend: &ActiveFrontend,
    request: &PickRequest<'_>,
    table: &AffinityTable,
) -> EndpointAddr {
    let hashed = goes(frontend, request, table);
    let tried = [hashed];
    let other = goes(frontend, &PickRequest { tried: &tried, ..*request }, table);
    assert_ne!(other, hashed);
    other
}

#[test]
fn the_first_pick_is_the_same_on_every_gateway_for_every_algorithm() {
    for number in 0..100 {
        let picks = ALGORITHMS.map(|algorithm| {
            let gateway = active(Frontend { algorithm, ..sticky() });
            let request = PickRequest { random: mix(u64::from(number)), ..external(number) };
            goes(&gateway, &request, &AffinityTable::default())
        });
        assert!(picks.iter().all(|pick| *pick == picks[0]));
    }
}

#[test]
fn a_client_stays_with_its_record_until_the_timeout_after_its_last_connection() {
    let (frontend, table) = (active(sticky()), AffinityTable::default());
    let start = external(1);
    let other = stuck_elsewhere(&frontend, &start, &table);
    let at = |seconds| PickRequest { now: start.now + Duration::from_secs(seconds), ..start };
    assert_eq!(goes(&frontend, &at(9), &table), other);
    assert_eq!(goes(&frontend, &at(18), &table), other);
    assert_ne!(goes(&frontend, &at(28), &table), other);
}

#[test]
fn a_failed_endpoint_loses_the_client_to_the_one_that_took_over() {
    let (frontend, table, request) = (active(sticky()), AffinityTable::default(), external(1));
    let other = stuck_elsewhere(&frontend, &request, &table);
    assert_eq!(goes(&frontend, &request, &table), other);
}

#[test]
fn when_every_endpoint_failed_the_client_stays_with_its_record() {
    let (frontend, table, request) = (active(sticky()), AffinityTable::default(), external(1));
    let other = stuck_elsewhere(&frontend, &request, &table);
    let all: Vec<_> = (1..=5).map(endpoint_addr).collect();
    assert_eq!(goes(&frontend, &PickRequest { tried: &all, ..request }, &table), other);
}

#[test]
fn a_record_to_an_endpoint_that_is_no_candidate_is_replaced() {
    let (before, table, request) = (active(sticky()), AffinityTable::default(), external(1));
    let other = stuck_elsewhere(&before, &request, &table);
    let mut spec = sticky();
    let rest = (0..5).filter(|&index| endpoint_addr(index + 1) != other).map(|index| (0, index));
    spec.external = route(rest);
    let after = changed(spec, &before);
    let replaced = goes(&after, &request, &table);
    assert_ne!(replaced, other);
    assert_eq!(goes(&changed(sticky(), &after), &request, &table), replaced, "it does not go back");
}

#[test]
fn a_record_to_an_endpoint_of_weight_zero_is_replaced() {
    let (before, table, request) = (active(sticky()), AffinityTable::default(), external(1));
    let other = stuck_elsewhere(&before, &request, &table);
    let drained =
        ENDPOINTS.map(|(number, weight)| (number, if endpoint_addr(number) == other { 0 } else { weight }));
    let spec = Frontend { affinity: STICKY, ..frontend(1, Algorithm::Random, &drained) };
    assert_ne!(goes(&changed(spec, &before), &request, &table), other);
}

#[test]
fn frontends_of_one_service_port_share_records_and_other_ports_do_not() {
    let (first, table, request) = (active(sticky()), AffinityTable::default(), external(1));
    let other = stuck_elsewhere(&first, &request, &table);
    let mut node_port =
        Frontend { addr: frontend_addr(2), kind: sheave_model::FrontendKind::NodePort, ..sticky() };
    assert_eq!(goes(&active(node_port.clone()), &request, &table), other);
    let mut of_fleet = node_port.clone();
    of_fleet.service.source = sheave_model::FrontendSource::MultiClusterService;
    assert_ne!(goes(&active(of_fleet), &request, &table), other, "it only has the same name");
    node_port.service.port_name = "https".into();
    assert_ne!(goes(&active(node_port), &request, &table), other);
}

#[test]
fn switching_affinity_takes_effect_on_the_next_connection() {
    let (table, none) = (AffinityTable::default(), frontend(1, Algorithm::RoundRobin, &ENDPOINTS));
    let reached = |frontend: &ActiveFrontend| -> BTreeSet<_> {
        (0..10).map(|_| goes(frontend, &external(1), &table)).collect()
    };
    let off = active(none.clone());
    assert_eq!(reached(&off).len(), 5);
    assert!(table.is_empty());
    let on = changed(Frontend { affinity: STICKY, ..none.clone() }, &off);
    assert_eq!(reached(&on).len(), 1);
    assert_eq!(reached(&changed(none, &on)).len(), 5);
}

#[test]
fn local_and_cluster_clients_may_stick_to_different_endpoints() {
    let mut spec = sticky();
    spec.external = route([(0, 0)]);
    spec.internal = route([(0, 1), (0, 2)]);
    let (frontend, table) = (active(spec), AffinityTable::default());
    let inside = PickRequest { origin: Origin::Internal, ..external(2) };
    let inside_goes = goes(&frontend, &inside, &table);
    for _ in 0..3 {
        assert_eq!(goes(&frontend, &external(1), &table), endpoint_addr(1));
        assert_eq!(goes(&frontend, &inside, &table), inside_goes);
    }
}

/// A frontend of another port of the same Service, on the same hosts.
fn other_port(frontend: &Frontend) -> Frontend {
    let mut other = frontend.clone();
    other.addr.port += 1;
    (other.service.port_name, other.service.protocol) = ("media".into(), sheave_model::Protocol::Udp);
    let mut backend = other.backends[0].clone();
    backend.endpoints.iter_mut().for_each(|endpoint| endpoint.addr.port += 1000);
    other.backends = [backend].into();
    other
}

#[test]
fn all_ports_of_a_service_send_a_client_to_one_host_if_it_says_so() {
    let scope = AffinityScope::Service;
    let shared = Frontend { affinity: Affinity::ClientIp { timeout: TIMEOUT, scope }, ..sticky() };
    for number in 0..50 {
        let request = external(number);
        // The first picks agree, even on gateways that do not share any state.
        let first = |spec: &Frontend| goes(&active(spec.clone()), &request, &AffinityTable::default());
        assert_eq!(first(&shared).ip, first(&other_port(&shared)).ip, "{number}");
    }
    let (signals, media) = (active(shared.clone()), active(other_port(&shared)));
    let (table, request) = (AffinityTable::default(), external(1));
    let other = stuck_elsewhere(&signals, &request, &table);
    let reached = goes(&media, &request, &table);
    assert_eq!((reached.ip, reached.port), (other.ip, other.port + 1000), "by the record of the other port");
    let previewed = media.preview(&request, &table);
    assert!(matches!(previewed, Preview::Affinity { endpoint, .. } if endpoint == reached), "{previewed:?}");
    assert_eq!(goes(&signals, &request, &table), other);
    // An endpoint that has just failed is left, on all ports.
    let tried = [reached];
    let next = goes(&media, &PickRequest { tried: &tried, ..request }, &table);
    assert_ne!(next.ip, reached.ip);
    assert_eq!(goes(&signals, &request, &table).ip, next.ip);
    let alone = active(other_port(&sticky()));
    let first = goes(&alone, &request, &AffinityTable::default());
    assert_eq!(goes(&alone, &request, &table), first, "the records are those of the whole Service");
}
