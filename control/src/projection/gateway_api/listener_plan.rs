//! Plan of a socket of a Gateway: of a listener of TCP or UDP, or of the TLS listeners that share a port.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ServicePort;

use super::backend_refs::{Backend, ResolvedRef};
use super::listener_inputs::ListenerInputs;
use super::listeners::{ListenerOwner, MergedListener};
use super::resolution::Resolution;
use super::server_names::NameTarget;
use super::split;
use crate::api::gateway_api::{ListenerSet, transport};
use crate::api::kinds::object_key;
use crate::api::objects::Objects;
use crate::api::service_key::ServiceKey;
use crate::projection::annotations::gateway_api::{self, Merged};
use crate::projection::options::Options;
use crate::projection::plan::{GatewayPlan, ListenerPlan, NamesPlan};
use crate::projection::ports::PlannedPort;

/// Inputs of the plan of a Gateway's listeners.
#[derive(Clone, Copy)]
pub(super) struct ListenerPlanning<'a> {
    pub(super) key: &'a ServiceKey,
    pub(super) resolution: &'a Resolution<'a>,
    pub(super) objects: &'a Objects,
    pub(super) options: &'a Options,
}

/// The port of a listener.
pub(super) fn planned_port(listener: &MergedListener<'_>) -> PlannedPort {
    PlannedPort {
        name: listener.full_name().into(),
        port: listener.port.unwrap_or_default(),
        protocol: transport(&listener.spec.protocol),
        node_port: None,
        app_protocol: None,
        index: listener.index,
    }
}

impl ListenerPlanning<'_> {
    /// Plans the listener with this index, and the TLS listeners that share its port. What concerns their socket is that of the first.
    pub(super) fn socket(&self, first: usize, before: Option<&GatewayPlan>) -> Arc<ListenerPlan> {
        let known = before.iter().flat_map(|before| &before.listeners);
        let Some(names) = self.resolution.names_at(first) else {
            return self.listener(first, self.resolution.serving(first), None, known);
        };
        let name = self.resolution.merged[first].full_name();
        let same = known.clone().find(|it| *it.inputs.name == *name).and_then(|it| it.names.as_ref());
        let same = same.iter().flat_map(|names| &names.targets);
        let same: BTreeMap<_, _> = same.map(|it| ((&*it.inputs.name, it.route.as_deref()), it)).collect();
        let mut targets = Vec::new();
        let mut indexes = BTreeMap::new();
        let mut index = |target: NameTarget| {
            *indexes.entry(target).or_insert_with(|| {
                let listener = self.resolution.merged[target.listener].full_name();
                let route = self.resolution.route(target.route).map(|(route, _)| route.key.to_string());
                let same = same.get(&(&*listener, route.as_deref())).copied();
                targets.push(self.listener(target.listener, Some(target.route), None, same.into_iter()));
                targets.len() - 1
            })
        };
        let names = names.targets.iter().map(|(name, target)| (name.clone(), target.map(&mut index)));
        let names = names.collect();
        self.listener(first, None, Some(NamesPlan { targets, names }), known)
    }

    /// Plans the listener with this index, which serves the route with that one. It stays one of those `known` if nothing of it has
    /// changed.
    fn listener<'b>(
        &self,
        index: usize,
        route: Option<usize>,
        names: Option<NamesPlan>,
        mut known: impl Iterator<Item = &'b Arc<ListenerPlan>>,
    ) -> Arc<ListenerPlan> {
        let listener = &self.resolution.merged[index];
        let inputs = self.inputs(index, route);
        // Clusters of a ServiceImport are part of the plan, and their slices are not among the inputs.
        let is_fixed = !inputs.route.iter().flat_map(|(_, refs)| refs).any(ResolvedRef::is_import);
        let same_names = |it: &ListenerPlan| match (&it.names, &names) {
            (None, None) => true,
            (Some(one), Some(other)) => one.is_same(other),
            _ => false,
        };
        if let Some(same) = known.find(|it| is_fixed && same_names(it) && it.inputs.hold(&inputs)) {
            return Arc::clone(same);
        }
        let Self { key, objects, options, .. } = *self;
        let mut problems = Vec::new();
        let mut merged = Merged::default();
        if let (Some(set), ListenerOwner::Set(name)) = (&inputs.set, &listener.owner) {
            merged.add_socket(ListenerSet::object(name), &set.metadata);
        }
        merged.add_socket(key.object(), &inputs.gateway.metadata);
        let mut parts = Vec::new();
        if let Some((route, refs)) = &inputs.route {
            merged.add_connection(route.key().object(), route.metadata());
            parts.extend(refs.iter().map(|it| split::part(it, route, objects, options, &mut problems)));
            if let [ResolvedRef { target: Ok(Backend::Service { key, service, .. }), .. }] = &**refs {
                merged.add_connect_timeout(key.object(), &service.metadata);
            }
        }
        let port = service_port(&planned_port(listener));
        let mut plan = Box::new(split::listener(key, port, &merged, options, &mut problems));
        let limited_by = inputs.set.iter().filter(|set| gateway_api::has_limits(&set.metadata));
        let limited_by = limited_by.map(|set| ListenerSet::object(&object_key(&set.metadata)).to_string());
        plan.settings_of = limited_by.map(Into::into).next();
        let route = inputs.route.as_ref().map(|(route, _)| route.key().to_string().into());
        let superseded = inputs.superseded;
        Arc::new(ListenerPlan { plan, route, superseded, parts, names, problems, inputs })
    }

    fn inputs(&self, index: usize, route: Option<usize>) -> ListenerInputs {
        let resolution = self.resolution;
        let listener = &resolution.merged[index];
        let set = match &listener.owner {
            ListenerOwner::Gateway => None,
            ListenerOwner::Set(set) => resolution.set(set),
        };
        let serving = route.and_then(|route| resolution.route(route));
        ListenerInputs {
            name: listener.full_name().into(),
            index: listener.index,
            gateway: Arc::clone(resolution.gateway),
            set: set.map(Arc::clone),
            route: serving.map(|(route, refs)| (route.route.clone(), refs.to_vec())),
            superseded: resolution.superseded(index),
        }
    }
}

/// The listener as the port of a Service.
fn service_port(port: &PlannedPort) -> ServicePort {
    ServicePort {
        name: Some(port.name.to_string()),
        port: i32::from(port.port),
        protocol: Some(port.protocol.name().to_owned()),
        ..ServicePort::default()
    }
}
