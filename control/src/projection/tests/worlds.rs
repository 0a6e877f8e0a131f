//! Properties of whole worlds: Nodes, pools, namespaces, Services of both families, Gateways with ListenerSets and a fleet, with a controller that writes its
//! results, and a gateway. For any order of events and any leader, the world ends in the state that one full build of it has.
//!
//! Writes may be refused for as long as it takes, and may take effect late, after others that were sent later.
//!
//! Addresses depend on history, because a Service keeps its addresses, but only through the statuses, so the full build starts
//! from the same ones. `PROPTEST_CASES` and `PROPTEST_RNG_SEED` select more and other worlds.

mod event;
mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{LoadBalancerIngress, Service};
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestCaseError};
use serde_json::json;
use sheave_model::{FrontendKind, FrontendSource};

use self::event::{Batch, Event, GATEWAYS, ObjectName, Term, batches, batches_at_one_address};
use self::server::{Kind, LateWrite, PublishedPorts, Server};
use super::super::{Authority, Ingress, LoadBalancerStatus, Options, Projection, Projector, Published, Role};
use crate::api::gateway_api::Gateway;
use crate::api::names::{FROM_GATEWAY_NODES, PORTS_PUBLISHED};
use crate::api::problem::reason;
use crate::api::published_ports;
use crate::api::store::{Dirty, ServiceKey, Store};
use crate::controller::desired_status::{Desired, DesiredStatus};
use crate::controller::gateway_status::gateway::DesiredGateway;
use crate::controller::port_errors::PortFailure;
use crate::controller::service_object::ServiceObject;
use crate::controller::status_writer::next_step::WriteStep;
use crate::controller::term::awaited_addresses::AwaitedAddresses;
use crate::projection::gateway_api::conditions::LiveState;

/// Number of worlds that take some five seconds in a debug build. `tests/soak` makes ten times as many.
const CASES: u32 = 96;
/// Number of writes for each object that bring any world to rest.
const WRITES: usize = 12;

fn config() -> ProptestConfig {
    let asked = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { asked.cases } else { CASES };
    let rng_seed = if asked.rng_seed == RngSeed::Random { RngSeed::Fixed(7) } else { asked.rng_seed };
    ProptestConfig { cases, rng_seed, failure_persistence: None, ..asked }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_world_ends_in_what_one_full_build_gives(batches in batches()) {
        run(&batches)?;
    }

    #[test]
    fn at_one_address_nobody_takes_a_port_that_is_published(batches in batches_at_one_address()) {
        run(&batches)?;
    }
}

fn run(batches: &[Batch]) -> Checked {
    let mut world = World::new();
    for batch in batches {
        world.pass(batch)?;
    }
    world.settle()?;
    world.check(true)
}

type Checked = Result<(), TestCaseError>;

/// Addresses in an object's status, and the uid of the object.
type AllPublished = BTreeMap<ServiceKey, (Option<String>, Vec<IpAddr>)>;

struct World {
    server: Server,
    store: Store,
    authority: Authority,
    controller: Projector,
    gateway: Projector,
    alone: Projector,
    /// The published addresses when everything was written, if that was the case in the last batch.
    published: Option<AllPublished>,
    /// Whether the controller has not read Karmada's API server.
    blind: bool,
    /// See [`Batch::failing`].
    failing: Option<u16>,
    /// Writes that have not arrived yet, at most one for each object.
    late: Vec<LateWrite>,
    /// Addresses that several namespaces may have had: those of Nodes, and those that all their pools have shared at some time.
    ever_shared: BTreeSet<IpAddr>,
}

fn options(role: Role) -> Options {
    Options { node: "n0".to_owned(), cluster: "m1".to_owned(), role, ..Options::default() }
}

fn controller() -> Projector {
    let gateways = ServiceKey::new(GATEWAYS.0, GATEWAYS.1);
    Projector::new(options(Role::Controller { gateways, own_gateway: None }))
}

