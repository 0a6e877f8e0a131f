//! Tests that exactly one process serves in the end, wherever the other one dies, stops or sends something odd.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sheave_dataplane::ListenersToHandOver;
use sheave_dataplane::handover::{ConnectionCount, FlowRecord, HandedFlow, SocketRole};
use sheave_model::{ClientSource, EndpointAddr, FrontendAddr, Protocol};
use tempfile::TempDir;
use tokio::time::timeout;

use super::channel::{Channel, MOST_RECORDS};
use super::message::{Hello, Message};
use super::predecessor::{LastPart, Predecessor};
use super::successor::{Greeting, Outcome, Successor, Successors};
use super::*;

mod model;
mod wire;

/// Last step that the successor reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Welcomed,
    Begun,
    Prepared,
    Offered,
    Taken,
    Served,
}

/// Failure of the successor at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Dies,
    Stops,
    Babbles,
}

const STEPS: [Step; 5] = [Step::Welcomed, Step::Begun, Step::Prepared, Step::Offered, Step::Taken];

fn place(node: &str) -> ServingPlace {
    ServingPlace { node: node.to_owned(), class: "class".to_owned(), network: "network".to_owned() }
}

fn greeting() -> Greeting {
    Greeting {
        place: place("gw"),
        former_pod: None,
        returns: true,
        workers: 2,
        servers: Vec::new(),
        failures: Arc::default(),
    }
}

/// A greeting, with its counter of failed successors.
fn counted_greeting() -> (Greeting, Arc<AtomicU64>) {
    let greeting = greeting();
    let failures = Arc::clone(&greeting.failures);
    (greeting, failures)
}

fn socket() -> OwnedFd {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().into()
}

/// More than fit into one message.
const SOCKETS: usize = 300;

fn listeners() -> ListenersToHandOver {
    let addr = FrontendAddr { ip: Ipv4Addr::LOCALHOST.into(), port: 80, protocol: Protocol::Tcp };
    let role = |worker| SocketRole::Frontend { addr, worker };
    let sockets = (0..SOCKETS).map(|worker| (role(worker), Arc::new(socket().into())));
    ListenersToHandOver { sockets: sockets.collect(), ..ListenersToHandOver::default() }
}

fn flow() -> HandedFlow {
    let addr = (Ipv4Addr::LOCALHOST, 53).into();
    let record = FlowRecord {
        frontend: addr,
        client: addr,
        endpoint: EndpointAddr::new(Ipv4Addr::LOCALHOST.into(), 53),
        source: ClientSource::Gateway,
        quiet_millis: 1,
        answered: true,
        suspect: false,
        port: None,
    };
    HandedFlow { record, fd: socket() }
}

#[test]
fn a_message_keeps_the_form_that_other_versions_send_and_read() {
    let exact = ["sockets", "nodePorts", "steered", "affinity", "interfaces", "listening"];
    let sent = include_str!("../../tests/fuzz/corpus/takeover/predecessor");
    let mut compared = 0;
    for json in sent.lines().filter_map(|line| line.find('{').map(|start| &line[start..])) {
        let message: Message = serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"));
        let form: serde_json::Value = serde_json::from_str(json).unwrap();
        if form["message"].as_str().is_some_and(|name| exact.contains(&name)) {
            assert_eq!(serde_json::to_value(message).unwrap(), form);
            compared += 1;
        }
    }
    assert_eq!(compared, 7);
}

/// Handover as in a gateway's loop.
async fn hand_over(successor: &Successor) -> Outcome {
    let handed = async {
        successor.hand_over(listeners(), Vec::new(), Vec::new(), Vec::new()).await?;
        successor.prepared().await?;
        successor.flows(0, vec![flow()]).await?;
        successor.offer(None, Vec::new()).await
    };
    let handed = tokio::time::timeout(Successor::PREPARATION, handed).await;
    successor.settle(handed.unwrap_or(Err(TakeoverError::Silent))).await
}

