//! Instructions of extended BPF (RFC 9669) that the programs here use.

use std::os::fd::AsFd;

use super::number;

pub(crate) const MOVE: u8 = 0xb7;
pub(crate) const MOVE_REGISTER: u8 = 0xbf;
pub(crate) const ADD: u8 = 0x07;
pub(crate) const SHIFT_LEFT: u8 = 0x67;
pub(crate) const OR_REGISTER: u8 = 0x4f;
pub(crate) const STORE_WORD: u8 = 0x62;
pub(crate) const STORE_REGISTER: u8 = 0x63;
pub(crate) const LOAD_BYTE: u8 = 0x71;
pub(crate) const LOAD_WORD: u8 = 0x61;
pub(crate) const LOAD_DOUBLE: u8 = 0x79;
pub(crate) const LOAD_WIDE: u8 = 0x18;
pub(crate) const JUMP: u8 = 0x05;
pub(crate) const JUMP_IF_EQUAL: u8 = 0x15;
pub(crate) const JUMP_IF_DIFFERENT: u8 = 0x5d;
pub(crate) const CALL: u8 = 0x85;
pub(crate) const EXIT: u8 = 0x95;

/// `BPF_PSEUDO_MAP_FD` as the source of a wide load: the number is a map's descriptor.
const MAP_DESCRIPTOR: u8 = 1;

/// `bpf_map_lookup_elem(map, key)`: returns a pointer to the value, or 0.
pub(crate) const LOOK_UP: i32 = 1;
/// `bpf_skb_load_bytes_relative(packet, offset, to, length, from)`: returns 0 or an error. Since Linux 4.18.
pub(crate) const LOAD_PACKET: i32 = 68;
/// `BPF_HDR_START_NET`: offsets count from the network header, independent of where the packet's start has moved.
pub(crate) const FROM_NETWORK_HEADER: i32 = 1;

/// Register of the virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Register {
    /// Return value of a helper, and of the program when it exits.
    Answer = 0,
    /// First argument of helpers; the program's context (the packet, for a socket filter) at its start.
    First = 1,
    Second = 2,
    Third = 3,
    Fourth = 4,
    Fifth = 5,
    /// The first register that helper calls preserve.
    Sixth = 6,
    Seventh = 7,
    Eighth = 8,
    /// The end of the program's stack.
    Frame = 10,
}

/// `struct bpf_insn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    pub(crate) code: u8,
    registers: u8,
    pub(crate) offset: i16,
    pub(crate) immediate: i32,
}

impl Instruction {
    const fn new(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Self {
        // Two bit fields, whose order in the byte depends on the machine's byte order.
        let registers = if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
        Self { code, registers, offset, immediate }
    }

    /// `to = value`
    pub(crate) const fn set(to: Register, value: i32) -> Self {
        Self::new(MOVE, to as u8, 0, 0, value)
    }

    /// `to = from`
    pub(crate) const fn copy(to: Register, from: Register) -> Self {
        Self::new(MOVE_REGISTER, to as u8, from as u8, 0, 0)
    }

    /// `to += value`
    pub(crate) const fn add(to: Register, value: i32) -> Self {
        Self::new(ADD, to as u8, 0, 0, value)
    }

    /// `to <<= bits`
    pub(crate) const fn shift_left(to: Register, bits: i32) -> Self {
        Self::new(SHIFT_LEFT, to as u8, 0, 0, bits)
    }

    /// `to |= from`
    pub(crate) const fn or(to: Register, from: Register) -> Self {
        Self::new(OR_REGISTER, to as u8, from as u8, 0, 0)
    }

    /// `to = frame + offset`, in two instructions.
    pub(crate) const fn set_to_stack(to: Register, offset: i32) -> [Self; 2] {
        [Self::copy(to, Register::Frame), Self::add(to, offset)]
    }

    /// `to = map`, in two instructions.
    pub(crate) fn set_to_map(to: Register, map: &impl AsFd) -> [Self; 2] {
        let wide = Self::new(LOAD_WIDE, to as u8, MAP_DESCRIPTOR, 0, number(map).cast_signed());
        [wide, Self::new(0, 0, 0, 0, 0)]
    }

    /// `*(u32 *)(frame + offset) = value`
    pub(crate) const fn store_word(offset: i16, value: i32) -> Self {
        Self::new(STORE_WORD, Register::Frame as u8, 0, offset, value)
    }

    /// `*(u32 *)(frame + offset) = from`
    pub(crate) const fn store(offset: i16, from: Register) -> Self {
        Self::new(STORE_REGISTER, Register::Frame as u8, from as u8, offset, 0)
    }

    /// `to = *(size *)(frame + offset)`; the size is that of [`LOAD_WORD`] or [`LOAD_DOUBLE`].
    pub(crate) const fn load(size: u8, to: Register, offset: i16) -> Self {
        Self::load_at(size, to, Register::Frame, offset)
    }

    /// `to = *(size *)(base + offset)`; the size is that of [`LOAD_BYTE`], [`LOAD_WORD`] or [`LOAD_DOUBLE`].
    pub(crate) const fn load_at(size: u8, to: Register, base: Register, offset: i16) -> Self {
        Self::new(size, to as u8, base as u8, offset, 0)
    }

    /// Skips `skipped` instructions.
    pub(crate) const fn skip(skipped: i16) -> Self {
        Self::new(JUMP, 0, 0, skipped, 0)
    }

    /// Skips `skipped` instructions if `register` equals `value`.
    pub(crate) const fn skip_if_equal(register: Register, value: i32, skipped: i16) -> Self {
        Self::new(JUMP_IF_EQUAL, register as u8, 0, skipped, value)
    }

    /// Skips `skipped` instructions if the registers differ.
    pub(crate) const fn skip_if_different(one: Register, other: Register, skipped: i16) -> Self {
        Self::new(JUMP_IF_DIFFERENT, one as u8, other as u8, skipped, 0)
    }

    /// `answer = helper(first, ..)`
    pub(crate) const fn call(helper: i32) -> Self {
        Self::new(CALL, 0, 0, 0, helper)
    }

    /// Ends the program; the return value is in [`Register::Answer`].
    pub(crate) const fn exit() -> Self {
        Self::new(EXIT, 0, 0, 0, 0)
    }

    /// The destination and the source register.
    #[cfg(test)]
    pub(crate) fn registers(self) -> [usize; 2] {
        let [low, high] = [usize::from(self.registers & 0xf), usize::from(self.registers >> 4)];
        if cfg!(target_endian = "little") { [low, high] } else { [high, low] }
    }
}
