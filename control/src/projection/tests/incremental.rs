//! Properties: incremental projection equals full projection, and touches nothing else.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use sheave_model::EndpointState;

use super::super::{Projection, Projector};
use super::support::{NODE, WEB_SLICE, add, objects, options, service, web};
use crate::api::store::{Dirty, Objects, ServiceKey};

#[test]
fn the_generation_grows_only_when_the_table_differs() {
    let mut objects = Objects::default();
    let mut projector = Projector::new(options());
    let empty = projector.project(&objects, &Dirty::Everything);
    assert_eq!((empty.changed, empty.table.generation()), (false, 0));

    add(&mut objects, &[NODE, &web("", ""), WEB_SLICE]);
    let first = projector.project(&objects, &Dirty::Everything);
    assert_eq!((first.changed, first.table.generation()), (true, 1));
    for dirty in [Dirty::Everything, Dirty::Services([ServiceKey::new("shop", "web")].into()), Dirty::Nothing]
    {
        let again = projector.project(&objects, &dirty);
        assert_eq!((again.changed, again.table.generation()), (false, 1));
        assert!(Arc::ptr_eq(&again.table, &first.table));
    }

    let node = NODE.replace("10.1.0.0/16", "10.9.0.0/16");
    add(&mut objects, &[&node]);
    let moved = projector.project(&objects, &Dirty::Everything);
    assert_eq!((moved.changed, moved.table.generation()), (true, 2));
    assert!(Arc::ptr_eq(&moved.table.frontends()[0], &first.table.frontends()[0]));
}

#[test]
fn the_first_projection_takes_everything() {
    let objects = objects(&[NODE, &web("", "")]);
    for dirty in [Dirty::Nothing, Dirty::Services(BTreeSet::new())] {
        assert_eq!(Projector::new(options()).project(&objects, &dirty).table.frontends().len(), 1);
    }
    // The networks of internal clients are known before there is any Service.
    let mut projector = Projector::new(options());
    assert!(projector.project(&super::support::objects(&[NODE]), &Dirty::Nothing).changed);
}

#[test]
fn frontends_that_did_not_change_keep_their_identity() {
    let mut objects =
        objects(&[NODE, &web("", ""), WEB_SLICE, &service("shop", "b", "ports: [{port: 81}]", "")]);
    let mut projector = Projector::new(options());
    let before = projector.project(&objects, &Dirty::Everything);
    add(&mut objects, &[&WEB_SLICE.replace("10.1.0.7", "10.1.0.8")]);
    let after = projector.project(&objects, &Dirty::Services([ServiceKey::new("shop", "web")].into()));
    assert!(!Arc::ptr_eq(&before.table.frontends()[0], &after.table.frontends()[0]));
    assert!(Arc::ptr_eq(&before.table.frontends()[1], &after.table.frontends()[1]));
}

/// A change of something that any Service may depend on.
const SHARED: Dirty = Dirty::Shared(BTreeSet::new());

#[test]
fn what_a_node_changes_is_projected_and_nothing_else() {
    let mut objects = objects(&[NODE, &web("", ""), WEB_SLICE]);
    let mut projector = Projector::new(options());
    let first = projector.project(&objects, &Dirty::Everything);
    // Another Node's label and a Node without addresses affect nothing.
    add(&mut objects, &["kind: Node\nmetadata: {name: other, labels: {rack: r7}}\n"]);
    let same = projector.project(&objects, &SHARED);
    assert_eq!((same.changed, same.touched.len()), (false, 0));
    assert!(Arc::ptr_eq(&same.table, &first.table) && same.problem_changes.is_empty());
    // Pod networks affect only the table.
    let pods = "kind: Node\nmetadata: {name: other}\nspec: {podCIDRs: [10.7.0.0/16]}\n";
    add(&mut objects, &[pods]);
    let swapped = projector.project(&objects, &SHARED);
    assert_eq!((swapped.changed, swapped.touched.len()), (true, 0));
    // The address where the Service is served.
    add(&mut objects, &[&NODE.replace("192.0.2.1", "192.0.2.9")]);
    let moved = projector.project(&objects, &SHARED);
    assert_eq!((moved.changed, moved.touched.len()), (true, 1));
    assert_ne!(moved.table.frontends()[0].addr, first.table.frontends()[0].addr);
}

