//! Connections that make one request and then stay idle.

use std::net::{Ipv4Addr, TcpStream};

use super::{exchange, open};
use crate::failure::Failure;
use crate::pattern;
use crate::ports::ECHO;

/// Length of the request that each connection makes.
const REQUEST: usize = 1024;

/// Open idle connections.
#[derive(Debug)]
pub(crate) struct Crowd(Vec<TcpStream>);

impl Crowd {
    /// Opens `count` connections and makes one request on each, so that a proxy has allocated everything for them.
    pub(crate) fn gather(address: Ipv4Addr, count: usize) -> Result<Self, Failure> {
        let mut crowd = Self(Vec::with_capacity(count));
        for _ in 0..count {
            crowd.0.push(open(address, ECHO)?);
        }
        crowd.ask(0)?;
        Ok(crowd)
    }

    /// Releases the connections for a load on them.
    pub(crate) fn into_streams(self) -> Vec<TcpStream> {
        self.0
    }

    /// Makes another request on each, to check that all are still served.
    pub(crate) fn disperse(mut self) -> Result<(), Failure> {
        self.ask(1)
    }

    fn ask(&mut self, sequence: u64) -> Result<(), Failure> {
        for (index, stream) in self.0.iter_mut().enumerate() {
            exchange(stream, pattern::position(index, sequence), REQUEST)?;
        }
        Ok(())
    }
}