impl World {
    fn new() -> Self {
        let mut server = Server::default();
        let class = json!({"metadata": {"name": "c"}, "spec": {"controllerName": "sheave.dev/gateway"}});
        let mut store = Store::default();
        store.apply(server.put(Kind::Class, class));
        Self {
            server,
            store,
            authority: Authority::ALL,
            controller: controller(),
            gateway: Projector::new(options(Role::Gateway)),
            alone: Projector::new(options(Role::Standalone)),
            published: None,
            blind: false,
            failing: None,
            late: Vec::new(),
            ever_shared: BTreeSet::new(),
        }
    }

    fn pass(&mut self, batch: &Batch) -> Checked {
        match batch.term {
            Term::Same | Term::New | Term::Blind => {}
            Term::Seats(true) => self.take_seats(Authority::ALL)?,
            Term::Seats(false) => self.take_seats(Authority::NONE)?,
            Term::ClassSeat => self.take_seats(Authority { own: true, untaken: false })?,
        }
        if matches!(batch.term, Term::New | Term::Blind) {
            // Leadership ends before a write can arrive in the next term.
            self.land(usize::MAX)?;
        }
        self.hear(batch);
        self.failing = batch.failing;
        self.note_shared();
        if batch.term == Term::Blind {
            self.blind_term()?;
        }
        if matches!(batch.term, Term::New | Term::Blind) {
            self.controller = controller();
            self.controller.set_authority(Authority::NONE);
            self.project();
            self.controller.set_authority(self.authority);
        }
        self.project();
        self.check(false)?;
        self.check_tables()?;
        let under_way = self.late.len();
        if !batch.written || !batch.refused.is_empty() || !batch.late.is_empty() {
            self.published = None;
            if batch.written {
                self.write(batch)?;
                self.land(under_way)?;
                self.write(batch)?;
                self.check(false)?;
            }
            return Ok(());
        }
        self.write(batch)?;
        self.land(under_way)?;
        self.write(batch)?;
        self.check(true)?;
        let now = self.all_published();
        if let Some(before) = self.published.replace(now.clone()) {
            self.check_kept(batch, &before, &now)?;
            self.check_consent(&before, &now)?;
        }
        Ok(())
    }

    /// Changes the authority over MultiClusterServices. Settles before, because an allocated address that is not written yet
    /// would be held in addition to the stored ones.
    fn take_seats(&mut self, authority: Authority) -> Checked {
        self.settle()?;
        self.authority = authority;
        self.controller.set_authority(authority);
        self.project();
        Ok(())
    }

    /// A leader that has not read Karmada's API server writes what it may.
    fn blind_term(&mut self) -> Checked {
        let mut known = Store::default();
        Kind::ALL.into_iter().filter(|it| !it.is_of_fleet()).for_each(|it| known.apply(self.server.list(it)));
        let store = std::mem::replace(&mut self.store, known);
        self.controller = controller();
        self.controller.set_authority(Authority::NONE);
        self.blind = true;
        self.project();
        let written = self.write_all(&[], &[], false);
        self.blind = false;
        self.store = store;
        Kind::ALL.into_iter().for_each(|kind| self.store.apply(self.server.list(kind)));
        written
    }

    /// Applies events to the server and delivers them to the store.
    fn hear(&mut self, batch: &Batch) {
        let mut changes = Vec::new();
        for event in &batch.events {
            match event {
                Event::Put(kind, object) => changes.push((*kind, self.server.put(*kind, object.clone()))),
                Event::Delete(kind, namespace, name) => {
                    changes.extend(self.server.delete(*kind, namespace, name).map(|change| (*kind, change)));
                }
            }
        }
        if batch.reversed {
            // Changes of one kind are delivered in their order, those of several kinds in any order.
            changes.sort_by_key(|(kind, _)| std::cmp::Reverse(*kind));
        }
        for (_, change) in changes.into_iter().filter(|(kind, _)| !batch.listed.contains(kind)) {
            self.store.apply(change);
        }
        for kind in &batch.listed {
            self.store.apply(self.server.list(*kind));
        }
    }

