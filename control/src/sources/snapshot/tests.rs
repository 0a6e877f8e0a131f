//! Written objects come back unchanged, and any other file is refused.

mod not_a_file;
mod skew;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    Namespace, Node, NodeAddress, NodeSpec, NodeStatus, Service, ServicePort, ServiceSpec,
};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use proptest::prelude::*;

use super::format::{DecodeError, Header, decode, encode};
use super::*;
use crate::api::address_pool::{AddressPool, AddressPoolSpec};
use crate::api::karmada::{Cluster, Manifest, MultiClusterService, ResourceBinding, Work};
use crate::api::kinds;
use crate::api::store::{Change, Delta, SERVICE_NAME_LABEL, Store};

pub(super) fn identity() -> Identity {
    trusted_by(&[])
}

fn trusted_by(authorities: &[&str]) -> Identity {
    Identity {
        part: ControlPlane::Local,
        server: "https://10.0.0.1:6443/".to_owned(),
        cluster: "local".to_owned(),
        authorities: authorities.iter().map(ToString::to_string).collect(),
    }
}

/// One small object of each kind.
pub(super) fn objects() -> Objects {
    let mut store = Store::default();
    let meta = |name: &str| ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let shop = |name: &str| ObjectMeta { namespace: Some("shop".to_owned()), ..meta(name) };
    let labels = Some(BTreeMap::from([(SERVICE_NAME_LABEL.to_owned(), "web".to_owned())]));
    store.put::<kinds::Services>(Service { metadata: shop("web"), ..Service::default() });
    store.put::<kinds::Slices>(EndpointSlice {
        metadata: ObjectMeta { labels, ..shop("web-1") },
        ..EndpointSlice::default()
    });
    store.put::<kinds::Nodes>(Node { metadata: meta("n1"), ..Node::default() });
    store.put::<kinds::Namespaces>(Namespace { metadata: meta("shop"), ..Namespace::default() });
    store.put::<kinds::Pools>(AddressPool { metadata: meta("public"), ..AddressPool::default() });
    store.objects().clone()
}

fn bytes(objects: &Objects) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&Header::new(&identity(), Timestamp::UNIX_EPOCH), objects, ControlPlane::Local, &mut bytes)
        .unwrap();
    bytes
}

