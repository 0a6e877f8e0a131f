//! Guest: a virtual machine that is a gateway of the segment, and can be stopped and continued as a hypervisor does it.
//!
//! Debian's kernel for clouds, an initramfs with busybox and the program, and a tap device on the bridge in place of the gateway's namespace.
//! A shell on a port of the guest takes commands. KVM where it boots the kernel, or else QEMU's own processor.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::segment::{Segment, gateway_address, on_segment};
use crate::support::patience::{eventually, let_pass, patience};
use crate::support::process::Process;
use crate::support::program;
use crate::support::tcp;
use crate::support::world::Family;

/// Variable with the folder of an unpacked kernel package of Debian.
const KERNEL: &str = "SHEAVE_TEST_GUEST_KERNEL";
/// Where the guest's shell listens.
const SHELL: u16 = 7000;
/// Modules, in the order in which they need each other.
const MODULES: [&str; 11] = [
    "drivers/virtio/virtio_ring",
    "drivers/virtio/virtio",
    "drivers/virtio/virtio_pci_legacy_dev",
    "drivers/virtio/virtio_pci_modern_dev",
    "drivers/virtio/virtio_pci",
    "net/core/failover",
    "drivers/net/net_failover",
    "drivers/net/virtio_net",
    "lib/libcrc32c",
    "net/netfilter/nfnetlink",
    "net/netfilter/nf_tables",
];

/// A machine that runs.
pub(crate) struct Guest {
    number: u8,
    accelerator: &'static str,
    qemu: Process,
    /// QEMU's monitor (QMP).
    monitor: BufReader<UnixStream>,
    folder: TempDir,
}

impl Guest {
    /// Boots a machine in the place of this gateway, which must not run.
    pub(crate) fn boot(segment: &Segment, number: u8, programs: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        make_initramfs(segment, number, programs, folder.path());
        segment.replace_port_by_tap(number);
        let kvm = fs::File::options().read(true).write(true).open("/dev/kvm").is_ok();
        let accelerators = if kvm { &["kvm", "tcg"][..] } else { &["tcg"] };
        for accelerator in accelerators {
            let seconds = if *accelerator == "kvm" { 10.0 } else { 90.0 };
            let started = start(segment, number, accelerator, folder.path());
            if let Some(qemu) = booted(started, seconds) {
                let monitor = UnixStream::connect(folder.path().join("monitor")).expect("QEMU listens");
                monitor.set_read_timeout(Some(patience(20.0))).expect("a socket takes a timeout");
                let monitor = BufReader::new(monitor);
                let mut guest = Self { number, accelerator, qemu, monitor, folder };
                guest.command("qmp_capabilities");
                println!("gw-{number} is a guest of QEMU ({accelerator})");
                return guest;
            }
            println!("the guest does not boot with {accelerator}");
        }
        panic!("the guest does not boot: see what QEMU printed");
    }

    /// Which processor it has: `kvm` or `tcg`.
    pub(crate) fn accelerator(&self) -> &'static str {
        self.accelerator
    }

    /// Stops the machine: its clocks stand still.
    pub(crate) fn pause(&mut self) {
        self.command("stop");
    }

    /// Continues it.
    pub(crate) fn resume(&mut self) {
        self.command("cont");
    }

    /// Address of its shell.
    fn shell(&self) -> SocketAddr {
        SocketAddr::new(gateway_address(Family::V4, self.number), SHELL)
    }

    /// Runs a script in the guest, and gives what it prints.
    pub(crate) fn run(&self, segment: &Segment, script: &str) -> String {
        let shell = self.shell();
        eventually("the guest runs a script", || {
            segment.client.run(|| {
                let mut stream = tcp::connect(shell)?;
                stream.write_all(format!("{script}\nexit\n").as_bytes())?;
                let mut output = String::new();
                stream.read_to_string(&mut output)?;
                Ok::<_, std::io::Error>(output)
            })
        })
    }

    /// Starts Sheave as a new process that never was fenced. QEMU's network card may send nothing more after a pause (the guest's kernel
    /// prints `NETDEV WATCHDOG`): then the machine begins anew.
    pub(crate) fn start_gateway(&mut self, segment: &Segment) {
        let shell = self.shell();
        let is_there = || tcp::connect_from(None, shell, patience(1.0)).is_ok();
        if !segment.client.run(|| (0..5).any(|_| is_there())) {
            println!("the guest sends nothing: it begins anew");
            self.command("system_reset");
        }
        let arguments = segment.arguments(self.number).join(" ");
        let script = format!("{STOP}; setsid /bin/sheave {arguments} >/run/log 2>&1 </dev/null & sleep 0.1");
        self.run(segment, &script);
    }

    /// What its process has logged.
    pub(crate) fn log(&self, segment: &Segment) -> String {
        self.run(segment, "cat /run/log")
    }

    /// Has QEMU do something, and waits until it has. Events come in between.
    fn command(&mut self, name: &str) {
        let line = format!("{{\"execute\": \"{name}\"}}\n");
        self.monitor.get_mut().write_all(line.as_bytes()).expect("QEMU reads");
        let mut answer = String::new();
        while !answer.contains("\"return\"") {
            assert!(!answer.contains("\"error\""), "QEMU refuses {name}: {answer}");
            answer.clear();
            let length = self.monitor.read_line(&mut answer).expect("QEMU answers");
            assert!(length > 0, "QEMU has ended: {} {}", self.qemu.stderr(), self.folder.path().display());
        }
    }
}

/// A gateway that ends as planned leaves no hold-down.
const STOP: &str = "killall -TERM sheave 2>/dev/null; while pidof sheave >/dev/null; do sleep 0.05; done";

/// The hardware address of a guest.
pub(crate) fn mac_of_guest(number: u8) -> [u8; 6] {
    [0x52, 0x54, 0, 5, 1, number]
}

