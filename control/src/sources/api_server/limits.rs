//! How long the source waits for an API server, and for what. The defaults suit every server; tests have less patience.

use std::time::Duration;

/// How long to wait.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Until the head of an answer arrives, and for each next piece of a list. Nothing for so long means that the request
    /// is lost.
    pub silence: Duration,
    /// Until a page of a list, or a whole streamed list, is complete.
    pub list: Duration,
    /// A watch is asked to last at least so long, and at most twice that; whole seconds count.
    pub watch: Duration,
    /// The same for a server that sends bookmarks, which show that a quiet watch lives.
    pub bookmarked_watch: Duration,
    /// How long a watch of such a server may be silent before it counts as dead.
    pub bookmark: Duration,
    /// How much longer than it was asked to a watch may last before it counts as dead.
    pub grace: Duration,
    /// Within this time, at random, a kind is listed again whose version the server has forgotten: it forgets those of all gateways at
    /// the same moment.
    pub relist: Duration,
    /// The pause after a first failure. It doubles with each further one.
    pub first_pause: Duration,
    /// The longest pause: so long a gateway may lag behind a server that has come back.
    pub longest_pause: Duration,
    /// How long a streamed list is not asked for again after a first refusal; longer with each further one.
    pub unstreamed: Duration,
    /// How long watches have to fail, while the server answers otherwise, before lists replace them.
    pub unwatched: Duration,
    /// How often a kind is listed that cannot be watched, at least; at most twice that.
    pub poll: Duration,
    /// How long the server has to refuse a kind before that counts as missing rights: one that has just started refuses
    /// everything until it has read its own roles.
    pub refused: Duration,
    /// How often a kind is asked for that the server does not know, at least; at most twice that.
    pub absent: Duration,
    /// How long the first batch waits for a kind that is served apart and may fail alone.
    pub spared: Duration,
    /// How many objects there are to a page of a list.
    pub page: u32,
}

impl Default for Limits {
    /// A watch that went silent is noticed within 55 seconds, or 75 where the server sends bookmarks: one that shuts down leaves its
    /// watches hanging for a minute. Bookmarks come once a minute and two seconds before the end (kube-apiserver,
    /// `cacheWatcher.nextBookmarkTime`), so watches may last for five to ten minutes there, as client-go's do. Not every server sends
    /// them, and there is no other sign of life: each watch has an HTTP/1.1 connection of its own, which has no pings, and a process
    /// that hangs still answers TCP keepalives.
    fn default() -> Self {
        Self {
            silence: Duration::from_secs(15),
            list: Duration::from_secs(120),
            watch: Duration::from_secs(25),
            bookmarked_watch: Duration::from_secs(300),
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
            spared: Duration::from_secs(2),
            page: 500,
        }
    }
}

/// Somewhere between `shortest` and twice that, so that what failed together is not repeated together.
pub(super) fn spread(shortest: Duration) -> Duration {
    shortest.mul_f64(1.0 + fastrand::f64())
}