/// Takeover as in the successor's loop, up to a step. The successor lives as long as the result.
async fn take_over(state_dir: &Path, until: Step) -> Result<Predecessor, TakeoverError> {
    let mut predecessor = Predecessor::find(state_dir, place("gw")).await?.expect("a process that serves");
    if until == Step::Welcomed {
        return Ok(predecessor);
    }
    let estate = predecessor.begin().await?;
    assert_eq!(estate.listeners.sockets.len(), SOCKETS);
    if until == Step::Begun {
        return Ok(predecessor);
    }
    predecessor.prepared().await?;
    let mut flows = 0;
    if until == Step::Prepared {
        return Ok(predecessor);
    }
    loop {
        match predecessor.next_part().await? {
            LastPart::Flows { flows: part, .. } => flows += part.len(),
            LastPart::Affinity(_) => {}
            LastPart::Offer(..) => break,
        }
    }
    assert_eq!(flows, 1);
    match until {
        Step::Taken => assert!(predecessor.is_dead(), "the token is there"),
        Step::Served => predecessor.succeed().await?,
        _ => {}
    }
    Ok(predecessor)
}

/// Runs a takeover: the outcome for the predecessor, whether the successor serves, and the number of counted failures.
async fn outcome(until: Step, fate: Fate) -> (Outcome, bool, u64) {
    let folder = TempDir::new().unwrap();
    let (greeting, failures) = counted_greeting();
    let mut successors = Successors::listen(folder.path(), greeting).unwrap();
    let (gone, is_gone) = tokio::sync::oneshot::channel::<()>();
    let serving = async {
        let successor = tokio::select! {
            successor = successors.next() => successor,
            // The takeover never began.
            _ = is_gone => return Outcome::GoOn,
        };
        hand_over(&successor).await
    };
    let taking = async {
        let predecessor = take_over(folder.path(), until).await.unwrap();
        match fate {
            Fate::Dies => {
                drop(predecessor);
                drop(gone);
                None
            }
            Fate::Stops | Fate::Babbles => {
                if fate == Fate::Babbles {
                    predecessor.say(Message::Begin).await.ok();
                }
                if until == Step::Welcomed {
                    drop(gone);
                }
                Some(predecessor)
            }
        }
    };
    let (outcome, successor) = tokio::join!(serving, taking);
    // When it wakes up, it takes the token if it is still there.
    let serves = successor.is_some_and(|it| until >= Step::Taken || it.is_dead());
    (outcome, serves, failures.load(Ordering::Relaxed))
}

#[tokio::test(start_paused = true)]
async fn exactly_one_serves_wherever_the_successor_dies_or_stops() {
    for step in STEPS {
        for fate in [Fate::Dies, Fate::Stops, Fate::Babbles] {
            if (step, fate) == (Step::Welcomed, Fate::Babbles) {
                continue;
            }
            let (outcome, serves, failures) = outcome(step, fate).await;
            // The predecessor keeps waiting for a successor that was only welcomed.
            let serves = serves && step != Step::Welcomed;
            assert_ne!(serves, outcome == Outcome::GoOn, "{fate:?} after {step:?}: {outcome:?}");
            // After `Begun`, the takeover has an outcome.
            let expected = u64::from(outcome == Outcome::GoOn);
            assert!(step == Step::Welcomed || failures == expected, "{fate:?} after {step:?}: {failures}");
        }
    }
    let (outcome, _, failures) = outcome(Step::Served, Fate::Dies).await;
    assert_eq!((outcome, failures), (Outcome::HandedOver, 0));
}

#[tokio::test(start_paused = true)]
async fn a_successor_that_does_not_take_over_is_counted_and_a_probe_is_not() {
    let folder = TempDir::new().unwrap();
    let (greeting, failures) = counted_greeting();
    let _successors = Successors::listen(folder.path(), greeting).unwrap();
    drop(connect_silently(folder.path()));
    Predecessor::find(folder.path(), place("other")).await.unwrap_err();
    // This one is greeted after both others.
    let loading = Predecessor::find(folder.path(), place("gw")).await.unwrap().unwrap();
    assert_eq!(failures.load(Ordering::Relaxed), 1, "the stranger");
    drop(loading);
    let _next = Predecessor::find(folder.path(), place("gw")).await.unwrap().unwrap();
    assert_eq!(failures.load(Ordering::Relaxed), 2, "one that ended while it loaded");
}

