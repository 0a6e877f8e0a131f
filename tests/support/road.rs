//! Road to an API server: a relay of TCP connections that a test can cut, close and jam. It does not look at the
//! traffic, so that the same faults work for a real server with TLS.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::host::Host;

/// Relay that listens on a host and leads out of it.
pub struct Road<'h> {
    host: &'h Host,
    address: SocketAddr,
    to: SocketAddr,
    traffic: Arc<Traffic>,
    listener: Mutex<Option<TcpListener>>,
}

#[derive(Default)]
struct Traffic {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Both ends of every open connection.
    open: Vec<TcpStream>,
    /// Whether traffic is stopped.
    jammed: bool,
    /// Number of accepted connections.
    let_in: usize,
}

impl<'h> Road<'h> {
    /// Opens a road from a free port of the host's loopback to `to`, which is reached from the test's own namespace.
    pub fn open(host: &'h Host, to: SocketAddr) -> Self {
        let listener = host.run(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let road = Self { host, address, to, traffic: Arc::default(), listener: Mutex::default() };
        road.let_in(listener);
        road
    }

    /// Address of its listener, inside the host.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Number of accepted connections.
    pub fn connections(&self) -> usize {
        self.traffic.lock(|state| state.let_in)
    }

    /// Ends every open connection at once. New ones are accepted.
    pub fn cut(&self) {
        for stream in self.traffic.lock(|state| std::mem::take(&mut state.open)) {
            // It may have ended already.
            drop(stream.shutdown(Shutdown::Both));
        }
    }

    /// Refuses new connections and ends open ones, as if the server were down.
    pub fn close(&self) {
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(listener) = listener {
            // Wakes the accepting thread. The port is free once both handles are dropped.
            drop(socket2::SockRef::from(&listener).shutdown(Shutdown::Both));
        }
        self.cut();
    }

    /// Accepts connections again on the same port.
    pub fn reopen(&self) {
        let address = self.address;
        let bind = || self.host.run(|| TcpListener::bind(address));
        let listener = super::patience::eventually("the port is free again", bind);
        self.let_in(listener);
    }

    /// Keeps all connections open, but moves no data: like a server that hangs, or a network that drops packets.
    pub fn jam(&self) {
        self.traffic.lock(|state| state.jammed = true);
    }

    /// Lets data move again.
    pub fn free(&self) {
        self.traffic.lock(|state| state.jammed = false);
        self.traffic.changed.notify_all();
    }

    fn let_in(&self, listener: TcpListener) {
        let accepting = listener.try_clone().expect("a second handle");
        *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(listener);
        let (traffic, to) = (Arc::clone(&self.traffic), self.to);
        std::thread::spawn(move || {
            // Ends when the road is closed, since accept then fails with EINVAL.
            while let Ok((inside, _)) = accepting.accept() {
                // If the server refuses, the road drops the client as well.
                let Ok(outside) = TcpStream::connect(to) else { continue };
                traffic.carry(inside, outside);
            }
        });
    }
}

impl Drop for Road<'_> {
    fn drop(&mut self) {
        self.free();
        self.close();
    }
}

impl Traffic {
    fn lock<T>(&self, action: impl FnOnce(&mut State) -> T) -> T {
        action(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn carry(self: &Arc<Self>, inside: TcpStream, outside: TcpStream) {
        let clone = |stream: &TcpStream| stream.try_clone().expect("a second handle");
        self.lock(|state| {
            state.let_in += 1;
            state.open.extend([clone(&inside), clone(&outside)]);
        });
        for (from, to) in [(clone(&inside), clone(&outside)), (outside, inside)] {
            let traffic = Arc::clone(self);
            std::thread::spawn(move || {
                // However it ends, close the other side.
                drop(traffic.move_all(&from, &to));
                drop(to.shutdown(Shutdown::Write));
            });
        }
    }

    fn move_all(&self, mut from: &TcpStream, mut to: &TcpStream) -> io::Result<()> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let length = from.read(&mut buffer)?;
            if length == 0 {
                return Ok(());
            }
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let free = self.changed.wait_while(state, |state| state.jammed);
            drop(free.unwrap_or_else(PoisonError::into_inner));
            to.write_all(&buffer[..length])?;
        }
    }
}
