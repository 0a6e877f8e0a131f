//! Pipe pool of one worker: capped, lent to a connection only while bytes are in the pipe, and trimmed when streams no longer
//! need the pipes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::sys::pipe::{self, Pipe};

/// Maximum number of slots of a pipe. A slot holds one socket fragment of any size: 256 hold a 1 MiB burst of page-sized ones.
/// More slots need CAP_SYS_RESOURCE (/proc/sys/fs/pipe-max-size).
const MOST_SLOTS: usize = 256;
/// Minimum number of slots: with fewer, two splices move less than two copies through the scratch buffer, and cost more.
const LEAST_SLOTS: usize = 16;
/// Divisor of the user's slots that this process may take: other processes of root need pipes, too.
const SHARE: usize = 2;
/// How long an unneeded pipe is kept open.
const KEEP: Duration = Duration::from_secs(1);
/// How long no pipe is opened after the kernel failed to provide a useful one.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Limits of the pipes of one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PipeBudget {
    /// Maximum number of pipes; 0 turns splicing off. A pipe is held only while its stream's receiver is slower than its sender,
    /// so this bounds the number of slow streams; further ones are copied.
    pub(crate) pipes: usize,
    /// Maximum number of slots over all pipes.
    pub(crate) slots: usize,
}

impl PipeBudget {
    /// The share of one of `workers` workers in the slots that the kernel allows a user.
    pub(crate) fn of_worker(pipes: usize, workers: usize) -> Self {
        let slots = pipe::user_limit().map_or(usize::MAX, |limit| limit / SHARE / workers.max(1));
        Self { pipes, slots }
    }
}

/// Pipes that no connection holds, and the number of open ones.
#[derive(Debug)]
pub(crate) struct PipePool {
    free: RefCell<Vec<Pipe>>,
    open: Cell<usize>,
    open_slots: Cell<usize>,
    budget: PipeBudget,
    /// Minimum number of free pipes since the last trim: that many were not needed.
    spare: Cell<usize>,
    no_pipe_before: Cell<Option<Instant>>,
    /// When to trim; `None` while no pipe is open.
    trim_at: Cell<Option<Instant>>,
    now: Cell<Instant>,
}

impl PipePool {
    /// Creates a pool that opens pipes on demand.
    pub(crate) fn new(budget: PipeBudget, now: Instant) -> Rc<Self> {
        Rc::new(Self {
            free: RefCell::default(),
            open: Cell::new(0),
            open_slots: Cell::new(0),
            budget,
            spare: Cell::new(0),
            no_pipe_before: Cell::new(None),
            trim_at: Cell::new(None),
            now: Cell::new(now),
        })
    }

    /// Takes an empty pipe. `None` if the budget is spent or the kernel provides no useful pipe: the caller copies then.
    pub(super) fn take(self: &Rc<Self>) -> Option<PipeLease> {
        let pooled = self.free.borrow_mut().pop();
        self.spare.set(self.spare.get().min(self.free.borrow().len()));
        let pipe = pooled.or_else(|| self.open_one())?;
        Some(PipeLease { pipe: Some(pipe), level: 0, pool: Rc::clone(self) })
    }

    fn open_one(&self) -> Option<Pipe> {
        let left = self.budget.slots.saturating_sub(self.open_slots.get());
        if self.open.get() >= self.budget.pipes || left < LEAST_SLOTS {
            return None;
        }
        let now = self.now.get();
        if self.no_pipe_before.get().is_some_and(|then| now < then) {
            return None;
        }
        // Large pipes first, since most streams need one at a time; the last pipe gets the remaining slots, rounded down to a
        // power of two.
        let wanted = MOST_SLOTS.min(1 << left.ilog2());
        match Pipe::open(wanted).ok().filter(|pipe| pipe.slots() >= LEAST_SLOTS) {
            Some(pipe) => {
                self.open.set(self.open.get() + 1);
                self.open_slots.set(self.open_slots.get() + pipe.slots());
                if self.trim_at.get().is_none() {
                    self.trim_at.set(Some(now + KEEP));
                }
                Some(pipe)
            }
            None => {
                self.no_pipe_before.set(Some(now + RETRY_AFTER));
                None
            }
        }
    }