#[test]
fn a_pool_is_read_again_only_if_it_says_something_else() {
    let mut objects = objects(&[NODE, &web("", ""), POOL]);
    let mut projector = Projector::new(options());
    let _ = projector.project(&objects, &Dirty::Everything);
    add(&mut objects, &[&POOL.replace("{name: p}", "{name: p, labels: {team: net}}")]);
    assert_eq!(projector.project(&objects, &SHARED).touched.len(), 0);
    add(&mut objects, &[&POOL.replace("203.0.113.0-203.0.113.2", "198.51.100.7")]);
    let moved = projector.project(&objects, &SHARED);
    assert_eq!(
        (moved.touched.len(), moved.table.frontends()[0].addr.ip.to_string().as_str()),
        (1, "198.51.100.7")
    );
}

#[test]
fn local_endpoints_are_counted_anew_when_one_becomes_a_frontend_of_a_family_that_has_none() {
    let spec = "ports: [{port: 80, targetPort: 9000}], externalTrafficPolicy: Local, healthCheckNodePort: 30100, \
                ipFamilies: [IPv4, IPv6]";
    let status = "status: {loadBalancer: {ingress: [{ip: 203.0.113.1}]}}";
    let slice = "kind: EndpointSlice\nmetadata: {name: web-6, namespace: shop, labels: {kubernetes.io/service-name: web}}\n\
                 addressType: IPv6\nports: [{port: 9000}]\nendpoints: [{addresses: ['2001:db8::7'], nodeName: gw-1}]\n";
    let mut objects = objects(&[NODE, &service("shop", "web", spec, status), slice]);
    let mut projector = Projector::new(options());
    let counted = |projection: &Projection| projection.health_checks[0].local_v6;
    assert_eq!(counted(&projector.project(&objects, &Dirty::Everything)), Some(1));
    let status = "status: {loadBalancer: {ingress: [{ip: '2001:db8::7'}]}}";
    add(&mut objects, &[&service("shop", "other", "ports: [{port: 9000}], ipFamilies: [IPv6]", status)]);
    let other = Dirty::Services([ServiceKey::new("shop", "other")].into());
    let after = projector.project(&objects, &other);
    assert_eq!(counted(&Projector::new(options()).project(&objects, &Dirty::Everything)), Some(0));
    assert_eq!(counted(&after), Some(0));
}

/// Events about few Services on few ports, so that conflicts and loops are common.
#[derive(Clone, Debug)]
enum Event {
    Service { name: u8, port: u8, created: Option<u8>, local: bool, published: Option<u8> },
    Delete { name: u8 },
    Slice { owner: u8, slice: u8, endpoints: Vec<(u8, u8, u8)> },
    DeleteSlice { owner: u8, slice: u8 },
    Node { name: u8, zone: u8, address: u8, pods: u8 },
    DeleteNode { name: u8 },
}

fn event() -> impl Strategy<Value = Event> {
    let endpoint = (0..6_u8, 0..8_u8, 0..3_u8);
    prop_oneof![
        3 => (0..5_u8, 0..3_u8, prop::option::of(0..3_u8), any::<bool>(), prop::option::of(0..3_u8)).prop_map(
            |(name, port, created, local, published)| Event::Service { name, port, created, local, published }
        ),
        1 => (0..5_u8).prop_map(|name| Event::Delete { name }),
        3 => (0..5_u8, 0..2_u8, prop::collection::vec(endpoint, 0..4)).prop_map(
            |(owner, slice, endpoints)| Event::Slice { owner, slice, endpoints }
        ),
        1 => (0..5_u8, 0..2_u8).prop_map(|(owner, slice)| Event::DeleteSlice { owner, slice }),
        1 => (0..3_u8, 0..2_u8, 0..3_u8, 0..2_u8).prop_map(|(name, zone, address, pods)| Event::Node { name, zone, address, pods }),
        1 => (0..3_u8).prop_map(|name| Event::DeleteNode { name }),
    ]
}

const NODES: [&str; 3] = ["gw-1", "n1", "n2"];

/// Applies all events. Returns what has to be projected again.
fn apply_all(events: &[Event], objects: &mut Objects) -> Dirty {
    let mut dirty = Dirty::Nothing;
    for event in events {
        match apply(event, objects) {
            Some(key) => dirty.add(key),
            None => dirty.add_shared(),
        }
    }
    dirty
}

