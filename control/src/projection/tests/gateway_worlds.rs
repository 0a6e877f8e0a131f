//! Properties of random worlds of Gateways, ListenerSets, routes, grants, ServiceImports and Services: the store marks all that
//! depends on a change, so incremental projection equals full projection, and what is served follows from the specs alone.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use proptest::prelude::*;
use sheave_model::{Frontend, PartTarget};

use super::super::{Options, Projector, Role};
use super::support::{NODE, options};
use crate::api::kinds::{
    GatewayClasses, Gateways, ImportSlices, Kind, ListenerSets, Namespaces, Nodes, ReferenceGrants,
    ServiceImports, Services, Slices, TcpRoutes, TlsRoutes, UdpRoutes,
};
use crate::api::routes::AnyRoute;
use crate::api::store::{Dirty, Objects, Store};
use crate::projection::gateway_api::outcome::RouteParent;

/// Port, protocol, namespaces of routes, and host name of a listener.
type Listener = (u8, u8, u8, u8);

/// A change of one object: of few names, so that objects meet.
#[derive(Clone, Debug)]
enum Event {
    Class {
        accepted: bool,
        ours: bool,
        gone: bool,
    },
    Gateway {
        name: u8,
        listeners: Vec<Listener>,
        sets: u8,
        gone: bool,
    },
    Set {
        name: u8,
        namespace: u8,
        gateway: u8,
        listeners: Vec<Listener>,
        created: u8,
        gone: bool,
    },
    Route {
        kind: u8,
        name: u8,
        namespace: u8,
        parents: Vec<(u8, u8, bool)>,
        backends: Vec<(u8, u8, u8)>,
        hostnames: Vec<u8>,
        created: u8,
        gone: bool,
    },
    Grant {
        namespace: u8,
        from: u8,
        kind: u8,
        name: Option<u8>,
        gone: bool,
    },
    Namespace {
        name: u8,
        labelled: bool,
        gone: bool,
    },
    Service {
        name: u8,
        namespace: u8,
        protocol: u8,
        own: bool,
        gone: bool,
    },
    Slice {
        name: u8,
        namespace: u8,
        endpoints: Vec<(u8, bool)>,
        imported: bool,
        gone: bool,
    },
    Import {
        name: u8,
        namespace: u8,
        gone: bool,
    },
    /// Whether endpoints are in a network of the gateways' own cluster, where those of ServiceImports are refused.
    Networks {
        own: bool,
    },
}

const NAMESPACES: [&str; 3] = ["shop", "blog", "infra"];
const ROUTES: [&str; 3] = ["TCPRoute", "UDPRoute", "TLSRoute"];
const HOSTNAMES: [&str; 5] = ["*.example", "*.a.example", "x.a.example", "*.b.a.example", "y.example"];

fn listeners() -> impl Strategy<Value = Vec<Listener>> {
    prop::collection::vec((0..4_u8, 0..5_u8, 0..4_u8, 0..6_u8), 1..4)
}

fn event() -> impl Strategy<Value = Event> {
    let gone = || prop::bool::weighted(0.2);
    prop_oneof![
        1 => (prop::bool::weighted(0.9), prop::bool::weighted(0.9), gone()).prop_map(|(accepted, ours, gone)| Event::Class { accepted, ours, gone }),
        3 => (0..2_u8, listeners(), 0..3_u8, gone()).prop_map(|(name, listeners, sets, gone)| Event::Gateway { name, listeners, sets, gone }),
        2 => (0..2_u8, 0..2_u8, 0..2_u8, listeners(), 0..3_u8, gone())
            .prop_map(|(name, namespace, gateway, listeners, created, gone)| Event::Set { name, namespace, gateway, listeners, created, gone }),
        5 => (0..3_u8, 0..3_u8, 0..2_u8, prop::collection::vec((0..2_u8, 0..4_u8, any::<bool>()), 1..3),
              prop::collection::vec((0..3_u8, 0..2_u8, 0..4_u8), 0..4), prop::collection::vec(0..5_u8, 0..4), 0..3_u8, gone())
            .prop_map(|(kind, name, namespace, parents, backends, hostnames, created, gone)|
                Event::Route { kind, name, namespace, parents, backends, hostnames, created, gone }),
        2 => (0..2_u8, 0..2_u8, 0..3_u8, prop::option::of(0..3_u8), gone())
            .prop_map(|(namespace, from, kind, name, gone)| Event::Grant { namespace, from, kind, name, gone }),
        2 => (0..3_u8, any::<bool>(), gone()).prop_map(|(name, labelled, gone)| Event::Namespace { name, labelled, gone }),
        3 => (0..3_u8, 0..2_u8, 0..3_u8, any::<bool>(), gone())
            .prop_map(|(name, namespace, protocol, own, gone)| Event::Service { name, namespace, protocol, own, gone }),
        3 => (0..3_u8, 0..2_u8, prop::collection::vec((0..5_u8, any::<bool>()), 0..3), any::<bool>(), gone())
            .prop_map(|(name, namespace, endpoints, imported, gone)| Event::Slice { name, namespace, endpoints, imported, gone }),
        1 => (0..3_u8, 0..2_u8, gone()).prop_map(|(name, namespace, gone)| Event::Import { name, namespace, gone }),
        1 => any::<bool>().prop_map(|own| Event::Networks { own }),
    ]
}

