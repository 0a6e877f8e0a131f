//! Packets that the kernel dropped at listening sockets before a worker received them, because of a source filter or a full queue.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use socket2::Socket;

use crate::sys::sockets::dropped_packets;

/// Number of packets dropped at some sockets while they were counted.
#[derive(Debug, Default)]
pub struct KernelDrops {
    counted: Mutex<Counted>,
    /// Total over all frontends, to which this count is added.
    by_all: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Counted {
    packets: u64,
    /// The last count of each socket, without keeping it open.
    sockets: Vec<(Weak<Socket>, u32)>,
}

impl KernelDrops {
    /// Creates a count without sockets.
    pub(crate) fn new(by_all: Arc<AtomicU64>) -> Self {
        Self { counted: Mutex::default(), by_all }
    }

    /// Counts at exactly these sockets from now on. Packets that a socket dropped before, for another process, do not count.
    pub(crate) fn count_at<'a>(&self, sockets: impl IntoIterator<Item = &'a Arc<Socket>>) {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        self.read(&mut counted);
        let before = std::mem::take(&mut counted.sockets);
        counted.sockets = sockets
            .into_iter()
            .map(|socket| {
                let known = before.iter().find(|(known, _)| known.as_ptr() == Arc::as_ptr(socket));
                let last = known.map_or_else(|| dropped_packets(socket).unwrap_or(0), |(_, last)| *last);
                (Arc::downgrade(socket), last)
            })
            .collect();
    }

    /// Number of dropped packets, after asking the kernel once for each socket.
    pub fn packets(&self) -> u64 {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        self.read(&mut counted);
        counted.packets
    }

    /// Number of dropped packets when the kernel was last asked.
    pub fn last_packets(&self) -> u64 {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner).packets
    }

    fn read(&self, counted: &mut Counted) {
        let mut more = 0;
        for (socket, last) in &mut counted.sockets {
            let Some(now) = socket.upgrade().and_then(|socket| dropped_packets(socket).ok()) else {
                continue;
            };
            more += u64::from(now.wrapping_sub(*last));
            *last = now;
        }
        if more > 0 {
            counted.packets += more;
            self.by_all.fetch_add(more, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    /// A socket whose queue only has room for the first few of these datagrams.
    fn full(datagrams: u32) -> Arc<Socket> {
        let socket = Arc::new(Socket::from(UdpSocket::bind("127.0.0.1:0").unwrap()));
        flood(&socket, datagrams);
        socket
    }

    fn flood(socket: &Socket, datagrams: u32) {
        socket.set_recv_buffer_size(0).unwrap();
        let addr = socket.local_addr().unwrap().as_socket().unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..datagrams {
            sender.send_to(&[0; 1000], addr).unwrap();
        }
    }

    #[test]
    fn what_sockets_drop_counts_as_long_as_they_are_watched_and_stays() {
        let all = Arc::<AtomicU64>::default();
        let drops = KernelDrops::new(Arc::clone(&all));
        let (first, second) = (full(0), full(50));
        drops.count_at([&first]);
        assert_eq!(drops.packets(), 0);
        flood(&first, 100);
        let one = drops.packets();
        assert!((50..=100).contains(&one), "{one}");
        drops.count_at([&first, &second]);
        assert_eq!(drops.packets(), one, "what `second` dropped before");
        flood(&second, 100);
        let both = drops.packets();
        assert!(both >= one + 90, "{both}");
        flood(&second, 10);
        drops.count_at([]);
        assert_eq!(drops.packets(), both + 10, "counted before it was let go of");
        flood(&second, 10);
        assert_eq!((drops.packets(), all.load(Ordering::Relaxed)), (both + 10, both + 10));
    }

    #[test]
    fn a_closed_socket_takes_nothing_away() {
        let drops = KernelDrops::default();
        let socket = full(0);
        drops.count_at([&socket]);
        flood(&socket, 100);
        let packets = drops.packets();
        drop(socket);
        assert_eq!(drops.packets(), packets);
    }
}
