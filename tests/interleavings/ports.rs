//! Models of connections that one worker passes to another, while that one starts, sleeps, drains or ends.

use std::net::Ipv4Addr;
use std::sync::Arc;

use loom::thread::spawn;
use sheave_model::{ClientAddr, test_util};
use socket2::{Domain, Socket, Type};

use crate::worker_port::{Accepted, WorkerPorts};

fn accepted() -> (Accepted, Socket) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let copy = socket.try_clone().unwrap();
    let peer = ClientAddr((Ipv4Addr::LOCALHOST, 1).into());
    (Accepted { frontend: test_util::frontend_addr(1), peer, socket, counters: Arc::default() }, copy)
}

fn is_reset(copy: &Socket) -> bool {
    copy.linger().unwrap().is_some()
}

/// Adopts passed connections like a worker, with a limit per turn. Returns whether there may be more.
fn adopt(ports: &WorkerPorts, worker: usize, most: usize, served: &mut usize) -> bool {
    let taken = ports.of(worker).take(most);
    *served += taken.len();
    taken.iter().for_each(|_| ports.of(worker).closed());
    taken.len() == most
}

/// A worker starts, serves a turn and ends, as after a panic.
pub(crate) fn served_or_reset() {
    let ports = WorkerPorts::new(2).unwrap();
    let other = Arc::clone(&ports);
    let worker = spawn(move || {
        let mut served = 0;
        other.of(1).begin();
        adopt(&other, 1, 9, &mut served);
        other.of(1).end();
        served
    });
    let mut kept = 0;
    let copies: Vec<Socket> = (0..2)
        .map(|_| {
            let (accepted, copy) = accepted();
            kept += usize::from(ports.hand_on(1, accepted).is_err());
            copy
        })
        .collect();
    let served = worker.join().unwrap();
    let reset = copies.iter().filter(|copy| is_reset(copy)).count();
    assert_eq!(kept + served + reset, 2);
    ports.of(1).begin();
    assert_eq!((ports.of(1).take(9).len(), ports.of(1).open()), (0, 0));
}

/// Two workers pass connections to one that takes one at a time, and sleeps in between if none are known to wait.
pub(crate) fn woken() {
    let ports = WorkerPorts::new(3).unwrap();
    ports.of(0).begin();
    let others = [1, 2].map(|_| {
        let ports = Arc::clone(&ports);
        spawn(move || ports.hand_on(0, accepted().0).is_ok())
    });
    let mut served = 0;
    while served < 2 {
        ports.of(0).waker.wait();
        while adopt(&ports, 0, 1, &mut served) {}
    }
    assert!(others.into_iter().all(|other| other.join().unwrap()));
    assert_eq!(ports.of(0).open(), 0);
}

/// A worker that has drained may end: nothing is passed to it afterwards.
pub(crate) fn drained() {
    let ports = WorkerPorts::new(2).unwrap();
    ports.of(1).begin();
    let [accepting, draining] = [(); 2].map(|()| Arc::clone(&ports));
    let acceptor = spawn(move || {
        let (accepted, copy) = accepted();
        (accepting.hand_on(1, accepted).is_err(), copy)
    });
    let control = spawn(move || draining.drain());
    let mut served = 0;
    for _ in 0..2 {
        if ports.of(1).is_drained() {
            break;
        }
        adopt(&ports, 1, 9, &mut served);
    }
    let was_drained = ports.of(1).is_drained();
    let served_before = served;
    let (kept, copy) = acceptor.join().unwrap();
    control.join().unwrap();
    adopt(&ports, 1, 9, &mut served);
    assert!(!was_drained || served == served_before);
    assert_eq!((usize::from(kept) + served, is_reset(&copy)), (1, false));
    assert!(ports.of(1).is_drained());
}
