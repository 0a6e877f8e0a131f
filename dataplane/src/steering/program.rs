//! The program in the kernel: which socket takes a new connection or a datagram of a frontend.
//!
//! It must not know how its maps are filled.

use std::os::fd::AsFd;

use super::entries::{FORWARD, IGNORE, KEY, LISTED, REFUSED};
use super::group::SINKS;
use crate::sys::ebpf::assembler::Assembler;
use crate::sys::ebpf::instruction::{Instruction, LOAD_BYTE, LOAD_WORD, LOOK_UP, Register};
use crate::sys::ebpf::socket_lookup::{
    ASSIGN, FAMILY, LOCAL_PORT, LOCAL_V4, LOCAL_V6, PASS, PROTOCOL, REFUSE, RELEASE, REMOTE_V4, REMOTE_V6,
    REPLACE,
};

/// What `bpftool prog` shows.
pub(super) const NAME: &str = "sheave_steering";

/// Where what is looked up begins on the stack: the frontend, and before it the client with its audience.
const FRONTEND: i16 = -(KEY as i16);
const CLIENT: i16 = FRONTEND - CLIENT_KEY;
/// Prefix length, audience, address.
const CLIENT_KEY: i16 = 4 + 4 + 16;
/// Where either address begins.
const LOCAL: i16 = FRONTEND;
const REMOTE: i16 = CLIENT + 8;
/// All of an audience's number and of an address.
const WHOLE: i32 = 32 + 128;
/// Words of an address.
const WORDS: i16 = 4;

/// What survives helpers.
const CONTEXT: Register = Register::Sixth;
/// Which socket: as [`super::group::Kind::index`] has it.
const SOCKET: Register = Register::Seventh;
const AUDIENCE: Register = Register::Eighth;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    V6,
    Addressed,
    Tcp,
    Refused,
    Listed,
    Ignored,
    Chosen,
    Passed,
}

/// Looks up the frontend in `entries`, its client in `audiences` where the entry says so, and assigns one of `sockets`.
/// Whatever is no frontend's goes on as ever.
pub(super) fn program(entries: &impl AsFd, audiences: &impl AsFd, sockets: &impl AsFd) -> Vec<Instruction> {
    let mut asm = Assembler::new();
    read_context(&mut asm);
    find_frontend(&mut asm, entries);
    find_client(&mut asm, audiences);
    assign(&mut asm, sockets);
    asm.finish()
}

/// Puts both addresses, port and protocol on the stack, and the kind of sockets in its register.
fn read_context(asm: &mut Assembler<Place>) {
    use Register::{First, Second};
    asm.write([Instruction::copy(CONTEXT, First), field(First, FAMILY), Instruction::set(SOCKET, 1)])
        .jump_if_equal(First, libc::AF_INET6, Place::V6)
        .write([Instruction::set(SOCKET, 0)])
        .write(mapped(LOCAL, LOCAL_V4))
        .write(mapped(REMOTE, REMOTE_V4))
        .jump(Place::Addressed)
        .place(Place::V6)
        .write(whole(LOCAL, LOCAL_V6))
        .write(whole(REMOTE, REMOTE_V6))
        .place(Place::Addressed)
        .write([field(First, PROTOCOL)])
        .jump_if_equal(First, libc::IPPROTO_TCP, Place::Tcp)
        .write([Instruction::add(SOCKET, 2)])
        .place(Place::Tcp)
        .write([Instruction::shift_left(First, 16), field(Second, LOCAL_PORT)])
        .write([Instruction::or(First, Second), Instruction::store(FRONTEND + 16, First)]);
}

