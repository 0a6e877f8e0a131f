//! Timeouts and intervals of the API server source. The defaults suit every server; tests use shorter ones.

use std::time::Duration;

/// Timeouts, intervals and sizes.
#[derive(Clone, Copy, Debug)]
pub struct WatchLimits {
    /// Timeout for the head of an answer, and for each further piece of a list. After that the request counts as lost.
    pub silence: Duration,
    /// Timeout for a page of a list, or for a whole streamed list.
    pub list: Duration,
    /// Shortest requested duration of a watch; the longest is twice that. Whole seconds are used.
    pub watch: Duration,
    /// Shortest requested duration of a watch on a server that sends bookmarks, which show that a quiet watch is alive.
    pub bookmarked_watch: Duration,
    /// The same for kinds with an optional definition, of which there are many and whose objects change rarely.
    pub optional_watch: Duration,
    /// How long a watch on such a server may be silent before it counts as dead.
    pub bookmark: Duration,
    /// How much longer than requested a watch may last before it counts as dead.
    pub grace: Duration,
    /// Range of the random delay before a kind is listed again because the server has forgotten its version, which happens to all
    /// gateways at the same moment.
    pub relist: Duration,
    /// Pause after the first failure. It doubles with each further one.
    pub first_pause: Duration,
    /// Longest pause, and so the longest delay until a gateway notices that a server has recovered.
    pub longest_pause: Duration,
    /// How long streamed lists are avoided after the first refusal. It grows with each further one.
    pub unstreamed: Duration,
    /// How long watches must fail, while the server otherwise answers, before lists replace them.
    pub unwatched: Duration,
    /// Shortest interval between lists of a kind that cannot be watched; the longest is twice that.
    pub poll: Duration,
    /// How long the server must refuse a kind before that counts as a missing permission: a server that has just started refuses
    /// everything until it has read its own roles.
    pub refused: Duration,
    /// Shortest interval between requests for a kind that the server does not know; the longest is twice that.
    pub absent: Duration,
    /// Longest interval between requests for a definition that the server does not have, or for a kind with one that it refuses.
    pub undefined: Duration,
    /// How long a definition must be missing from the start of a watch before objects of a snapshot count as deleted: a server that
    /// starts serves definitions later than other kinds.
    pub vanished: Duration,
    /// How long the first batch waits for a kind that may fail alone: one with a separate API server or an optional definition.
    pub spared: Duration,
    /// Number of objects in a page of a list.
    pub page: u32,
}

impl Default for WatchLimits {
    /// A dead watch is noticed within 55 seconds, or 75 if the server sends bookmarks: a server that shuts down keeps its watches
    /// open for a minute. Bookmarks come once a minute and two seconds before the end (kube-apiserver,
    /// `cacheWatcher.nextBookmarkTime`), so the length of watches there decides only how soon they spread over API servers again.
    /// A gateway of a cluster with the Gateway API has 13: 1,000 gateways renew 8 of them a second, where client-go's five to ten
    /// minutes would be 29. Not every server sends bookmarks, and there is no other sign of life:
    /// each watch has its own HTTP/1.1 connection, which has no pings, and a process that hangs still answers TCP keepalives.
    fn default() -> Self {
        Self {
            silence: Duration::from_secs(15),
            list: Duration::from_secs(120),
            watch: Duration::from_secs(25),
            bookmarked_watch: Duration::from_secs(600),
            optional_watch: Duration::from_secs(1500),
            bookmark: Duration::from_secs(75),
            grace: Duration::from_secs(5),
            relist: Duration::from_secs(6),
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(10),
            unstreamed: Duration::from_secs(300),
            unwatched: Duration::from_secs(5),
            poll: Duration::from_secs(15),
            refused: Duration::from_secs(5),
            absent: Duration::from_secs(10),
            undefined: Duration::from_secs(600),
            vanished: Duration::from_secs(60),
            spared: Duration::from_secs(2),
            page: 500,
        }
    }
}

impl WatchLimits {
    /// Those of a controller, which is one of few, and which gateways hear from what there is.
    pub fn of_controller() -> Self {
        Self { undefined: Duration::from_secs(60), ..Self::default() }
    }

    /// Shortest requested duration of a watch that brings bookmarks.
    pub(super) fn lasting_watch(&self, is_optional: bool) -> Duration {
        if is_optional { self.optional_watch } else { self.bookmarked_watch }
    }

    /// Pause before a kind with an optional definition is asked for again that the server has refused for this long.
    pub(super) fn while_refused(&self, refused: Duration) -> Duration {
        let shortest = self.absent * 3;
        spread(refused.clamp(shortest, shortest.max(self.undefined / 2)))
    }

    /// A random part of [`Self::relist`], for what all gateways do at the same moment.
    pub(super) fn some_of_relist(&self) -> Duration {
        self.relist.mul_f64(fastrand::f64())
    }
}

/// A random time between `shortest` and twice that, so that requests which failed together are not repeated together.
pub(super) fn spread(shortest: Duration) -> Duration {
    shortest.mul_f64(1.0 + fastrand::f64())
}