    fn project(&mut self) {
        let dirty = self.store.take_dirty();
        self.controller.set_sent(self.unseen());
        if self.blind {
            let _ = self.controller.project(self.store.objects(), &dirty);
            return;
        }
        for projector in [&mut self.controller, &mut self.gateway, &mut self.alone] {
            let _ = projector.project(self.store.objects(), &dirty);
        }
    }

    /// What the writes that have not arrived publish beyond the objects that the controller knows.
    fn unseen(&self) -> BTreeMap<ServiceKey, Published> {
        let unseen = |late: &LateWrite| {
            let (metadata, seen) = Published::of(&late.key, self.store.objects())?;
            let beyond = late.published().beyond(&seen);
            (late.is_of(metadata) && !beyond.is_empty()).then(|| (late.key.clone(), beyond))
        };
        self.late.iter().filter_map(unseen).collect()
    }

    /// Has the first of the writes arrive that were sent.
    fn land(&mut self, writes: usize) -> Checked {
        let arriving: Vec<LateWrite> = self.late.drain(..writes.min(self.late.len())).collect();
        for late in arriving {
            if let Some(change) = self.server.land(late) {
                self.check_statuses()?;
                self.store.apply(change);
            }
        }
        self.project();
        self.check_tables()
    }

    /// Writes until no write is left.
    fn settle(&mut self) -> Checked {
        self.land(usize::MAX)?;
        self.write_all(&[], &[], false)
    }

    /// Like [`Self::settle`], except for writes that the API server rejects or has not carried out.
    fn write(&mut self, batch: &Batch) -> Checked {
        self.write_all(&batch.refused, &batch.late, batch.reversed)
    }

    fn write_all(&mut self, refused: &[ObjectName], late: &[ObjectName], reversed: bool) -> Checked {
        let names = |list: &[ObjectName], key: &ServiceKey| {
            list.iter().any(|it| *it == (key.source, &*key.namespace, &*key.name))
        };
        for _ in 0..WRITES {
            let objects = self.store.objects();
            let is_refused =
                |key: &&ServiceKey| names(refused, key) || self.late.iter().any(|late| late.key == **key);
            let all = objects.services.keys().chain(objects.fleet.services.keys());
            let all = all.chain(objects.gateway_api.gateways.keys());
            let mut keys: Vec<ServiceKey> = all.filter(|key| !is_refused(key)).cloned().collect();
            if reversed {
                keys.reverse();
            }
            let mut changes = Vec::new();
            for key in &keys {
                let Some((kind, step)) = self.next_write(key) else { continue };
                if names(late, key)
                    && let Some(sent) = self.server.send(kind, key, &step)
                {
                    self.late.push(sent);
                    continue;
                }
                let change = self.server.execute(kind, key, step);
                if change.is_some() {
                    self.check_statuses()?;
                }
                changes.extend(change);
            }
            if changes.is_empty() {
                return Ok(());
            }
            changes.into_iter().for_each(|change| self.store.apply(change));
            self.project();
            self.check_tables()?;
        }
        Err(TestCaseError::fail("it goes on writing"))
    }

    fn next_write(&self, key: &ServiceKey) -> Option<(Kind, WriteStep)> {
        let kind = match key.source {
            FrontendSource::Service => Kind::Service,
            FrontendSource::MultiClusterService if self.authority.own => Kind::MultiClusterService,
            FrontendSource::MultiClusterService => return None,
            FrontendSource::Gateway => {
                let desired = self.desired_gateway(key);
                let is_published = |desired: &DesiredGateway| desired.is_published(key, self.store.objects());
                if self.blind && desired.as_ref().is_some_and(|desired| !is_published(desired)) {
                    return None;
                }
                return Some((Kind::Gateway, self.server.next_gateway_write(key, desired)));
            }
        };
        Some((kind, self.server.next_write(kind, key, &self.desired(key)?)))
    }

