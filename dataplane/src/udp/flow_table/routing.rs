//! Routing of a datagram whose client is new, whose frontend has changed, or whose endpoint was reported unreachable.

use std::collections::hash_map::{OccupiedEntry, VacantEntry};
use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::silence::Silence;
use super::{Flow, Links, NewFlow, View, Way};
use crate::client_traffic::Meter;
use crate::counters::{DropReason, UdpCounters};
use crate::select::{ActiveFrontend, Pick, PickRequest, Picked};
use sheave_model::{ClientAddr, ClientSource, EndpointAddr};

/// Maximum number of endpoints that are tried for one datagram before it is dropped.
const MAX_ATTEMPTS: usize = 3;

/// Inputs of the decision for one client's datagram.
pub(super) struct Decision<'a> {
    pub(super) frontend: Option<&'a ActiveFrontend>,
    pub(super) revision: u64,
    pub(super) client: ClientAddr,
    pub(super) view: &'a View<'a>,
    pub(super) counters: &'a Arc<UdpCounters>,
}

impl Decision<'_> {
    pub(super) fn admit<'f, K: Links>(
        &self,
        entry: VacantEntry<'f, ClientAddr, Flow<K::Link>>,
        new: NewFlow,
        check_at: Instant,
        links: &mut K,
    ) -> Result<&'f mut Flow<K::Link>, DropReason> {
        let frontend = self.frontend.ok_or(DropReason::NoEndpoint)?;
        let (picked, (link, source)) =
            self.choose(frontend, Vec::new(), |way| Ok((links.open(way, None)?, way.source)))?;
        self.counters.add(|it| &it.flows_opened, 1);
        let (touched, revision) = (self.view.now, self.revision);
        Ok(entry.insert(Flow {
            link,
            picked,
            source,
            touched,
            check_at,
            ends_by: None,
            revision,
            suspect: false,
            answered: false,
            silence: Silence::default(),
            frontend: frontend.spec().addr,
            meter: Meter::new(self.client.ip()),
            slot: new.slot,
            permit: new.permit,
        }))
    }

    pub(super) fn recheck<'f, K: Links>(
        &self,
        mut entry: OccupiedEntry<'f, ClientAddr, Flow<K::Link>>,
        links: &mut K,
    ) -> Result<&'f mut Flow<K::Link>, DropReason> {
        let flow = entry.get_mut();
        let own = flow.picked.addr();
        let Some(frontend) = self.frontend else {
            entry.remove();
            return Err(DropReason::NoEndpoint);
        };
        // The kernel's filter may be wider than the ranges.
        if !frontend.admits(self.client) {
            entry.remove();
            return Err(DropReason::Denied);
        }
        let serves = frontend.serves(own);
        let unhealthy = |endpoint| self.is_unhealthy(frontend, endpoint);
        let suspect = flow.suspect || unhealthy(own);
        if suspect || !serves {
            let failed = if suspect { vec![own] } else { Vec::new() };
            let previous = &flow.link;
            let chosen = self.choose(frontend, failed, |way| {
                // No better endpoint than the suspect: the flow stays, with its link.
                let no_better = way.endpoint == own || (!flow.suspect && unhealthy(way.endpoint));
                if serves && no_better {
                    return Ok(None);
                }
                Ok(Some((links.open(way, Some(previous))?, way.source)))
            });
            match chosen {
                Ok((picked, Some((link, source)))) => {
                    self.counters.add(|it| &it.flows_repicked, 1);
                    flow.set_endpoint(picked, link, source);
                }
                Ok((_, None)) => {}
                Err(_) if serves => {}
                Err(reason @ (DropReason::NoSocket | DropReason::NoPort)) => return Err(reason),
                Err(reason) => {
                    entry.remove();
                    return Err(reason);
                }
            }
        }
        self.follow_source(frontend, flow, links);
        flow.count_with(self.counters, frontend, self.client, self.view.now);
        (flow.revision, flow.suspect, flow.ends_by) = (self.revision, false, None);
        Ok(entry.into_mut())
    }

    /// Whether a flow should leave the endpoint as unhealthy: it would otherwise stay with it indefinitely, since flows have no
    /// end.
    fn is_unhealthy(&self, frontend: &ActiveFrontend, endpoint: EndpointAddr) -> bool {
        frontend.judges(endpoint).any(|service| self.view.table.health().is_unhealthy(service, endpoint))
    }

    /// Opens the link to the same endpoint again if the client source has changed. If that fails, the flow goes on unchanged.
    fn follow_source<K: Links>(&self, frontend: &ActiveFrontend, flow: &mut Flow<K::Link>, links: &mut K) {
        let (client, endpoint, source) = (self.client, flow.picked.addr(), self.source(frontend));
        if flow.source == source {
            return;
        }
        match links.open(&Way { client, endpoint, source }, Some(&flow.link)) {
            Ok(link) => (flow.link, flow.source) = (link, source),
            Err(error) => {
                tracing::debug!(client.addr = %client, %endpoint, %error, "a flow does not follow client-source");
            }
        }
    }

    /// The client source of the frontend for this client.
    fn source(&self, frontend: &ActiveFrontend) -> ClientSource {
        frontend.client_source(self.view.table.origin(frontend.spec().addr, self.client))
    }

    /// Picks an endpoint for which `open` succeeds. If an endpoint has no route or no free port towards it, the next is tried. A
    /// lack of descriptors ends the search, since it would affect every endpoint.
    fn choose<T>(
        &self,
        frontend: &ActiveFrontend,
        mut failed: Vec<EndpointAddr>,
        mut open: impl FnMut(&Way) -> io::Result<T>,
    ) -> Result<(Picked, T), DropReason> {
        let client = self.client;
        let origin = self.view.table.origin(frontend.spec().addr, client);
        let source = frontend.client_source(origin);
        let (mut lacks_port, mut part) = (false, None);
        for _ in 0..MAX_ATTEMPTS {
            let request = PickRequest {
                client,
                origin,
                random: self.view.random.next(),
                now: self.view.now,
                tried: &failed,
                part,
            };
            part = part.or_else(|| frontend.part(&request, self.view.affinity));
            let request = PickRequest { part, ..request };
            let picked = forwarded(frontend.pick(&request, self.view.affinity))?;
            let endpoint = picked.addr();
            match open(&Way { client, endpoint, source }) {
                Ok(opened) => return Ok((picked, opened)),
                Err(error) if crate::sys::errnos::is_peer_unreachable(&error) => {
                    self.counters.add(|it| &it.endpoint_errors, 1);
                    failed.push(endpoint);
                }
                Err(error) if crate::sys::errnos::is_out_of_udp_ports(&error) => {
                    tracing::debug!(client.addr = %client, %endpoint, %error, "no port for a flow");
                    lacks_port = true;
                    failed.push(endpoint);
                }
                Err(error) => {
                    tracing::debug!(client.addr = %client, %endpoint, %error, "no socket for a flow");
                    return Err(DropReason::NoSocket);
                }
            }
        }
        Err(if lacks_port { DropReason::NoPort } else { DropReason::NoSocket })
    }
}

/// The endpoint of a pick, or the reason to drop the datagram.
pub(super) fn forwarded(pick: Pick) -> Result<Picked, DropReason> {
    match pick {
        Pick::Forward(picked) => Ok(picked),
        Pick::Reject => Err(DropReason::NoEndpoint),
        Pick::Drop => Err(DropReason::Policy),
        Pick::Refused(refused) => Err(refused.into()),
    }
}
