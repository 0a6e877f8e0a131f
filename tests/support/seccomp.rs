//! Seccomp filters for a gateway: refuse what older kernels lack, what profiles of container engines forbid, or what the profile
//! of `deploy` does not name (seccomp(2)).

mod profile;

use nix::libc;

pub use self::profile::{Otherwise, Profile};

/// System calls that fail.
#[derive(Clone, Copy, Debug)]
pub enum Refused {
    /// Every bpf(2), with this error.
    Bpf(i32),
    /// Loading of BPF programs, with this error; maps work.
    BpfPrograms(i32),
    /// `UDP_GRO` and `UDP_SEGMENT`, as before Linux 4.18.
    UdpBundles,
    /// Calls that the profile of `deploy` does not name, in this way.
    Unnamed(Otherwise),
}

/// Instruction of a classic BPF program (`struct sock_filter`).
#[derive(Clone, Copy, Debug)]
struct Instruction {
    code: u16,
    /// Number of instructions to skip if true, and if false.
    jumps: (u8, u8),
    value: u32,
}

/// `BPF_LD | BPF_W | BPF_ABS`, from `struct seccomp_data`.
const LOAD: u16 = 0x20;
/// `BPF_ALU | BPF_AND | BPF_K`.
const AND: u16 = 0x54;
/// `BPF_JMP | BPF_JEQ | BPF_K`.
const EQUAL: u16 = 0x15;
/// `BPF_RET | BPF_K`.
const RETURN: u16 = 0x06;
const ALLOW: u32 = 0x7fff_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const ERRNO: u32 = 0x0005_0000;
/// Offsets of the call's number and arguments. The lower half of an argument comes first on the supported machines.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

impl Instruction {
    fn load(offset: u32) -> Self {
        Self { code: LOAD, jumps: (0, 0), value: offset }
    }

    fn skip_unless(value: u32, skipped: u8) -> Self {
        Self { code: EQUAL, jumps: (0, skipped), value }
    }

    fn answer(value: u32) -> Self {
        Self { code: RETURN, jumps: (0, 0), value }
    }
}

/// Installs a classic program for seccomp (`struct sock_fprog`), given in hexadecimal, and executes the command that follows.
/// Perl is part of every Debian.
const SCRIPT: &str = r"
    my ($prctl, $program) = splice @ARGV, 0, 2;
    my $code = pack 'H*', $program;
    my $fprog = pack 'Sx![Q]P', length($code) / 8, $code;
    # PR_SET_NO_NEW_PRIVS, without which a filter takes CAP_SYS_ADMIN; PR_SET_SECCOMP, SECCOMP_MODE_FILTER.
    syscall($prctl, 38, 1, 0, 0, 0) == 0 or die qq(no_new_privs: $!\n);
    syscall($prctl, 22, 2, $fprog, 0, 0) == 0 or die qq(no filter for system calls: $!\n);
    exec { $ARGV[0] } @ARGV or die qq($ARGV[0]: $!\n);
";
/// `BPF_PROG_LOAD` of linux/bpf.h, the first argument of bpf(2).
const LOAD_PROGRAM: u32 = 5;

impl Refused {
    /// Command prefix that installs the filter.
    pub fn prefix(self) -> Vec<String> {
        let program = self.program().iter().map(Instruction::hex).collect();
        let script = ["perl", "-e", SCRIPT, "--"].map(str::to_owned);
        script.into_iter().chain([libc::SYS_prctl.to_string(), program]).collect()
    }

    fn program(self) -> Vec<Instruction> {
        // System call, index and value of the argument to refuse, and error.
        let (call, argument, errno) = match self {
            Self::Bpf(errno) => (libc::SYS_bpf, None, errno),
            Self::BpfPrograms(errno) => (libc::SYS_bpf, Some((0, LOAD_PROGRAM)), errno),
            // Refused by level, since the gateway sets no other UDP options.
            Self::UdpBundles => {
                let level = u32::try_from(libc::SOL_UDP).expect("a small number");
                (libc::SYS_setsockopt, Some((1, level)), libc::ENOPROTOOPT)
            }
            Self::Unnamed(otherwise) => return Profile::of_deploy().program(otherwise),
        };
        let condition = argument.map(|(index, value)| {
            [Instruction::load(ARGUMENTS + 8 * index), Instruction::skip_unless(value, 1)]
        });
        let condition: Vec<Instruction> = condition.into_iter().flatten().collect();
        let skipped = u8::try_from(condition.len() + 1).expect("a few");
        let number = u32::try_from(call).expect("a small number");
        let errno = u32::try_from(errno).expect("a small number");
        let mut program = vec![Instruction::load(NUMBER), Instruction::skip_unless(number, skipped)];
        program.extend(condition);
        program.extend([Instruction::answer(ERRNO | errno), Instruction::answer(ALLOW)]);
        program
    }
}

impl Instruction {
    fn hex(&self) -> String {
        let Self { code, jumps: (yes, no), value } = self;
        let bytes = [&code.to_ne_bytes()[..], &[*yes, *no], &value.to_ne_bytes()].concat();
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
