//! JSON of what the server names of a TLS listener lead to.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sheave_model::{Frontend, ServerNames};

use super::split::parts_of;
use super::{ClientSourceView, FrontendView, PartView, RouteView, listener_name};

/// What a server name leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerNameView {
    /// The listener that has the name, as `namespace/gateway/listener`.
    pub listener: Option<String>,
    /// Its route, such as `TLSRoute shop/web`.
    pub route: Option<String>,
    /// Source addresses that endpoints see.
    pub client_source: ClientSourceView,
    /// Route of clients outside the cluster.
    pub external: RouteView,
    /// Route of clients inside the cluster.
    pub internal: RouteView,
    /// Backends of the route, in its order.
    pub split: Option<Vec<PartView>>,
}

impl From<&Frontend> for ServerNameView {
    fn from(target: &Frontend) -> Self {
        Self {
            listener: listener_name(&target.service),
            route: target.split.as_ref().map(|split| split.route.as_ref().to_owned()),
            client_source: ClientSourceView::from(target.client_sources),
            external: RouteView::new(target, |it| &it.external),
            internal: RouteView::new(target, |it| &it.internal),
            split: target.split.as_deref().map(parts_of),
        }
    }
}

impl ServerNameView {
    /// The names that lead anywhere.
    pub(super) fn all(names: &ServerNames) -> BTreeMap<String, Self> {
        let patterns = names.patterns().into_iter();
        patterns.filter_map(|(name, target)| Some((name.to_string(), Self::from(&**target?)))).collect()
    }
}

impl FrontendView {
    /// The frontend as one for each of its server names; itself if it has none.
    pub(crate) fn of_names(&self) -> Vec<Self> {
        let names = self.server_names.iter().flatten();
        let mut all: Vec<Self> = names.map(|(name, view)| self.of_name(name, view)).collect();
        if all.is_empty() {
            all.push(self.clone());
        }
        all
    }

    /// The same, with the names of one listener and route together.
    pub(super) fn of_routes(&self) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        let mut known = BTreeMap::new();
        for frontend in self.of_names() {
            let at = *known.entry((frontend.listener.clone(), frontend.route.clone())).or_insert(all.len());
            match all.get_mut(at) {
                Some(same) => same.names.extend(frontend.names),
                None => all.push(frontend),
            }
        }
        all
    }

    fn of_name(&self, name: &str, view: &ServerNameView) -> Self {
        let ServerNameView { listener, route, client_source, external, internal, split } = view.clone();
        let (server_names, names) = (None, vec![name.to_owned()]);
        Self {
            listener,
            route,
            client_source,
            external,
            internal,
            split,
            server_names,
            names,
            ..self.clone()
        }
    }
}