/// A kubelet probes every 2 s while a successor loads, which takes minutes if the API server is unreachable.
#[tokio::test(start_paused = true)]
async fn startup_probes_are_answered_while_a_successor_loads_and_while_it_takes_over() {
    let folder = TempDir::new().unwrap();
    let mut successors = Successors::listen(folder.path(), greeting()).unwrap();
    let mut predecessor = Predecessor::find(folder.path(), place("gw")).await.unwrap().unwrap();
    let probe = async |phase: &str| {
        for number in 0..200 {
            let probed = predecessor::serves_elsewhere(folder.path()).await;
            assert!(probed.is_ok(), "{number} while it {phase}: {probed:?}");
            tokio::task::yield_now().await;
        }
    };
    probe("loads").await;
    let (successor, ()) = tokio::join!(successors.next(), async {
        predecessor.begin().await.unwrap_err();
    });
    probe("takes over").await;
    drop(successor);
}

/// A process that hangs looks like this.
#[tokio::test(start_paused = true)]
async fn a_process_that_accepts_nobody_serves_all_the_same() {
    let folder = TempDir::new().unwrap();
    let _listener = predecessor_without_places(folder.path());
    let found = Predecessor::find(folder.path(), place("gw")).await;
    assert!(matches!(found, Err(TakeoverError::Silent)), "{found:?}");
    let probed = predecessor::serves_elsewhere(folder.path()).await.unwrap_err();
    assert!(!predecessor::is_unusable(&probed), "{probed}");
}

