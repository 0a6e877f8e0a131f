//! Tests of the pipes for splicing streams: they are released when not needed, and not used if the kernel only gives useless ones.

use std::fs::{self, File};
use std::io::Read as _;
use std::net::TcpStream;
use std::os::fd::OwnedFd;

use nix::fcntl::{FcntlArg, fcntl};
use nix::unistd::pipe;

use crate::support::gateway::{Gateway, Settings};
use crate::support::manifest::{App, at};
use crate::support::patience::eventually;
use crate::support::tcp::{self, Server};
use crate::support::world::{Family, World};

for_both_families!(pipes_are_given_back_after_streams_stalled, useless_pipes_are_not_kept);

/// Streams whose clients read a little and then stop: each has bytes in a pipe, and about 19 MB in the kernel's queues. Tests that run in
/// parallel need their share of `net.ipv4.tcp_mem`, which 120 streams exhausted.
const STALLED: usize = 30;

/// A gateway in front of an endless stream.
fn streaming<'w>(world: &'w World, family: Family, settings: &Settings) -> (Gateway<'w>, Server) {
    let server = Server::endless(world.backend(0), at(family.backend(0), 9001));
    let app = App::new("stream", &[family.vip(0)]).tcp(80, 9001).ready(family.backend(0));
    (Gateway::start_with(world, &[app], settings), server)
}

fn stalled(world: &World, family: Family, bytes: usize) -> TcpStream {
    let mut stream = world.client.run(|| tcp::connect(at(family.vip(0), 80))).unwrap();
    stream.read_exact(&mut vec![0; bytes]).unwrap();
    stream
}

fn pipes_are_given_back_after_streams_stalled(family: Family) {
    let world = World::new(1);
    let (gateway, _server) = streaming(&world, family, &Settings::default());
    let before = gateway.open_files();
    let streams: Vec<TcpStream> = (0..STALLED).map(|_| stalled(&world, family, 1 << 20)).collect();
    eventually(
        "stalled streams are in pipes",
        || if pipes(&gateway).is_empty() { Err("none") } else { Ok(()) },
    );
    drop(streams);
    eventually("all pipes are closed", || match gateway.open_files() {
        now if now <= before => Ok(()),
        now => Err(format!("{now} files in place of {before}")),
    });
}

/// A user with `pipe-user-pages-soft` pages in pipes gets pipes of only two slots, unless it is privileged.
fn useless_pipes_are_not_kept(family: Family) {
    let world = World::new(1);
    let Some(_taken) = take_all_pages() else { return };
    let settings = Settings { without: &["sys_resource", "sys_admin"], ..Settings::default() };
    let (gateway, _server) = streaming(&world, family, &settings);
    let _streams: Vec<TcpStream> = (0..4).map(|_| stalled(&world, family, 8 << 20)).collect();
    let sizes = pipes(&gateway);
    assert!(sizes.iter().all(|size| *size >= 64 << 10), "{sizes:?}");
}

/// Sizes in bytes of the gateway's open pipes.
fn pipes(gateway: &Gateway<'_>) -> Vec<i32> {
    let folder = format!("/proc/{}/fd", gateway.id());
    let of_traffic = |path: &std::path::Path| {
        let target = fs::read_link(path).ok()?;
        let is_stdio = path.file_name()?.to_str()?.parse::<u32>().ok()? < 3;
        (!is_stdio && target.to_str()?.starts_with("pipe:")).then_some(())
    };
    let size = |entry: fs::DirEntry| {
        of_traffic(&entry.path())?;
        let pipe = File::options().read(true).open(entry.path()).ok()?;
        fcntl(pipe, FcntlArg::F_GETPIPE_SZ).ok()
    };
    fs::read_dir(folder).expect("the gateway runs").filter_map(|entry| size(entry.ok()?)).collect()
}

/// Pipes with all the pages that this user may have; `None` without a limit.
fn take_all_pages() -> Option<Vec<(OwnedFd, OwnedFd)>> {
    const PIPE: usize = 256;
    let limit: usize = fs::read_to_string("/proc/sys/fs/pipe-user-pages-soft").ok()?.trim().parse().ok()?;
    let open = |_| {
        let (read, write) = pipe().expect("a pipe");
        fcntl(&write, FcntlArg::F_SETPIPE_SZ(1 << 20)).expect("a privileged process has no limit");
        (read, write)
    };
    (limit > 0).then(|| (0..limit.div_ceil(PIPE)).map(open).collect())
}
