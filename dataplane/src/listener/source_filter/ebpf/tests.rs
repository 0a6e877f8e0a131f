//! Tests that run programs like the kernel, with a plain list in place of the map. The end-to-end tests, which have the
//! privilege, check that the kernel accepts them.

use std::fs::File;
use std::net::IpAddr;

use proptest::prelude::*;

use super::*;
use crate::sys::bpf::instruction::{
    ADD, CALL, EXIT, JUMP_IF_DIFFERENT, JUMP_IF_EQUAL, LOAD_WIDE, MOVE, MOVE_REGISTER, STORE_WORD,
};
use sheave_model::AddressSet;

const STACK: usize = 512;

struct Machine<'a> {
    registers: [u64; 11],
    stack: [u8; STACK],
    /// The packet from its network header on.
    packet: &'a [u8],
    listed: &'a [IpNet],
}

impl Machine<'_> {
    /// Runs the program; returns how much of the packet passes.
    fn run(&mut self, program: &[Instruction]) -> u32 {
        let mut at = 0;
        loop {
            let instruction = program[at];
            at += 1;
            let [to, from] = instruction.registers();
            let skip = usize::try_from(instruction.offset).unwrap_or_default();
            match instruction.code {
                MOVE => self.registers[to] = i64::from(instruction.immediate).cast_unsigned(),
                MOVE_REGISTER => self.registers[to] = self.registers[from],
                ADD => {
                    self.registers[to] =
                        self.registers[to].wrapping_add_signed(i64::from(instruction.immediate));
                }
                STORE_WORD => {
                    self.place(instruction.offset, 4).copy_from_slice(&instruction.immediate.to_ne_bytes());
                }
                LOAD_WORD => {
                    let word: [u8; 4] = self.place(instruction.offset, 4).try_into().unwrap();
                    self.registers[to] = u32::from_ne_bytes(word).into();
                }
                LOAD_DOUBLE => {
                    let double = self.place(instruction.offset, 8).try_into().unwrap();
                    self.registers[to] = u64::from_ne_bytes(double);
                }
                LOAD_WIDE => at += 1,
                JUMP_IF_EQUAL if self.registers[to] == i64::from(instruction.immediate).cast_unsigned() => {
                    at += skip;
                }
                JUMP_IF_DIFFERENT if self.registers[to] != self.registers[from] => at += skip,
                JUMP_IF_EQUAL | JUMP_IF_DIFFERENT => {}
                CALL => self.registers[0] = self.help(instruction.immediate),
                EXIT => return self.registers[0] as u32,
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    /// A part of the stack; offsets count from the frame's end.
    fn place(&mut self, offset: i16, length: usize) -> &mut [u8] {
        let start = STACK.checked_add_signed(offset.into()).unwrap();
        &mut self.stack[start..start + length]
    }

    fn help(&mut self, helper: i32) -> u64 {
        match helper {
            LOAD_PACKET => {
                assert_eq!(self.registers[5], 1, "from the network header");
                let [from, to, length] = [2, 3, 4].map(|register| self.registers[register] as usize);
                let Some(bytes) = self.packet.get(from..from + length) else { return u64::MAX };
                self.stack[to..to + length].copy_from_slice(bytes);
                0
            }
            LOOK_UP => {
                let key = self.registers[2] as usize;
                let prefix = u32::from_ne_bytes(self.stack[key..key + 4].try_into().unwrap());
                let source: IpAddr = match prefix {
                    32 => <[u8; 4]>::try_from(&self.stack[key + 4..key + 8]).unwrap().into(),
                    128 => <[u8; 16]>::try_from(&self.stack[key + 4..key + 20]).unwrap().into(),
                    other => panic!("a key of {other} bits"),
                };
                u64::from(self.listed.iter().any(|cidr| cidr.contains(&source)))
            }
            other => panic!("helper {other}"),
        }
    }
}

/// How much of a packet passes.
fn passes(admitted: &AllowedSources, packet: &[u8]) -> u32 {
    let (listed, verdict) = admitted.listed();
    let program = admitted.program(&File::open("/dev/null").unwrap(), verdict.into());
    let mut registers = [0; 11];
    registers[Register::Frame as usize] = STACK as u64;
    Machine { registers, stack: [0; STACK], packet, listed: &listed }.run(&program)
}

fn packet(source: IpAddr, destination: IpAddr) -> Vec<u8> {
    let (mut packet, addresses) = match (source, destination) {
        (IpAddr::V4(from), IpAddr::V4(to)) => (vec![0xaa; 12], [from.octets(), to.octets()].concat()),
        (IpAddr::V6(from), IpAddr::V6(to)) => (vec![0xaa; 8], [from.octets(), to.octets()].concat()),
        mixed => panic!("{mixed:?}"),
    };
    packet.extend(addresses);
    packet
}

fn admits(admitted: &AllowedSources, source: IpAddr, own: IpAddr) -> bool {
    match passes(admitted, &packet(source, own)) {
        u32::MAX => true,
        0 => false,
        part => panic!("{part} bytes pass"),
    }
}

fn host(family: Family, number: u32) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(number.into()),
        Family::V6 => IpAddr::V6((u128::from(number) << 96 | 7).into()),
    }
}

#[test]
fn a_packet_without_a_whole_header_is_refused() {
    let admitted = AllowedSources::new(&AddressSet::all(), host(Family::V4, 1));
    assert_eq!(passes(&admitted, &[0x45; 19]), 0);
}

#[test]
fn sets_of_all_but_a_few_list_the_few() {
    let cidrs: Vec<IpNet> = (0..100).map(|n| IpNet::from(host(Family::V6, 1 << 20 | n))).collect();
    let set = AddressSet::from_cidrs(&cidrs);
    for set in [set.complement(), set] {
        assert_eq!(AllowedSources::new(&set, host(Family::V6, 1)).listed().0, cidrs);
    }
}

#[test]
fn the_program_fits_what_a_socket_pays_for() {
    let own = host(Family::V6, 1);
    let (_, verdict) = AllowedSources::new(&AddressSet::default().with(own), own).listed();
    let program = AllowedSources::new(&AddressSet::default().with(own), own)
        .program(&File::open("/dev/null").unwrap(), verdict.into());
    assert!(program.len() <= 32, "{} instructions", program.len());
}

proptest! {
    #[test]
    fn the_program_admits_exactly_the_set(
        v4: bool,
        numbers in prop::collection::vec((any::<u32>(), 0u8..=32), 0..30),
        own in any::<u32>(),
        own_too: bool,
        all_but: bool,
    ) {
        let family = if v4 { Family::V4 } else { Family::V6 };
        let own = host(family, own);
        let cidrs: Vec<IpNet> =
            numbers.iter().map(|&(number, length)| IpNet::new(host(family, number), length).unwrap()).collect();
        let set = AddressSet::from_cidrs(&cidrs);
        let set = if all_but { set.complement() } else { set };
        let set = if own_too { set.with(own) } else { set.without(own) };
        let admitted = AllowedSources::new(&set, own);
        let edges = cidrs.iter().flat_map(|cidr| [cidr.network(), cidr.broadcast()]);
        for source in edges.chain([own, host(family, 1), host(family, u32::MAX)]) {
            prop_assert_eq!(admits(&admitted, source, own), set.contains(source), "{} to {}", source, own);
        }
    }
}
