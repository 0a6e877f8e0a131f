//! Events in a world, with few names and few addresses, so that objects interact.

use std::fmt;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

use super::server::Kind;
use sheave_model::FrontendSource;

/// An event.
#[derive(Clone)]
pub(super) enum Event {
    Put(Kind, Value),
    Delete(Kind, &'static str, String),
}

/// Prints events as a script with one object on each line.
impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put(kind, object) => write!(f, "put {kind:?} {object}"),
            Self::Delete(kind, namespace, name) => write!(f, "delete {kind:?} {namespace}/{name}"),
        }
    }
}

/// Events between two checks of the world.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) events: Vec<Event>,
    /// Kinds whose watches end, so that a list replaces their events.
    pub(super) listed: Vec<Kind>,
    /// Whether changes of the last kinds are delivered first.
    pub(super) reversed: bool,
    pub(super) term: Term,
    /// Whether the leader writes its results.
    pub(super) written: bool,
    /// Objects whose writes the API server rejects meanwhile.
    pub(super) refused: Vec<ObjectName>,
    /// Objects whose writes of a status arrive only after the writes of the next batch.
    pub(super) late: Vec<ObjectName>,
    /// A port that a gateway cannot open for any object.
    pub(super) failing: Option<u16>,
}

/// An object that the controller writes.
pub(super) type ObjectName = (FrontendSource, &'static str, &'static str);

/// Change of leadership after the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Term {
    Same,
    /// A new leader, which knows only the stored state.
    New,
    /// A new leader, which writes before it has read Karmada's API server.
    Blind,
    /// Another installation gains or loses the Leases on Karmada; `true` means that this one has them.
    Seats(bool),
    /// This installation holds the Lease of its class, but not that for objects without a class.
    ClassSeat,
}

/// The worlds, as sequences of batches.
pub(super) fn batches() -> impl Strategy<Value = Vec<Batch>> {
    batches_of(event())
}

/// Worlds in which all want ports of one address, which a pool lets namespaces share.
pub(super) fn batches_at_one_address() -> impl Strategy<Value = Vec<Batch>> {
    let pool =
        json!({"metadata": {"name": "p0"}, "spec": {"addresses": [THE_ADDRESS], "sharing": "Cluster"}});
    batches_of(event_at_one_address()).prop_map(move |mut batches| {
        batches[0].events.insert(0, Event::Put(Kind::Pool, pool.clone()));
        batches
    })
}

fn batches_of(event: impl Strategy<Value = Event>) -> impl Strategy<Value = Vec<Batch>> {
    let term = prop_oneof![
        8 => Just(Term::Same),
        2 => Just(Term::New),
        1 => Just(Term::Blind),
        2 => any::<bool>().prop_map(Term::Seats),
        1 => Just(Term::ClassSeat),
    ];
    let events = prop::collection::vec(event, 1..7);
    let listed = prop_oneof![3 => Just(Vec::new()), 1 => subsequence(Kind::ALL.to_vec(), 1..5)];
    let failing = prop_oneof![3 => Just(None), 1 => (80..82_u16).prop_map(Some)];
    let writes = (prop::bool::weighted(0.8), objects(), objects());
    let batch = (events, listed, any::<bool>(), term, writes, failing).prop_map(
        |(events, listed, reversed, term, (written, refused, late), failing)| Batch {
            events,
            listed,
            reversed,
            term,
            written,
            refused,
            late,
            failing,
        },
    );
    prop::collection::vec(batch, 1..10)
}