/// Puts the object, or removes the one with its name.
fn apply<K: Kind>(store: &mut Store, gone: bool, namespace: &str, name: &str, yaml: &str) {
    if gone {
        store.remove::<K>(namespace, name);
    } else {
        let object: K::Object =
            serde_saphyr::from_str(yaml).unwrap_or_else(|error| panic!("{error}\n{yaml}"));
        store.put::<K>(object);
    }
}

fn created(day: u8) -> String {
    if day == 0 { String::new() } else { format!(", creationTimestamp: '2026-01-0{day}T00:00:00Z'") }
}

fn listener_list(listeners: &[Listener]) -> String {
    let one = |(at, (port, protocol, from, hostname)): (usize, &Listener)| {
        let from =
            ["All", "Same", "Selector, selector: {matchLabels: {team: a}}", "None"][usize::from(*from)];
        let hostname = HOSTNAMES.get(usize::from(*hostname));
        let hostname = hostname.map(|name| format!(", hostname: '{name}'")).unwrap_or_default();
        let tls = format!("TLS, tls: {{mode: Passthrough}}{hostname}");
        let protocol = ["TCP", "UDP", "HTTP", &tls, &tls][usize::from(*protocol)];
        format!(
            "{{name: l{at}, port: {}, protocol: {protocol}, allowedRoutes: {{namespaces: {{from: {from}}}}}}}",
            9000 + u32::from(*port)
        )
    };
    listeners.iter().enumerate().map(one).collect::<Vec<_>>().join(", ")
}

fn change(store: &mut Store, event: &Event) {
    match event {
        Event::Class { accepted, ours, gone } => {
            let controller = if *ours { "sheave.dev/gateway" } else { "example.com/other" };
            let parameters = if *accepted { "" } else { ", parametersRef: {kind: X}" };
            let yaml = format!("metadata: {{name: c}}\nspec: {{controllerName: {controller}{parameters}}}");
            apply::<GatewayClasses>(store, *gone, "", "c", &yaml);
        }
        Event::Gateway { name, listeners, sets, gone } => {
            let from = ["None", "All", "Selector, selector: {matchLabels: {team: a}}"][usize::from(*sets)];
            let yaml = format!(
                "metadata: {{namespace: infra, name: g{name}}}\nspec: {{gatewayClassName: c, listeners: [{}], \
                 allowedListeners: {{namespaces: {{from: {from}}}}}}}\nstatus: {{addresses: [{{value: 203.0.113.{name}}}, {{value: 203.0.113.7}}]}}",
                listener_list(listeners)
            );
            apply::<Gateways>(store, *gone, "infra", &format!("g{name}"), &yaml);
        }
        Event::Set { name, namespace, gateway, listeners, created: day, gone } => {
            let namespace = NAMESPACES[usize::from(*namespace)];
            let yaml = format!(
                "metadata: {{namespace: {namespace}, name: s{name}{}}}\nspec: {{parentRef: {{namespace: infra, name: g{gateway}}}, listeners: [{}]}}",
                created(*day),
                listener_list(listeners)
            );
            apply::<ListenerSets>(store, *gone, namespace, &format!("s{name}"), &yaml);
        }
        Event::Namespace { name, labelled, gone } => {
            let name = NAMESPACES[usize::from(*name)];
            let labels = if *labelled { ", labels: {team: a}" } else { "" };
            apply::<Namespaces>(store, *gone, "", name, &format!("metadata: {{name: {name}{labels}}}"));
        }
        Event::Networks { own } => {
            let node = NODE.replace("kind: Node\n", "");
            let node = if *own { node } else { node.replace("10.1.0.0/16", "10.9.0.0/16") };
            store.put::<Nodes>(serde_saphyr::from_str::<Node>(&node).unwrap());
        }
        Event::Route { .. } | Event::Grant { .. } => change_route(store, event),
        Event::Service { .. } | Event::Slice { .. } | Event::Import { .. } => change_backend(store, event),
    }
}

