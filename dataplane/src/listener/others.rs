//! Where TCP sockets of this thread's network namespace listen, whoever has them (proc_pid_net(5)).

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The state of a listening socket (include/net/tcp_states.h).
const LISTEN: &str = "0A";

/// Every address and port. Nothing of a family that this kernel does not have.
pub(super) fn listening() -> BTreeSet<SocketAddr> {
    ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"].into_iter().flat_map(of_file).collect()
}

fn of_file(path: &str) -> Vec<SocketAddr> {
    let Ok(file) = File::open(path) else { return Vec::new() };
    let rows = BufReader::new(file).lines().skip(1).map_while(Result::ok);
    // Listening sockets come first (tcp_seq_start in net/ipv4/tcp_ipv4.c): of connections there may be many.
    rows.map_while(|row| row_of(&row)).collect()
}

/// `sl local_address rem_address st ...`; none for a row of another state.
fn row_of(row: &str) -> Option<SocketAddr> {
    let mut fields = row.split_ascii_whitespace().skip(1);
    let local = fields.next()?;
    if fields.nth(1)? != LISTEN {
        return None;
    }
    let (ip, port) = local.split_once(':')?;
    Some(SocketAddr::new(address(ip)?, u16::from_str_radix(port, 16).ok()?))
}

/// Words of 32 bits as they lie in memory, each printed as a number.
fn address(hex: &str) -> Option<IpAddr> {
    let word = |index: usize| {
        let digits = hex.get(8 * index..8 * index + 8)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    if hex.len() == 8 {
        return word(0).map(|bytes| Ipv4Addr::from(bytes).into());
    }
    let mut bytes = [0; 16];
    for (index, chunk) in bytes.chunks_exact_mut(4).enumerate() {
        chunk.copy_from_slice(&word(index)?);
    }
    Some(IpAddr::from(bytes))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn sockets_that_listen_are_found_and_those_that_are_connected_are_not() {
        for ip in ["127.0.0.1", "0.0.0.0", "::1"] {
            let listener = TcpListener::bind((ip, 0)).unwrap();
            let addr = listener.local_addr().unwrap();
            let target = if ip == "::1" { "::1" } else { "127.0.0.1" };
            let client = TcpStream::connect((target, addr.port())).unwrap();
            let listening = listening();
            assert!(listening.contains(&addr), "{addr}");
            assert!(!listening.contains(&client.local_addr().unwrap()), "{addr}");
            drop(listener);
            assert!(!super::listening().contains(&addr), "{addr}");
        }
    }
}