fn objects() -> impl Strategy<Value = Vec<ObjectName>> {
    let of = |source, names: &'static [&'static str]| {
        SPACES.iter().flat_map(move |space| names.iter().map(move |name| (source, *space, *name)))
    };
    let all = of(FrontendSource::Service, &SERVICES)
        .chain(of(FrontendSource::MultiClusterService, &SERVICES[..2]))
        .chain(of(FrontendSource::Gateway, &GATES))
        .collect::<Vec<_>>();
    prop_oneof![3 => Just(Vec::new()), 2 => subsequence(all, 1..6)]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => service().prop_map(|it| Event::Put(Kind::Service, it)),
        4 => slice().prop_map(|it| Event::Put(Kind::Slice, it)),
        3 => pool().prop_map(|it| Event::Put(Kind::Pool, it)),
        2 => node().prop_map(|it| Event::Put(Kind::Node, it)),
        2 => gateways().prop_map(|it| Event::Put(Kind::Slice, it)),
        1 => namespace().prop_map(|it| Event::Put(Kind::Namespace, it)),
        3 => multi_cluster_service().prop_map(|it| Event::Put(Kind::MultiClusterService, it)),
        3 => template().prop_map(|it| Event::Put(Kind::Template, it)),
        3 => work(),
        1 => binding().prop_map(|it| Event::Put(Kind::Binding, it)),
        1 => cluster().prop_map(|it| Event::Put(Kind::Cluster, it)),
        1 => class().prop_map(|it| Event::Put(Kind::Class, it)),
        4 => gateway().prop_map(|it| Event::Put(Kind::Gateway, it)),
        3 => listener_set().prop_map(|it| Event::Put(Kind::ListenerSet, it)),
        5 => deletion(),
    ]
}

const THE_ADDRESS: &str = "203.0.113.1";

fn event_at_one_address() -> impl Strategy<Value = Event> {
    let service = service().prop_map(|mut object| {
        object["metadata"]["annotations"] = json!({});
        object["spec"]["loadBalancerIP"] = json!(THE_ADDRESS);
        object["spec"]["ipFamilies"] = json!(["IPv4"]);
        Event::Put(Kind::Service, object)
    });
    let gateway = gateway().prop_map(|mut object| {
        object["metadata"]["annotations"] = json!({});
        object["spec"]["addresses"] = json!([{"value": THE_ADDRESS}]);
        Event::Put(Kind::Gateway, object)
    });
    let of_fleet = multi_cluster_service().prop_map(|mut object| {
        object["metadata"]["annotations"] = json!({"sheave.dev/addresses": THE_ADDRESS});
        Event::Put(Kind::MultiClusterService, object)
    });
    let template = template().prop_map(|mut object| {
        object["spec"]["ipFamilies"] = json!(["IPv4"]);
        Event::Put(Kind::Template, object)
    });
    let gone = |kind, names: &'static [&'static str]| {
        (select(&SPACES[..]), select(names))
            .prop_map(move |(space, name)| Event::Delete(kind, space, name.to_owned()))
    };
    prop_oneof![
        4 => service,
        6 => gateway,
        4 => listener_set().prop_map(|it| Event::Put(Kind::ListenerSet, it)),
        4 => of_fleet,
        4 => template,
        1 => gone(Kind::Service, &SERVICES),
        1 => gone(Kind::MultiClusterService, &SERVICES[..2]),
        2 => gone(Kind::Template, &SERVICES[..2]),
        1 => gone(Kind::Gateway, &GATES),
        1 => gone(Kind::ListenerSet, &["l0", "l1"]),
    ]
}

const SPACES: [&str; 2] = ["able", "shop"];
const SERVICES: [&str; 3] = ["s0", "s1", "s2"];
const POOLS: [&str; 3] = ["p0", "p1", "p2"];
const NODES: [&str; 3] = ["n0", "n1", "n2"];
const CLUSTERS: [&str; 2] = ["m1", "m2"];
const GATES: [&str; 2] = ["g0", "g1"];
/// Namespace and name of the gateways' Service.
pub(super) const GATEWAYS: (&str, &str) = ("system", "gateways");

fn deletion() -> impl Strategy<Value = Event> {
    let of = |kind: Kind, spaces: &'static [&'static str], names: Vec<String>| {
        (select(spaces), select(names)).prop_map(move |(space, name)| Event::Delete(kind, space, name))
    };
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let slices: Vec<String> = SERVICES.iter().flat_map(|it| [format!("{it}-0"), format!("{it}-1")]).collect();
    prop_oneof![
        4 => of(Kind::Service, &SPACES, owned(&SERVICES)),
        2 => of(Kind::Slice, &SPACES, slices),
        3 => of(Kind::Pool, &[""], owned(&POOLS)),
        2 => of(Kind::Node, &[""], owned(&NODES)),
        1 => of(Kind::Slice, &["system"], owned(&["gateways"])),
        1 => of(Kind::Namespace, &[""], owned(&SPACES)),
        2 => of(Kind::MultiClusterService, &SPACES, owned(&SERVICES[..2])),
        2 => of(Kind::Template, &SPACES, owned(&SERVICES[..2])),
        1 => of(Kind::CollectedWork, &["karmada-es-m1", "karmada-es-m2"], owned(&["w0", "w1"])),
        1 => of(Kind::Binding, &SPACES, owned(&SERVICES[..2])),
        1 => of(Kind::Cluster, &[""], owned(&CLUSTERS)),
        1 => of(Kind::Gateway, &SPACES, owned(&GATES)),
        1 => of(Kind::ListenerSet, &SPACES, owned(&["l0", "l1"])),
    ]
}

