//! Changes of Problems: the cost for one Service does not depend on the others.

use std::sync::Arc;

use super::super::Projector;
use super::support::{NODE, add, objects, options, service};
use crate::api::store::{Dirty, ServiceKey};

/// The `number`th Service, with an invalid value.
fn mistaken(number: usize, value: &str) -> String {
    let annotations = format!("metadata: annotations: {{sheave.dev/balance: {value}}}");
    let port = 20_000 + number;
    service("shop", &format!("s{number:04}"), &format!("ports: [{{port: {port}}}]"), &annotations)
}

#[test]
fn one_service_among_thousands_tells_of_its_own_problems() {
    let mut objects = objects(&[NODE]);
    for number in 0..2_000 {
        add(&mut objects, &[&mistaken(number, "some")]);
    }
    let mut projector = Projector::new(options());
    let first = projector.project(&objects, &Dirty::Everything);
    assert_eq!((first.problem_changes.came.len(), first.problem_changes.gone.len()), (2_000, 0));

    let one = || Dirty::Services([ServiceKey::new("shop", "s0007")].into());
    assert!(projector.project(&objects, &one()).problem_changes.is_empty());
    add(&mut objects, &[&mistaken(7, "other")]);
    let changed = projector.project(&objects, &one());
    let messages = |problems: &[Arc<_>]| problems.iter().map(ToString::to_string).collect::<Vec<String>>();
    let (came, gone) = (&changed.problem_changes.came, &changed.problem_changes.gone);
    assert_eq!((messages(came).len(), messages(gone).len()), (1, 1));
    assert!(messages(came)[0].starts_with("Service shop/s0007: ") && messages(came)[0].contains("other"));
    assert!(messages(gone)[0].contains("some"));
    let copied = changed.problems.iter().filter(|now| !first.problems.iter().any(|it| Arc::ptr_eq(it, now)));
    assert_eq!(copied.count(), 1);

    objects.services.remove(&ServiceKey::new("shop", "s0007"));
    let left = projector.project(&objects, &one());
    assert_eq!((left.problem_changes.came.len(), left.problem_changes.gone.len()), (0, 1));
    assert_eq!((left.problems.len(), projector.problems().count()), (1_999, 1_999));
}