/// Applies an event. Returns the affected Service, or `None` if it may affect all.
fn apply(event: &Event, objects: &mut Objects) -> Option<ServiceKey> {
    let key = |name: &u8| ServiceKey::new("shop", &format!("s{name}"));
    match event {
        Event::Service { name, port, created, local, published } => {
            let policy = if *local { "Local" } else { "Cluster" };
            // Some have cluster addresses and node ports that are endpoints of others.
            let (port, cluster) = match local {
                true => (format!("{{port: {}, nodePort: 81}}", 80 + port), String::new()),
                false => (format!("{{port: {}}}", 80 + port), format!(", clusterIP: 10.1.0.{}", 2 + port)),
            };
            let spec = format!("ports: [{port}], externalTrafficPolicy: {policy}{cluster}");
            let mut manifest = service("shop", &format!("s{name}"), &spec, "");
            if let Some(day) = created {
                manifest = manifest.replacen(
                    "}",
                    &format!(", creationTimestamp: '2024-01-0{}T00:00:00Z'}}", day + 1),
                    1,
                );
            }
            if let Some(last) = published {
                manifest += &format!("\nstatus: {{loadBalancer: {{ingress: [{{ip: 203.0.113.{last}}}]}}}}\n");
            }
            add(objects, &[&manifest]);
            Some(key(name))
        }
        Event::Delete { name } => {
            objects.services.remove(&key(name));
            Some(key(name))
        }
        Event::Slice { owner, slice, endpoints } => {
            add(objects, &[&slice_manifest(*owner, *slice, endpoints)]);
            Some(key(owner))
        }
        Event::DeleteSlice { owner, slice } => {
            if let Some(slices) = objects.slices.get_mut(&key(owner)) {
                slices.remove(&*format!("e{owner}-{slice}"));
            }
            Some(key(owner))
        }
        Event::Node { name, zone, address, pods } => {
            let address = ["192.0.2.1".to_owned(), format!("192.0.2.{}", 10 + name), "10.1.0.2".to_owned()]
                [usize::from(*address)]
            .clone();
            let manifest = format!(
                "kind: Node\nmetadata: {{name: {}, labels: {{topology.kubernetes.io/zone: z{zone}}}}}\n\
                 spec: {{podCIDRs: [10.{pods}.0.0/16]}}\nstatus: {{addresses: [{{type: InternalIP, address: {address}}}]}}\n",
                NODES[usize::from(*name)]
            );
            add(objects, &[&manifest]);
            None
        }
        Event::DeleteNode { name } => {
            objects.nodes.remove(NODES[usize::from(*name)]);
            None
        }
    }
}

fn slice_manifest(owner: u8, slice: u8, endpoints: &[(u8, u8, u8)]) -> String {
    let endpoints: Vec<String> = endpoints
        .iter()
        .map(|(octet, conditions, node)| {
            // Two of six are addresses of the gateway: the node's own, and one that Services publish.
            let ip = match octet {
                0 => "192.0.2.1".to_owned(),
                1 => "203.0.113.1".to_owned(),
                other => format!("10.1.0.{other}"),
            };
            let (ready, serving, terminating) =
                (conditions & 1 != 0, conditions & 2 != 0, conditions & 4 != 0);
            format!(
                "{{addresses: [{ip}], nodeName: {}, conditions: {{ready: {ready}, serving: {serving}, \
                 terminating: {terminating}}}}}",
                NODES[usize::from(*node)]
            )
        })
        .collect();
    format!(
        "kind: EndpointSlice\nmetadata: {{name: e{owner}-{slice}, namespace: shop, \
         labels: {{kubernetes.io/service-name: s{owner}}}}}\naddressType: IPv4\nports: [{{port: 81}}]\n\
         endpoints: [{}]\n",
        endpoints.join(", ")
    )
}

fn assert_same(left: &Projection, right: &Projection) {
    assert_eq!(left.table.frontends(), right.table.frontends());
    assert_eq!(left.table.internal_clients(), right.table.internal_clients());
    assert_eq!(left.problems, right.problems);
}

const POOL: &str = "kind: AddressPool\nmetadata: {name: p}\nspec: {addresses: [203.0.113.0-203.0.113.2]}\n";

