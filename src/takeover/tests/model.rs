//! Model test of takeovers: several processes take over from whichever serves, one after the other or at once, over connections on
//! which messages fail and at any point of which a process may die. Never do two serve, and in the end one does, with the sockets of
//! the first. Each is the process of a container: after a handover it waits to be told to end, and is restarted if its successor ends
//! first.
//!
//! Both sides are the real ones. Between messages they act like the gateway's loop, with a listening socket instead of a data plane:
//! the process that accepts there is the one that serves.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener as StdListener};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinHandle, LocalSet, spawn_local};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::super::predecessor::{Estate, Lifeline};
use super::wire::{Direction, Faults, faults, lay};
use super::*;

/// Script of one process.
#[derive(Clone, Debug)]
struct Life {
    /// Index of the process that serves when it starts.
    after: usize,
    /// Delay after the start of the first process.
    starts: Duration,
    /// How long it takes to load its objects, and to apply its table.
    loads: Duration,
    prepares: Duration,
    foreign: bool,
    /// Time of its death after its start.
    dies: Option<Duration>,
    is_stopped: Option<Duration>,
    /// Whether its container was restarted by a kubelet, which repeats that until the process serves.
    again: bool,
    /// How long it hangs after it has taken the right to serve, before it dies.
    hangs: Option<Duration>,
    /// Faults of its messages to the predecessor, and of the predecessor's messages.
    up: Faults,
    down: Faults,
}

fn millis(most: u64) -> impl Strategy<Value = Duration> {
    (0..most).prop_map(Duration::from_millis)
}

fn life() -> impl Strategy<Value = Life> {
    let times = (
        millis(60_000),
        prop_oneof![9 => millis(4000), 1 => millis(400_000)],
        prop_oneof![9 => millis(4000), 1 => millis(40_000)],
        prop::option::weighted(0.15, millis(60_000)),
        prop::option::weighted(0.15, millis(60_000)),
        prop::option::weighted(0.1, millis(20_000)),
    );
    (times, prop::bool::weighted(0.1), faults(), faults()).prop_map(|(times, foreign, up, down)| {
        let (starts, loads, prepares, dies, is_stopped, hangs) = times;
        Life { after: 0, starts, loads, prepares, foreign, dies, is_stopped, again: false, hangs, up, down }
    })
}

impl Life {
    /// Life without failures that starts after all others.
    fn undisturbed() -> Self {
        let second = Duration::from_secs(1);
        let (up, down) = Default::default();
        Self {
            after: 0,
            starts: second,
            loads: second,
            prepares: second,
            foreign: false,
            dies: None,
            is_stopped: None,
            again: false,
            hangs: None,
            up,
            down,
        }
    }
}

/// By then all messages are sent or failed, and all drains have ended.
const END: Duration = Duration::from_secs(2000);
const DRAIN: Duration = Duration::from_secs(20);
/// How long a kubelet takes to restart a container, the first time and later.
const FIRST_START: Duration = Duration::from_secs(1);
const NEXT_START: Duration = Duration::from_secs(10);
/// Limits of the time in which no change of objects takes effect, and in which no new traffic is accepted (with this few flows).
const MOST_UNCHANGED: Duration = Duration::from_secs(60);
const MOST_REST: Duration = Duration::from_secs(5);
/// Limit of a successor's takeover, besides its own work.
const MOST_TAKING: Duration = Duration::from_secs(75);

/// Processes of a node.
struct Node {
    folder: TempDir,
    admin: SocketAddr,
    frontend: SocketAddr,
    processes: RefCell<Vec<AbortHandle>>,
    serving: RefCell<BTreeSet<usize>>,
    /// Process that listens for successors.
    listening: Cell<Option<usize>>,
    /// Processes that have served or were offered to: if one of them ends, it may be that none serves.
    entitled: RefCell<BTreeSet<usize>>,
    ended: RefCell<BTreeSet<usize>>,
    /// For each process, which one has taken the right to serve since it began to hand over, and whether that only shows when it ends.
    taken: RefCell<BTreeMap<usize, (usize, bool)>>,
    /// Processes that have handed over and wait, with their successor.
    waiting: RefCell<BTreeMap<usize, usize>>,
    /// Processes whose containers were restarted.
    again: RefCell<BTreeSet<usize>>,
    wrong: RefCell<Vec<String>>,
}

/// Reason for a process to end on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The process was told to end.
    Stopped,
    /// Its successor has ended first.
    Deserted,
}

/// The process serves while this value exists.
struct Serving {
    node: Rc<Node>,
    process: usize,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.node.serving.borrow_mut().remove(&self.process);
    }
}

