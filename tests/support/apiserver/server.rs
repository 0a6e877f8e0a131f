//! Thread of the server: the listener, with stop and resume, and one task per connection.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc as std_mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use socket2::{Domain, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::handle::answer;
use super::shared::Shared;

/// Backlog for the bursts in which the clients of a whole suite connect.
const BACKLOG: i32 = 256;

/// Command to the thread, with a channel for the result.
#[derive(Debug)]
enum Command {
    Stop(std_mpsc::Sender<io::Result<()>>),
    Resume(std_mpsc::Sender<io::Result<()>>),
}

/// Running thread, which ends when dropped.
pub(super) struct Server {
    /// Listen address, which is kept while it is stopped.
    pub(super) address: SocketAddr,
    commands: Option<mpsc::UnboundedSender<Command>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on `address` in the network namespace of the calling thread.
    pub(super) fn start(address: SocketAddr, shared: Arc<Shared>) -> io::Result<Self> {
        let (commands, inbox) = mpsc::unbounded_channel();
        let (tell, started) = std_mpsc::channel();
        let body = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime.and_then(|runtime| Ok((Port::reserve(address)?, runtime))) {
                Ok((port, runtime)) => {
                    drop(tell.send(Ok(port.address)));
                    runtime.block_on(run(&port, &shared, inbox));
                }
                Err(error) => drop(tell.send(Err(error))),
            }
        };
        let thread = thread::Builder::new().name("api server".to_owned()).spawn(body)?;
        let address = started.recv().map_err(io::Error::other)??;
        let server = Self { address, commands: Some(commands), thread: Some(thread) };
        server.resume()?;
        Ok(server)
    }

    /// Closes the listener and all connections.
    pub(super) fn stop(&self) -> io::Result<()> {
        self.ask(Command::Stop)
    }

    /// Listens again.
    pub(super) fn resume(&self) -> io::Result<()> {
        self.ask(Command::Resume)
    }

    fn ask(&self, command: impl FnOnce(std_mpsc::Sender<io::Result<()>>) -> Command) -> io::Result<()> {
        let (tell, done) = std_mpsc::channel();
        let commands = self.commands.as_ref().expect("held until dropped");
        commands.send(command(tell)).map_err(io::Error::other)?;
        done.recv().map_err(io::Error::other)?
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.commands.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Port that stays reserved while there is no listener: a bound socket keeps it from being assigned to
/// others.
struct Port {
    address: SocketAddr,
    _reserved: Socket,
}

impl Port {
    fn reserve(address: SocketAddr) -> io::Result<Self> {
        let reserved = bound(address)?;
        let address = reserved.local_addr()?.as_socket().ok_or_else(|| io::Error::other("no IP address"))?;
        Ok(Self { address, _reserved: reserved })
    }

    fn listen(&self) -> io::Result<TcpListener> {
        let socket = bound(self.address)?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        TcpListener::from_std(socket.into())
    }
}

fn bound(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

async fn run(port: &Port, shared: &Arc<Shared>, mut inbox: mpsc::UnboundedReceiver<Command>) {
    let mut listener: Option<TcpListener> = None;
    let mut connections = JoinSet::new();
    loop {
        let accepted = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            command = inbox.recv() => match command {
                None => return,
                Some(Command::Stop(tell)) => {
                    listener = None;
                    connections.shutdown().await;
                    drop(tell.send(Ok(())));
                }
                Some(Command::Resume(tell)) => {
                    let listening = port.listen().map(|new| listener = Some(new));
                    drop(tell.send(listening));
                }
            },
            Ok((stream, _)) = accepted => {
                connections.spawn(serve(stream, Arc::clone(shared)));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    // Watch lines are small, and should not be delayed.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let own = shared.connection();
    let service = service_fn(|request| {
        let (shared, own) = (Arc::clone(&shared), Arc::clone(&own));
        async move { Ok::<_, Infallible>(answer(&shared, &own, request).await) }
    });
    let mut connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // Errors and disconnects of the client are ignored.
        _ = &mut connection => return,
        () = own.cut.notified() => {}
    }
    let stream = connection.into_parts().io.into_inner();
    // Closing with a linger time of zero sends a RST.
    drop(SockRef::from(&stream).set_linger(Some(Duration::ZERO)));
}