#[tokio::test(start_paused = true)]
async fn between_a_process_that_left_and_its_successor_nobody_is_not_concluded() {
    let folder = TempDir::new().unwrap();
    drop(Successors::listen(folder.path(), greeting()).unwrap());
    let later = async {
        tokio::time::sleep(Duration::from_millis(70)).await;
        Successors::listen(folder.path(), greeting()).unwrap()
    };
    let (found, _successors) = tokio::join!(Predecessor::find(folder.path(), place("gw")), later);
    assert!(found.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn where_nobody_can_listen_there_is_nobody_to_take_over_from() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    for unusable in [file, folder.path().join("long".repeat(50))] {
        assert!(Predecessor::find(&unusable, place("gw")).await.unwrap().is_none());
        let probed = predecessor::serves_elsewhere(&unusable).await.unwrap_err();
        assert!(predecessor::is_unusable(&probed), "{probed}");
    }
}

/// Listener with a full queue.
fn predecessor_without_places(state_dir: &Path) -> [OwnedFd; 2] {
    let addr = rustix::net::SocketAddrUnix::new(socket_path(state_dir)).unwrap();
    let listener = packets();
    rustix::net::bind(&listener, &addr).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    [connect_silently(state_dir), listener]
}

/// Whether the successor may serve, if the predecessor dies after this many messages.
async fn after_the_death_of_the_predecessor(step: usize) -> Result<bool, TakeoverError> {
    let folder = TempDir::new().unwrap();
    let mut successors = Successors::listen(folder.path(), greeting()).unwrap();
    let serving = async {
        let successor = successors.next().await;
        if step >= 1 {
            successor.hand_over(listeners(), Vec::new(), Vec::new(), Vec::new()).await.unwrap();
            successor.prepared().await.unwrap();
        }
        if step >= 2 {
            successor.flows(0, vec![flow()]).await.unwrap();
        }
        drop(successor);
    };
    let taking = async {
        let mut predecessor =
            Predecessor::find(folder.path(), place("gw")).await?.expect("a process that serves");
        let failed = match predecessor.begin().await {
            Ok(_) => {
                predecessor.prepared().await?;
                loop {
                    match predecessor.next_part().await {
                        Ok(_) => {}
                        Err(error) => break error,
                    }
                }
            }
            Err(error) => error,
        };
        assert!(matches!(failed, TakeoverError::Closed), "{failed}");
        Ok(predecessor.is_dead())
    };
    tokio::join!(serving, taking).1
}

#[tokio::test(start_paused = true)]
async fn the_successor_serves_wherever_the_predecessor_dies() {
    for step in 0..3 {
        assert!(after_the_death_of_the_predecessor(step).await.unwrap(), "{step}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stranger_is_refused_and_the_next_one_is_welcome() {
    let folder = TempDir::new().unwrap();
    assert!(Predecessor::find(folder.path(), place("gw")).await.unwrap().is_none(), "nobody serves");
    let _successors = Successors::listen(folder.path(), greeting()).unwrap();
    let refused = Predecessor::find(folder.path(), place("other")).await.unwrap_err();
    assert!(matches!(&refused, TakeoverError::Refused(why) if why.contains("other")), "{refused}");
    drop(connect_silently(folder.path()));
    let predecessor = Predecessor::find(folder.path(), place("gw")).await.unwrap().unwrap();
    assert_eq!(predecessor.workers(), 2);
}

/// For example, a process that is killed while the successor starts.
#[tokio::test]
async fn a_process_that_ends_before_it_answers_is_none_to_take_over_from() {
    let folder = TempDir::new().unwrap();
    let addr = rustix::net::SocketAddrUnix::new(socket_path(folder.path())).unwrap();
    let listener = packets();
    rustix::net::bind(&listener, &addr).unwrap();
    rustix::net::listen(&listener, 1).unwrap();
    let (found, ()) = tokio::join!(Predecessor::find(folder.path(), place("gw")), async { drop(listener) });
    assert!(found.unwrap().is_none());
}

/// A process that has handed over, and its successor.
async fn handed_over(greeting: Greeting) -> (Successor, Predecessor) {
    let folder = TempDir::new().unwrap();
    let mut successors = Successors::listen(folder.path(), greeting).unwrap();
    let serving = async {
        let successor = successors.next().await;
        assert_eq!(hand_over(&successor).await, Outcome::HandedOver);
        successor
    };
    let (successor, predecessor) = tokio::join!(serving, take_over(folder.path(), Step::Served));
    (successor, predecessor.unwrap())
}

/// Later than all messages.
const LONG: Duration = Duration::from_secs(1000);

#[tokio::test(start_paused = true)]
async fn a_successor_is_missed_once_it_serves_no_longer() {
    let (successor, predecessor) = handed_over(greeting()).await;
    let lifeline = predecessor.into_lifeline();
    assert!(lifeline.is_watched());
    let mut gone = std::pin::pin!(successor.gone());
    assert!(timeout(LONG, &mut gone).await.is_err(), "it serves");
    drop(lifeline);
    assert!(timeout(LONG, gone).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_successor_is_told_what_is_left_until_nothing_is() {
    let (successor, predecessor) = handed_over(greeting()).await;
    let lifeline = predecessor.into_lifeline();
    let count = |number: u32| {
        let (namespace, name) = ("n".repeat(63), format!("{number:063}"));
        ConnectionCount {
            namespace,
            name,
            of_fleet: false,
            of_gateway: false,
            settings_of: None,
            open: number,
        }
    };
    let counts: Vec<_> = (0..300).map(count).collect();
    assert!(successor.connections(&counts, Duration::ZERO).await);
    let mut told = Vec::new();
    while told.len() < counts.len() {
        told.extend(lifeline.connections().await.unwrap());
    }
    assert_eq!(told, counts);
    assert!(timeout(LONG, lifeline.connections()).await.is_err(), "nothing has changed");
    drop(successor);
    assert_eq!(lifeline.connections().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_successor_that_does_not_read_is_told_as_soon_as_it_does_if_that_is_waited_for() {
    let (successor, predecessor) = handed_over(greeting()).await;
    let lifeline = predecessor.into_lifeline();
    let counts = |open| {
        let name = |number| format!("{number:063}");
        let count = |number: u32| ConnectionCount {
            namespace: "n".repeat(63),
            name: name(number),
            of_fleet: false,
            of_gateway: false,
            settings_of: Some(format!("ListenerSet {0}/{0}", "s".repeat(63))),
            open,
        };
        (0..MOST_RECORDS as u32).map(count).collect::<Vec<_>>()
    };
    while successor.connections(&counts(1), Duration::ZERO).await {}
    let reading = async { while lifeline.connections().await.unwrap() != counts(0) {} };
    let nothing = counts(0);
    let (told, read) = tokio::join!(successor.connections(&nothing, LONG), timeout(2 * LONG, reading));
    assert!(told && read.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_successor_that_hands_over_in_its_turn_is_not_missed() {
    let (successor, predecessor) = handed_over(greeting()).await;
    predecessor.into_lifeline().hand_over().await;
    assert!(timeout(LONG, successor.gone()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_predecessor_that_does_not_return_or_has_ended() {
    for returns in [true, false] {
        let (successor, predecessor) = handed_over(Greeting { returns, ..greeting() }).await;
        let lifeline = predecessor.into_lifeline();
        assert_eq!(lifeline.is_watched(), returns);
        drop(successor);
        assert!(!lifeline.is_watched());
    }
}

/// A successor of a version without lifelines.
#[tokio::test(start_paused = true)]
async fn a_successor_that_does_not_stay_is_not_missed() {
    let folder = TempDir::new().unwrap();
    let mut successors = Successors::listen(folder.path(), greeting()).unwrap();
    let former = Channel::over(connect_silently(folder.path())).unwrap();
    former.send(&Message::Hello(Hello { stays: false, ..hello() }), NO_FDS).await.unwrap();
    former.send(&Message::Begin, NO_FDS).await.unwrap();
    let successor = successors.next().await;
    drop(former);
    assert!(timeout(LONG, successor.gone()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn the_former_pod_takes_over_again_only_from_a_process_that_is_told_to_end() {
    let folder = TempDir::new().unwrap();
    let greeting = Greeting { former_pod: Some("former".to_owned()), ..greeting() };
    let successors = Successors::listen(folder.path(), greeting).unwrap();
    let asks = async || {
        let channel = Channel::over(connect_silently(folder.path())).unwrap();
        let hello = Hello { pod: Some("former".to_owned()), ..hello() };
        channel.send(&Message::Hello(hello), NO_FDS).await.unwrap();
        channel.receive().await.unwrap().0
    };
    let refused = asks().await;
    assert!(matches!(&refused, Message::Refused { why } if why.contains("Pod")), "{refused:?}");
    successors.let_former_pod_return();
    let welcome = asks().await;
    assert!(matches!(welcome, Message::Welcome(_)), "{welcome:?}");
}

const NO_FDS: &[OwnedFd] = &[];

fn hello() -> Hello {
    let version = "another".to_owned();
    Hello { protocol: PROTOCOL, version, place: place("gw"), pod: None, stays: true }
}

#[tokio::test(start_paused = true)]
async fn another_protocol_is_refused_before_anything_is_handed_over() {
    let folder = TempDir::new().unwrap();
    let _successors = Successors::listen(folder.path(), greeting()).unwrap();
    for protocol in [PROTOCOL - 1, PROTOCOL + 1] {
        let channel = Channel::over(connect_silently(folder.path())).unwrap();
        let hello = Hello { protocol, ..hello() };
        channel.send(&Message::Hello(hello), NO_FDS).await.unwrap();
        let (answer, fds) = channel.receive().await.unwrap();
        assert!(matches!(&answer, Message::Refused { why } if why.contains("protocol")), "{answer:?}");
        assert!(fds.is_empty());
    }
}

fn packets() -> OwnedFd {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::NONBLOCK, None).unwrap()
}

/// Connects without a message.
fn connect_silently(state_dir: &Path) -> OwnedFd {
    let addr = rustix::net::SocketAddrUnix::new(socket_path(state_dir)).unwrap();
    let socket = packets();
    rustix::net::connect(&socket, &addr).unwrap();
    socket
}

#[test]
fn a_message_of_a_later_version_is_read_as_far_as_it_is_known() -> io::Result<()> {
    let later = r#"{"message": "hello", "protocol": 1, "version": "9.0", "node": "gw", "class": "c", "network": "n", "more": 1}"#;
    assert!(matches!(serde_json::from_str(later)?, Message::Hello(hello) if hello.version == "9.0"));
    let unheard = r#"{"message": "weather", "sunny": true}"#;
    assert!(matches!(serde_json::from_str(unheard)?, Message::Unknown));
    Ok(())
}
