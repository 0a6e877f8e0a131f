//! Definitions that an administrator may install or remove at any time: which of them the API server has, and in which version.
//!
//! One task asks for all kinds of a watch, less and less often, and only for those that it has not found yet: most clusters lack some for
//! ever, and a thousand gateways ask. It asks again at once when a kind turns out to be gone, or when the controller reads one that is
//! missing here ([`KindHints`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::Client;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};

use super::limits::{WatchLimits, spread};
use super::list::patience;
use super::request::{RequestFailure, get};
use crate::api::kinds::{Definition, KINDS};
use crate::backoff::Backoff;
use crate::sources::connection::Connection;

/// What the API server has of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Availability {
    /// It can be read in this group and version.
    Served(&'static str),
    /// The server has only this group and version, which is too old.
    Outdated(&'static str),
    /// The server does not have it.
    Absent,
}

/// Availability of each definition that was asked for; empty until the first answer.
type Found = BTreeMap<&'static str, Availability>;

/// Shared state of the discovery of one API server.
#[derive(Debug)]
pub(super) struct Discovery {
    found: watch::Sender<Found>,
    refresh: Notify,
    pub(super) hints: KindHints,
    /// Whether any kind of the definitions could be read.
    readable: AtomicBool,
    denial_logged: AtomicBool,
}

/// Takes from the controller which kinds it reads, so that a gateway which lacks one of them looks for it at once. Cheap to clone.
#[derive(Clone, Debug)]
pub struct KindHints(Arc<Heard>);

#[derive(Debug)]
struct Heard {
    /// Plurals of the kinds.
    kinds: watch::Sender<BTreeSet<&'static str>>,
    /// Time of the last change.
    changed: Mutex<Option<Instant>>,
    /// Shortest time between changes: whoever may ask for the report of a gateway can send hints.
    pace: Duration,
}

impl KindHints {
    /// Separator of plurals.
    const SEPARATOR: char = ',';

    /// Hints of which two that differ are accepted with at least `pace` between them.
    pub fn new(pace: Duration) -> Self {
        let (kinds, changed) = (watch::Sender::new(BTreeSet::new()), Mutex::new(None));
        Self(Arc::new(Heard { kinds, changed, pace }))
    }

    /// Text of the plurals, for [`Self::hear`].
    pub fn text(plurals: &BTreeSet<&'static str>) -> String {
        plurals.iter().copied().collect::<Vec<_>>().join(&Self::SEPARATOR.to_string())
    }

    /// Records the kinds that the controller reads; unknown ones are ignored.
    pub fn hear(&self, text: &str) {
        let known = |plural: &str| KINDS.iter().map(|row| row.resource.plural).find(|known| *known == plural);
        let Heard { kinds, changed, pace } = &*self.0;
        let mut changed = changed.lock().unwrap_or_else(PoisonError::into_inner);
        if changed.is_some_and(|changed| changed.elapsed() < *pace) {
            return;
        }
        let told: BTreeSet<&str> = text.split(Self::SEPARATOR).filter_map(known).collect();
        let differs = kinds.send_if_modified(|kinds| {
            let differs = *kinds != told;
            *kinds = told;
            differs
        });
        if differs {
            *changed = Some(Instant::now());
        }
    }

    /// The kinds that the controller reads, by plural.
    pub fn heard(&self) -> BTreeSet<&'static str> {
        self.0.kinds.borrow().clone()
    }

    /// Waits until the controller reads a kind of `lacking` that is not in `heeded`, and then replaces these by all of them. Cancel safe.
    pub(super) async fn hinted(&self, lacking: &BTreeSet<&'static str>, heeded: &mut BTreeSet<&'static str>) {
        let mut kinds = self.0.kinds.subscribe();
        loop {
            let told: BTreeSet<_> = kinds.borrow_and_update().intersection(lacking).copied().collect();
            let is_new = !told.is_subset(heeded);
            *heeded = told;
            if is_new {
                return;
            }
            if kinds.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Answer for an API group.
#[derive(Deserialize)]
struct Group {
    versions: Vec<GroupVersion>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GroupVersion {
    group_version: String,
}

/// Answer for a version of an API group.
#[derive(Deserialize)]
struct GroupResources {
    #[serde(default)]
    resources: Vec<NamedResource>,
}

#[derive(Deserialize)]
struct NamedResource {
    name: String,
}

impl Discovery {
    pub(super) fn new(limits: &WatchLimits) -> Self {
        Self {
            found: watch::Sender::new(Found::new()),
            refresh: Notify::new(),
            hints: KindHints::new(limits.relist),
            readable: AtomicBool::new(false),
            denial_logged: AtomicBool::new(false),
        }
    }

    /// Waits until the definition's availability differs from `known`. Cancel safe.
    pub(super) async fn differing(
        &self,
        definition: &Definition,
        known: Option<Availability>,
    ) -> Availability {
        let mut found = self.found.subscribe();
        loop {
            let current = found.borrow_and_update().get(definition.plural).copied();
            match current {
                Some(current) if known != Some(current) => return current,
                _ if found.changed().await.is_err() => std::future::pending().await,
                _ => {}
            }
        }
    }

    /// Asks again, because a kind is gone.
    pub(super) fn refresh(&self) {
        self.refresh.notify_one();
    }

    /// Records that a kind could be read.
    pub(super) fn is_readable(&self) {
        self.readable.store(true, Ordering::Relaxed);
    }

    /// Whether a denied kind is one of several: some other could be read.
    pub(super) fn reads_others(&self) -> bool {
        self.readable.load(Ordering::Relaxed)
    }

    /// Whether this is the first denial.
    pub(super) fn is_first_denial(&self) -> bool {
        !self.denial_logged.swap(true, Ordering::Relaxed)
    }

    /// Asks for the definitions forever.
    pub(super) async fn follow(
        self: Arc<Self>,
        connection: Connection,
        limits: WatchLimits,
        definitions: Vec<Definition>,
    ) {
        let mut absent = Backoff::new(limits.absent, limits.undefined);
        let mut failing = Backoff::new(limits.first_pause, limits.longest_pause);
        let mut known = Found::new();
        let mut heeded = BTreeSet::new();
        loop {
            let is_lacking =
                |it: &&Definition| !matches!(known.get(it.plural), Some(Availability::Served(_)));
            let lacking: Vec<Definition> = definitions.iter().filter(is_lacking).copied().collect();
            let pause = match find(&connection.reader(), &lacking, &limits).await {
                Ok(found) => {
                    failing.reset();
                    known.extend(found);
                    if self.publish(known.clone()) {
                        absent.reset();
                    }
                    let is_complete = known.values().all(|it| matches!(it, Availability::Served(_)));
                    if is_complete { Duration::MAX } else { absent.pause(None) }
                }
                // Lists will show what is there.
                Err(RequestFailure::Forbidden(_)) => {
                    let preferred = |it: &Definition| (it.plural, Availability::Served(it.api_versions[0]));
                    self.publish(definitions.iter().map(preferred).collect());
                    absent.pause(None)
                }
                Err(failure) => {
                    tracing::debug!(server = %connection.server(), "the API server's kinds are not known: {failure}");
                    match failure {
                        RequestFailure::Unauthorized(_) => connection.reopen().await,
                        _ => connection.reopen_if_changed().await,
                    };
                    failing.pause(failure.retry_after())
                }
            };
            let lacking: BTreeSet<_> = lacking.iter().map(|it| it.plural).collect();
            tokio::select! {
                () = sleep(pause) => {}
                () = self.refresh.notified() => {
                    known.clear();
                    sleep(spread(limits.first_pause)).await;
                }
                () = self.hints.hinted(&lacking, &mut heeded) => {
                    absent.reset();
                    sleep(limits.some_of_relist()).await;
                }
            }
        }
    }

    /// Returns whether anything differs.
    fn publish(&self, found: Found) -> bool {
        self.found.send_if_modified(|known| {
            let differs = *known != found;
            *known = found;
            differs
        })
    }
}

/// Asks for each definition.
async fn find(
    client: &Client,
    definitions: &[Definition],
    limits: &WatchLimits,
) -> Result<Found, RequestFailure> {
    let mut resources: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let versions: BTreeSet<&str> =
        definitions.iter().flat_map(|it| it.api_versions.iter().copied().chain(it.outdated)).collect();
    let groups: BTreeSet<&str> = definitions.iter().map(|it| it.group).collect();
    for group in groups {
        let answer: Option<Group> = ask(client, &format!("/apis/{group}"), limits).await?;
        for GroupVersion { group_version } in answer.into_iter().flat_map(|group| group.versions) {
            if versions.contains(group_version.as_str()) {
                let listed: Option<GroupResources> =
                    ask(client, &format!("/apis/{group_version}"), limits).await?;
                let names = listed.into_iter().flat_map(|it| it.resources).map(|it| it.name);
                resources.insert(group_version, names.collect());
            }
        }
    }
    let has = |version: &str, definition: &Definition| {
        resources.get(version).is_some_and(|names| names.contains(definition.plural))
    };
    let availability = |definition: &Definition| {
        let served = definition.api_versions.iter().find(|version| has(version, definition));
        let outdated = definition.outdated.filter(|version| has(version, definition));
        let otherwise = outdated.map_or(Availability::Absent, Availability::Outdated);
        (definition.plural, served.map_or(otherwise, |version| Availability::Served(version)))
    };
    Ok(definitions.iter().map(availability).collect())
}

/// The answer for a path; `None` if the server does not know it.
async fn ask<T: DeserializeOwned>(
    client: &Client,
    path: &str,
    limits: &WatchLimits,
) -> Result<Option<T>, RequestFailure> {
    let request = http::Request::get(path).body(Vec::new()).map_err(kube::core::request::Error::BuildRequest);
    let text = match get(client, request, patience(limits)).await {
        Ok(answer) => answer.whole().await?,
        Err(RequestFailure::Missing(_)) => return Ok(None),
        Err(failure) => return Err(failure),
    };
    let answer = serde_json::from_slice(&text);
    answer.map(Some).map_err(|error| RequestFailure::Garbled(format!("in discovery: {error}")))
}
