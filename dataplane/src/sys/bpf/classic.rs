//! Opcodes of classic BPF (bpf(4), linux/filter.h) that socket filters use.

pub(crate) use libc::sock_filter as Instruction;

/// Maximum length of a program (BPF_MAXINSNS).
pub(crate) const LONGEST: usize = 4096;
/// Base of offsets from the network header (SKF_NET_OFF), independent of where the transport layer has moved the
/// packet's start.
pub(crate) const NETWORK_HEADER: u32 = -0x0010_0000_i32 as u32;

/// A = the word at k.
pub(crate) const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
/// A = the byte at k.
pub(crate) const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
/// A = A and k.
pub(crate) const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
/// Skip jt instructions if A is k, else jf.
pub(crate) const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
/// Skip k instructions.
pub(crate) const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
/// Skip jt instructions if A >= k, else jf.
pub(crate) const JUMP_IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
/// Keep the first k bytes of the packet; 0 = drop it.
pub(crate) const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
