//! Stale affinity records: those that lead where their client may not go any more.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use sheave_model::FrontendAddr;

use crate::encoding::AffinityRecord;
use crate::ruleset::{Changes, Element, Family};

/// Endpoint of a frontend.
type Pair = (FrontendAddr, SocketAddr);

/// Tells stale records after a change.
#[derive(Debug, Default)]
pub(crate) struct StaleRecords {
    /// Endpoints that left.
    gone: HashSet<Pair>,
    /// Endpoints that clients of one class do not get.
    external_only: HashSet<Pair>,
    internal_only: HashSet<Pair>,
    /// First and last addresses of the clients inside the cluster, sorted.
    internal: Vec<(IpAddr, IpAddr)>,
}

impl StaleRecords {
    /// Records to endpoints that the change removes, of this family's frontends with affinity.
    pub(crate) fn of_endpoints(changes: &Changes, family: Family, sticky: &HashSet<FrontendAddr>) -> Self {
        let endpoints = |elements: &[Element]| -> HashSet<Pair> {
            let pair = |element: &Element| match *element {
                Element::Endpoint(frontend, endpoint) => Some((frontend, endpoint)),
                _ => None,
            };
            elements.iter().filter_map(pair).collect()
        };
        let stays = endpoints(&changes.added);
        let mut gone = endpoints(&changes.removed);
        gone.retain(|pair| {
            Family::of(pair.0.ip) == family && sticky.contains(&pair.0) && !stays.contains(pair)
        });
        Self { gone, ..Self::default() }
    }

    /// Adds what clients of one class do not get.
    pub(crate) fn add_classes(&mut self, elements: impl IntoIterator<Item = Element>) {
        for element in elements {
            match element {
                Element::ExternalOnly(frontend, endpoint) => {
                    self.external_only.insert((frontend, endpoint));
                }
                Element::InternalOnly(frontend, endpoint) => {
                    self.internal_only.insert((frontend, endpoint));
                }
                Element::Internal(first, last) => self.internal.push((first, last)),
                _ => {}
            }
        }
        self.internal.sort_unstable();
    }

    /// Whether no record can be stale.
    pub(crate) fn is_empty(&self) -> bool {
        self.gone.is_empty() && self.external_only.is_empty() && self.internal_only.is_empty()
    }

    pub(crate) fn has(&self, record: &AffinityRecord<'_>) -> bool {
        let pair = (record.frontend, record.endpoint);
        // The rules know whether a client with the frontend's address is the machine itself.
        let of_others = record.client != record.frontend.ip
            && match self.is_internal(record.client) {
                true => self.external_only.contains(&pair),
                false => self.internal_only.contains(&pair),
            };
        of_others || self.gone.contains(&pair)
    }

    fn is_internal(&self, client: IpAddr) -> bool {
        let after = self.internal.partition_point(|&(first, _)| first <= client);
        after > 0 && client <= self.internal[after - 1].1
    }
}

/// Whether the change may let a client go where it might not before, or the other way round.
pub(crate) fn changes_classes(changes: &Changes) -> bool {
    let moves = |element: &Element| {
        matches!(element, Element::Internal(..) | Element::ExternalOnly(..) | Element::InternalOnly(..))
    };
    changes.added.iter().chain(&changes.removed).any(moves)
}
