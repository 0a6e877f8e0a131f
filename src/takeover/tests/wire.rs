//! Connection between two processes with faults: messages arrive late, never, twice, reordered or forged, and at any of them one of the
//! two processes may die.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use proptest::prelude::*;
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::time::{sleep, timeout};

use super::super::channel::Channel;
use super::super::predecessor::connect;
use super::super::socket_path;
use super::super::successor::bind;

/// Fault of a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    Late(Duration),
    /// The message is never sent.
    Lost,
    Twice,
    /// The next message comes first, or this one comes late.
    Overtaken,
    /// A forged message comes before or after it, with this many descriptors.
    Joined(Place, &'static str, usize),
    /// The sender dies before it sends the message.
    SenderDies,
    /// The receiver dies before it reads the message.
    ReceiverDies,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Before,
    After,
}

/// Index of a message of one end, and its fault.
pub(super) type Faults = Vec<(usize, Fault)>;

/// Messages that any process could send. Not among them: an offer of a right that the predecessor keeps, which is taken on trust.
const FOREIGN: [&str; 17] = [
    "",
    "{",
    "[]",
    r#"{"message": "weather"}"#,
    r#"{"message": "hello", "protocol": 1, "version": "0", "node": "gw", "class": "class", "network": "network"}"#,
    r#"{"message": "welcome", "version": "0", "workers": 1, "servers": []}"#,
    r#"{"message": "refused", "why": "I do not like it"}"#,
    r#"{"message": "begin"}"#,
    r#"{"message": "prepared"}"#,
    r#"{"message": "serving"}"#,
    r#"{"message": "listening"}"#,
    r#"{"message": "sockets", "roles": []}"#,
    r#"{"message": "nodePorts", "addresses": ["127.0.0.1:1"]}"#,
    r#"{"message": "steered", "frontends": []}"#,
    r#"{"message": "affinity", "records": []}"#,
    r#"{"message": "flows", "worker": 1000, "records": []}"#,
    r#"{"message": "flows", "worker": 0, "records": [{}]}"#,
];

/// How long a message waits for one that overtakes it.
const OVERTAKING: Duration = Duration::from_secs(3);
const A_DAY: Duration = Duration::from_secs(86_400);

/// Strategy for the faults of one end.
pub(super) fn faults() -> impl Strategy<Value = Faults> {
    let fault = prop_oneof![
        3 => (0..50_000_u64).prop_map(|millis| Fault::Late(Duration::from_millis(millis))),
        1 => Just(Fault::Lost),
        1 => Just(Fault::Twice),
        1 => Just(Fault::Overtaken),
        3 => (
            prop::sample::select(&[Place::Before, Place::After][..]),
            prop::sample::select(&FOREIGN[..]),
            prop_oneof![9 => 0..2_usize, 1 => 100..200_usize],
        )
            .prop_map(|(place, message, fds)| Fault::Joined(place, message, fds)),
        2 => Just(Fault::SenderDies),
        2 => Just(Fault::ReceiverDies),
    ];
    prop::collection::vec((0..10_usize, fault), 0..3)
}

/// Messages of one end on their way to the other.
pub(super) struct Direction<K> {
    pub(super) faults: Faults,
    /// Kill the sending and the receiving process.
    pub(super) kill_sender: K,
    pub(super) kill_receiver: K,
}

/// Folder with a socket that leads to the listener in `state_dir` over such a connection; an empty folder if there is no listener.
pub(super) fn lay<K: Fn() + 'static>(state_dir: &Path, up: Direction<K>, down: Direction<K>) -> TempDir {
    let folder = TempDir::new().unwrap();
    let Some(far) = connect(&socket_path(state_dir)).unwrap() else { return folder };
    let listener = bind(&socket_path(folder.path())).unwrap();
    let listener = UnixListener::from_std(listener.into()).unwrap();
    tokio::task::spawn_local(async move {
        let (near, _) = listener.accept().await.unwrap();
        let (near, far) = (near.into_std().unwrap(), StdStream::from(far));
        let ends = Rc::new([near.try_clone().unwrap(), far.try_clone().unwrap()]);
        let channel = |end: &StdStream| Rc::new(Channel::over(end.try_clone().unwrap().into()).unwrap());
        let (near, far) = (channel(&near), channel(&far));
        tokio::task::spawn_local(up.carry(Rc::clone(&near), Rc::clone(&far), Rc::clone(&ends)));
        tokio::task::spawn_local(down.carry(far, near, ends));
    });
    folder
}

