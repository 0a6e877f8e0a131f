//! The pipes of one worker: pooled, capped, and held by a connection only while bytes are in them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::sys::pipe::Pipe;

/// Pipes that no connection holds, and how many may exist.
#[derive(Debug)]
pub(crate) struct PipePool {
    free: RefCell<Vec<Pipe>>,
    open: Cell<usize>,
    limit: usize,
}

impl PipePool {
    /// A pool that opens pipes on demand, at most `limit`; 0 turns splicing off.
    pub(crate) fn new(limit: usize) -> Rc<Self> {
        Rc::new(Self { free: RefCell::default(), open: Cell::new(0), limit })
    }

    /// An empty pipe, or `None` if the limit is reached or the process has no descriptors left: then copy.
    pub(super) fn take(self: &Rc<Self>) -> Option<PipeLease> {
        let pooled = self.free.borrow_mut().pop();
        let pipe = match pooled {
            Some(pipe) => pipe,
            None if self.open.get() < self.limit => {
                let pipe = Pipe::open().ok()?;
                self.open.set(self.open.get() + 1);
                pipe
            }
            None => return None,
        };
        Some(PipeLease { pipe: Some(pipe), level: 0, pool: Rc::clone(self) })
    }
}

/// A pipe with the number of bytes in it. Returns to the pool when dropped empty; with bytes in it, it is closed.
#[derive(Debug)]
pub(super) struct PipeLease {
    pipe: Option<Pipe>,
    level: usize,
    pool: Rc<PipePool>,
}

impl PipeLease {
    /// The pipe itself, with its level, which the caller keeps true.
    pub(super) fn parts(&mut self) -> Option<(&Pipe, &mut usize)> {
        self.pipe.as_ref().map(|pipe| (pipe, &mut self.level))
    }
}

impl Drop for PipeLease {
    fn drop(&mut self) {
        match self.pipe.take() {
            Some(pipe) if self.level == 0 => self.pool.free.borrow_mut().push(pipe),
            _ => self.pool.open.set(self.pool.open.get() - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_holds_and_an_empty_pipe_comes_back() {
        let pool = PipePool::new(1);
        let lease = pool.take().unwrap();
        assert!(pool.take().is_none());
        drop(lease);
        assert!(pool.take().is_some());
    }

    #[test]
    fn a_pipe_with_bytes_left_is_closed_and_makes_room_for_another() {
        let pool = PipePool::new(1);
        let mut lease = pool.take().unwrap();
        *lease.parts().unwrap().1 = 7;
        drop(lease);
        assert!(pool.free.borrow().is_empty());
        assert_eq!(pool.take().unwrap().level, 0);
    }

    #[test]
    fn a_limit_of_zero_gives_none() {
        assert!(PipePool::new(0).take().is_none());
    }
}