impl Node {
    fn new() -> Rc<Self> {
        static NODES: AtomicU32 = AtomicU32::new(0);
        let [.., high, low] = (NODES.fetch_add(1, Ordering::Relaxed) % 60_000).to_be_bytes();
        let ip = Ipv4Addr::new(127, 100 + (std::process::id() % 100) as u8, high, low);
        Rc::new(Self {
            folder: TempDir::new().unwrap(),
            admin: (ip, 9841).into(),
            frontend: (ip, 80).into(),
            processes: RefCell::default(),
            serving: RefCell::default(),
            listening: Cell::default(),
            entitled: RefCell::default(),
            ended: RefCell::default(),
            taken: RefCell::default(),
            waiting: RefCell::default(),
            again: RefCell::default(),
            wrong: RefCell::default(),
        })
    }

    fn expect(&self, holds: bool, why: impl FnOnce() -> String) {
        if !holds {
            self.wrong.borrow_mut().push(why());
        }
    }

    fn serve(self: &Rc<Self>, process: usize) -> Serving {
        let mut serving = self.serving.borrow_mut();
        self.expect(serving.is_empty(), || format!("{process} serves beside {serving:?}"));
        serving.insert(process);
        self.entitled.borrow_mut().insert(process);
        Serving { node: Rc::clone(self), process }
    }

    fn kill(&self, process: usize) {
        self.ended.borrow_mut().insert(process);
        if let Some(handle) = self.processes.borrow().get(process) {
            handle.abort();
        }
    }

    /// Starts a process.
    fn start(self: &Rc<Self>, mut life: Life) -> (usize, JoinHandle<()>) {
        let process = self.processes.borrow().len();
        let killer = |of: Option<usize>| {
            let node = Rc::clone(self);
            move || of.into_iter().for_each(|of| node.kill(of))
        };
        let (own, other, again) = (Some(process), self.listening.get(), life.again);
        life.after = other.unwrap_or_default();
        let up =
            Direction { faults: life.up.clone(), kill_sender: killer(own), kill_receiver: killer(other) };
        let down =
            Direction { faults: life.down.clone(), kill_sender: killer(other), kill_receiver: killer(own) };
        let wire = lay(self.folder.path(), up, down);
        let node = Rc::clone(self);
        let running = spawn_local(async move {
            // Any failure ends the process.
            let ended = node.run(process, &life, wire).await;
            node.again.borrow_mut().remove(&process);
            let back_off = match ended {
                Ok(End::Deserted) => FIRST_START,
                Err(_) if life.again => NEXT_START,
                Err(_) | Ok(End::Stopped) => return,
            };
            spawn_local(async move {
                sleep(back_off).await;
                node.start(Life { again: true, ..Life::undisturbed() });
            });
        });
        self.processes.borrow_mut().push(running.abort_handle());
        if again {
            self.again.borrow_mut().insert(process);
        }
        (process, running)
    }

    /// Life of a process, as in process/gateway.rs and gateway/event_loop.rs.
    async fn run(self: &Rc<Self>, process: usize, life: &Life, wire: TempDir) -> Result<End, TakeoverError> {
        let place = place(if life.foreign { "other" } else { "gw" });
        let found = timeout(MOST_TAKING, Predecessor::find(wire.path(), place)).await;
        self.expect(found.is_ok(), || format!("{process} looks for too long"));
        let mut predecessor = found.unwrap_or(Err(TakeoverError::Silent))?;
        // The admin port keeps a process from serving that has found no predecessor.
        let admin = match predecessor.as_mut().and_then(|it| it.server(self.admin)) {
            Some(admin) => admin,
            None => StdListener::bind(self.admin)?,
        };
        if let Some(predecessor) = &predecessor {
            timeout(life.loads, predecessor.ended()).await.ok();
        }
        let (frontend, lifeline) = match predecessor {
            Some(mut predecessor) => {
                let taken =
                    timeout(MOST_TAKING + life.prepares, self.take_over(process, life, &mut predecessor))
                        .await;
                self.expect(taken.is_ok(), || format!("{process} takes over for too long"));
                let frontend = taken.unwrap_or(Err(TakeoverError::Silent))?;
                (frontend, Some(predecessor.into_lifeline()))
            }
            None => (None, None),
        };
        let frontend = frontend.map_or_else(|| self.open_frontend(), Ok)?;
        self.serve_until_the_end(process, life, (admin, frontend), lifeline).await
    }

    /// Takeover as in the loop; `None` if the predecessor has died before it gave anything.
    async fn take_over(
        &self,
        process: usize,
        life: &Life,
        predecessor: &mut Predecessor,
    ) -> Result<Option<OwnedFd>, TakeoverError> {
        let (estate, alone) = match predecessor.begin().await {
            Err(TakeoverError::Closed) if predecessor.is_dead() => (Estate::default(), true),
            estate => (estate?, false),
        };
        self.entitled.borrow_mut().insert(process);
        sleep(life.prepares).await;
        if !alone {
            match self.take_rest(process, life, predecessor).await {
                Err(TakeoverError::Closed) if predecessor.is_dead() => {}
                outcome => outcome?,
            }
        }
        Ok(estate.listeners.sockets.into_iter().next().map(|socket| socket.fd))
    }

