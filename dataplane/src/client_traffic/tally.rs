//! Tally of a worker: collects its meters' values during a watch.

use std::cell::RefCell;

use sheave_model::FrontendAddr;

use super::counts::{ClientCounts, ClientTraffic};
use super::meter::Meter;
use crate::select::Picked;

/// Maximum number of networks with their frontends that a worker counts separately: a megabyte, in a table of 2^14
/// slots.
const MOST: usize = 14_336;

/// Traffic that a worker collects; `None` without a watch.
#[derive(Debug, Default)]
pub(crate) struct TallyCell(RefCell<Option<Tally>>);

#[derive(Debug)]
struct Tally {
    watch: u64,
    /// Whether all meters have been emptied once, so that their values belong to the time of the watch.
    settled: bool,
    traffic: ClientTraffic,
}

impl TallyCell {
    /// Starts to collect for this watch, unless it does already.
    pub(crate) fn begin(&self, watch: u64) {
        let mut tally = self.0.borrow_mut();
        if tally.as_ref().is_none_or(|tally| tally.watch != watch) {
            *tally = Some(Tally { watch, settled: false, traffic: ClientTraffic::with_room(MOST) });
        }
    }

    /// Ends this watch.
    pub(crate) fn end(&self, watch: u64) {
        self.0.borrow_mut().take_if(|tally| tally.watch == watch);
    }

    /// Collects a meter whose connection ends or whose flow is about to change its endpoint.
    pub(crate) fn collect(&self, meter: &mut Meter, frontend: FrontendAddr, picked: Option<&Picked>) {
        if let Some(tally) = &mut *self.0.borrow_mut() {
            tally.collect(meter, frontend, picked, 0);
        }
    }

    /// Collects the meter of an open connection or flow, once in each walk.
    pub(crate) fn collect_open(&self, meter: &mut Meter, frontend: FrontendAddr, picked: Option<&Picked>) {
        if let Some(tally) = &mut *self.0.borrow_mut() {
            tally.collect(meter, frontend, picked, 1);
        }
    }

    /// Ends a walk: takes everything collected since the last one; `None` if the watch has ended.
    pub(crate) fn take(&self) -> Option<ClientTraffic> {
        let mut tally = self.0.borrow_mut();
        let tally = tally.as_mut()?;
        tally.settled = true;
        Some(std::mem::replace(&mut tally.traffic, ClientTraffic::with_room(MOST)))
    }
}

impl Tally {
    fn collect(&mut self, meter: &mut Meter, frontend: FrontendAddr, picked: Option<&Picked>, open: u64) {
        let had = meter.take();
        let counts = if self.settled {
            ClientCounts { open, ..had }
        } else {
            ClientCounts { open, ..ClientCounts::default() }
        };
        if let Some(picked) = picked {
            picked.add_bytes(counts.client_bytes, counts.endpoint_bytes);
        }
        if counts != ClientCounts::default() {
            self.traffic.add(meter.client, frontend, counts);
        }
    }
}
