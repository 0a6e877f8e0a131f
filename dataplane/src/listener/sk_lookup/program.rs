//! Instructions of the steering program, which selects the socket of a new connection or of a frontend's datagram.

use std::os::fd::AsFd;

use super::SOCKET_KINDS;
use super::verdicts::{self, ALL_ELSE, FORWARD, IGNORE, KEY, LISTED, REFUSED};
use crate::sys::bpf::assembler::Assembler;
use crate::sys::bpf::instruction::{Instruction, LOAD_BYTE, LOAD_WORD, LOOK_UP, Register};
use crate::sys::bpf::sk_lookup::{
    ASSIGN, FAMILY, LOCAL_PORT, LOCAL_V4, LOCAL_V6, PASS, PROTOCOL, REFUSE, RELEASE, REMOTE_V4, REMOTE_V6,
    REPLACE,
};

/// Name that `bpftool prog` shows.
pub(super) const NAME: &str = "sheave_steering";

/// Offsets of the lookup keys on the stack: the frontend, and before it the client with its source set.
const FRONTEND: i16 = -(KEY as i16);
const CLIENT: i16 = FRONTEND - CLIENT_KEY;
/// Length of a client's key: prefix length, source set, address.
const CLIENT_KEY: i16 = 4 + 4 + 16;
/// Offsets of the two addresses on the stack.
const LOCAL: i16 = FRONTEND;
const REMOTE: i16 = CLIENT + 8;
/// Prefix length that covers a source set's number and an address.
const WHOLE: i32 = 32 + 128;
/// Number of 32-bit words in an address.
const WORDS: i16 = 4;

/// Registers that calls to helpers preserve.
const CONTEXT: Register = Register::Sixth;
/// Index of the socket in the map.
const SOCKET: Register = Register::Seventh;
const SOURCE_SET: Register = Register::Eighth;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Label {
    V6,
    Addressed,
    Tcp,
    AllElse,
    Refused,
    Listed,
    Ignored,
    Chosen,
    Passed,
}

/// The program: looks up the frontend in `verdicts`, its client in `source_sets` if the verdict requires it, and assigns one of
/// `sockets`. Other traffic is refused at dedicated addresses, and passes elsewhere.
pub(super) fn program(
    verdicts: &impl AsFd,
    source_sets: &impl AsFd,
    sockets: &impl AsFd,
) -> Vec<Instruction> {
    let mut asm = Assembler::new();
    read_context(&mut asm);
    find_frontend(&mut asm, verdicts);
    find_address(&mut asm, verdicts);
    find_client(&mut asm, source_sets);
    assign(&mut asm, sockets);
    asm.finish()
}

/// Writes both addresses, port and protocol to the stack, and the kind of socket to its register.
fn read_context(asm: &mut Assembler<Label>) {
    use Register::{First, Second};
    asm.write([Instruction::copy(CONTEXT, First), field(First, FAMILY), Instruction::set(SOCKET, 1)])
        .jump_if_equal(First, libc::AF_INET6, Label::V6)
        .write([Instruction::set(SOCKET, 0)])
        .write(mapped(LOCAL, LOCAL_V4))
        .write(mapped(REMOTE, REMOTE_V4))
        .jump(Label::Addressed)
        .place(Label::V6)
        .write(whole(LOCAL, LOCAL_V6))
        .write(whole(REMOTE, REMOTE_V6))
        .place(Label::Addressed)
        .write([field(First, PROTOCOL)])
        .jump_if_equal(First, libc::IPPROTO_TCP, Label::Tcp)
        .write([Instruction::add(SOCKET, 2)])
        .place(Label::Tcp)
        .write([Instruction::shift_left(First, 16), field(Second, LOCAL_PORT)])
        .write([Instruction::or(First, Second), Instruction::store(FRONTEND + 16, First)]);
}

/// Applies the frontend's verdict, or the address's if the frontend has none.
fn find_frontend(asm: &mut Assembler<Label>, verdicts: &impl AsFd) {
    use Register::{Answer, First};
    look_up(asm, verdicts, FRONTEND);
    asm.jump_if_equal(Answer, 0, Label::AllElse)
        .write([
            Instruction::load_at(LOAD_WORD, First, Answer, 0),
            Instruction::load_at(LOAD_WORD, SOURCE_SET, Answer, 4),
        ])
        .jump_if_equal(First, REFUSED, Label::Refused)
        .jump_if_equal(First, FORWARD, Label::Chosen)
        .jump_if_equal(First, IGNORE, Label::Ignored)
        .jump_if_equal(First, LISTED, Label::Listed)
        .jump_if_equal(First, verdicts::PASS, Label::Passed);
    unless_from_itself(asm, Label::Listed);
    asm.jump(Label::Chosen);
}