/// Annotations and spec fields with the requests of a Service.
fn asks() -> impl Strategy<Value = (Value, Value)> {
    let annotated = |name: &str, value: &str| (json!({name: value}), json!({}));
    let addresses = |value: &str| annotated("sheave.dev/addresses", value);
    prop_oneof![
        8 => Just((json!({}), json!({}))),
        5 => select(vec![
            addresses("203.0.113.1"),
            addresses("203.0.113.1,203.0.113.2"),
            addresses("203.0.113.3, 2001:db8:f::1"),
            addresses("192.0.2.10"),
            addresses("203.0.113.1, 192.0.2.11, nonsense"),
            annotated("sheave.dev/address-pool", "p0"),
            annotated("sheave.dev/address-pool", "p1"),
            annotated("sheave.dev/address-pool", "p9"),
            annotated("sheave.dev/renumber", "true"),
            (json!({}), json!({"loadBalancerIP": "203.0.113.2"})),
        ]),
    ]
}

fn ports() -> impl Strategy<Value = Value> {
    select(vec![
        json!([{"port": 80}]),
        json!([{"port": 81}]),
        json!([{"name": "a", "port": 80}, {"name": "b", "port": 81}]),
        json!([{"port": 80, "protocol": "UDP"}]),
    ])
}

fn families() -> impl Strategy<Value = Value> {
    select(vec![
        json!({}),
        json!({"ipFamilies": ["IPv4"]}),
        json!({"ipFamilies": ["IPv6"]}),
        json!({"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"}),
        json!({"ipFamilyPolicy": "PreferDualStack"}),
    ])
}

fn rest() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => Just(json!({})),
        2 => select(vec![
            json!({"externalTrafficPolicy": "Local"}),
            json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 30100}),
            json!({"loadBalancerSourceRanges": ["10.0.0.0/8"]}),
            json!({"loadBalancerSourceRanges": ["nonsense"]}),
            json!({"loadBalancerClass": "example.org/other"}),
            json!({"type": "ClusterIP"}),
        ]),
    ]
}

fn merged(parts: &[Value]) -> Value {
    let mut all = json!({});
    parts.iter().for_each(|part| json_patch::merge(&mut all, part));
    all
}

fn service() -> impl Strategy<Value = Value> {
    let app = select(vec!["x", "y"]);
    (select(&SPACES[..]), select(&SERVICES[..]), ports(), families(), asks(), rest(), app).prop_map(
        |(namespace, name, ports, families, (annotations, asks), rest, app)| {
            let spec = json!({"type": "LoadBalancer", "loadBalancerClass": "sheave.dev/l4", "ports": ports});
            json!({
                "metadata": {"namespace": namespace, "name": name, "labels": {"app": app}, "annotations": annotations},
                "spec": merged(&[spec, families, asks, rest]),
            })
        },
    )
}

/// An endpoint and whether it is IPv4. Some are addresses of pools or Nodes.
fn endpoint() -> impl Strategy<Value = (bool, Value)> {
    let v4 = select(vec!["10.1.0.1", "10.1.0.2", "203.0.113.1", "192.0.2.10"]);
    let v6 = select(vec!["fd00::1", "2001:db8:f::1"]);
    let ip = prop_oneof![3 => v4.prop_map(|ip| (true, ip)), 1 => v6.prop_map(|ip| (false, ip))];
    (ip, select(&NODES[..]), any::<[bool; 3]>(), prop::option::of(select(vec!["a", "b"]))).prop_map(
        |((is_v4, ip), node, [ready, serving, terminating], hint)| {
            let mut endpoint = json!({"addresses": [ip], "nodeName": node, "conditions":
                {"ready": ready, "serving": serving, "terminating": terminating}});
            if let Some(zone) = hint {
                endpoint["hints"] = json!({"forZones": [{"name": zone}]});
            }
            (is_v4, endpoint)
        },
    )
}