    /// The rest of the takeover, once its table is in force.
    async fn take_rest(
        &self,
        process: usize,
        life: &Life,
        predecessor: &Predecessor,
    ) -> Result<(), TakeoverError> {
        predecessor.prepared().await?;
        while !matches!(predecessor.next_part().await?, LastPart::Offer(..)) {}
        if let Some(time) = life.hangs
            && predecessor.is_dead()
        {
            self.taken.borrow_mut().insert(life.after, (process, life.up.is_empty()));
            sleep(time).await;
            self.kill(process);
            std::future::pending::<()>().await;
        }
        predecessor.succeed().await?;
        self.taken.borrow_mut().insert(life.after, (process, false));
        Ok(())
    }

    /// Opens a socket like a worker's, with a port that other processes of the user may open as well.
    fn open_frontend(&self) -> io::Result<OwnedFd> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_port(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&self.frontend.into())?;
        socket.listen(16)?;
        Ok(socket.into())
    }

    async fn serve_until_the_end(
        self: &Rc<Self>,
        process: usize,
        life: &Life,
        (admin, frontend): (StdListener, OwnedFd),
        mut lifeline: Option<Lifeline>,
    ) -> Result<End, TakeoverError> {
        let mut serving = Some(self.serve(process));
        let listener = TcpListener::from_std(frontend.try_clone()?.into())?;
        let servers = vec![(self.admin, admin.into())];
        let mut successors = Successors::listen(self.folder.path(), Greeting { servers, ..greeting() })?;
        self.listening.set(Some(process));
        let (mut stop, frontend) =
            (life.is_stopped.map(|after| Instant::now() + after), Arc::new(frontend.into()));
        loop {
            tokio::select! {
                biased;
                () = sleep_until(stop.unwrap_or_else(|| Instant::now() + 2 * END)) => {
                    self.ended.borrow_mut().insert(process);
                    successors.let_former_pod_return();
                    if lifeline.take().is_some_and(|it| it.is_watched()) {
                        stop = Some(Instant::now() + Lifeline::RETURN);
                        continue;
                    }
                    if !successors.is_one_loading() {
                        break;
                    }
                    stop = Some(Instant::now() + Duration::from_millis(200));
                }
                successor = successors.next() => {
                    if self.hand_over(process, &successor, &frontend, &mut serving).await == Outcome::HandedOver {
                        if let Some(lifeline) = lifeline.take() {
                            lifeline.hand_over().await;
                        }
                        drop((serving, successors, listener, frontend));
                        return Ok(self.wait(process, successor, stop).await);
                    }
                }
                accepted = listener.accept() => accepted?.0.write_all(&[process as u8]).await?,
            }
        }
        drop((serving, successors, lifeline));
        sleep(DRAIN).await;
        Ok(End::Stopped)
    }

    /// Waits to be told to end, like process 1 of a container that has handed over.
    async fn wait(&self, process: usize, successor: Successor, stop: Option<Instant>) -> End {
        if let Some((taker, _)) = self.taken.borrow().get(&process) {
            self.waiting.borrow_mut().insert(process, *taker);
        }
        let told = self.ended.borrow().contains(&process);
        let end = tokio::select! {
            () = sleep_until(stop.unwrap_or_else(|| Instant::now() + 3 * END)) => End::Stopped,
            () = successor.gone(), if !told => End::Deserted,
        };
        self.waiting.borrow_mut().remove(&process);
        end
    }

    /// Handover as in the loop.
    async fn hand_over(
        self: &Rc<Self>,
        process: usize,
        successor: &Successor,
        frontend: &Arc<Socket>,
        serving: &mut Option<Serving>,
    ) -> Outcome {
        let began = Instant::now();
        self.taken.borrow_mut().remove(&process);
        let given = timeout(Successor::PREPARATION, async {
            let (ip, port) = (self.frontend.ip(), self.frontend.port());
            let addr = FrontendAddr { ip, port, protocol: Protocol::Tcp };
            let role = SocketRole::Frontend { addr, worker: 0 };
            let sockets = vec![(role, Arc::clone(frontend))];
            let listeners = ListenersToHandOver { sockets, ..ListenersToHandOver::default() };
            successor.hand_over(listeners, Vec::new(), Vec::new(), Vec::new()).await?;
            successor.prepared().await
        });
        if let Err(error) = given.await.unwrap_or(Err(TakeoverError::Silent)) {
            return successor.settle(Err(error)).await;
        }
        *serving = None;
        let rested = Instant::now();
        let offered = timeout(Successor::REST, async {
            successor.flows(0, vec![flow()]).await?;
            successor.offer(None, Vec::new()).await
        });
        let outcome = successor.settle(offered.await.unwrap_or(Err(TakeoverError::Silent))).await;
        self.expect(rested.elapsed() <= MOST_REST, || format!("{process} rests for too long"));
        self.expect(began.elapsed() <= MOST_UNCHANGED, || format!("{process} hands over for too long"));
        let lives = |(taker, mute): &(usize, bool)| !(*mute && self.ended.borrow().contains(taker));
        let taken = self.taken.borrow().get(&process).is_some_and(lives);
        self.expect(outcome == Outcome::GoOn || taken, || format!("{process} hands over to nobody"));
        if outcome == Outcome::GoOn {
            *serving = Some(self.serve(process));
        }
        outcome
    }

    /// Checks that processes that have handed over and live serve again if their successor has ended.
    fn expect_none_deserted(&self, serving: Option<usize>) {
        let (waiting, ended) = (self.waiting.borrow(), self.ended.borrow());
        let handed_over = |process: &usize| self.taken.borrow().contains_key(process);
        let deserted = waiting
            .iter()
            .find(|(process, to)| !ended.contains(process) && ended.contains(to) && !handed_over(to));
        self.expect(deserted.is_none(), || format!("{deserted:?}: waits for one that has ended"));
        let again = self.again.borrow();
        let again = again.iter().find(|it| !ended.contains(it) && !waiting.contains_key(it));
        self.expect(serving.is_some() || again.is_none(), || format!("{again:?} was started again in vain"));
    }

    fn serving(&self) -> Option<usize> {
        self.serving.borrow().iter().next().copied()
    }

    /// The process that answers at the frontend, and so serves.
    async fn answering(&self) -> Option<usize> {
        let mut stream = TcpStream::connect(self.frontend).await.ok()?;
        timeout(DRAIN, stream.read_u8()).await.ok()?.ok().map(usize::from)
    }
}

