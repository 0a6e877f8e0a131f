//! An assembler for programs whose jumps lead to named labels, so that nobody counts instructions.

use super::instruction::{Instruction, Register};

/// A program being written; `P` are the names of its places. Jumps go forward only.
#[derive(Debug)]
pub(crate) struct Assembler<P> {
    program: Vec<Instruction>,
    /// Jumps that wait for their place.
    open: Vec<(usize, P)>,
}

impl<P: Copy + Eq> Assembler<P> {
    /// Nothing written yet.
    pub(crate) fn new() -> Self {
        Self { program: Vec::new(), open: Vec::new() }
    }

    /// Writes these instructions.
    pub(crate) fn write(&mut self, instructions: impl IntoIterator<Item = Instruction>) -> &mut Self {
        self.program.extend(instructions);
        self
    }

    /// Goes on at a place.
    pub(crate) fn jump(&mut self, place: P) -> &mut Self {
        self.jump_by(place, Instruction::skip(0))
    }

    /// Goes on at a place if `register` is `value`.
    pub(crate) fn jump_if_equal(&mut self, register: Register, value: i32, place: P) -> &mut Self {
        self.jump_by(place, Instruction::skip_if_equal(register, value, 0))
    }

    /// Goes on at a place if the registers differ.
    pub(crate) fn jump_if_different(&mut self, one: Register, other: Register, place: P) -> &mut Self {
        self.jump_by(place, Instruction::skip_if_different(one, other, 0))
    }

    fn jump_by(&mut self, place: P, jump: Instruction) -> &mut Self {
        self.open.push((self.program.len(), place));
        self.write([jump])
    }

    /// Here is the place that earlier jumps lead to.
    pub(crate) fn place(&mut self, place: P) -> &mut Self {
        let (here, program) = (self.program.len(), &mut self.program);
        self.open.retain(|&(jump, target)| {
            if target == place {
                // Programs here are a few dozen instructions long.
                program[jump].offset = (here - jump - 1) as i16;
            }
            target != place
        });
        self
    }

    /// The whole program. Every jump has met its place.
    pub(crate) fn finish(self) -> Vec<Instruction> {
        debug_assert!(self.open.is_empty(), "a jump leads nowhere");
        self.program
    }
}
