//! The recorder as its caller sees it: which Events reach the queue.

use std::time::Duration;

use super::*;

fn problem(name: &str, message: &str) -> Problem {
    Problem {
        object: ObjectRef { kind: "Service", namespace: "shop".into(), name: name.into() },
        reason: "NoAddress",
        field: "spec.ports[0]".to_owned(),
        message: message.to_owned(),
        port: None,
    }
}

fn uid() -> Uid {
    Uid { uid: "u".into(), resource_version: None }
}

/// A recorder that is driven with complete lists of Problems.
struct Followed {
    writer: EventRecorder,
    known: Vec<Arc<Problem>>,
}

impl Followed {
    /// Replaces the known Problems.
    fn problems(&mut self, now: &[Problem], uid_of: impl Fn(&ObjectRef) -> Option<Uid>) {
        let now: Vec<Arc<Problem>> = now.iter().cloned().map(Arc::new).collect();
        let only = |one: &[Arc<Problem>], other: &[Arc<Problem>]| {
            one.iter().filter(|it| !other.contains(it)).cloned().collect()
        };
        let changes = ProblemChanges { came: only(&now, &self.known), gone: only(&self.known, &now) };
        self.writer.problems(&changes, uid_of);
        self.known = now;
    }
}

fn writer(leads_for: Duration) -> (Followed, mpsc::Receiver<Event>) {
    let (_, refused) = watch::channel(None);
    let leadership = Leadership::until(Instant::now() + leads_for);
    let (writer, events) = EventRecorder::idle("ctl".to_owned(), leadership, refused);
    (Followed { writer, known: Vec::new() }, events)
}

fn notes(events: &mut mpsc::Receiver<Event>) -> Vec<String> {
    std::iter::from_fn(|| events.try_recv().ok()).filter_map(|event| event.note).collect()
}

fn assigned(note: &str) -> Occurrence {
    Occurrence {
        object: problem("web", "").object,
        uid: uid(),
        r#type: EventType::Normal,
        reason: "AddressesAssigned",
        action: "Allocate",
        note: note.to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn news_are_written_once() {
    let (mut writer, mut events) = writer(Duration::from_secs(60));
    let now = [problem("web", "no pool has a free address")];
    for _ in 0..10 {
        writer.problems(&now, |_| Some(uid()));
        writer.writer.record(&assigned("203.0.113.10"));
    }
    assert_eq!(notes(&mut events), ["spec.ports[0]: no pool has a free address", "203.0.113.10"]);
    writer.problems(&[], |_| Some(uid()));
    writer.problems(&now, |_| Some(uid()));
    assert_eq!(notes(&mut events).len(), 1);
    assert_eq!(writer.writer.dropped(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_object_of_the_api_is_left_out_until_it_is_one() {
    let (mut writer, mut events) = writer(Duration::from_secs(60));
    let mut file = problem("web.yaml", "no YAML");
    file.object.kind = "File";
    let now = [file, problem("web", "one")];
    writer.problems(&now, |_| None);
    assert_eq!(notes(&mut events), [""; 0]);
    writer.writer.again(|_| Some(uid()));
    assert_eq!(notes(&mut events), ["spec.ports[0]: one"]);
}

#[tokio::test(start_paused = true)]
async fn who_does_not_lead_writes_nothing() {
    let (mut writer, mut events) = writer(Duration::from_secs(10));
    tokio::time::advance(Duration::from_secs(10)).await;
    writer.problems(&[problem("web", "one")], |_| Some(uid()));
    writer.writer.record(&assigned("203.0.113.10"));
    assert_eq!(notes(&mut events), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn problems_that_the_limits_hold_back_are_told_later_and_occurrences_are_dropped() {
    let (mut writer, mut events) = writer(Duration::from_secs(6000));
    let now: Vec<_> = (0..30).map(|n| problem("web", &n.to_string())).collect();
    writer.problems(&now, |_| Some(uid()));
    assert_eq!(notes(&mut events).len(), 25);
    writer.writer.record(&assigned("203.0.113.10"));
    assert_eq!(writer.writer.dropped(), 1);
    tokio::time::advance(Duration::from_secs(600)).await;
    writer.writer.again(|_| Some(uid()));
    assert_eq!(notes(&mut events), ["spec.ports[0]: 25", "spec.ports[0]: 26"]);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_does_not_hold_up_the_caller() {
    let (mut writer, mut events) = writer(Duration::from_secs(6000));
    let of =
        |round: usize| (0..200).map(|n| problem(&format!("s{n}"), &round.to_string())).collect::<Vec<_>>();
    writer.problems(&of(0), |_| Some(uid()));
    tokio::time::advance(Duration::from_secs(60)).await;
    writer.problems(&of(1), |_| Some(uid()));
    assert_eq!(notes(&mut events).len(), QUEUE);
    writer.writer.again(|_| Some(uid()));
    assert_eq!(notes(&mut events).len(), 400 - QUEUE);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_has_died_is_no_secret() {
    let (writer, events) = writer(Duration::from_secs(60));
    assert!(tokio::time::timeout(Duration::from_secs(60), writer.writer.ended()).await.is_err());
    drop(events);
    writer.writer.ended().await;
}

#[tokio::test(start_paused = true)]
async fn another_object_of_the_name_is_told_of_again() {
    let (mut writer, mut events) = writer(Duration::from_secs(60));
    writer.problems(&[problem("web", "one")], |_| Some(uid()));
    assert_eq!(notes(&mut events).len(), 1);
    writer.writer.offer(&writer.known, |_| Some(uid()));
    assert_eq!(notes(&mut events).len(), 0);
    writer.writer.offer(&writer.known, |_| Some(Uid { uid: "v".into(), resource_version: None }));
    assert_eq!(notes(&mut events), ["spec.ports[0]: one"]);
}
