//! JSON of what the server names of a TLS listener lead to.

use std::borrow::Cow;
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
    pub(crate) fn of_names(&self) -> Vec<Cow<'_, Self>> {
        let Some(names) = self.server_names.as_ref().filter(|names| !names.is_empty()) else {
            return vec![Cow::Borrowed(self)];
        };
        let bare = Self { server_names: None, ..self.clone() };
        names.iter().map(|(name, view)| Cow::Owned(bare.of_name(name, view))).collect()
    }

    /// The same, with the names of one listener and route together.
    pub(super) fn of_routes(&self) -> Vec<Cow<'_, Self>> {
        let mut all: Vec<Cow<'_, Self>> = Vec::new();
        let mut known = BTreeMap::new();
        for frontend in self.of_names() {
            let at = *known.entry((frontend.listener.clone(), frontend.route.clone())).or_insert(all.len());
            match all.get_mut(at) {
                Some(same) => same.to_mut().names.extend(frontend.into_owned().names),
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
