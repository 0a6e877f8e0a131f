//! TCP servers and clients with a deadline on every call.
//!
//! A server answers each connection on a new thread, which ends with the connection.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::host::Host;
use super::patience::{eventually, io_deadline};
use super::world::{Family, World};

/// Listening server. It stops accepting when dropped.
pub struct Server {
    addr: SocketAddr,
    listener: TcpListener,
    accepted: Arc<AtomicUsize>,
}

impl Server {
    /// Listens on a host. `serve` gets each connection, and its errors end only that connection.
    pub fn start(
        host: &Host,
        addr: SocketAddr,
        serve: impl Fn(TcpStream) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = host
            .run(|| TcpListener::bind(addr))
            .unwrap_or_else(|error| panic!("cannot listen on {addr}: {error}"));
        let accepted = Arc::new(AtomicUsize::new(0));
        let (count, serve) = (Arc::clone(&accepted), Arc::new(serve));
        let accepting = listener.try_clone().expect("a second handle");
        host.spawn(move || {
            // Ends when `Drop` shuts the socket down, since accept then fails with EINVAL.
            while let Ok((stream, _)) = accepting.accept() {
                count.fetch_add(1, Ordering::SeqCst);
                let serve = Arc::clone(&serve);
                std::thread::spawn(move || patient(&stream).and_then(|()| serve(stream)));
            }
        });
        Self { addr, listener, accepted }
    }

    /// Sends each client its name and the client's address, then echoes.
    pub fn who_am_i(host: &Host, addr: SocketAddr, name: &str) -> Self {
        let name = name.to_owned();
        Self::start(host, addr, move |mut stream| {
            writeln!(stream, "{name} {}", stream.peer_addr()?)?;
            echo(stream)
        })
    }

    /// Starts a [`Server::who_am_i`] on every backend, named `backend-0`, `backend-1` and so on.
    pub fn on_every_backend(world: &World, family: Family, port: u16) -> Vec<Self> {
        let start = |(index, host)| {
            Self::who_am_i(host, SocketAddr::new(family.backend(index), port), &format!("backend-{index}"))
        };
        (0..).zip(&world.backends).map(start).collect()
    }

    /// Sends back what it receives.
    pub fn echo(host: &Host, addr: SocketAddr) -> Self {
        Self::start(host, addr, echo)
    }

    /// Sends zeros until the client closes.
    pub fn endless(host: &Host, addr: SocketAddr) -> Self {
        Self::start(host, addr, |mut stream| {
            loop {
                stream.write_all(&[0; 65536])?;
            }
        })
    }

    /// Hands each connection to the test.
    pub fn handing_over(host: &Host, addr: SocketAddr) -> (Self, Receiver<TcpStream>) {
        let (give, take) = channel();
        let server = Self::start(host, addr, move |stream| give.send(stream).map_err(io::Error::other));
        (server, take)
    }

    /// Listen address.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Number of connections so far.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(SockRef::from(&self.listener).shutdown(Shutdown::Both));
    }
}

/// Server that answered, and the client it saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Name of the server.
    pub name: String,
    /// Client address as seen by the server.
    pub peer: SocketAddr,
}

impl Answer {
    /// Parses `name peer`.
    pub fn parse(line: &str) -> io::Result<Self> {
        let parsed = line
            .trim_end()
            .split_once(' ')
            .and_then(|(name, peer)| Some(Self { name: name.to_owned(), peer: peer.parse().ok()? }));
        parsed.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("not an answer: {line:?}")))
    }
}

/// Waits until connections are refused.
pub fn until_refused(host: &Host, to: SocketAddr) {
    eventually(&format!("{to} refuses"), || match host.run(|| connect(to)) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

/// Connects with the usual deadline. The calling thread must be inside the right host.
pub fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    connect_from(None, to, io_deadline())
}

/// Connects from an address of the host, within `limit`.
pub fn connect_from(from: Option<IpAddr>, to: SocketAddr, limit: Duration) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    if let Some(from) = from {
        socket.bind(&SocketAddr::new(from, 0).into())?;
    }
    socket.connect_timeout(&to.into(), limit)?;
    let stream = TcpStream::from(socket);
    patient(&stream)?;
    Ok(stream)
}

/// One exchange with a [`Server::who_am_i`]: a new connection, the greeting, an echo, and the close.
pub fn ask(to: SocketAddr) -> io::Result<Answer> {
    ask_on(connect(to)?)
}

/// Like [`ask`], from an address of the host.
pub fn ask_from(from: IpAddr, to: SocketAddr) -> io::Result<Answer> {
    ask_on(connect_from(Some(from), to, io_deadline())?)
}

/// Reads the greeting of a [`Server::who_am_i`] and resets the connection, which leaves no port in TIME_WAIT.
pub fn greet_from(from: IpAddr, to: SocketAddr) -> io::Result<Answer> {
    let Conversation { stream, with } = Conversation::open_from(from, to)?;
    reset(stream);
    Ok(with)
}

/// One exchange on an open connection.
pub fn ask_on(mut stream: TcpStream) -> io::Result<Answer> {
    stream.write_all(b"?")?;
    stream.shutdown(Shutdown::Write).map_err(|error| match error.kind() {
        // The peer's reset arrived first (`inet_shutdown` in the kernel's net/ipv4/af_inet.c).
        io::ErrorKind::NotConnected => io::ErrorKind::ConnectionReset.into(),
        _ => error,
    })?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let greeting = text.strip_suffix("\n?").ok_or_else(|| {
        io::Error::new(io::ErrorKind::UnexpectedEof, format!("the answer is cut short: {text:?}"))
    })?;
    Answer::parse(greeting)
}

/// Connection to a [`Server::who_am_i`] that stays open.
pub struct Conversation {
    stream: TcpStream,
    /// Server at the other end.
    pub with: Answer,
}

impl Conversation {
    /// Connects and reads the greeting.
    pub fn open(to: SocketAddr) -> io::Result<Self> {
        Self::on(connect(to)?)
    }

    /// Like [`Conversation::open`], from an address of the host.
    pub fn open_from(from: IpAddr, to: SocketAddr) -> io::Result<Self> {
        Self::on(connect_from(Some(from), to, io_deadline())?)
    }

    /// Like [`Conversation::open`], on an existing connection.
    pub fn on(mut stream: TcpStream) -> io::Result<Self> {
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            line.extend(byte);
        }
        let with = Answer::parse(&String::from_utf8_lossy(&line))?;
        Ok(Self { stream, with })
    }

    /// Sends some bytes and reads their echo.
    pub fn say(&mut self, text: &str) -> io::Result<()> {
        self.stream.write_all(text.as_bytes())?;
        let mut echo = vec![0; text.len()];
        self.stream.read_exact(&mut echo)?;
        let same = echo == text.as_bytes();
        same.then_some(()).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the echo differs"))
    }

    /// Waits until the other side closes the connection: `Ok` if cleanly.
    pub fn ended(&mut self) -> io::Result<()> {
        match self.stream.read(&mut [0])? {
            0 => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "bytes that nobody asked for")),
        }
    }
}

/// Ends a connection with a reset instead of a FIN.
pub fn reset(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("a socket takes SO_LINGER");
    drop(stream);
}

fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = [0; 16384];
    loop {
        match stream.read(&mut buffer)? {
            0 => return stream.shutdown(Shutdown::Write),
            read => stream.write_all(buffer.get(..read).unwrap_or_default())?,
        }
    }
}

fn patient(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(io_deadline()))?;
    stream.set_write_timeout(Some(io_deadline()))
}