/// Endpoints of one family with its `addressType`.
fn endpoints() -> impl Strategy<Value = (&'static str, Vec<Value>)> {
    (any::<bool>(), prop::collection::vec(endpoint(), 0..4)).prop_map(|(v6, all)| {
        let of_family = all.into_iter().filter(|(is_v4, _)| *is_v4 != v6).map(|(_, endpoint)| endpoint);
        (if v6 { "IPv6" } else { "IPv4" }, of_family.collect())
    })
}

const SLICE_PORTS: [&str; 3] = ["", "a", "b"];

fn slice_of(namespace: &str, name: &str, owner: &str, family: &str, endpoints: &[Value]) -> Value {
    let ports: Vec<Value> = SLICE_PORTS.iter().map(|name| json!({"name": name, "port": 81})).collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"namespace": namespace, "name": name, "labels": {"kubernetes.io/service-name": owner}},
        "addressType": family, "ports": ports, "endpoints": endpoints,
    })
}

fn slice() -> impl Strategy<Value = Value> {
    // A slice may move to another Service.
    (select(&SPACES[..]), select(&SERVICES[..]), 0..2_u8, select(&SERVICES[..]), 0..8_u8, endpoints())
        .prop_map(|(namespace, name, index, other, moves, (family, endpoints))| {
            let owner = if moves == 0 { other } else { name };
            slice_of(namespace, &format!("{name}-{index}"), owner, family, &endpoints)
        })
}

fn gateways() -> impl Strategy<Value = Value> {
    prop::collection::vec(any::<bool>(), 3).prop_map(|ready| {
        let endpoints: Vec<Value> = NODES.iter().zip(ready).map(|(node, ready)| {
            json!({"addresses": ["10.9.0.1"], "nodeName": node, "conditions": {"ready": ready}})
        }).collect();
        let (namespace, name) = GATEWAYS;
        slice_of(namespace, name, name, "IPv4", &endpoints)
    })
}

/// A pool. None lists an address of a Node, because then the sharing rule of that pool would apply to it.
fn pool() -> impl Strategy<Value = Value> {
    let addresses = select(vec![
        json!({"addresses": ["203.0.113.0-203.0.113.1"]}),
        json!({"addresses": ["203.0.113.1-203.0.113.3"]}),
        json!({"addresses": ["203.0.113.2", "2001:db8:f::/127"]}),
        json!({"addresses": ["2001:db8:f::1", "203.0.113.0"]}),
        json!({"fromGatewayNodes": true}),
        json!({"addresses": ["203.0.113.3", "wrong"], "fromGatewayNodes": true}),
    ]);
    let team = json!({"namespaceSelector": {"matchLabels": {"team": "x"}}});
    let named = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}});
    let limits = prop_oneof![
        3 => Just(json!({})),
        2 => select(vec![team, named, json!({"serviceSelector": {"matchLabels": {"app": "x"}}})]),
    ];
    let rest = prop_oneof![
        3 => Just(json!({})),
        3 => select(vec![
            json!({"autoAssign": false}),
            json!({"sharing": "Cluster"}),
            json!({"maxPerService": 1}),
            json!({"priority": 3}),
            json!({"avoidBuggyIPs": true}),
        ]),
    ];
    (select(&POOLS[..]), addresses, limits, rest).prop_map(|(name, addresses, limits, rest)| {
        json!({"metadata": {"name": name}, "spec": merged(&[addresses, limits, rest])})
    })
}