proptest! {
    #[test]
    fn incremental_projection_is_projection_from_nothing(batches in prop::collection::vec(prop::collection::vec(event(), 1..4), 1..12)) {
        let mut objects = objects(&[NODE]);
        let mut projector = Projector::new(options());
        let mut before = projector.project(&objects, &Dirty::Everything);
        for batch in batches {
            let dirty = apply_all(&batch, &mut objects);
            let after = projector.project(&objects, &dirty);
            assert_same(&after, &Projector::new(options()).project(&objects, &Dirty::Everything));
            let differs = after.table.frontends() != before.table.frontends()
                || after.table.internal_clients() != before.table.internal_clients();
            prop_assert_eq!(after.changed, differs);
            prop_assert_eq!(after.table.generation(), before.table.generation() + u64::from(differs));
            for frontend in after.table.frontends() {
                let old = before.table.get(frontend.addr);
                prop_assert!(old.is_none_or(|old| old != frontend || Arc::ptr_eq(old, frontend)));
            }
            before = after;
        }
    }

    #[test]
    fn with_pools_projecting_everything_again_changes_nothing(batches in prop::collection::vec(prop::collection::vec(event(), 1..4), 1..12)) {
        let mut objects = objects(&[NODE, POOL]);
        let mut projector = Projector::new(options());
        for batch in batches {
            let dirty = apply_all(&batch, &mut objects);
            let after = projector.project(&objects, &dirty);
            let again = projector.clone().project(&objects, &Dirty::Everything);
            prop_assert!(!again.changed);
            assert_same(&after, &again);
        }
    }

    #[test]
    fn candidates_are_ready_or_the_last_resort_and_never_a_frontend(events in prop::collection::vec(event(), 1..20)) {
        let mut objects = objects(&[NODE]);
        for event in &events {
            let _ = apply(event, &mut objects);
        }
        let table = Projector::new(options()).project(&objects, &Dirty::Everything).table;
        for frontend in table.frontends() {
            for route in [&frontend.external, &frontend.internal] {
                let chosen: Vec<_> = route.candidates().iter().map(|candidate| frontend.endpoint(*candidate)).collect();
                let all_ready = chosen.iter().all(|endpoint| endpoint.state == EndpointState::Ready);
                let all_terminating = chosen.iter().all(|endpoint| endpoint.state == EndpointState::Terminating);
                prop_assert!(all_ready || all_terminating);
            }
            let own: BTreeSet<_> = table.frontends().iter().map(|other| (other.addr.ip, other.addr.port)).collect();
            let endpoints = frontend.backends.iter().flat_map(|backend| &backend.endpoints);
            prop_assert!(endpoints.into_iter().all(|endpoint| !own.contains(&(endpoint.addr.ip, endpoint.addr.port))));
        }
    }

    #[test]
    fn the_order_of_slices_never_matters(first in prop::collection::vec((0..6_u8, 0..8_u8, 0..3_u8), 0..6), second in prop::collection::vec((0..6_u8, 0..8_u8, 0..3_u8), 0..6)) {
        let service = service("shop", "s0", "ports: [{port: 80}], externalTrafficPolicy: Local", "");
        let tables = [(0, 1), (1, 0)].map(|(a, b)| {
            let objects = objects(&[NODE, &service, &slice_manifest(0, a, &first), &slice_manifest(0, b, &second)]);
            Projector::new(options()).project(&objects, &Dirty::Everything)
        });
        prop_assert_eq!(tables[0].table.frontends(), tables[1].table.frontends());
    }

    #[test]
    fn an_unrelated_service_changes_nothing(events in prop::collection::vec(event(), 1..10)) {
        let mut objects = objects(&[NODE, POOL]);
        for event in &events {
            let _ = apply(event, &mut objects);
        }
        let mut projector = Projector::new(options());
        let before = projector.project(&objects, &Dirty::Everything);
        let status = "status: {loadBalancer: {ingress: [{ip: 198.51.100.1}]}}";
        add(&mut objects, &[&service("aaa", "unrelated", "ports: [{port: 80}]", status)]);
        let after = projector.project(&objects, &Dirty::Services([ServiceKey::new("aaa", "unrelated")].into()));
        prop_assert_eq!(after.table.frontends().len(), before.table.frontends().len() + 1);
        for frontend in before.table.frontends() {
            prop_assert!(after.table.get(frontend.addr).is_some_and(|same| Arc::ptr_eq(same, frontend)));
        }
        prop_assert_eq!(before.problems, after.problems);
    }
}
