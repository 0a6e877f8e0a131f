//! A gateway whose kernel refuses what older kernels do not have, or what container engines' profiles forbid (seccomp(2)).

use nix::libc;

/// What fails.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refused {
    /// Every bpf(2), with this error.
    Bpf(i32),
    /// Loading BPF programs, with this error; there are maps.
    BpfPrograms(i32),
    /// `UDP_GRO` and `UDP_SEGMENT`, as before Linux 4.18.
    UdpBundles,
}

/// Installs a classic program for seccomp (`struct sock_fprog`) and becomes what is named behind it. Numbers of system calls and
/// of what an argument must be differ, so they are arguments; every Debian has Perl.
const SCRIPT: &str = r"
    my ($prctl, $call, $argument, $value, $errno) = splice @ARGV, 0, 5;
    my @program = (
        [0x20, 0, 0, 0],                                # the call's number
        [0x15, 0, $argument < 0 ? 1 : 3, $call],
        $argument < 0 ? () : (
            [0x20, 0, 0, 16 + 8 * $argument],
            [0x15, 0, 1, $value],
        ),
        [0x06, 0, 0, 0x00050000 | $errno],              # SECCOMP_RET_ERRNO
        [0x06, 0, 0, 0x7fff0000],                       # SECCOMP_RET_ALLOW
    );
    my $code = join '', map { pack 'SCCL', @$_ } @program;
    my $fprog = pack 'Sx![Q]P', scalar @program, $code;
    syscall($prctl, 22, 2, $fprog, 0, 0) == 0 or die qq(no filter for system calls: $!\n);
    exec { $ARGV[0] } @ARGV or die qq($ARGV[0]: $!\n);
";
/// `BPF_PROG_LOAD` of linux/bpf.h, the first argument of bpf(2).
const LOAD_PROGRAM: i64 = 5;

impl Refused {
    /// What stands before a command to run it so.
    pub(crate) fn prefix(self) -> Vec<String> {
        // The call, the argument by which it is refused and its value, and the error.
        let (call, argument, value, errno) = match self {
            Self::Bpf(errno) => (libc::SYS_bpf, -1, 0, errno),
            Self::BpfPrograms(errno) => (libc::SYS_bpf, 0, LOAD_PROGRAM, errno),
            // By the level: the gateway sets no other options of UDP itself.
            Self::UdpBundles => (libc::SYS_setsockopt, 1, libc::SOL_UDP.into(), libc::ENOPROTOOPT),
        };
        let numbers = [libc::SYS_prctl, call, argument, value, errno.into()].map(|n| n.to_string());
        let script = ["perl", "-e", SCRIPT, "--"].map(str::to_owned);
        script.into_iter().chain(numbers).collect()
    }
}
