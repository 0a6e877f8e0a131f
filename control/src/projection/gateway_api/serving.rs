//! The routes that serve listeners: of TCP and UDP the oldest that is attached, of TLS the oldest for each server name.

use std::collections::BTreeMap;

use super::attachment::Attachment;
use super::listeners::MergedListener;
use super::server_names::PortNames;

/// The routes that serve listeners.
#[derive(Default)]
pub(super) struct Serving {
    /// Index of the route that serves each listener of TCP or UDP: the oldest of those attached.
    pub(super) whole: BTreeMap<usize, usize>,
    /// Routes of TLS listeners by server name, for each port.
    pub(super) names: BTreeMap<u16, PortNames>,
}

impl Serving {
    pub(super) fn new(merged: &[MergedListener<'_>], routes: &[Attachment]) -> Self {
        let mut by_age: Vec<(usize, &Attachment)> = routes.iter().enumerate().collect();
        by_age.sort_by_cached_key(|(_, route)| route.rank());
        let mut whole = BTreeMap::new();
        for (at, route) in &by_age {
            for listener in &route.listeners {
                let merged = &merged[*listener];
                if merged.is_served() && !merged.protocol.is_tls() {
                    whole.entry(*listener).or_insert(*at);
                }
            }
        }
        let mut ports: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (at, listener) in
            merged.iter().enumerate().filter(|(_, it)| it.is_served() && it.protocol.is_tls())
        {
            ports.entry(listener.port.unwrap_or_default()).or_default().push(at);
        }
        let names = ports.into_iter().map(|(port, at)| (port, PortNames::new(merged, &at, &by_age)));
        Self { whole, names: names.collect() }
    }
}
