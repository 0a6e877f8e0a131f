//! A writer whose task has died, and a write that gets no answer.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::*;
use crate::controller::service_object::ServiceObject;
use crate::controller::tests::objects::{desired_status, service};

fn key() -> ServiceKey {
    ServiceKey::new("shop", "web")
}

#[tokio::test]
async fn a_task_that_has_died_is_no_secret() {
    let connection = Connection::to("http://127.0.0.1:1/");
    let options = Ownership::default();
    let mut writer =
        StatusWriter::start(&connection, options, SentStatuses::default(), || panic!("as a bug would"));
    writer.set_desired(&key(), &Arc::new(service(&json!({}))), Desired::Published(desired_status()));
    assert_eq!(writer.next_notice().await, None);
    // Setting desired states still works.
    writer.forget(&key());
    assert_eq!(writer.next_notice().await, None);
}

#[tokio::test]
async fn a_write_is_given_up_with_the_term() {
    // The listener accepts connections but never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let connection = Connection::to(&format!("http://{}/", silent.local_addr().unwrap()));
    let options = Ownership::default();
    let mut queue = WriteQueue::new(options.clone());
    let subject = WriteSubject::Service(
        ServiceObject::from(&Arc::new(service(&json!({})))),
        Arc::new(Desired::Published(desired_status())),
    );
    queue.set_desired(WriteTarget::Service(key()), subject, now());
    let job = queue.next(now()).unwrap();
    let writer = ApiWriter::new(&connection, options.field_manager());
    let answer = writer.send(request(&job, &writer), Duration::from_millis(200)).await;
    let reason = "no answer within 0.2 s".to_owned();
    assert_eq!(answer, ApiAnswer::Unreachable { reason });
}

/// The thread is busy with the next write until the end of the term.
#[tokio::test]
async fn a_write_that_would_begin_after_the_term_is_not_sent() {
    const TERM: Duration = Duration::from_millis(50);
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    server.set_nonblocking(true).unwrap();
    let connection = Connection::to(&format!("http://{}/", server.local_addr().unwrap()));
    let (asked, over) = (AtomicBool::new(false), Arc::new(AtomicBool::new(false)));
    let tell_over = Arc::clone(&over);
    let mut writer =
        StatusWriter::start(&connection, Ownership::default(), SentStatuses::default(), move || {
            if !asked.swap(true, Ordering::SeqCst) {
                return Some(TERM);
            }
            let start = Instant::now();
            while start.elapsed() < TERM {
                std::hint::spin_loop();
            }
            tell_over.store(true, Ordering::SeqCst);
            None
        });
    let service = Arc::new(service(&json!({})));
    for name in ["api", "web"] {
        let key = ServiceKey::new("shop", name);
        writer.set_desired(&key, &service, Desired::Published(desired_status()));
    }
    tokio::time::sleep(TERM * 4).await;
    assert!(over.load(Ordering::SeqCst));
    assert!(server.accept().is_err(), "it was sent");
}

#[tokio::test]
async fn a_term_without_an_end_is_no_overflow() {
    let connection = Connection::to("http://127.0.0.1:1/");
    let mut writer = StatusWriter::start(&connection, Ownership::default(), SentStatuses::default(), || {
        Some(Duration::MAX)
    });
    writer.set_desired(&key(), &Arc::new(service(&json!({}))), Desired::Published(desired_status()));
    let ended = tokio::time::timeout(Duration::from_millis(200), writer.next_notice()).await;
    assert!(ended.is_err(), "{ended:?}");
}