fn files(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_is_written_is_read_and_only_the_owner_may() {
    let dir = tempfile::tempdir().unwrap();
    let before = Timestamp::now();
    let written_at = write(dir.path(), &identity(), &objects()).unwrap();
    assert!(written_at >= before && written_at <= Timestamp::now());
    let snapshot = read(dir.path(), &identity()).unwrap().unwrap();
    let sheave = env!("CARGO_PKG_VERSION").to_owned();
    assert_eq!(snapshot, Snapshot { identity: identity(), written_at, sheave, objects: objects() });
    assert_eq!(
        fs::metadata(path(dir.path(), ControlPlane::Local)).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(files(dir.path()), ["snapshot.jsonl"]);
}

#[test]
fn each_server_is_kept_by_itself_and_read_back_as_it_was() {
    let mut both = objects();
    let shop = |name: &str| ObjectMeta {
        namespace: Some("shop".to_owned()),
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    };
    let labels = Some(BTreeMap::from([(SERVICE_NAME_LABEL.to_owned(), "web".to_owned())]));
    let slice =
        EndpointSlice { metadata: ObjectMeta { labels, ..shop("web-1") }, ..EndpointSlice::default() };
    let manifests = vec![
        Manifest::EndpointSlice(Arc::new(slice.clone())),
        Manifest::Other { kind: "Deployment".to_owned() },
    ];
    both.put::<kinds::CollectedWorks>(Work::new(shop("web-1-x"), manifests));
    both.put::<kinds::Imported>(slice);
    both.put::<kinds::Templates>(Service { metadata: shop("web"), ..Service::default() });
    both.put::<kinds::MultiClusterServices>(MultiClusterService {
        metadata: shop("web"),
        ..MultiClusterService::default()
    });
    both.put::<kinds::Clusters>(Cluster { metadata: shop("member1"), ..Cluster::default() });
    let mut binding = ResourceBinding { metadata: shop("web-service"), ..ResourceBinding::default() };
    binding.spec.resource.kind = "Service".to_owned();
    both.put::<kinds::Bindings>(binding);
    let dir = tempfile::tempdir().unwrap();
    let karmada = Identity { part: ControlPlane::Karmada, ..identity() };
    write(dir.path(), &identity(), &both).unwrap();
    write(dir.path(), &karmada, &both).unwrap();
    assert_eq!(files(dir.path()), ["karmada.jsonl", "snapshot.jsonl"]);
    let kept = |identity: &Identity| read(dir.path(), identity).unwrap().unwrap().objects;
    assert_eq!(kept(&identity()), objects());
    assert_eq!(kept(&karmada), Objects { fleet: both.fleet, ..Objects::default() });
}

#[test]
fn a_new_snapshot_replaces_the_old_one_and_none_is_none() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(read(dir.path(), &identity()).unwrap(), None);
    write(dir.path(), &identity(), &objects()).unwrap();
    write(dir.path(), &identity(), &Objects::default()).unwrap();
    assert_eq!(read(dir.path(), &identity()).unwrap().unwrap().objects, Objects::default());
    assert_eq!(files(dir.path()), ["snapshot.jsonl"]);
}

#[test]
fn the_directory_is_made_but_not_the_path_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    assert_eq!(read(&state, &identity()).unwrap(), None);
    write(&state, &identity(), &objects()).unwrap();
    assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o700);
    let error = write(&dir.path().join("mount/state"), &identity(), &objects()).unwrap_err();
    assert!(matches!(error, SnapshotError::Unwritable { .. }), "{error}");
}

#[test]
fn what_cannot_be_put_in_place_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    // A name that no file can be renamed to, even for root: a directory that is not empty.
    fs::create_dir_all(path(dir.path(), ControlPlane::Local).join("in the way")).unwrap();
    let error = write(dir.path(), &identity(), &objects()).unwrap_err();
    assert!(matches!(error, SnapshotError::Unwritable { .. }), "{error}");
    assert_eq!(files(dir.path()), ["snapshot.jsonl"]);
}

#[test]
fn what_a_killed_process_left_is_removed_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    for name in [".snapshot-0123456789abcdef", ".karmada-0123456789abcdef", "snapshot.jsonl"] {
        fs::write(dir.path().join(name), "half").unwrap();
    }
    folder::remove_leftovers(dir.path(), ControlPlane::Local);
    assert_eq!(files(dir.path()), [".karmada-0123456789abcdef", "snapshot.jsonl"]);
    folder::remove_leftovers(&dir.path().join("missing"), ControlPlane::Local);
}

#[test]
fn a_file_that_is_cut_off_anywhere_is_refused() {
    let whole = bytes(&objects());
    for length in 0..whole.len() {
        let error = decode(&whole[..length], &identity()).unwrap_err();
        assert!(matches!(error, DecodeError::Damaged(_)), "{length} bytes: {error:?}");
    }
    let longer = [whole.as_slice(), b"\n"].concat();
    for other in [&longer[..], b"\x7fELF\x02\x01\x01\0\0", b"{\"kind\": \"Service\"}\n", &[b'x'; 1 << 20]] {
        assert!(matches!(decode(other, &identity()), Err(DecodeError::Damaged(_))));
    }
}

#[test]
fn a_flipped_bit_anywhere_is_refused() {
    let whole = bytes(&objects());
    for position in 0..whole.len() * 8 {
        let mut flipped = whole.clone();
        flipped[position / 8] ^= 1 << (position % 8);
        let decoded = decode(flipped.as_slice(), &identity());
        assert!(decoded.is_err(), "bit {position}: {}", String::from_utf8_lossy(&flipped));
    }
}