fn change_route(store: &mut Store, event: &Event) {
    match event {
        Event::Route { kind, name, namespace, parents, backends, hostnames, created: day, gone } => {
            let namespace = NAMESPACES[usize::from(*namespace)];
            let parents = parents.iter().map(|(parent, section, set)| {
                let section = if *section < 3 { format!(", sectionName: l{section}") } else { String::new() };
                if *set {
                    format!("{{kind: ListenerSet, namespace: shop, name: s{parent}{section}}}")
                } else {
                    format!("{{namespace: infra, name: g{parent}{section}}}")
                }
            });
            let backends = backends.iter().map(|(backend, namespace, what)| {
                let kind = ["Service", "Service", "ServiceImport", "ConfigMap"][usize::from(*what)];
                let group = if kind == "ServiceImport" { "group: multicluster.x-k8s.io, " } else { "" };
                format!(
                    "{{{group}kind: {kind}, namespace: {}, name: b{backend}, port: 80, weight: {what}}}",
                    NAMESPACES[usize::from(*namespace)]
                )
            });
            let hostnames = hostnames.iter().map(|name| format!("'{}'", HOSTNAMES[usize::from(*name)]));
            let hostnames = hostnames.collect::<Vec<_>>().join(", ");
            let yaml = format!(
                "metadata: {{namespace: {namespace}, name: r{name}{}}}\nspec: {{parentRefs: [{}], rules: [{{backendRefs: [{}]}}], \
                 hostnames: [{hostnames}]}}",
                created(*day),
                parents.collect::<Vec<_>>().join(", "),
                backends.collect::<Vec<_>>().join(", ")
            );
            let name = format!("r{name}");
            match *kind {
                0 => apply::<TcpRoutes>(store, *gone, namespace, &name, &yaml),
                1 => apply::<UdpRoutes>(store, *gone, namespace, &name, &yaml),
                _ => apply::<TlsRoutes>(store, *gone, namespace, &name, &yaml),
            }
        }
        Event::Grant { namespace, from, kind, name, gone } => {
            let namespace = NAMESPACES[usize::from(*namespace)];
            let route = ROUTES[usize::from(*kind)];
            let name = name.map(|name| format!(", name: b{name}")).unwrap_or_default();
            let yaml = format!(
                "metadata: {{namespace: {namespace}, name: grant}}\nspec: {{from: [{{group: gateway.networking.k8s.io, kind: {route}, \
                 namespace: {}}}], to: [{{group: '', kind: Service{name}}}]}}",
                NAMESPACES[usize::from(*from)]
            );
            apply::<ReferenceGrants>(store, *gone, namespace, "grant", &yaml);
        }
        _ => {}
    }
}

