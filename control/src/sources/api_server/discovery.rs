//! Definitions that an administrator may install or remove at any time: which of them the API server has, and in which version.
//!
//! One task asks for all kinds of a watch, so that a cluster without the Gateway API costs each gateway two requests a minute. It asks
//! until it has found every definition, and again when a kind turns out to be gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::Client;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use super::limits::{WatchLimits, spread};
use super::list::patience;
use super::request::{RequestFailure, get};
use crate::api::kinds::Definition;
use crate::backoff::Backoff;
use crate::sources::connection::Connection;

/// Longest pause between requests while a definition is missing, in multiples of the first one.
const LONGEST_PAUSE: u32 = 6;

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
    /// Whether any kind of the definitions could be read.
    readable: AtomicBool,
    denial_logged: AtomicBool,
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
    pub(super) fn new() -> Self {
        Self {
            found: watch::Sender::new(Found::new()),
            refresh: Notify::new(),
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
        let mut absent = Backoff::new(limits.absent, limits.absent * LONGEST_PAUSE);
        let mut failing = Backoff::new(limits.first_pause, limits.longest_pause);
        loop {
            let pause = match find(&connection.reader(), &definitions, &limits).await {
                Ok(found) => {
                    failing.reset();
                    let is_complete = found.values().all(|it| matches!(it, Availability::Served(_)));
                    if self.publish(found) {
                        absent.reset();
                    }
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
            tokio::select! {
                () = sleep(pause) => {}
                () = self.refresh.notified() => sleep(spread(limits.first_pause)).await,
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