impl<K: Fn()> Direction<K> {
    async fn carry(self, from: Rc<Channel>, to: Rc<Channel>, ends: Rc<[StdStream; 2]>) {
        self.carry_all(&from, &to).await;
        // Close both, so that it looks as if the process that ended was the only holder of the connection.
        ends.iter().for_each(|end| drop(end.shutdown(std::net::Shutdown::Both)));
    }

    /// Carries messages until one of the processes has ended.
    async fn carry_all(&self, from: &Channel, to: &Channel) -> Option<()> {
        let (mut number, mut overtaken) = (0, None);
        loop {
            let patience = if overtaken.is_some() { OVERTAKING } else { A_DAY };
            if let Ok(received) = timeout(patience, from.receive_bytes()).await {
                let Some((bytes, fds)) = received.ok().flatten() else {
                    let (bytes, fds): (Vec<u8>, Vec<OwnedFd>) = overtaken?;
                    return to.send_bytes(&bytes, &fds).await.ok();
                };
                let fault = self.faults.iter().find(|(of, _)| *of == number).map(|(_, fault)| *fault);
                number += 1;
                match fault {
                    Some(Fault::SenderDies) => {
                        (self.kill_sender)();
                        return carry_what_was_done((bytes, fds), from, to).await;
                    }
                    Some(Fault::Overtaken) if overtaken.is_none() => {
                        overtaken = Some((bytes, fds));
                        continue;
                    }
                    Some(fault) => self.carry_badly(fault, &bytes, &fds, to).await?,
                    None => to.send_bytes(&bytes, &fds).await.ok()?,
                }
            }
            if let Some((bytes, fds)) = overtaken.take() {
                to.send_bytes(&bytes, &fds).await.ok()?;
            }
        }
    }

    async fn carry_badly(&self, fault: Fault, bytes: &[u8], fds: &[OwnedFd], to: &Channel) -> Option<()> {
        match fault {
            Fault::Late(time) => sleep(time).await,
            // A process that has taken the right to serve or handed it over sends that or is dead, which is taken on trust.
            Fault::Lost if !is_trusted(bytes) => return Some(()),
            Fault::Lost | Fault::Overtaken | Fault::SenderDies => {}
            Fault::Twice => to.send_bytes(bytes, fds).await.ok()?,
            Fault::Joined(place, message, count) => {
                if place == Place::After {
                    to.send_bytes(bytes, fds).await.ok()?;
                }
                let others: Vec<File> = (0..count).map(|_| File::open("/dev/null").unwrap()).collect();
                // Too many descriptors for one message are refused here already.
                to.send_bytes(message.as_bytes(), &others).await.ok();
                if place == Place::After {
                    return Some(());
                }
            }
            Fault::ReceiverDies => (self.kill_receiver)(),
        }
        to.send_bytes(bytes, fds).await.ok()
    }
}

/// Whether the sender relies on the delivery of this message.
fn is_trusted(bytes: &[u8]) -> bool {
    [&br#""serving"}"#[..], br#""handedOver"}"#].iter().any(|it| bytes.ends_with(it))
}

/// Delivers what a dying sender has sent: it may have acted already as if this message and later ones had arrived.
async fn carry_what_was_done(dying: (Vec<u8>, Vec<OwnedFd>), from: &Channel, to: &Channel) -> Option<()> {
    let mut said = vec![dying];
    while let Ok(Ok(Some(next))) = timeout(Duration::ZERO, from.receive_bytes()).await {
        said.push(next);
    }
    if said.iter().any(|(bytes, _)| is_trusted(bytes)) {
        for (bytes, fds) in said {
            to.send_bytes(&bytes, &fds).await.ok()?;
        }
    }
    None
}