#[test]
fn a_file_about_something_else_is_refused_and_says_what_happens_instead() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &identity(), &objects()).unwrap();
    let file = path(dir.path(), ControlPlane::Local).display().to_string();
    let told = |expected: &Identity| read(dir.path(), expected).unwrap_err().to_string();
    let instead = "it is not used, and the gateway waits for the API server";
    let server = Identity { server: "https://other:6443/".to_owned(), ..identity() };
    assert_eq!(
        told(&server),
        format!(
            "{file} is from cluster local at https://10.0.0.1:6443/, and this gateway serves cluster local at \
             https://other:6443/; {instead}"
        )
    );
    let cluster = Identity { cluster: "other".to_owned(), ..identity() };
    assert!(matches!(read(dir.path(), &cluster), Err(SnapshotError::OtherCluster { .. })));

    fs::write(&file, "{\"sheaveSnapshot\":2,\"sheave\":[]}\n").unwrap();
    assert_eq!(
        told(&identity()),
        format!("{file} has format 2, and this version knows format 1 alone; {instead}")
    );
    fs::write(&file, "").unwrap();
    assert_eq!(told(&identity()), format!("{file} is damaged: it is cut off in line 1; {instead}"));
}

/// The API server's address in a Pod and the default name are the same in many clusters.
#[test]
fn a_file_about_a_cluster_of_the_same_name_and_address_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &trusted_by(&["aa", "bb"]), &objects()).unwrap();
    for same in [&["aa", "bb"][..], &["bb"], &["bb", "cc"], &[]] {
        let snapshot = read(dir.path(), &trusted_by(same)).unwrap().unwrap();
        assert_eq!(snapshot.objects, objects(), "{same:?}");
    }
    let told = read(dir.path(), &trusted_by(&["cc"])).unwrap_err().to_string();
    let file = path(dir.path(), ControlPlane::Local).display().to_string();
    assert_eq!(
        told,
        format!(
            "{file} is from cluster local at https://10.0.0.1:6443/ (certificate authority aa, bb), and this gateway serves \
             cluster local at https://10.0.0.1:6443/ (certificate authority cc); it is not used, and the gateway waits for the \
             API server"
        )
    );
    // A snapshot from before authorities were recorded.
    write(dir.path(), &identity(), &objects()).unwrap();
    assert!(!fs::read_to_string(&file).unwrap().contains("authorities"));
    assert!(read(dir.path(), &trusted_by(&["cc"])).unwrap().is_some());
}

// ---------------------------------------------------------------------------------------------------------------------

/// Any text, as in annotations: control characters, line ends, every script.
fn text() -> impl Strategy<Value = String> {
    any::<String>()
}

/// Few names, so that owners and objects interact.
fn name() -> impl Strategy<Value = String> {
    "[a-c]"
}

fn maybe<T: std::fmt::Debug + Clone>(strategy: impl Strategy<Value = T>) -> impl Strategy<Value = Option<T>> {
    prop::option::of(strategy)
}

fn meta() -> impl Strategy<Value = ObjectMeta> {
    let labels =
        prop_oneof![name().prop_map(|owner| (SERVICE_NAME_LABEL.to_owned(), owner)), (text(), text())];
    let labels = prop::collection::btree_map(Just(()), labels, 0..2);
    let labels = labels.prop_map(|labels| labels.into_values().collect::<BTreeMap<_, _>>());
    let annotations = prop::collection::btree_map(text(), text(), 0..3);
    (name(), name(), maybe(labels), maybe(annotations), maybe(0..4_000_000_000_i64)).prop_map(
        |(namespace, name, labels, annotations, created)| ObjectMeta {
            namespace: Some(namespace),
            name: Some(name),
            labels,
            annotations,
            creation_timestamp: created.map(|second| Time(Timestamp::from_second(second).unwrap())),
            ..ObjectMeta::default()
        },
    )
}

