//! Properties of fleets: incremental projection equals full projection, for any order of events.

use proptest::prelude::*;

use super::super::{Projection, Projector};
use super::fleet::{TEMPLATE, annotated, binding, cluster, fleet, fleet_options, key, mcs, put, work};
use crate::api::store::{Dirty, Objects};

/// A change of an object of `shop/web`.
#[derive(Clone, Debug)]
enum Event {
    Work { cluster: u8, slice: u8, endpoints: Vec<(u8, bool)> },
    Remove { cluster: u8, slice: u8 },
    Cluster { cluster: u8, ready: bool, drains: bool },
    Asks(u8),
    Bound(u8),
}

fn event() -> impl Strategy<Value = Event> {
    let endpoints = prop::collection::vec((0..5_u8, any::<bool>()), 0..4);
    prop_oneof![
        4 => (0..3_u8, 0..2_u8, endpoints).prop_map(|(cluster, slice, endpoints)| Event::Work { cluster, slice, endpoints }),
        1 => (0..3_u8, 0..2_u8).prop_map(|(cluster, slice)| Event::Remove { cluster, slice }),
        1 => (0..3_u8, any::<bool>(), any::<bool>())
            .prop_map(|(cluster, ready, drains)| Event::Cluster { cluster, ready, drains }),
        1 => (0..4_u8).prop_map(Event::Asks),
        1 => (0..3_u8).prop_map(Event::Bound),
    ]
}

fn name(cluster: u8) -> String {
    format!("m{}", cluster + 1)
}

fn slice_name(slice: u8) -> String {
    format!("s{slice}")
}

fn work_manifest(cluster: u8, slice: u8, endpoints: &[(u8, bool)]) -> String {
    // One address is that of the MultiClusterService itself.
    let text = |(last, ready): &(u8, bool)| match (last, ready) {
        (0, _) => "203.0.113.10".to_owned(),
        (last, true) => format!("10.1.0.{last}"),
        (last, false) => format!("!10.1.0.{last}"),
    };
    let endpoints: Vec<String> = endpoints.iter().map(text).collect();
    let endpoints: Vec<&str> = endpoints.iter().map(String::as_str).collect();
    work(&name(cluster), &slice_name(slice), &endpoints)
}

fn apply(event: &Event, objects: &mut Objects) {
    let manifest = match event {
        Event::Work { cluster, slice, endpoints } => work_manifest(*cluster, *slice, endpoints),
        Event::Remove { cluster, slice } => {
            let gone =
                (format!("karmada-es-{}", name(*cluster)).into(), format!("{}-x", slice_name(*slice)).into());
            if let Some(works) = objects.fleet.works.get_mut(&key()) {
                works.remove(&gone);
            }
            return;
        }
        Event::Cluster { cluster: index, ready, drains } => {
            let spec = if *drains { "taints: [{key: k, effect: NoExecute}]" } else { "region: eu" };
            cluster(&name(*index), spec, *ready)
        }
        Event::Asks(0) => mcs("", ""),
        Event::Asks(1) => mcs("providerClusters: [{name: m1}, {name: m2}]", ""),
        Event::Asks(2) => annotated("sheave.dev/cluster-priority: locality"),
        Event::Asks(_) => annotated("sheave.dev/cluster-weights: 'm1=2,m2=0', sheave.dev/drain: m3"),
        Event::Bound(0) => binding("", "", ""),
        Event::Bound(1) => binding("{name: m1}, {name: m3}", "", ""),
        Event::Bound(_) => binding("{name: m1}", "gracefulEvictionTasks: [{fromCluster: m2}]", ""),
    };
    put(objects, &[&manifest]);
}

fn assert_same(left: &Projection, right: &Projection) {
    assert_eq!(left.table.frontends(), right.table.frontends());
    assert_eq!(left.problems, right.problems);
}

proptest! {
    #[test]
    fn incremental_projection_of_a_fleet_is_projection_from_nothing(batches in prop::collection::vec(prop::collection::vec(event(), 1..4), 1..10)) {
        let mut objects = fleet(&[TEMPLATE, &mcs("", "")]);
        let mut projector = Projector::new(fleet_options());
        let _ = projector.project(&objects, &Dirty::Everything);
        for batch in batches {
            batch.iter().for_each(|event| apply(event, &mut objects));
            let after = projector.project(&objects, &Dirty::Services([key()].into()));
            let mut fresh = Projector::new(fleet_options());
            assert_same(&after, &fresh.project(&objects, &Dirty::Everything));
            prop_assert_eq!(projector.fleet_status(&key()), fresh.fleet_status(&key()));
        }
    }

    #[test]
    fn the_order_of_works_never_matters(
        first in prop::collection::vec((0..5_u8, any::<bool>()), 0..5),
        second in prop::collection::vec((0..5_u8, any::<bool>()), 0..5),
        third in prop::collection::vec((0..5_u8, any::<bool>()), 0..5),
    ) {
        let works = [work_manifest(0, 0, &first), work_manifest(0, 1, &second), work_manifest(1, 0, &third)];
        let projections = [[0, 1, 2], [2, 1, 0], [1, 0, 2]].map(|order| {
            let mut objects = fleet(&[TEMPLATE, &mcs("", "")]);
            order.iter().for_each(|&index| put(&mut objects, &[&works[index]]));
            Projector::new(fleet_options()).project(&objects, &Dirty::Everything)
        });
        assert_same(&projections[0], &projections[1]);
        assert_same(&projections[0], &projections[2]);
    }
}
