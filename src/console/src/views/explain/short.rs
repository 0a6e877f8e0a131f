//! Shortened explanation for a controller, which queries up to a thousand gateways: no longer than people read, whatever the number of
//! endpoints, and still comparable as a whole.

use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use sheave_control::projection::explain::{EndpointSummary, ExplainView, ExplainedEndpoint};
use sheave_control::text::one_line;

/// Limit of endpoints; used ones are kept first.
const MOST_ENDPOINTS: usize = 500;
/// Limit of reasons, and of Problems.
const MOST_REASONS: usize = 100;
/// Limit of a reason in bytes.
const LONGEST_REASON: usize = 1024;

/// Shortens an explanation, and mentions what is left out. The sentences of endpoints repeat `endpoints`, so they are removed. Idempotent.
pub(crate) fn shorten(view: &mut ExplainView) {
    let told: HashSet<String> = view.endpoints.iter().map(ExplainedEndpoint::sentence).collect();
    view.reasons.retain(|reason| !told.contains(reason));
    for list in [&mut view.reasons, &mut view.problems] {
        list.iter_mut().for_each(|text| one_line(text, LONGEST_REASON));
        keep_first(list, MOST_REASONS);
    }
    let summary = view.all_endpoints.take().unwrap_or_else(|| summary(&view.endpoints));
    view.all_endpoints = Some(summary);
    keep_endpoints(view, MOST_ENDPOINTS);
}

/// Keeps up to `most` endpoints, used ones first. `allEndpoints` has the number of all.
pub(crate) fn keep_endpoints(view: &mut ExplainView, most: usize) {
    if view.endpoints.len() > most {
        view.endpoints.sort_by_key(|endpoint| !endpoint.used);
        view.endpoints.truncate(most);
    }
}

fn keep_first(reasons: &mut Vec<String>, most: usize) {
    let more = reasons.len().saturating_sub(most);
    if more > 0 {
        reasons.truncate(most - 1);
        reasons.push(format!("{} more, which `sheave explain` on the gateway shows", more + 1));
    }
}

fn summary(endpoints: &[ExplainedEndpoint]) -> EndpointSummary {
    let used = || endpoints.iter().filter(|endpoint| endpoint.used);
    let addresses: BTreeSet<&str> = used().map(|endpoint| endpoint.address.as_str()).collect();
    let mut hasher = DefaultHasher::new();
    addresses.hash(&mut hasher);
    EndpointSummary {
        count: endpoints.len(),
        used: used().count(),
        used_hash: format!("{:016x}", hasher.finish()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::View as _;

    /// Every second endpoint is used.
    fn with_endpoints(count: usize) -> ExplainView {
        let endpoints: Vec<ExplainedEndpoint> = (0..count).map(endpoint).collect();
        let sentences = endpoints.iter().map(ExplainedEndpoint::sentence);
        let reasons =
            std::iter::once("first".to_owned()).chain(sentences).chain(["deciding".to_owned()]).collect();
        ExplainView { reasons, endpoints, ..ExplainView::default() }
    }

    fn endpoint(index: usize) -> ExplainedEndpoint {
        ExplainedEndpoint {
            address: format!("[2001:db8:1234:5678:9abc:def0:1234:{index:x}]:65535"),
            addr: None,
            cluster: "cluster".repeat(5),
            slice: "slice".repeat(20),
            node: "node".repeat(20),
            zone: "zone".repeat(10),
            state: "Ready".to_owned(),
            unhealthy: None,
            local: false,
            used: index % 2 == 1,
            weight: None,
            share: None,
            reason: "it is on another Node, and externalTrafficPolicy is Local".to_owned(),
        }
    }

    fn short(count: usize) -> ExplainView {
        let mut view = with_endpoints(count);
        shorten(&mut view);
        view
    }

    #[test]
    fn however_many_endpoints_there_are_an_answer_is_short_and_has_the_deciding_reasons() {
        let view = short(20_000);
        assert_eq!(view.reasons, ["first", "deciding"]);
        assert!(view.endpoints.len() == MOST_ENDPOINTS && view.endpoints.iter().all(|it| it.used));
        let all = view.all_endpoints.clone().unwrap();
        assert_eq!((all.count, all.used), (20_000, 10_000));
        assert!(view.to_compact_json().len() < 1 << 18, "{}", view.to_compact_json().len());
        let mut again = view.clone();
        shorten(&mut again);
        assert_eq!(again, view);
    }

    #[test]
    fn answers_that_differ_in_an_endpoint_that_is_not_told_differ() {
        let other = |change: fn(&mut ExplainedEndpoint)| {
            let mut view = with_endpoints(20_000);
            view.endpoints.last_mut().into_iter().for_each(change);
            shorten(&mut view);
            view
        };
        assert_eq!(other(|_| ()), short(20_000));
        let one_less = other(|it| it.used = false);
        assert_eq!(one_less.endpoints, short(20_000).endpoints);
        let hash = |view: ExplainView| view.all_endpoints.unwrap().used_hash;
        assert_ne!(hash(one_less), hash(short(20_000)));
    }

    #[test]
    fn reasons_beyond_what_people_read_are_counted() {
        let mut view = ExplainView { reasons: vec!["x".repeat(5000); 300], ..ExplainView::default() };
        shorten(&mut view);
        assert_eq!((view.reasons.len(), view.reasons[0].len()), (MOST_REASONS, LONGEST_REASON));
        assert_eq!(view.reasons[99], "201 more, which `sheave explain` on the gateway shows");
    }
}
