//! Reads the links and addresses of the machine on another thread: the kernel lists links under the lock under which it changes them, for all
//! network namespaces (`rtnl_dumpit` in net/core/rtnetlink.c), and heartbeats must not wait for it (`renewals`).

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use netlink_packet_route::RouteNetlinkMessage;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::LinkAddr;
use tokio::sync::Notify;

use super::links::Links;
use super::netlink::Requests;

/// What a survey finds.
pub(super) struct Found {
    pub(super) links: Links,
    /// Where frames of each link are sent to.
    pub(super) destinations: BTreeMap<u32, LinkAddr>,
}

impl Found {
    fn read(lifetime: Duration) -> io::Result<Self> {
        #[cfg(test)]
        super::netlink::slowness::wait(1);
        let links = Links::read(&mut Requests::open()?, lifetime)?;
        Ok(Self { links, destinations: destinations()? })
    }
}

/// Only the index counts where a whole frame is sent, but it cannot be made from the index without `unsafe`.
fn destinations() -> io::Result<BTreeMap<u32, LinkAddr>> {
    let links = getifaddrs()?.filter_map(|found| found.address?.as_link_addr().copied());
    Ok(links.filter_map(|address| Some((u32::try_from(address.ifindex()).ok()?, address))).collect())
}

/// Surveys of the machine, one at a time.
pub(super) struct Survey {
    lifetime: Duration,
    shared: Arc<SurveyResult>,
    under_way: bool,
    /// The last one failed, and none was asked for since.
    failed: bool,
    /// Asked for since it began, so that another one follows.
    again: bool,
    /// Notifications since it began, which may be newer than what it finds.
    since: Vec<RouteNetlinkMessage>,
}

#[derive(Default)]
struct SurveyResult {
    found: Mutex<Option<io::Result<Found>>>,
    /// Set with `found`.
    changed: Notify,
}

impl Survey {
    /// `lifetime` is the longest of an address of ours.
    pub(super) fn new(lifetime: Duration) -> Self {
        Self {
            lifetime,
            shared: Arc::default(),
            under_way: false,
            failed: false,
            again: false,
            since: Vec::new(),
        }
    }

    /// Has the machine surveyed soon, in the network namespace of the runtime.
    pub(super) fn ask(&mut self) {
        self.again = self.under_way;
        if self.under_way {
            return;
        }
        (self.under_way, self.failed) = (true, false);
        let (shared, lifetime) = (Arc::clone(&self.shared), self.lifetime);
        tokio::task::spawn_blocking(move || {
            let found = Found::read(lifetime);
            *shared.found.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
            shared.changed.notify_one();
        });
    }

    /// Notes a notification.
    pub(super) fn note(&mut self, message: &RouteNetlinkMessage) {
        if self.under_way {
            self.since.push(message.clone());
        }
    }

    /// Some notifications are lost: only a survey that begins now shows what is so. What came before them may be out of date.
    pub(super) fn lose(&mut self) {
        self.since.clear();
        self.ask();
    }

    /// Result of a survey, and what was notified since it began.
    pub(super) fn take(&mut self) -> Option<io::Result<(Found, Vec<RouteNetlinkMessage>)>> {
        let found = self.shared.found.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let since = std::mem::take(&mut self.since);
        (self.under_way, self.failed) = (false, found.is_err());
        if std::mem::take(&mut self.again) {
            self.ask();
        }
        Some(found.map(|found| (found, since)))
    }

    /// Has the machine surveyed again if the last survey failed: notifications that it stood for are lost.
    pub(super) fn retry(&mut self) {
        if self.failed {
            self.ask();
        }
    }

    /// Waits until there may be a result. Cancel safe.
    pub(super) async fn changed(&self) {
        self.shared.changed.notified().await;
    }
}