/// Refuses traffic that is for no frontend at a dedicated address; passes it elsewhere. A packet that a program of this machine
/// sends to such an address has that address as its source (`ip_route_output_key_hash_rcu` in net/ipv4/route.c), so an answer over
/// UDP to an unconnected socket passes.
fn find_address(asm: &mut Assembler<Label>, verdicts: &impl AsFd) {
    asm.place(Label::AllElse).write([Instruction::store_word(FRONTEND + 16, ALL_ELSE)]);
    look_up(asm, verdicts, FRONTEND);
    asm.jump_if_equal(Register::Answer, 0, Label::Passed)
        .jump_if_equal(SOCKET, 0, Label::Refused)
        .jump_if_equal(SOCKET, 1, Label::Refused);
    unless_from_itself(asm, Label::Refused);
    asm.jump(Label::Passed);
}

/// Jumps to `otherwise` unless both addresses are the same.
fn unless_from_itself(asm: &mut Assembler<Label>, otherwise: Label) {
    use Register::{Second, Third};
    for word in 0..WORDS {
        asm.write([
            Instruction::load(LOAD_WORD, Second, LOCAL + 4 * word),
            Instruction::load(LOAD_WORD, Third, REMOTE + 4 * word),
        ])
        .jump_if_different(Second, Third, otherwise);
    }
}

/// Selects the sink unless the client belongs to the source set.
fn find_client(asm: &mut Assembler<Label>, source_sets: &impl AsFd) {
    use Register::{Answer, First};
    asm.place(Label::Listed)
        .write([Instruction::store_word(CLIENT, WHOLE), Instruction::store(CLIENT + 4, SOURCE_SET)]);
    look_up(asm, source_sets, CLIENT);
    asm.jump_if_equal(Answer, 0, Label::Ignored)
        .write([Instruction::load_at(LOAD_BYTE, First, Answer, 0)])
        .jump_if_equal(First, 1, Label::Chosen)
        .place(Label::Ignored)
        .write([Instruction::add(SOCKET, SOCKET_KINDS)]);
}

/// Assigns the socket; refuses the packet if there is none.
fn assign(asm: &mut Assembler<Label>, sockets: &impl AsFd) {
    use Register::{Answer, First, Second, Third};
    asm.place(Label::Chosen).write([Instruction::store(CLIENT, SOCKET)]);
    look_up(asm, sockets, CLIENT);
    asm.jump_if_equal(Answer, 0, Label::Refused)
        .write([Instruction::copy(SOCKET, Answer), Instruction::copy(First, CONTEXT)])
        .write([Instruction::copy(Second, Answer), Instruction::set(Third, REPLACE)])
        .write([Instruction::call(ASSIGN), Instruction::copy(CONTEXT, Answer)])
        .write([Instruction::copy(First, SOCKET), Instruction::call(RELEASE)])
        .jump_if_equal(CONTEXT, 0, Label::Passed)
        .place(Label::Refused)
        .write(answer(REFUSE))
        .place(Label::Passed)
        .write(answer(PASS));
}

fn field(to: Register, offset: i16) -> Instruction {
    Instruction::load_at(LOAD_WORD, to, CONTEXT, offset)
}

/// Writes an IPv4 address of the context to the stack as an IPv4-mapped IPv6 address (RFC 4291, section 2.5.5.2).
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

/// Writes an IPv6 address of the context to the stack.
fn whole(to: i16, from: i16) -> impl Iterator<Item = Instruction> {
    (0..WORDS).flat_map(move |word| {
        [field(Register::First, from + 4 * word), Instruction::store(to + 4 * word, Register::First)]
    })
}

/// `answer = the map's value for the key on the stack`
fn look_up(asm: &mut Assembler<Label>, map: &impl AsFd, key: i16) {
    asm.write(Instruction::set_to_map(Register::First, map))
        .write(Instruction::set_to_stack(Register::Second, key.into()))
        .write([Instruction::call(LOOK_UP)]);
}

fn answer(verdict: i32) -> [Instruction; 2] {
    [Instruction::set(Register::Answer, verdict), Instruction::exit()]
}
