//! The clusters that one Service's endpoints are in, and the endpoints of all of them for one port and family. An ordinary
//! Service has one, the gateway's own. It must not know how clusters are chosen.

use std::sync::Arc;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use sheave_model::{Candidate, EndpointAddr, Path, Weight};

use super::endpoints::Serving;
use super::topology::{Facet, Scope};
use crate::api::problem::ObjectRef;

/// One cluster, and how it counts beside others.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) cluster: Arc<str>,
    pub(super) path: Path,
    pub(super) weight: Weight,
    pub(super) priority: u32,
    pub(super) scope: Scope,
    /// The gateway's own cluster: nodes, zones and hints mean something.
    pub(super) own: bool,
    pub(super) slices: Vec<Listed>,
}

/// A slice, and where it was found.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub(super) slice: Arc<EndpointSlice>,
    pub(super) origin: Origin,
}

/// Where a slice was found.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    /// It is an object of its own.
    Object,
    /// It is an object made after one in another cluster: where something nearer to that says otherwise, that counts.
    Copy,
    /// It is part of this object, in this field.
    Within(ObjectRef, String),
}

impl Member {
    /// The gateway's own cluster alone.
    pub(super) fn alone<'a>(
        cluster: &Arc<str>,
        slices: impl IntoIterator<Item = &'a Arc<EndpointSlice>>,
    ) -> Self {
        let listed = |slice: &Arc<EndpointSlice>| Listed { slice: slice.clone(), origin: Origin::Object };
        Self {
            cluster: cluster.clone(),
            path: Path::DEFAULT,
            weight: Weight::default(),
            priority: 0,
            scope: Scope::Own,
            own: true,
            slices: slices.into_iter().map(listed).collect(),
        }
    }
}

/// What all clusters have for one port and family.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// What each cluster has, by the index of the member; clusters with nothing at all are left out.
    pub(super) parts: Vec<(usize, Serving)>,
    /// Those of all parts, in their order.
    pub(super) facets: Vec<Facet>,
    /// What each of the facets is.
    pub(super) candidates: Vec<Candidate>,
}

impl Gathered {
    pub(super) fn add(&mut self, member: usize, mut serving: Serving) {
        let backend = u32::try_from(self.parts.len()).unwrap_or(u32::MAX);
        let facets = std::mem::take(&mut serving.facets);
        self.candidates.extend((0..).zip(&facets).map(|(endpoint, _)| Candidate { backend, endpoint }));
        self.facets.extend(facets);
        self.parts.push((member, serving));
    }

    /// Where the endpoint with this facet serves.
    pub(super) fn addr(&self, facet: usize) -> Option<EndpointAddr> {
        let candidate = self.candidates.get(facet)?;
        let (_, serving) = self.parts.get(candidate.backend as usize)?;
        serving.endpoints.get(candidate.endpoint as usize).map(|endpoint| endpoint.addr)
    }
}
