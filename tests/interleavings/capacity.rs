//! Models of the capacity for traffic, which all workers share.

use std::sync::Arc;

use loom::thread::spawn;

use crate::limits::capacity::{Capacity, CapacityLimits, MemoryLeft};
use crate::worker_port::WorkerPorts;

/// Two workers each take up to two connections while there is room for two.
pub(crate) fn limit() {
    let capacity = Arc::new(Capacity::new(CapacityLimits { descriptors: 100, connections: 2 }));
    let other = Arc::clone(&capacity);
    let take = |capacity: &Capacity| (0..2).filter(|_| capacity.take_connection(0).is_ok()).count();
    let worker = spawn(move || take(&other));
    let own = take(&capacity);
    let taken = own + worker.join().unwrap();
    assert!((2..=3).contains(&taken), "{taken}");
    assert!(capacity.take_connection(0).is_err());
    (0..taken).for_each(|_| capacity.give_connection());
    assert_eq!(capacity.gauge(&WorkerPorts::new(1).unwrap()).descriptors(), 0);
    assert_eq!(take(&capacity), 2);
}

/// Three workers would each give back more than half of what is requested.
pub(crate) fn relief() {
    let capacity = Arc::new(Capacity::new(CapacityLimits { descriptors: 1, connections: 1 }));
    let gauge = capacity.gauge(&WorkerPorts::new(1).unwrap());
    gauge.set(MemoryLeft { excess: 100, ..MemoryLeft::default() });
    let workers = [(); 2].map(|()| {
        let capacity = Arc::clone(&capacity);
        spawn(move || capacity.relieve_of(60))
    });
    let own = capacity.relieve_of(60);
    let others = workers.into_iter().map(|worker| worker.join().unwrap());
    assert_eq!(usize::from(own) + others.filter(|gives| *gives).count(), 2);
    assert!(!capacity.wants_relief());
}
