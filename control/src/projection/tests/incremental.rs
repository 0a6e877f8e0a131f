//! Properties: projecting what changed gives what projecting everything gives, and touches nothing else.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use sheave_dataplane::model::EndpointState;

use super::super::{Projection, Projector};
use super::support::{NODE, WEB_SLICE, add, objects, options, service, web};
use crate::store::{Dirty, Objects, ServiceKey};

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

/// One of a few Services on few ports, so that conflicts and loops are common.
#[derive(Clone, Debug)]
enum Event {
    Service { name: u8, port: u8, created: Option<u8>, local: bool, published: Option<u8> },
    Delete { name: u8 },
    Slice { owner: u8, slice: u8, endpoints: Vec<(u8, u8, u8)> },
    DeleteSlice { owner: u8, slice: u8 },
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
    ]
}

fn apply(event: &Event, objects: &mut Objects) -> ServiceKey {
    let key = |name: &u8| ServiceKey::new("shop", &format!("s{name}"));
    match event {
        Event::Service { name, port, created, local, published } => {
            let policy = if *local { "Local" } else { "Cluster" };
            let spec = format!("ports: [{{port: {}}}], externalTrafficPolicy: {policy}", 80 + port);
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
            key(name)
        }
        Event::Delete { name } => {
            objects.services.remove(&key(name));
            key(name)
        }
        Event::Slice { owner, slice, endpoints } => {
            add(objects, &[&slice_manifest(*owner, *slice, endpoints)]);
            key(owner)
        }
        Event::DeleteSlice { owner, slice } => {
            if let Some(slices) = objects.slices.get_mut(&key(owner)) {
                slices.remove(&*format!("e{owner}-{slice}"));
            }
            key(owner)
        }
    }
}

fn slice_manifest(owner: u8, slice: u8, endpoints: &[(u8, u8, u8)]) -> String {
    let endpoints: Vec<String> = endpoints
        .iter()
        .map(|(octet, conditions, node)| {
            // Two of six are addresses of the gateway: the node's own and one that Services publish.
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
                ["gw-1", "n1", "n2"][usize::from(*node)]
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
            let dirty = batch.iter().map(|event| apply(event, &mut objects)).collect();
            let after = projector.project(&objects, &Dirty::Services(dirty));
            assert_same(&after, &Projector::new(options()).project(&objects, &Dirty::Everything));
            let differs = after.table.frontends() != before.table.frontends();
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
            let dirty = batch.iter().map(|event| apply(event, &mut objects)).collect();
            let after = projector.project(&objects, &Dirty::Services(dirty));
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