/// Goes by the frontend's verdict; without an entry the program ends.
fn find_frontend(asm: &mut Assembler<Place>, entries: &impl AsFd) {
    use Register::{Answer, First, Second, Third};
    look_up(asm, entries, FRONTEND);
    asm.jump_if_equal(Answer, 0, Place::Passed)
        .write([
            Instruction::load_at(LOAD_WORD, First, Answer, 0),
            Instruction::load_at(LOAD_WORD, AUDIENCE, Answer, 4),
        ])
        .jump_if_equal(First, REFUSED, Place::Refused)
        .jump_if_equal(First, FORWARD, Place::Chosen)
        .jump_if_equal(First, IGNORE, Place::Ignored)
        .jump_if_equal(First, LISTED, Place::Listed);
    for word in 0..WORDS {
        asm.write([
            Instruction::load(LOAD_WORD, Second, LOCAL + 4 * word),
            Instruction::load(LOAD_WORD, Third, REMOTE + 4 * word),
        ])
        .jump_if_different(Second, Third, Place::Listed);
    }
    asm.jump(Place::Chosen);
}

/// Chooses the sink unless the client belongs to the audience.
fn find_client(asm: &mut Assembler<Place>, audiences: &impl AsFd) {
    use Register::{Answer, First};
    asm.place(Place::Listed)
        .write([Instruction::store_word(CLIENT, WHOLE), Instruction::store(CLIENT + 4, AUDIENCE)]);
    look_up(asm, audiences, CLIENT);
    asm.jump_if_equal(Answer, 0, Place::Ignored)
        .write([Instruction::load_at(LOAD_BYTE, First, Answer, 0)])
        .jump_if_equal(First, 1, Place::Chosen)
        .place(Place::Ignored)
        .write([Instruction::add(SOCKET, SINKS)]);
}

/// Assigns the socket, and refuses if there is none (any more).
fn assign(asm: &mut Assembler<Place>, sockets: &impl AsFd) {
    use Register::{Answer, First, Second, Third};
    asm.place(Place::Chosen).write([Instruction::store(CLIENT, SOCKET)]);
    look_up(asm, sockets, CLIENT);
    asm.jump_if_equal(Answer, 0, Place::Refused)
        .write([Instruction::copy(SOCKET, Answer), Instruction::copy(First, CONTEXT)])
        .write([Instruction::copy(Second, Answer), Instruction::set(Third, REPLACE)])
        .write([Instruction::call(ASSIGN), Instruction::copy(CONTEXT, Answer)])
        .write([Instruction::copy(First, SOCKET), Instruction::call(RELEASE)])
        .jump_if_equal(CONTEXT, 0, Place::Passed)
        .place(Place::Refused)
        .write(answer(REFUSE))
        .place(Place::Passed)
        .write(answer(PASS));
}

fn field(to: Register, offset: i16) -> Instruction {
    Instruction::load_at(LOAD_WORD, to, CONTEXT, offset)
}

/// An IPv4 address of the context as IPv6 has it (RFC 4291, section 2.5.5.2), onto the stack.
fn mapped(to: i16, from: i16) -> [Instruction; 5] {
    let prefix = i32::from_be(0xffff);
    [
        Instruction::store_word(to, 0),
        Instruction::store_word(to + 4, 0),
        Instruction::store_word(to + 8, prefix),
        field(Register::First, from),
        Instruction::store(to + 12, Register::First),
    ]
}

/// An IPv6 address of the context, onto the stack.
fn whole(to: i16, from: i16) -> impl Iterator<Item = Instruction> {
    (0..WORDS).flat_map(move |word| {
        [field(Register::First, from + 4 * word), Instruction::store(to + 4 * word, Register::First)]
    })
}

/// `answer = what the map has for the key on the stack`
fn look_up(asm: &mut Assembler<Place>, map: &impl AsFd, key: i16) {
    asm.write(Instruction::set_to_map(Register::First, map))
        .write(Instruction::set_to_stack(Register::Second, key.into()))
        .write([Instruction::call(LOOK_UP)]);
}

fn answer(verdict: i32) -> [Instruction; 2] {
    [Instruction::set(Register::Answer, verdict), Instruction::exit()]
}
