//! Watches: past changes since a revision, then new ones, as one JSON line each.

use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until};

use super::super::kind::registry::Served;
use super::super::reply::Reply;
use super::super::selector::Selector;
use super::super::shared::Shared;
use super::super::status::Status;
use super::super::store::{After, Change, Entry};
use super::negotiate::Form;
use super::{Call, Watching, list, options, represent};

/// Timeout of watches that request none; a real server uses 30 to 60 minutes.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Time from the last bookmark to the end, as for `bookmarkFrequency` in the watch cache.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// How long a streaming list waits for a future revision.
const FUTURE_PATIENCE: Duration = Duration::from_secs(3);

/// Limit of unsent batches of lines. A slow reader delays only its own watch.
const UNSENT: usize = 16;

/// Running watch.
struct Watch {
    shared: Arc<Shared>,
    served: Arc<Served>,
    selector: Selector,
    form: Form,
    /// Prefix of keys in the watched namespace.
    prefix: String,
    /// Changes up to this revision have been sent.
    told: u64,
    bookmarks: bool,
    lines: mpsc::Sender<Bytes>,
    _counted: Watching,
}

/// Starts a watch.
pub(super) fn watch(call: &Call<'_>) -> Result<Reply, Status> {
    let query = call.query;
    options::validate(query, true)?;
    let selector = Selector::parse(&call.served, query.get("labelSelector"), query.get("fieldSelector"))?;
    let revision = match query.get("resourceVersion") {
        "" => 0,
        text => options::parse(text).map_err(Status::plain_error)?,
    };
    list::check_storage(call)?;
    let (lines, receiver) = mpsc::channel(UNSENT);
    let mut watch = Watch {
        shared: Arc::clone(call.shared),
        served: Arc::clone(&call.served),
        selector,
        form: call.form,
        prefix: call.prefix().unwrap_or_default(),
        told: revision,
        bookmarks: query.is_on("allowWatchBookmarks"),
        lines,
        _counted: Watching::on(call.connection),
    };
    let initial = query.has("sendInitialEvents").then(|| query.is_on("sendInitialEvents"));
    let timeout = query.get("timeoutSeconds").parse().ok().filter(|seconds| *seconds > 0);
    let timeout = timeout.map_or(DEFAULT_TIMEOUT, Duration::from_secs);
    let beginning = watch.begin(initial);
    tokio::spawn(watch.run(beginning, timeout));
    Ok(Reply::lines(receiver))
}

/// First events of a watch.
enum Beginning {
    /// These lines, or none.
    Lines(Vec<u8>),
    /// The revision is in the future.
    Future,
}

/// Result of sending a batch.
#[must_use]
enum Told {
    /// The whole batch was sent.
    All,
    /// The client has gone, or was sent the end of the watch.
    Over,
}

impl Watch {
    async fn run(mut self, beginning: Beginning, timeout: Duration) {
        let end = Instant::now() + timeout;
        let (mut news, bookmark_every) = {
            let mut world = self.shared.world();
            (world.store.shelf(&self.served.shelf).news(), world.bookmark_every)
        };
        let begun = match beginning {
            Beginning::Lines(batch) => self.send(batch).await,
            Beginning::Future => self.refuse_future().await,
        };
        if let Told::Over = begun {
            return;
        }
        let began = self.told;
        let mut bookmark = ticks(bookmark_every);
        let last_bookmark = sleep_until(end.checked_sub(LAST_BOOKMARK).unwrap_or(end));
        tokio::pin!(last_bookmark);
        let mut last_due = self.bookmarks && timeout > LAST_BOOKMARK;
        loop {
            if let Told::Over = self.tell_changes().await {
                return;
            }
            tokio::select! {
                changed = news.changed() => if changed.is_err() {
                    // The kind was removed: send its last changes, then end the stream.
                    match self.tell_changes().await {
                        Told::All | Told::Over => return,
                    }
                },
                () = sleep_until(end) => return,
                () = self.lines.closed() => return,
                _ = bookmark.tick(), if self.bookmarks => if let Told::Over = self.bookmark().await { return },
                () = &mut last_bookmark, if last_due => {
                    last_due = false;
                    if self.told > began && let Told::Over = self.bookmark().await { return }
                }
            }
        }
    }