fn change_backend(store: &mut Store, event: &Event) {
    match event {
        Event::Service { name, namespace, protocol, own, gone } => {
            let namespace = NAMESPACES[usize::from(*namespace)];
            let protocols = [&["TCP"][..], &["UDP"], &["TCP", "UDP"]][usize::from(*protocol)];
            let ports = protocols
                .iter()
                .map(|it| format!("{{name: {}, port: 80, protocol: {it}}}", it.to_lowercase()));
            let class = if *own { ", type: LoadBalancer, loadBalancerClass: sheave.dev/l4" } else { "" };
            let yaml = format!(
                "metadata: {{namespace: {namespace}, name: b{name}}}\nspec: {{ports: [{}]{class}}}\n\
                 status: {{loadBalancer: {{ingress: [{{ip: 203.0.113.7}}]}}}}",
                ports.collect::<Vec<_>>().join(", ")
            );
            apply::<Services>(store, *gone, namespace, &format!("b{name}"), &yaml);
        }
        Event::Slice { name, namespace, endpoints, imported, gone } => {
            let namespace = NAMESPACES[usize::from(*namespace)];
            let labels = if *imported {
                format!(
                    "multicluster.kubernetes.io/service-name: b{name}, multicluster.kubernetes.io/source-cluster: east"
                )
            } else {
                format!("kubernetes.io/service-name: b{name}")
            };
            // Some endpoints are addresses of Gateways.
            let ip = |at: u8| if at < 2 { format!("203.0.113.{at}") } else { format!("10.1.0.{at}") };
            let endpoints = endpoints
                .iter()
                .map(|(at, ready)| format!("{{addresses: [{}], conditions: {{ready: {ready}}}}}", ip(*at)));
            let yaml = format!(
                "metadata: {{namespace: {namespace}, name: b{name}-{imported}, labels: {{{labels}}}}}\naddressType: IPv4\n\
                 ports: [{{name: tcp, port: 9000}}, {{name: udp, port: 9000, protocol: UDP}}]\nendpoints: [{}]",
                endpoints.collect::<Vec<_>>().join(", ")
            );
            let name = format!("b{name}-{imported}");
            if *imported {
                apply::<ImportSlices>(store, *gone, namespace, &name, &yaml);
            } else {
                apply::<Slices>(store, *gone, namespace, &name, &yaml);
            }
        }
        Event::Import { name, namespace, gone } => {
            let namespace = NAMESPACES[usize::from(*namespace)];
            let yaml = format!(
                "metadata: {{namespace: {namespace}, name: b{name}}}\nspec: {{type: ClusterSetIP, ports: [{{name: tcp, port: 80}}]}}"
            );
            apply::<ServiceImports>(store, *gone, namespace, &format!("b{name}"), &yaml);
        }
        _ => {}
    }
}

/// A world in which traffic flows, so that most changes matter.
fn base(store: &mut Store) {
    change(store, &Event::Class { accepted: true, ours: true, gone: false });
    for name in 0..2 {
        let listeners = vec![(0, 0, 0, 5), (1, 0, 0, 5), (0, 1, 0, 5), (2, 3, 0, 5), (2, 3, 0, 1)];
        change(store, &Event::Gateway { name, listeners, sets: 1, gone: false });
        change(store, &Event::Namespace { name, labelled: true, gone: false });
        change(store, &Event::Grant { namespace: name, from: 1 - name, kind: 0, name: None, gone: false });
    }
    for (name, namespace) in (0..3).flat_map(|name| [(name, 0), (name, 1)]) {
        change(store, &Event::Service { name, namespace, protocol: 2, own: false, gone: false });
        let endpoints = vec![(2 + name, true)];
        change(store, &Event::Import { name, namespace, gone: false });
        for imported in [false, true] {
            let endpoints = endpoints.clone();
            change(store, &Event::Slice { name, namespace, endpoints, imported, gone: false });
        }
        let parents = vec![(name % 2, name, false)];
        let backends = vec![(name, namespace, 1), (name, 1 - namespace, 1), (name, namespace, 2)];
        let kind = u8::from(name == 2);
        let route = |kind, parents| Event::Route {
            kind,
            name,
            namespace,
            parents,
            backends: backends.clone(),
            hostnames: vec![name, 4 - name],
            created: 1,
            gone: false,
        };
        change(store, &route(kind, parents));
        change(store, &route(2, vec![(name % 2, 3, false)]));
    }
}

/// All that a projector decides.
fn decisions(projector: &Projector, objects: &Objects, table: &[Arc<Frontend>]) -> Vec<String> {
    let mut all: Vec<String> = table.iter().map(|frontend| shown(frontend)).collect();
    all.extend(projector.problems().map(|problem| format!("{problem}")));
    all.extend(projector.statuses().map(|status| format!("{status:?}")));
    all.extend(projector.gateways().map(|(key, outcome)| format!("{key} {outcome:?}")));
    for route in objects.gateway_api.routes() {
        all.push(format!("{} {:?}", route.key(), projector.route_parents(&route, objects)));
    }
    all
}

