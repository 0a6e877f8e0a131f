//! A gateway whose kernel refuses eBPF as container engines' profiles (seccomp(2)) or another kernel's verifier do.

use nix::libc;

/// What of bpf(2) fails, and with which error.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RefusedBpf {
    /// Every call.
    All(i32),
    /// Loading programs; there are maps.
    Programs(i32),
}

/// Installs a classic program for seccomp (`struct sock_fprog`) and becomes what is named behind it. Numbers of system calls and
/// of the command differ between machines, so they are arguments; every Debian has Perl.
const SCRIPT: &str = r"
    my ($prctl, $bpf, $command, $errno) = splice @ARGV, 0, 4;
    my @program = (
        [0x20, 0, 0, 0],                                # the call's number
        [0x15, 0, $command < 0 ? 1 : 3, $bpf],
        $command < 0 ? () : (
            [0x20, 0, 0, 16],                           # its first argument
            [0x15, 0, 1, $command],
        ),
        [0x06, 0, 0, 0x00050000 | $errno],              # SECCOMP_RET_ERRNO
        [0x06, 0, 0, 0x7fff0000],                       # SECCOMP_RET_ALLOW
    );
    my $code = join '', map { pack 'SCCL', @$_ } @program;
    my $fprog = pack 'Sx![Q]P', scalar @program, $code;
    syscall($prctl, 22, 2, $fprog, 0, 0) == 0 or die qq(no filter for system calls: $!\n);
    exec { $ARGV[0] } @ARGV or die qq($ARGV[0]: $!\n);
";
/// `BPF_PROG_LOAD` of linux/bpf.h.
const LOAD_PROGRAM: i32 = 5;

impl RefusedBpf {
    /// What stands before a command to run it so.
    pub(crate) fn prefix(self) -> Vec<String> {
        let (command, errno) = match self {
            Self::All(errno) => (-1, errno),
            Self::Programs(errno) => (LOAD_PROGRAM, errno),
        };
        let numbers = [libc::SYS_prctl, libc::SYS_bpf, command.into(), errno.into()].map(|n| n.to_string());
        let script = ["perl", "-e", SCRIPT, "--"].map(str::to_owned);
        script.into_iter().chain(numbers).collect()
    }
}
