//! Properties of server names: what each leads to, compared with the rules as the API states them.

use std::sync::Arc;

use proptest::prelude::*;
use sheave_model::{PatternMap, ServerNamePattern};

use super::super::attachment::Attachment;
use super::super::listeners::{MergedListener, merge};
use super::{NameTarget, PortNames};
use crate::api::gateway_api::{
    Gateway, Listener, ListenerTls, ParentReference, RouteKey, RouteKind, RouteSpec, TlsRoute,
};
use crate::api::routes::AnyRoute;

/// Names of few labels, so that many cover each other.
const PATTERNS: [&str; 9] =
    ["*.e", "*.a.e", "*.b.a.e", "a.e", "b.a.e", "c.b.a.e", "x.e", "*.x.e", "*.c.b.a.e"];
const NAMES: [&str; 9] = ["e", "a.e", "b.a.e", "c.b.a.e", "d.c.b.a.e", "x.e", "y.x.e", "z.a.e", "q"];

fn gateway(hostnames: &[Option<&str>]) -> Gateway {
    let listener = |(at, hostname): (usize, &Option<&str>)| Listener {
        name: format!("l{at}"),
        hostname: hostname.map(str::to_owned),
        port: 443,
        protocol: "TLS".to_owned(),
        tls: Some(ListenerTls { mode: Some("Passthrough".to_owned()) }),
        allowed_routes: None,
    };
    let mut gateway = Gateway::default();
    gateway.spec.listeners = hostnames.iter().enumerate().map(listener).collect();
    gateway
}

fn attachment(name: usize, hostnames: &[&str], merged: &[MergedListener<'_>]) -> Attachment {
    let key = RouteKey { namespace: "shop".into(), name: format!("r{name}").into(), kind: RouteKind::Tls };
    let names = hostnames.iter().map(|name| (*name).to_owned()).collect();
    let spec = RouteSpec { hostnames: names, ..RouteSpec::default() };
    let route = AnyRoute::Tls(Arc::new(TlsRoute { spec, ..TlsRoute::default() }));
    let hostnames: Vec<_> = hostnames.iter().map(|name| ServerNamePattern::new(name)).collect();
    let fits = |at: &usize| merged[*at].common(&hostnames).next().is_some();
    let listeners: Vec<usize> = (0..merged.len()).filter(fits).collect();
    let parents = vec![(ParentReference::default(), Ok(listeners.clone()))];
    Attachment { key, route, hostnames, parents, listeners }
}

/// How narrow a pattern is that covers the name; `None` if it does not.
fn narrowness(pattern: &ServerNamePattern, name: &ServerNamePattern) -> Option<(bool, usize)> {
    pattern.covers(name).then(|| (pattern == name, pattern.to_string().len()))
}

/// The rules, one after the other: the narrowest listener that has the name, and within it the narrowest host name, of the oldest route.
fn expected(name: &str, merged: &[MergedListener<'_>], routes: &[Attachment]) -> Option<NameTarget> {
    let name = ServerNamePattern::new(name);
    let of_listener = |at: &usize| match &merged[*at].pattern {
        Some(pattern) => narrowness(pattern, &name),
        None => Some((false, 0)),
    };
    let listener = (0..merged.len()).filter(|at| of_listener(at).is_some()).max_by_key(of_listener)?;
    let candidates = routes.iter().enumerate().flat_map(|(route, attachment)| {
        let names = merged[listener].common(&attachment.hostnames).collect::<Vec<_>>();
        names.into_iter().filter_map(|it| narrowness(it, &name)).map(move |narrow| (narrow, route))
    });
    let (_, route) = candidates.max_by_key(|(narrow, route)| (*narrow, usize::MAX - route))?;
    Some(NameTarget { listener, route })
}

proptest! {
    #[test]
    fn each_name_leads_where_the_rules_say(
        listeners in prop::collection::btree_set(0..PATTERNS.len() + 1, 1..5),
        routes in prop::collection::vec(prop::collection::vec(0..PATTERNS.len(), 1..4), 0..5),
    ) {
        let hostnames: Vec<Option<&str>> = listeners.iter().map(|at| PATTERNS.get(*at).copied()).collect();
        let gateway = gateway(&hostnames);
        let merged = merge(&gateway, &[]);
        let routes: Vec<Attachment> = routes
            .iter()
            .enumerate()
            .map(|(name, patterns)| {
                let patterns: Vec<&str> = patterns.iter().map(|at| PATTERNS[*at]).collect();
                attachment(name, &patterns, &merged)
            })
            .collect();
        let by_age: Vec<(usize, &Attachment)> = routes.iter().enumerate().collect();
        let all: Vec<usize> = (0..merged.len()).collect();
        let names = PortNames::new(&merged, &all, &by_age);
        let mut flat = PatternMap::default();
        for (pattern, target) in &names.targets {
            flat.add(pattern.clone(), *target);
        }
        for name in NAMES {
            let found = flat.of_name(name).copied().flatten();
            prop_assert_eq!(found, expected(name, &merged, &routes), "{} of {:?}", name, names.targets);
        }
        let won: usize = names.counts.values().map(|count| count.won).sum();
        prop_assert_eq!(won, names.targets.values().flatten().count());
        prop_assert!(names.counts.values().all(|count| count.won <= count.wanted));
    }
}