    /// The desired status of a Gateway, as in a term of the controller. `None` releases it.
    fn desired_gateway(&self, key: &ServiceKey) -> Option<DesiredGateway> {
        let gateway = self.store.objects().gateway_api.gateways.get(key)?;
        let (status, outcome) = (self.controller.status(key)?, self.controller.gateway(key)?);
        let (problems, failed) = (self.controller.problems_of(key), BTreeSet::new());
        let live = LiveState {
            status,
            problems: &problems,
            nodes: true,
            unaware: None,
            failed: &failed,
            closed: &failed,
        };
        let standard = outcome.conditions(&live);
        let shows_origin = gateway.condition(FROM_GATEWAY_NODES).is_some();
        let from_nodes = status.node_families.name().is_some() || shows_origin;
        let live = DesiredStatus {
            ingress: status.ingress.clone(),
            problems,
            gateways: 1,
            node_families: from_nodes.then_some(status.node_families),
            ..DesiredStatus::default()
        };
        Some(DesiredGateway::new(gateway, standard, &live))
    }

    /// The desired state, as in a term of the controller.
    fn desired(&self, key: &ServiceKey) -> Option<Desired> {
        let objects = self.store.objects();
        let object = ServiceObject::find(objects, key)?;
        let fleet = self.controller.fleet_status(key);
        let nothing = LoadBalancerStatus::empty(key);
        let status = match (self.controller.status(key), fleet) {
            (Some(status), _) => status,
            (None, Some(_)) if object.is_load_balancer() => &nothing,
            (None, _) if self.controller.leaves_alone(key, objects) => return None,
            (None, _) => return Some(Desired::Released),
        };
        let shows_origin = status.node_families.name().is_some() || object.shows_origin();
        let desired = DesiredStatus {
            ingress: status.ingress.clone(),
            problems: self.controller.problems_of(key),
            gateways: 1,
            failed_ports: self.failed_ports(status),
            fleet: fleet.cloned().map(Box::new),
            node_families: shows_origin.then_some(status.node_families),
            ..DesiredStatus::default()
        };
        if self.blind {
            return AwaitedAddresses::OfKarmada.desired(&object, status, desired);
        }
        Some(Desired::Published(desired))
    }

    /// The ports of an object that a gateway cannot open.
    fn failed_ports(&self, status: &LoadBalancerStatus) -> Vec<PortFailure> {
        let of_entry = |entry: &Ingress| {
            let (ip, reason) = (entry.ip, reason::BIND_FAILED);
            let failing = entry.ports.iter().filter(|port| Some(port.port) == self.failing);
            let failing = failing.map(|it| (it.port, it.protocol));
            let failure = |(port, protocol)| PortFailure { ip, port, protocol, reason, everywhere: false };
            failing.map(failure).collect::<Vec<_>>()
        };
        status.ingress.iter().flat_map(of_entry).collect()
    }

    fn check(&mut self, settled: bool) -> Checked {
        let mut listed = Store::default();
        Kind::ALL.into_iter().for_each(|kind| listed.apply(self.server.list(kind)));
        let objects = self.store.objects();
        prop_assert_eq!(objects, listed.objects());

        same("gateway", &mut self.gateway, &mut Projector::new(options(Role::Gateway)), &listed)?;
        if objects.pools.is_empty() {
            same("alone", &mut self.alone, &mut Projector::new(options(Role::Standalone)), &listed)?;
        }
        for (name, projector) in [("controller", &self.controller), ("alone", &self.alone)] {
            let again = projector.clone().project(objects, &Dirty::Everything);
            prop_assert!(!again.changed, "{name}: projecting everything again changes the table");
            let problems = projector.clone().project(objects, &Dirty::Nothing).problems;
            prop_assert_eq!(again.problems, problems, "{}: projecting everything again", name);
        }
        if settled {
            let mut fresh = controller();
            fresh.set_authority(self.authority);
            same("controller", &mut self.controller, &mut fresh, &listed)?;
        }
        Ok(())
    }

