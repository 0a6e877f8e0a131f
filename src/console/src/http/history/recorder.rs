//! Looks at the gateway again and again, and records what has changed and how much traffic there was.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use sheave_dataplane::Observer;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::changes::Observation;
use super::event::{Event, Found, summarize};
use super::event_file::EventFile;
use super::sampler::Sampler;
use super::series::SHORT;
use super::timeline::Timeline;
use crate::http::query::{ObjectFacts, Overview, Query, QuerySender, Unanswered, ask};
use crate::views::change::{Change, ChangeKind};

/// Time between two looks. What comes and goes in between is not seen.
const PERIOD: Duration = Duration::from_secs(1);
/// After a look that had to compare, the next one waits this many times as long as it took: at most half a percent of a core.
const PAUSE: u32 = 200;
/// But no longer than this.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Limit of events of one look.
const AT_ONCE: usize = 200;

/// Remembered samples and events. The lock is held for as long as it takes to add to it or to read some of it.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) timeline: Timeline,
    pub(super) sampler: Sampler,
}

/// Records into the memory until the gateway's loop has ended or another process has taken over.
pub(super) struct Recorder {
    pub(super) observer: Observer,
    pub(super) queries: QuerySender,
    pub(super) memory: Arc<Mutex<Memory>>,
    pub(super) file: Option<EventFile>,
}

/// Gateway as the recorder knows it.
#[derive(Default)]
struct Known {
    /// The last look; `None` before the first one.
    look: Option<Observation>,
    objects: ObjectFacts,
    revision: Option<u64>,
    /// Whether the loop did not answer.
    stuck: bool,
}

impl Recorder {
    pub(super) async fn run(mut self) {
        // Ends with this task. Samples wait for neither the loop nor the disk.
        let mut samples = JoinSet::new();
        samples.spawn(sample(Arc::clone(&self.memory), self.observer.clone()));
        let restored = tokio::task::spawn_blocking(move || {
            self.restore();
            self
        });
        let Ok(restored) = restored.await else { return };
        self = restored;
        let (mut known, mut next) = (Known::default(), Instant::now());
        loop {
            sleep_until(next).await;
            let answer = match ask(&self.queries, |reply| Query::Overview(known.revision, reply)).await {
                Ok(overview) => Some(overview),
                Err(Unanswered::Late) => None,
                Err(Unanswered::Gone) => return,
            };
            let began = Instant::now();
            let looked = tokio::task::spawn_blocking(move || {
                let found = self.look(answer, &mut known);
                self.add(found);
                (self, known)
            });
            let Ok(looked) = looked.await else { return };
            (self, known) = looked;
            next = Instant::now() + (began.elapsed() * PAUSE).clamp(PERIOD, LONGEST_PAUSE);
        }
    }

    /// Remembers what earlier processes have left.
    fn restore(&self) {
        let events = self.file.iter().flat_map(EventFile::read);
        events.for_each(|event| {
            self.memory.lock().unwrap_or_else(PoisonError::into_inner).timeline.push(event);
        });
    }

    /// Changes since the last look. Without an answer of the loop there is nothing else to see.
    fn look(&self, answer: Option<Overview>, known: &mut Known) -> Vec<Found> {
        let Some(mut overview) = answer else {
            let before = std::mem::replace(&mut known.stuck, true);
            let text = "its control loop does not answer: connections go on, and nothing changes";
            return if before { Vec::new() } else { vec![gateway(text)] };
        };
        let mut found = Vec::new();
        if std::mem::take(&mut known.stuck) {
            found.push(gateway("its control loop answers again"));
        }
        let active = self.observer.table();
        if known.look.as_ref().is_some_and(|look| look.is_of(&overview, &active)) {
            return found;
        }
        if let Some(objects) = overview.objects.take() {
            (known.objects, known.revision) = (objects, Some(overview.revision));
        }
        let look = Observation::new(&overview, &known.objects, &active);
        match &known.look {
            Some(before) => found.extend(summarize(look.changes(before))),
            // A gateway that has no objects yet would show every Service as gone.
            None if active.table().generation() == 0 && overview.status.not_ready.is_some() => return found,
            None => {
                found.push(gateway(concat!("sheave ", env!("CARGO_PKG_VERSION"), " began to serve")));
                found.extend(summarize(look.unwell()));
            }
        }
        known.look = Some(look);
        found
    }

    /// Adds events to the memory and the file.
    fn add(&mut self, mut found: Vec<Found>) {
        if found.is_empty() {
            return;
        }
        let more = found.len().saturating_sub(AT_ONCE);
        found.truncate(AT_ONCE);
        if more > 0 {
            found.push(gateway(&format!("and {more} more changes at the same moment")));
        }
        let now = Timestamp::now();
        let events: Vec<Event> = found.into_iter().map(|found| Event::new(now, found)).collect();
        let memory = || self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        events.iter().cloned().for_each(|event| memory().timeline.push(event));
        // The disk may hang: then nothing more is recorded, and nobody else waits for it.
        if let Some(file) = &mut self.file {
            file.append(&events, || memory().timeline.events().cloned().collect());
        }
    }
}

/// Takes samples for as long as this is waited for.
async fn sample(memory: Arc<Mutex<Memory>>, observer: Observer) {
    let mut ticks = interval(Duration::from_secs(SHORT.seconds.into()));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let (memory, observer) = (Arc::clone(&memory), observer.clone());
        let sampled = tokio::task::spawn_blocking(move || {
            memory.lock().unwrap_or_else(PoisonError::into_inner).sampler.sample(&observer);
        });
        if sampled.await.is_err() {
            return;
        }
    }
}

/// A change that concerns the gateway.
fn gateway(text: &str) -> Found {
    (None, Change::new(ChangeKind::Gateway, None, Some(text.to_owned())))
}
