//! Fake gateway, which answers the controller's polls with a given report.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::stage::{NODE_ADDRESS, Stage};
use crate::support::patience::{eventually_within, patience};

/// Answers for a gateway, until the process ends.
pub(crate) struct Reporter {
    /// Port of the report.
    pub(crate) port: u16,
    report: Arc<Mutex<Value>>,
    answered: Arc<AtomicUsize>,
}

impl Reporter {
    /// Answers on a free port of this machine.
    pub(crate) fn start(stage: &Stage<'_>) -> Self {
        Self::start_at(stage, SocketAddr::from((NODE_ADDRESS, 0)))
    }

    /// Answers at an address of this machine.
    pub(crate) fn start_at(stage: &Stage<'_>, address: SocketAddr) -> Self {
        let listener = stage.host.run(|| TcpListener::bind(address)).expect("a free port");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let report = Arc::new(Mutex::new(json!({"node": stage.node(), "generation": 1})));
        let answered = Arc::new(AtomicUsize::new(0));
        let (told, count) = (Arc::clone(&report), Arc::clone(&answered));
        // It ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let mut asked = [0; 4096];
                let body = told.lock().unwrap_or_else(PoisonError::into_inner).to_string();
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
                if stream.read(&mut asked).is_ok() && stream.write_all((head + &body).as_bytes()).is_ok() {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Self { port, report, answered }
    }

    /// Sets the failures that the gateway of this node reports.
    pub(crate) fn report_troubles(&self, troubles: &Value, node: &str) {
        self.report(json!({"node": node, "generation": 2, "troubles": troubles}));
    }

    /// Sets the report.
    pub(crate) fn report(&self, report: Value) {
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }

    /// Waits until it was queried twice more, so that the controller has processed the first answer.
    pub(crate) fn wait_until_heard(&self) {
        let before = self.answered.load(Ordering::Relaxed);
        eventually_within(patience(30.0), "the controller asks twice", || {
            match self.answered.load(Ordering::Relaxed) - before {
                0 | 1 => Err("not yet"),
                _ => Ok(()),
            }
        });
    }
}