    fn all_published(&self) -> AllPublished {
        let objects = self.store.objects();
        let keys = objects.services.keys().chain(objects.fleet.services.keys());
        let published = keys.filter_map(|key| {
            let object = ServiceObject::find(objects, key)?;
            let ips = object.ingress().iter().filter_map(|it| it.ip.as_deref()?.parse().ok()).collect();
            Some((key.clone(), (object.metadata().uid.clone(), ips)))
        });
        let gateways = objects.gateway_api.gateways.iter().map(|(key, gateway)| {
            let ips = addresses_of(gateway).collect();
            (key.clone(), (gateway.metadata.uid.clone(), ips))
        });
        published.chain(gateways).collect()
    }

    /// Checks that an unchanged Service without specific requests keeps its addresses, except those of Nodes.
    fn check_kept(&self, batch: &Batch, before: &AllPublished, now: &AllPublished) -> Checked {
        let touched: BTreeSet<String> = batch.events.iter().filter_map(touched_service).collect();
        for (key, (uid, ips)) in before.iter().filter(|(key, _)| !touched.contains(&key.to_string())) {
            let Some(service) = self.store.objects().services.get(key).filter(|it| asks_for_any(it)) else {
                continue;
            };
            if *uid != service.metadata.uid || ServiceObject::from(service).shows_origin() {
                // The addresses came from Nodes that are gone.
                continue;
            }
            let kept = &now[key].1;
            prop_assert!(
                ips.iter().all(|ip| kept.contains(ip) || self.is_nodes(*ip)),
                "{key} had {ips:?} and has {kept:?}"
            );
        }
        Ok(())
    }

    /// Checks that no Service gets an address of another namespace unless every pool that lists it consents.
    fn check_consent(&self, before: &AllPublished, now: &AllPublished) -> Checked {
        let had = |key: &ServiceKey, ip: &IpAddr| {
            before.get(key).is_some_and(|(uid, ips)| *uid == now[key].0 && ips.contains(ip))
        };
        for (key, (_, ips)) in now {
            for ip in ips.iter().filter(|ip| !had(key, ip)) {
                let others = now
                    .iter()
                    .filter(|(other, (_, theirs))| other.namespace != key.namespace && theirs.contains(ip));
                for (other, _) in others {
                    prop_assert!(
                        self.is_shared(*ip) || self.is_nodes(*ip),
                        "{key} was given {ip}, which {other} has"
                    );
                }
            }
        }
        Ok(())
    }

    /// Checks the state in the API server: no address and port is published for two objects, nor an address for two namespaces
    /// unless every pool that lists it has consented.
    fn check_statuses(&self) -> Checked {
        let published = self.server_published();
        for (key, addresses) in &published {
            for (other, theirs) in published.range(..key) {
                for (ip, ports) in addresses {
                    let Some(their_ports) = theirs.get(ip) else { continue };
                    let twice = ports.intersection(their_ports).next();
                    prop_assert!(twice.is_none(), "{key:?} and {other:?} publish {ip} {twice:?}");
                    let consented = key.namespace == other.namespace || self.ever_shared.contains(ip);
                    prop_assert!(consented, "{key:?} and {other:?} publish {ip}");
                }
            }
        }
        Ok(())
    }