fn start(segment: &Segment, number: u8, accelerator: &str, folder: &Path) -> Process {
    let path = |name: &str| folder.join(name).display().to_string();
    let mac = mac_of_guest(number).map(|byte| format!("{byte:02x}")).join(":");
    let (initramfs, monitor, kernel) =
        (path("initramfs"), path("monitor"), kernel_image().display().to_string());
    drop(fs::remove_file(&monitor));
    let (monitor, network, device) = (
        format!("unix:{monitor},server=on,wait=off"),
        format!("tap,id=segment,ifname=gw-{number},script=no,downscript=no"),
        format!("virtio-net-pci,netdev=segment,mac={mac},romfile="),
    );
    let arguments = [
        "-accel",
        accelerator,
        "-cpu",
        "max",
        "-smp",
        "1",
        "-m",
        "512",
        "-nodefaults",
        "-display",
        "none",
        "-serial",
        "stdio",
        "-kernel",
        &kernel,
        "-initrd",
        &initramfs,
        "-append",
        "console=ttyS0 quiet random.trust_cpu=on",
        "-netdev",
        &network,
        "-device",
        &device,
        "-qmp",
        &monitor,
    ];
    segment.start_on_bridge("qemu-system-x86_64", &arguments)
}

/// The machine, once it has said that it is ready; none if it has not in this time.
fn booted(mut qemu: Process, seconds: f64) -> Option<Process> {
    let started = std::time::Instant::now();
    while started.elapsed() < patience(seconds) {
        if qemu.stdout().contains("READY") {
            return Some(qemu);
        }
        let_pass(std::time::Duration::from_millis(100));
    }
    println!("{}{}", qemu.stdout(), qemu.stderr());
    qemu.signal(Signal::SIGKILL);
    qemu.wait();
    None
}

fn kernel_folder() -> PathBuf {
    let default = Path::new(program::PROJECT).join("target/guest-kernel");
    let folder = std::env::var_os(KERNEL).map_or(default, PathBuf::from);
    assert!(
        folder.join("boot").is_dir(),
        "no kernel for the guest in {}: tests/soak fetches it (see {KERNEL} in tests/README.md)",
        folder.display()
    );
    folder
}

/// The only entry of a folder whose name begins so.
fn only(folder: &Path, start: &str) -> PathBuf {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let fits =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start));
    paths.find(fits).unwrap_or_else(|| panic!("{}: nothing begins with {start:?}", folder.display()))
}

fn kernel_image() -> PathBuf {
    only(&kernel_folder().join("boot"), "vmlinuz-")
}

/// Writes `initramfs` into the folder: programs with their libraries, modules, what the gateway reads, and `init`.
fn make_initramfs(segment: &Segment, number: u8, programs: &[&str], folder: &Path) {
    let root = folder.join("root");
    for name in ["bin", "dev", "proc", "run", "sys", "tmp", "var/run", "modules"] {
        fs::create_dir_all(root.join(name)).expect("folders are made");
    }
    add_program("/bin/busybox", &root, "busybox");
    add_program(program::path(), &root, "sheave");
    for path in programs {
        add_program(path, &root, path.rsplit('/').next().expect("a name"));
    }
    let modules = only(&kernel_folder().join("lib/modules"), "").join("kernel");
    for name in MODULES {
        let file = modules.join(format!("{name}.ko"));
        let to = root.join("modules").join(file.file_name().expect("a file"));
        fs::copy(&file, to).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
    for folder in [segment.own_folder(number), segment.keys()] {
        let (root, folder) = (root.display(), folder.display());
        shell(&format!("mkdir -p {root}{folder} && cp -a {folder}/. {root}{folder}/"));
    }
    let init = root.join("init");
    fs::write(&init, init_script(number)).expect("a file is written");
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755)).expect("it is ours");
    shell(&format!("cd {} && find . | cpio --quiet -o -H newc >../initramfs", root.display()));
}

fn init_script(number: u8) -> String {
    let [v4, v6] = Family::BOTH.map(|family| gateway_address(family, number));
    let [via4, via6] = Family::BOTH.map(|family| on_segment(family, 0, 1));
    let names = MODULES.map(|path| path.rsplit('/').next().expect("a name")).join(" ");
    format!(
        "#!/bin/busybox sh\n\
         /bin/busybox --install -s /bin\nexport PATH=/bin\n\
         mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t tmpfs run /run\n\
         for module in {names}; do insmod /modules/$module.ko || echo \"no module $module\"; done\n\
         for file in default eth0; do echo 0 >/proc/sys/net/ipv6/conf/$file/accept_dad; done\n\
         ip link set lo up; ip link set eth0 up\n\
         ip addr add {v4}/16 dev eth0; ip addr add {v6}/64 dev eth0\n\
         ip route add default via {via4}; ip -6 route add default via {via6}\n\
         nc -ll -p {SHELL} -e /bin/sh &\n\
         echo READY\nwhile :; do sleep 3600; done\n"
    )
}

/// Copies a program and the libraries that it names.
fn add_program(path: &str, root: &Path, name: &str) {
    fs::copy(path, root.join("bin").join(name)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let listed = Command::new("ldd").arg(path).output().expect("ldd can be run");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    for library in listed.split_whitespace().filter(|word| word.starts_with('/')) {
        let to = root.join(library.trim_start_matches('/'));
        fs::create_dir_all(to.parent().expect("a folder")).expect("folders are made");
        fs::copy(library, to).unwrap_or_else(|error| panic!("{library}: {error}"));
    }
}

fn shell(script: &str) {
    let status = Command::new("sh").args(["-ec", script]).status().expect("there is a shell");
    assert!(status.success(), "{script}: {status}");
}