fn service() -> impl Strategy<Value = Service> {
    let target = prop_oneof![any::<i32>().prop_map(IntOrString::Int), text().prop_map(IntOrString::String)];
    let port = (maybe(text()), any::<i32>(), maybe(target)).prop_map(|(name, port, target_port)| {
        ServicePort { name, port, target_port, ..ServicePort::default() }
    });
    let ports = prop::collection::vec(port, 0..3);
    let spec = (maybe(ports), maybe(text()), maybe(any::<bool>())).prop_map(|(ports, class, allocate)| {
        let (load_balancer_class, allocate_load_balancer_node_ports) = (class, allocate);
        ServiceSpec {
            ports,
            load_balancer_class,
            allocate_load_balancer_node_ports,
            ..ServiceSpec::default()
        }
    });
    (meta(), maybe(spec)).prop_map(|(metadata, spec)| Service { metadata, spec, status: None })
}

fn slice() -> impl Strategy<Value = EndpointSlice> {
    let conditions = (maybe(any::<bool>()), maybe(any::<bool>()))
        .prop_map(|(ready, serving)| EndpointConditions { ready, serving, terminating: None });
    let endpoint = (prop::collection::vec(text(), 0..2), maybe(conditions), maybe(text())).prop_map(
        |(addresses, conditions, zone)| Endpoint { addresses, conditions, zone, ..Endpoint::default() },
    );
    let port = (maybe(text()), maybe(any::<i32>())).prop_map(|(name, port)| EndpointPort {
        name,
        port,
        ..EndpointPort::default()
    });
    let (endpoints, ports) = (prop::collection::vec(endpoint, 0..3), prop::collection::vec(port, 0..3));
    (meta(), text(), maybe(endpoints), maybe(ports)).prop_map(|(metadata, address_type, endpoints, ports)| {
        EndpointSlice { metadata, address_type, endpoints, ports }
    })
}

fn node() -> impl Strategy<Value = Node> {
    let address = (text(), text()).prop_map(|(address, type_)| NodeAddress { address, type_ });
    let addresses = prop::collection::vec(address, 0..3);
    (meta(), maybe(prop::collection::vec(text(), 0..3)), maybe(addresses)).prop_map(
        |(metadata, pod_cidrs, addresses)| Node {
            metadata,
            spec: Some(NodeSpec { pod_cidrs, ..NodeSpec::default() }),
            status: Some(NodeStatus { addresses, ..NodeStatus::default() }),
        },
    )
}

fn pool() -> impl Strategy<Value = AddressPool> {
    (meta(), prop::collection::vec(text(), 0..3), any::<u32>()).prop_map(|(metadata, addresses, priority)| {
        let spec = AddressPoolSpec { addresses, priority, ..AddressPoolSpec::default() };
        AddressPool { metadata, spec, ..AddressPool::default() }
    })
}

fn change() -> impl Strategy<Value = Change> {
    let namespace = meta().prop_map(|metadata| Namespace { metadata, ..Namespace::default() });
    prop_oneof![
        service().prop_map(|it| Change::Services(Delta::Put(it.into()))),
        slice().prop_map(|it| Change::Slices(Delta::Put(it.into()))),
        node().prop_map(|it| Change::Nodes(Delta::Put(it.into()))),
        namespace.prop_map(|it| Change::Namespaces(Delta::Put(it.into()))),
        pool().prop_map(|it| Change::Pools(Delta::Put(it.into()))),
    ]
}

proptest! {
    #[test]
    fn every_store_comes_back_as_it_was(changes in prop::collection::vec(change(), 0..20)) {
        let mut store = Store::default();
        changes.into_iter().for_each(|change| store.apply(change));
        let bytes = bytes(store.objects());
        let snapshot = decode(bytes.as_slice(), &identity());
        let snapshot = snapshot.map_err(|error| TestCaseError::fail(format!("{error:?}")))?;
        prop_assert_eq!(&snapshot.objects, store.objects());
        prop_assert_eq!(snapshot.written_at, Timestamp::UNIX_EPOCH);
    }
}