    /// Checks that the gateway forwards an address only to the object that it is published for, and a port of it to no other
    /// object, served or not. At its own node's address it serves the object that has the port at the addresses of other gateway nodes,
    /// as long as no object has it here.
    fn check_tables(&self) -> Checked {
        if self.blind {
            return Ok(());
        }
        prop_assert!(self.gateway.is_consistent() && self.controller.is_consistent());
        let published = self.server_published();
        for frontend in self.gateway.table.frontends() {
            if frontend.kind != FrontendKind::LoadBalancer {
                continue;
            }
            let (addr, service) = (frontend.addr, &frontend.service);
            let owner = ServiceKey::from(service);
            let port = (addr.port, addr.protocol.name().to_owned());
            let has = |key: &ServiceKey| published.get(key).and_then(|all| all.get(&addr.ip));
            let own_node = || self.gateway.context.gateway_nodes.iter().any(|node| node.ip == addr.ip);
            let at_others = || published.get(&owner).is_some_and(|all| !all.is_empty());
            let is_published = has(&owner).is_some() || own_node() && at_others();
            prop_assert!(is_published, "{addr} is not published for {owner:?}");
            let rivals = published.keys().filter(|key| **key != owner);
            for rival in rivals.filter(|key| has(key).is_some_and(|ports| ports.contains(&port))) {
                prop_assert!(
                    has(&owner).is_some_and(|ports| ports.contains(&port)),
                    "{addr} is published for {rival:?}, and \
                    forwarded to {owner:?}"
                );
            }
        }
        Ok(())
    }

    /// Ports in the statuses that are listed without the error that another object has them, by address.
    fn server_published(&self) -> BTreeMap<ServiceKey, PublishedPorts> {
        let mut listed = Store::default();
        [Kind::Service, Kind::MultiClusterService, Kind::Gateway]
            .into_iter()
            .for_each(|kind| listed.apply(self.server.list(kind)));
        let objects = listed.objects();
        let ports = |entry: &LoadBalancerIngress| {
            let ports = entry.ports.iter().flatten();
            let owned = ports.filter(|port| port.error.as_deref() != Some("sheave.dev/AddressInUse"));
            owned.map(|port| (u16::try_from(port.port).unwrap(), port.protocol.clone())).collect()
        };
        let of_fleet = objects.fleet.services.keys().map(|key| (key.clone(), self.server.own_ports(key)));
        let published = objects.services.keys().filter_map(|key| {
            let object = ServiceObject::find(objects, key)?;
            let entries = object.ingress().iter();
            let entries =
                entries.filter_map(|it| Some((it.ip.as_deref()?.parse().ok()?, ports(it)))).collect();
            Some((key.clone(), entries))
        });
        let of_gateway = |gateway: &Arc<Gateway>| {
            let listed = gateway.condition(PORTS_PUBLISHED).map(|it| published_ports::read(&it.message));
            let listed = listed.unwrap_or_default();
            let at = |ip: IpAddr| {
                let here = listed.iter().filter(|addr| addr.ip == ip);
                (ip, here.map(|addr| (addr.port, addr.protocol.name().to_owned())).collect())
            };
            addresses_of(gateway).map(at).collect()
        };
        let gateways = objects.gateway_api.gateways.iter().map(|(key, it)| (key.clone(), of_gateway(it)));
        published.chain(of_fleet).chain(gateways).collect()
    }

    fn note_shared(&mut self) {
        let objects = self.store.objects();
        let pools = objects.pools.values();
        let listed = (0..4).map(|last| IpAddr::from([203, 0, 113, last]));
        let listed = listed.chain((0..2).map(|last| IpAddr::from([0x2001, 0xdb8, 0xf, 0, 0, 0, 0, last])));
        let shared = listed
            .filter(|ip| pools.clone().any(|pool| lists(&pool.spec.addresses, *ip)) && self.is_shared(*ip));
        let of_nodes = objects.nodes.values().flat_map(|node| node.status.iter());
        let of_nodes =
            of_nodes.flat_map(|it| it.addresses.iter().flatten()).filter_map(|it| it.address.parse().ok());
        let noted: Vec<IpAddr> = shared.chain(of_nodes).collect();
        self.ever_shared.extend(noted);
    }

    /// Whether the address belongs to a Node. Such addresses are open to all Services, and come and go with the Nodes.
    fn is_nodes(&self, ip: IpAddr) -> bool {
        let nodes = self.store.objects().nodes.values();
        let mut addresses =
            nodes.flat_map(|node| node.status.iter().flat_map(|it| it.addresses.iter().flatten()));
        addresses.any(|it| it.address.parse() == Ok(ip))
    }