    /// The initial objects, if the client wants them. They are collected before the answer begins, so that a client
    /// that has seen its head gets later changes as events.
    fn begin(&mut self, initial: Option<bool>) -> Beginning {
        let synthetic = initial.unwrap_or(self.told == 0);
        if synthetic && initial.is_some() && self.is_future() {
            return Beginning::Future;
        }
        let mut batch = Vec::new();
        let mut world = self.shared.world();
        let revision = world.store.revision();
        if synthetic {
            let shelf = world.store.shelf(&self.served.shelf);
            let entries = shelf.entries().range(self.prefix.clone()..);
            let entries =
                entries.take_while(|(key, _)| key.starts_with(&self.prefix)).map(|(_, entry)| entry);
            for entry in entries.filter(|entry| self.selector.matches(entry)) {
                self.line("ADDED", entry, &mut batch);
            }
            if initial.is_some() && self.bookmarks {
                let bookmark = represent::bookmark(&self.served, self.form, revision, true);
                push_line("BOOKMARK", bookmark.to_string().as_bytes(), &mut batch);
            }
        }
        drop(world);
        if synthetic || self.told == 0 {
            self.told = revision;
        }
        Beginning::Lines(batch)
    }

    fn is_future(&self) -> bool {
        self.told > self.shared.world().store.revision()
    }

    async fn refuse_future(&self) -> Told {
        tokio::time::sleep(FUTURE_PATIENCE).await;
        let status = options::too_large(self.told, self.shared.world().store.revision());
        self.fail(&status).await
    }

    /// Sends all changes that have not been sent.
    async fn tell_changes(&mut self) -> Told {
        let batch = {
            let mut world = self.shared.world();
            let shelf = world.store.shelf(&self.served.shelf);
            match shelf.changes_after(self.told) {
                Ok(changes) => {
                    let mut batch = Vec::new();
                    for change in changes {
                        self.change(change, &mut batch);
                    }
                    let last = shelf.last();
                    self.told = self.told.max(last);
                    Ok(batch)
                }
                Err(_) => Err(shelf.forgotten()),
            }
        };
        match batch {
            Ok(batch) => self.send(batch).await,
            Err(forgotten) => {
                let text = format!("too old resource version: {} ({forgotten})", self.told);
                self.fail(&Status::new(410, "Expired", text)).await
            }
        }
    }

    /// Appends the event of a change as seen through the selector.
    fn change(&self, change: &Change, batch: &mut Vec<u8>) {
        if !change.after.entry().key.starts_with(&self.prefix) {
            return;
        }
        let before = change.before.as_ref().filter(|before| self.selector.matches(before));
        match (&change.after, before) {
            (After::Gone(gone), Some(_)) => self.line("DELETED", gone, batch),
            (After::Live(live), _) if self.selector.matches(live) => {
                self.line(if before.is_some() { "MODIFIED" } else { "ADDED" }, live, batch);
            }
            // The object no longer matches: send its old content with the new revision.
            (After::Live(live), Some(before)) => {
                let mut object = represent::object(&self.served, before);
                object["metadata"]["resourceVersion"] = live.revision.to_string().into();
                let old = Entry::new(&self.served, object, live.revision);
                self.line("DELETED", &old, batch);
            }
            (After::Gone(_) | After::Live(_), None) => {}
        }
    }

    fn line(&self, event: &str, entry: &Entry, batch: &mut Vec<u8>) {
        let mut object = Vec::new();
        represent::whole(&self.served, self.form, entry, &mut object);
        push_line(event, &object, batch);
    }

    async fn bookmark(&self) -> Told {
        let mut batch = Vec::new();
        let bookmark = represent::bookmark(&self.served, self.form, self.told, false);
        push_line("BOOKMARK", bookmark.to_string().as_bytes(), &mut batch);
        self.send(batch).await
    }

    async fn fail(&self, status: &Status) -> Told {
        let mut batch = Vec::new();
        push_line("ERROR", status.to_json().to_string().as_bytes(), &mut batch);
        match self.send(batch).await {
            Told::All | Told::Over => Told::Over,
        }
    }

    async fn send(&self, batch: Vec<u8>) -> Told {
        if batch.is_empty() {
            return Told::All;
        }
        match self.lines.send(batch.into()).await {
            Ok(()) => Told::All,
            Err(_) => Told::Over,
        }
    }
}

fn push_line(event: &str, object: &[u8], batch: &mut Vec<u8>) {
    batch.extend_from_slice(format!(r#"{{"type":"{event}","object":"#).as_bytes());
    batch.extend_from_slice(object);
    batch.extend_from_slice(b"}\n");
}

fn ticks(every: Duration) -> Interval {
    let mut ticks = interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