fn node() -> impl Strategy<Value = Value> {
    let address = select(vec!["192.0.2.10", "192.0.2.11", "192.0.2.12", "10.1.0.2"]);
    let second = prop::option::of(select(vec![
        json!({"type": "ExternalIP", "address": "198.51.100.1"}),
        json!({"type": "InternalIP", "address": "2001:db8::8"}),
        json!({"type": "InternalIP", "address": "2001:db8::9"}),
    ]));
    let mark = prop_oneof![4 => Just(0), 1 => 1..4_u8];
    (select(&NODES[..]), select(vec!["a", "b"]), address, second, mark).prop_map(
        |(name, zone, address, second, mark)| {
            let mut addresses = vec![json!({"type": "InternalIP", "address": address})];
            addresses.extend(second);
            let mut node = json!({
                "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone}},
                "spec": {"podCIDRs": ["10.1.0.0/24"]}, "status": {"addresses": addresses},
            });
            match mark {
                1 => {
                    node["metadata"]["labels"]["node.kubernetes.io/exclude-from-external-load-balancers"] =
                        json!("");
                }
                2 => {
                    node["spec"]["taints"] =
                        json!([{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]);
                }
                3 => node["spec"]["podCIDRs"] = json!(["10.2.0.0/24", "wrong"]),
                _ => {}
            }
            node
        },
    )
}

fn namespace() -> impl Strategy<Value = Value> {
    (select(&SPACES[..]), prop::option::of(select(vec!["x", "y"]))).prop_map(
        |(name, team)| json!({"metadata": {"name": name, "labels": {"team": team.unwrap_or_default()}}}),
    )
}

fn multi_cluster_service() -> impl Strategy<Value = Value> {
    let spec = select(vec![
        json!({}),
        json!({"ports": [{"port": 80}]}),
        json!({"providerClusters": [{"name": "m1"}]}),
        json!({"providerClusters": [{"name": "m1"}, {"name": "m9"}]}),
        json!({"types": ["CrossCluster"]}),
    ]);
    let annotations = prop_oneof![
        4 => Just(json!({})),
        3 => select(vec![
            json!({"sheave.dev/load-balancer-class": "sheave.dev/l4"}),
            json!({"sheave.dev/load-balancer-class": "example.org/other"}),
            json!({"sheave.dev/cluster-weights": "m1=2,m2=0"}),
            json!({"sheave.dev/drain": "m2"}),
            json!({"sheave.dev/cluster-priority": "locality"}),
        ]),
    ];
    (select(&SPACES[..]), select(&SERVICES[..2]), spec, annotations, asks()).prop_map(
        |(namespace, name, spec, annotations, (asked, _))| {
            json!({
                "metadata": {"namespace": namespace, "name": name, "annotations": merged(&[annotations, asked])},
                "spec": merged(&[json!({"types": ["LoadBalancer"]}), spec]),
            })
        },
    )
}

fn template() -> impl Strategy<Value = Value> {
    (select(&SPACES[..]), select(&SERVICES[..2]), ports(), families(), asks(), any::<bool>()).prop_map(
        |(namespace, name, ports, families, (_, asks), local)| {
            let policy = if local { json!({"externalTrafficPolicy": "Local"}) } else { json!({}) };
            let spec = json!({"type": "ClusterIP", "ports": ports});
            json!({
                "metadata": {"namespace": namespace, "name": name},
                "spec": merged(&[spec, families, asks, policy]),
            })
        },
    )
}

/// A Work with collected endpoints, or with the Service as it is in the cluster.
fn work() -> impl Strategy<Value = Event> {
    (select(&CLUSTERS[..]), 0..2_u8, select(&SPACES[..]), select(&SERVICES[..2]), endpoints(), 0..4_u8).prop_map(
        |(cluster, index, namespace, owner, (family, endpoints), carries)| {
            let space = format!("karmada-es-{cluster}");
            if carries == 0 {
                let service = json!({"apiVersion": "v1", "kind": "Service",
                    "metadata": {"namespace": namespace, "name": owner}, "spec": {"ports": [{"port": 80}]}});
                let identifier = json!({"kind": "Service", "namespace": namespace, "name": owner});
                let ingress = json!({"loadBalancer": {"ingress": [{"ip": format!("198.51.100.{}", index + 1)}]}});
                return Event::Put(Kind::ServiceWork, json!({
                    "metadata": {"namespace": space, "name": format!("v{index}")},
                    "spec": {"workload": {"manifests": [service]}},
                    "status": {"manifestStatuses": [{"identifier": identifier, "status": ingress}]},
                }));
            }
            let labels = json!({
                "multiclusterservice.karmada.io/name": owner, "multiclusterservice.karmada.io/namespace": namespace,
                "endpointslice.karmada.io/managed-by": "MultiClusterService",
            });
            let slice = slice_of(namespace, &format!("{owner}-{index}"), owner, family, &endpoints);
            Event::Put(Kind::CollectedWork, json!({
                "metadata": {"namespace": space, "name": format!("w{index}"), "labels": labels},
                "spec": {"workload": {"manifests": [slice]}},
            }))
        },
    )
}

fn binding() -> impl Strategy<Value = Value> {
    (select(&SPACES[..]), select(&SERVICES[..2]), subsequence(CLUSTERS.to_vec(), 0..3)).prop_map(
        |(namespace, name, clusters)| {
            let clusters: Vec<Value> = clusters.into_iter().map(|name| json!({"name": name})).collect();
            let resource =
                json!({"apiVersion": "v1", "kind": "Service", "namespace": namespace, "name": name});
            json!({
                "metadata": {"namespace": namespace, "name": name},
                "spec": {"resource": resource, "clusters": clusters},
            })
        },
    )
}

fn cluster() -> impl Strategy<Value = Value> {
    (select(&CLUSTERS[..]), any::<bool>(), any::<bool>()).prop_map(|(name, ready, tainted)| {
        let taints = if tainted { json!([{"key": "k", "effect": "NoExecute"}]) } else { json!([]) };
        let condition = json!({"type": "Ready", "status": if ready { "True" } else { "False" }, "reason": "X",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        json!({"metadata": {"name": name}, "spec": {"taints": taints}, "status": {"conditions": [condition]}})
    })
}

/// The class of all Gateways. It may become that of another controller.
pub(super) fn class() -> impl Strategy<Value = Value> {
    prop::bool::weighted(0.8).prop_map(|ours| {
        let controller = if ours { "sheave.dev/gateway" } else { "example.org/other" };
        json!({"metadata": {"name": "c"}, "spec": {"controllerName": controller}})
    })
}

/// One or two listeners, whose names stay when their ports change.
fn listeners() -> impl Strategy<Value = Value> {
    let protocol = select(vec!["TCP", "TCP", "UDP", "HTTP"]);
    prop::collection::vec((80..82_u16, protocol), 1..3).prop_map(|ports| {
        let listeners = ports
            .into_iter()
            .zip(["a", "b"])
            .map(|((port, protocol), name)| json!({"name": name, "port": port, "protocol": protocol}));
        listeners.collect()
    })
}

fn gateway() -> impl Strategy<Value = Value> {
    let addresses = prop_oneof![
        2 => Just(json!([])),
        3 => select(vec![
            json!([{"value": "203.0.113.1"}]),
            json!([{"value": "203.0.113.2"}]),
            json!([{"value": "203.0.113.1"}, {"value": "203.0.113.2"}]),
            json!([{"value": "2001:db8:f::1"}, {"value": "192.0.2.10"}]),
        ]),
    ];
    let annotations = prop_oneof![
        4 => Just(json!({})),
        2 => select(vec![
            json!({"sheave.dev/address-pool": "p0"}),
            json!({"sheave.dev/address-pool": "p1"}),
            json!({"sheave.dev/ip-families": "IPv4"}),
            json!({"sheave.dev/renumber": "true"}),
        ]),
    ];
    (select(&SPACES[..]), select(&GATES[..]), listeners(), addresses, annotations).prop_map(
        |(namespace, name, listeners, addresses, annotations)| {
            json!({
                "metadata": {"namespace": namespace, "name": name, "annotations": annotations},
                "spec": {"gatewayClassName": "c", "listeners": listeners, "addresses": addresses,
                    "allowedListeners": {"namespaces": {"from": "All"}}},
            })
        },
    )
}

fn listener_set() -> impl Strategy<Value = Value> {
    let spaces = || select(&SPACES[..]);
    (spaces(), select(vec!["l0", "l1"]), spaces(), select(&GATES[..]), listeners()).prop_map(
        |(namespace, name, of, gateway, listeners)| {
            json!({
                "metadata": {"namespace": namespace, "name": name},
                "spec": {"parentRef": {"namespace": of, "name": gateway}, "listeners": listeners},
            })
        },
    )
}