/// Runs these processes, and then one more without faults.
async fn live(lives: Vec<Life>) -> Vec<String> {
    let node = Node::new();
    let mut running = Vec::new();
    for life in lives {
        let node = Rc::clone(&node);
        running.push(spawn_local(async move {
            sleep(life.starts).await;
            let dies = life.dies;
            let (process, mut ended) = node.start(life);
            if let Some(dies) = dies
                && timeout(dies, &mut ended).await.is_err()
            {
                node.kill(process);
            }
        }));
    }
    sleep(END).await;
    running.iter().for_each(JoinHandle::abort);
    let serving = node.serving();
    let dead = node.entitled.borrow().intersection(&node.ended.borrow()).next().is_some();
    node.expect(serving.is_some() || dead, || "none serves, though all live that could".to_owned());
    node.expect_none_deserted(serving);
    if serving.is_some() {
        let answering = node.answering().await;
        node.expect(answering == serving, || format!("{answering:?} answers in place of {serving:?}"));
    }
    let (last, _) = node.start(Life::undisturbed());
    sleep(END).await;
    let serving = node.serving.borrow().clone();
    node.expect(serving == BTreeSet::from([last]), || format!("{serving:?} serve after a last attempt"));
    let answering = node.answering().await;
    node.expect(answering == Some(last), || format!("{answering:?} answers after a last attempt"));
    node.wrong.take()
}

/// For example `kubectl rollout undo` before the new Pod counts as available.
#[test]
fn a_process_that_has_handed_over_serves_again_when_its_successor_is_told_to_end() {
    let second = Duration::from_secs;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let wrong = LocalSet::new().block_on(&runtime, async {
        let node = Node::new();
        node.start(Life::undisturbed());
        sleep(second(5)).await;
        let (next, _) = node.start(Life { is_stopped: Some(second(20)), ..Life::undisturbed() });
        sleep(second(15)).await;
        assert_eq!(node.serving(), Some(next));
        // No client may be refused at any time.
        for _ in 0..1200 {
            sleep(Duration::from_millis(50)).await;
            node.expect(node.serving().is_some(), || "nobody serves".to_owned());
        }
        assert_eq!(node.serving(), Some(next + 1), "the container that was started again");
        assert_eq!(node.answering().await, node.serving());
        node.wrong.take()
    });
    assert!(wrong.is_empty(), "{wrong:?}");
}

proptest! {
    #[test]
    fn one_process_serves_whatever_happens(
        mut first in life(),
        successors in prop::collection::vec(life(), 1..4),
    ) {
        first.starts = Duration::ZERO;
        let lives = [vec![first], successors].concat();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let wrong = LocalSet::new().block_on(&runtime, live(lives));
        prop_assert!(wrong.is_empty(), "{wrong:?}");
    }
}