/// The frontend as text. Maps of names have no order of their own.
fn shown(frontend: &Frontend) -> String {
    let names = frontend.server_names.iter().flat_map(|names| names.patterns());
    let names: Vec<String> = names.map(|(name, target)| format!("{name} {target:?}")).collect();
    format!("{:?} {names:?}", Frontend { server_names: None, ..frontend.clone() })
}

/// No frontend leads to a backend that its route may not use, and each has the backends of one route.
fn is_permitted(frontend: &Frontend, objects: &Objects) -> bool {
    let splits = frontend.targets().filter_map(|target| target.split.as_ref());
    splits.flat_map(|split| &split.parts).all(|part| match &part.target {
        PartTarget::Refused(_) => true,
        PartTarget::Pool(pool) => objects.gateway_api.routes().any(|route| {
            let own = *pool.service.namespace == *route.key().namespace;
            let mut grants = objects.gateway_api.grants.keys();
            own || grants.any(|(namespace, _)| *namespace == pool.service.namespace)
        }),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn what_the_store_marks_is_all_that_changes(events in prop::collection::vec(event(), 1..30)) {
        for role in [Role::Standalone, Role::Gateway] {
            let options = || Options { role: role.clone(), ..options() };
            let mut store = Store::default();
            change(&mut store, &Event::Networks { own: true });
            base(&mut store);
            let mut projector = Projector::new(options());
            for event in &events {
                change(&mut store, event);
                let dirty = store.take_dirty();
                let incremental = projector.project(store.objects(), &dirty);
                let mut fresh = Projector::new(options());
                let full = fresh.project(store.objects(), &Dirty::Everything);
                let [one, other] = [(&projector, &incremental), (&fresh, &full)].map(|(projector, projection)| {
                    let table: Vec<_> = projection.table.frontends().iter().cloned().collect();
                    decisions(projector, store.objects(), &table)
                });
                prop_assert_eq!(one, other, "after {:?}, which marked {:?}", event, dirty);
                prop_assert!(projector.is_consistent(), "after {:?}, which marked {:?}", event, dirty);
                prop_assert!(full.table.frontends().iter().all(|it| is_permitted(it, store.objects())));
            }
        }
    }
}

#[test]
fn each_parent_of_a_route_has_its_own_state() {
    let mut store = Store::default();
    change(&mut store, &Event::Class { accepted: true, ours: true, gone: false });
    change(&mut store, &Event::Gateway { name: 0, listeners: vec![(0, 0, 0, 5)], sets: 1, gone: false });
    change(
        &mut store,
        &Event::Set {
            name: 0,
            namespace: 0,
            gateway: 0,
            listeners: vec![(1, 0, 0, 5)],
            created: 1,
            gone: false,
        },
    );
    let parents = vec![(0, 3, false), (0, 3, true), (1, 3, false), (0, 2, false)];
    let route = Event::Route {
        kind: 0,
        name: 0,
        namespace: 0,
        parents,
        backends: vec![(0, 0, 1)],
        hostnames: Vec::new(),
        created: 1,
        gone: false,
    };
    change(&mut store, &route);
    let mut projector = Projector::new(options());
    let _ = projector.project(store.objects(), &Dirty::Everything);
    let mut routes = store.objects().gateway_api.tcp_routes.values();
    let route = AnyRoute::Tcp(Arc::clone(routes.next().unwrap()));
    let told = |parent: &RouteParent| {
        let name = parent
            .reference
            .kind
            .clone()
            .unwrap_or_else(|| parent.reference.section_name.clone().unwrap_or_default());
        format!("{name} {} {}", parent.accepted.reason, parent.resolved_refs.reason)
    };
    let told: Vec<String> = projector.route_parents(&route, store.objects()).into_iter().map(told).collect();
    // The Gateway g1 does not exist.
    assert_eq!(
        told,
        [
            " Accepted BackendNotFound",
            "ListenerSet Accepted BackendNotFound",
            "l2 NoMatchingParent BackendNotFound"
        ]
    );
}
