//! Tests that streams end after a while and their pages return.

use tokio::time::sleep;

use super::*;
use crate::http::metrics::tests::dataplane;
use crate::http::query::{ObjectFacts, Overview};
use crate::views::status::ProcessView;

/// Control loop without any changes.
async fn answer(mut inbox: mpsc::Receiver<Query>) {
    while let Some(query) = inbox.recv().await {
        let Query::Overview(known, reply) = query else { continue };
        let objects = known.is_none().then(ObjectFacts::default);
        let status = ProcessView::default();
        reply.send(Overview { status, announcements: None, revision: 1, objects }).unwrap();
    }
}

async fn join(joins: &mpsc::Sender<Join>, last_event: Option<&str>) -> (String, mpsc::Receiver<Bytes>) {
    let (reply, joined) = oneshot::channel();
    let last_event = last_event.map(str::to_owned);
    joins.send(Join { last_event, traffic: Vec::new(), reply }).await.unwrap();
    let Subscription { first, next } = joined.await.unwrap();
    (String::from_utf8(Vec::from(first).concat()).unwrap(), next)
}

#[tokio::test(start_paused = true)]
async fn a_page_that_comes_back_soon_gets_what_it_lacks_and_another_one_everything() {
    const EVERYTHING: &str = "\"reset\":true";
    let dataplane = dataplane();
    let (queries, inbox) = mpsc::channel(4);
    tokio::spawn(answer(inbox));
    let (joins, joining) = mpsc::channel(1);
    tokio::spawn(Ticker::new(dataplane.observer(), queries, Instant::now()).run(joining));
    let (first, mut next) = join(&joins, None).await;
    assert!(first.contains(EVERYTHING), "{first}");
    let id = first.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
    let begun = Moment::now();
    while next.recv().await.is_some() {}
    assert!(begun.elapsed() >= LIFETIME);
    sleep(Duration::from_secs(4)).await;
    let (first, next) = join(&joins, Some(id)).await;
    assert!(!first.contains(EVERYTHING), "{first}");
    // Without pages, nothing is computed.
    drop(next);
    sleep(2 * LINGER).await;
    let (first, _next) = join(&joins, Some(id)).await;
    assert!(first.contains(EVERYTHING), "{first}");
}