    fn is_shared(&self, ip: IpAddr) -> bool {
        let pools = self.store.objects().pools.values();
        let listing = pools.filter(|pool| lists(&pool.spec.addresses, ip));
        listing.map(|pool| pool.spec.sharing).all(|it| it == crate::api::address_pool::Sharing::Cluster)
    }
}

/// Addresses in the status of a Gateway.
fn addresses_of(gateway: &Gateway) -> impl Iterator<Item = IpAddr> {
    let listed = gateway.status.iter().flat_map(|status| &status.addresses);
    listed.filter_map(|it| it.value.as_deref()?.parse().ok())
}

/// The Service that an event changes or deletes.
fn touched_service(event: &Event) -> Option<String> {
    match event {
        Event::Put(Kind::Service, object) => {
            let field = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
            Some(format!("{}/{}", field("namespace"), field("name")))
        }
        Event::Delete(Kind::Service, namespace, name) => Some(format!("{namespace}/{name}")),
        Event::Put(..) | Event::Delete(..) => None,
    }
}

fn asks_for_any(service: &Arc<Service>) -> bool {
    let metadata = &service.metadata;
    let Some(spec) = &service.spec else { return false };
    metadata.annotations.as_ref().is_none_or(BTreeMap::is_empty)
        && metadata.deletion_timestamp.is_none()
        && spec.load_balancer_ip.is_none()
        && spec.ip_families.is_some()
        && spec.type_.as_deref() == Some("LoadBalancer")
        && spec.load_balancer_class.as_deref() == Some("sheave.dev/l4")
}

/// Whether entries of a pool, as these worlds write them, contain the address.
fn lists(entries: &[String], ip: IpAddr) -> bool {
    entries.iter().any(|entry| {
        let single = entry.parse::<IpAddr>().is_ok_and(|it| it == ip);
        let cidr = entry.parse::<ipnet::IpNet>().is_ok_and(|it| it.contains(&ip));
        let range = entry.split_once('-').is_some_and(|(first, last)| {
            let parsed = first.parse::<IpAddr>().ok().zip(last.parse::<IpAddr>().ok());
            parsed.is_some_and(|(first, last)| first <= ip && ip <= last)
        });
        single || cidr || range
    })
}

/// The status as it is written: a Gateway lists its addresses in their order.
fn in_order(mut status: LoadBalancerStatus) -> LoadBalancerStatus {
    if status.service.source == FrontendSource::Gateway {
        status.ingress.sort_by_key(|entry| entry.ip);
    }
    status
}

/// Checks that a projector that saw every event has the same state as one that only saw the result.
fn same(name: &str, left: &mut Projector, right: &mut Projector, listed: &Store) -> Checked {
    let objects = listed.objects();
    let after = left.project(objects, &Dirty::Nothing);
    let fresh = right.project(objects, &Dirty::Everything);
    let table = |it: &Projection| (it.table.frontends().to_vec(), it.table.internal_clients().clone());
    prop_assert_eq!(table(&after), table(&fresh), "{}: table", name);
    prop_assert_eq!(&after.problems, &fresh.problems, "{}: Problems", name);
    prop_assert_eq!(&after.health_checks, &fresh.health_checks, "{}: health checks", name);
    prop_assert_eq!(after.node_eligible, fresh.node_eligible, "{}: eligible", name);
    let statuses = |it: &Projector| it.statuses().cloned().map(in_order).collect::<Vec<_>>();
    prop_assert_eq!(statuses(left), statuses(right), "{}: statuses", name);
    for key in objects.fleet.services.keys() {
        prop_assert_eq!(left.fleet_status(key), right.fleet_status(key), "{}: clusters of {}", name, key);
        prop_assert_eq!(left.problems_of(key), right.problems_of(key), "{}: Problems of {}", name, key);
    }
    let usage = |it: &Projector| {
        it.pool_usage().map(|(name, used, free)| (name.clone(), used, free)).collect::<Vec<_>>()
    };
    prop_assert_eq!(usage(left), usage(right), "{}: pools", name);
    Ok(())
}