    fn put_back(&self, pipe: Pipe) {
        self.free.borrow_mut().push(pipe);
    }

    fn forget(&self, pipe: Pipe) {
        self.open.set(self.open.get() - 1);
        self.open_slots.set(self.open_slots.get() - pipe.slots());
        drop(pipe);
    }

    /// Closes the pipes that were not needed since the last call.
    fn trim(&self) {
        let unneeded = {
            let mut free = self.free.borrow_mut();
            let kept = free.len().saturating_sub(self.spare.get());
            free.split_off(kept)
        };
        unneeded.into_iter().for_each(|pipe| self.forget(pipe));
        self.spare.set(self.free.borrow().len());
    }

    /// Trims the pool if that is due. `now` also becomes the time for opening pipes until the next call.
    pub(super) fn on_time(&self, now: Instant) {
        self.now.set(now);
        if self.trim_at.get().is_some_and(|at| at <= now) {
            self.trim();
            self.trim_at.set((self.open.get() > 0).then_some(now + KEEP));
        }
    }

    /// When the next trim is due.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.trim_at.get()
    }
}

/// A pipe with the number of bytes in it. It returns to the pool when dropped empty, and is closed when dropped with bytes in
/// it.
#[derive(Debug)]
pub(super) struct PipeLease {
    pipe: Option<Pipe>,
    level: usize,
    pool: Rc<PipePool>,
}

impl PipeLease {
    /// The pipe and its level, which the caller must update.
    pub(super) fn parts(&mut self) -> Option<(&Pipe, &mut usize)> {
        self.pipe.as_ref().map(|pipe| (pipe, &mut self.level))
    }
}

impl Drop for PipeLease {
    fn drop(&mut self) {
        match self.pipe.take() {
            Some(pipe) if self.level == 0 => self.pool.put_back(pipe),
            Some(pipe) => self.pool.forget(pipe),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(pipes: usize, slots: usize) -> Rc<PipePool> {
        PipePool::new(PipeBudget { pipes, slots }, Instant::now())
    }

    #[test]
    fn the_limit_holds_and_an_empty_pipe_comes_back() {
        let pool = pool(1, usize::MAX);
        let lease = pool.take().unwrap();
        assert!(pool.take().is_none());
        drop(lease);
        assert!(pool.take().is_some());
    }

    #[test]
    fn a_pipe_with_bytes_left_is_closed_and_makes_room_for_another() {
        let pool = pool(1, usize::MAX);
        let mut lease = pool.take().unwrap();
        *lease.parts().unwrap().1 = 7;
        drop(lease);
        assert!(pool.free.borrow().is_empty());
        assert_eq!(pool.take().unwrap().level, 0);
    }

    #[test]
    fn a_limit_of_zero_gives_none() {
        assert!(pool(0, usize::MAX).take().is_none());
    }

    #[test]
    fn pipes_get_smaller_as_the_slots_run_out_and_none_is_useless() {
        let pool = pool(64, 300);
        let leases: Vec<PipeLease> = std::iter::from_fn(|| pool.take()).collect();
        let slots: Vec<usize> =
            leases.iter().map(|lease| lease.pipe.as_ref().map_or(0, Pipe::slots)).collect();
        assert_eq!(slots, [256, 32]);
        drop(leases);
        assert!(pool.take().is_some_and(|lease| lease.pipe.is_some()));
    }

    #[test]
    fn pipes_that_nobody_needs_are_closed() {
        let pool = pool(8, usize::MAX);
        let mut now = pool.now.get();
        let mut pass = |time: Duration| {
            now += time;
            pool.on_time(now);
        };
        let mut leases: Vec<PipeLease> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(pool.open.get(), 8);
        leases.truncate(2);
        (0..3).for_each(|_| pass(KEEP));
        assert_eq!(pool.open.get(), 2, "those in use stay");
        drop(leases);
        // One pipe at a time from now on.
        for _ in 0..20 {
            drop(pool.take());
            pass(KEEP / 4);
        }
        assert_eq!(pool.open.get(), 1);
        (0..3).for_each(|_| pass(KEEP));
        assert_eq!((pool.open.get(), pool.open_slots.get()), (0, 0));
        assert_eq!(pool.next_deadline(), None);
    }
}
