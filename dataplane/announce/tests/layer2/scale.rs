//! Many addresses at once, and none to speak of at rest.

use std::collections::BTreeSet;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use sheave_announce::Layer2Options;
use socket2::{Domain, Type};

use crate::network::{Gateway, Network};
use crate::support::host::Host;
use crate::support::patience::{eventually, let_pass, patience};

fn many(count: u16) -> Vec<IpAddr> {
    let v4 = (0..count).map(|n| IpAddr::V4(Ipv4Addr::from(0x0a00_1000 + u32::from(n))));
    let v6 = (0..count).map(|n| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 1, n)));
    v4.chain(v6).collect()
}

#[test]
fn a_thousand_addresses_are_announced_and_withdrawn() {
    let network = Network::new(2);
    let [host, client] = network.machines.as_slice() else { unreachable!() };
    for (place, host) in [host, client].into_iter().enumerate() {
        host.ip(&[format!("addr add 10.0.0.{}/16 dev eth0", place + 1)]);
    }
    let gateway = Gateway::start(host, Layer2Options::default());
    for ips in many(1000).chunks(1000) {
        let ips = ips.to_vec();
        let count = ips.len();
        let seen = count_announced(client, ips[0].is_ipv4(), count);
        let (started, all) = (Instant::now(), ips.clone());
        let (added, refreshed) = gateway.run(move |layer2| {
            all.iter().for_each(|&ip| drop(layer2.announce(ip, &[], false).unwrap()));
            let added = started.elapsed();
            let started = Instant::now();
            layer2.refresh();
            (added, started.elapsed())
        });
        println!("{count} addresses: added in {added:?}, refreshed in {refreshed:?}");
        let present = || {
            let text = host.finish("ip", &["-o", "addr"]).expect_success();
            text.lines().filter(|line| line.contains("deprecated")).count()
        };
        eventually("all are there", || if present() == count { Ok(()) } else { Err(present()) });
        println!(
            "the last one was seen by a neighbour {:?} after the first call",
            seen.join().unwrap() - started
        );
        let started = Instant::now();
        let withdrawn = gateway.run(move |layer2| {
            ips.iter().for_each(|&ip| layer2.withdraw(ip));
            started.elapsed()
        });
        println!("withdrawn in {withdrawn:?}");
        eventually("none is left", || match present() {
            0 => Ok(()),
            left => Err(left),
        });
    }
    // The kernel is not waited for as long as it takes with all.
    let others: Vec<String> =
        gateway.events().into_iter().filter(|event| !event.starts_with("Announced")).collect();
    assert_eq!(others, [] as [&str; 0]);
}

/// Counts the addresses that are announced; when the last one was seen.
fn count_announced(host: &Host, v4: bool, count: usize) -> std::thread::JoinHandle<Instant> {
    let (ready, go) = std::sync::mpsc::channel();
    let counting = host.spawn(move || {
        let kind = if v4 { nix::libc::ETH_P_ARP } else { nix::libc::ETH_P_IPV6 } as u16;
        let protocol = socket2::Protocol::from(i32::from(kind.to_be()));
        let socket = socket2::Socket::new(Domain::PACKET, Type::RAW, Some(protocol)).unwrap();
        socket.set_recv_buffer_size(8 << 20).unwrap();
        socket.set_read_timeout(Some(patience(10.0))).unwrap();
        ready.send(()).unwrap();
        let (mut found, mut frame) = (BTreeSet::new(), [0; 128]);
        while found.len() < count {
            let length = (&socket).read(&mut frame).expect("more are announced");
            let frame = &frame[..length];
            // Gratuitous ARP, or a neighbour advertisement to all.
            if v4 && frame[28..32] == frame[38..42] {
                found.insert(frame[28..32].to_vec());
            } else if !v4 && frame[..6] == [0x33, 0x33, 0, 0, 0, 1] && frame[54] == 136 {
                found.insert(frame[62..78].to_vec());
            }
        }
        Instant::now()
    });
    go.recv().unwrap();
    counting
}

/// What an idle gateway writes: the renewal of its address, once a second, and of what the kernel does not answer, every 20 s.
#[test]
fn at_rest_nothing_is_sent_but_renewals() {
    let network = Network::new(1);
    let host = &network.machines[0];
    let process = crate::network::process(host, &["192.0.2.100"]);
    eventually("it is there", || if process.stdout().is_empty() { Err("not yet") } else { Ok(()) });
    // The announcements of the first seconds.
    let_pass(Duration::from_secs(6));
    let id = process.id().to_string();
    let mut trace = host.start("strace", &["-f", "-e", "trace=sendto,sendmsg,sendmmsg", "-p", &id]);
    let_pass(Duration::from_secs(4));
    trace.signal(nix::sys::signal::Signal::SIGINT);
    trace.wait();
    let calls = trace.stderr();
    // Behind the number of the thread, since there are several.
    let is_call = |line: &&str| line.rsplit("] ").next().is_some_and(|call| call.starts_with("send"));
    let sent: Vec<&str> = calls.lines().filter(is_call).collect();
    let is_address = |line: &&&str| line.contains("RTM_NEWADDR") || line.contains("nlmsg_type=0x14");
    let (addresses, others): (Vec<&str>, Vec<&str>) =
        sent.iter().copied().partition(|line| is_address(&line));
    assert!((3..=5).contains(&addresses.len()), "{sent:#?}");
    // What keeps the kernel from answering is renewed, too, but seldom.
    assert!(others.len() <= 1, "{sent:#?}");
}
