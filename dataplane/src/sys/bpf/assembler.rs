//! Assembler for programs whose jumps have labels as targets, so that no distances are counted by hand.

use super::instruction::{Instruction, Register};

/// A program being written; `P` is the type of labels. Jumps only go forward.
#[derive(Debug)]
pub(crate) struct Assembler<P> {
    program: Vec<Instruction>,
    /// Jumps whose label has not been placed yet.
    open: Vec<(usize, P)>,
}

impl<P: Copy + Eq> Assembler<P> {
    /// Creates an empty program.
    pub(crate) fn new() -> Self {
        Self { program: Vec::new(), open: Vec::new() }
    }

    /// Appends instructions.
    pub(crate) fn write(&mut self, instructions: impl IntoIterator<Item = Instruction>) -> &mut Self {
        self.program.extend(instructions);
        self
    }

    /// Jumps to a label.
    pub(crate) fn jump(&mut self, place: P) -> &mut Self {
        self.jump_by(place, Instruction::skip(0))
    }

    /// Jumps to a label if `register` equals `value`.
    pub(crate) fn jump_if_equal(&mut self, register: Register, value: i32, place: P) -> &mut Self {
        self.jump_by(place, Instruction::skip_if_equal(register, value, 0))
    }

    /// Jumps to a label if the registers differ.
    pub(crate) fn jump_if_different(&mut self, one: Register, other: Register, place: P) -> &mut Self {
        self.jump_by(place, Instruction::skip_if_different(one, other, 0))
    }

    fn jump_by(&mut self, place: P, jump: Instruction) -> &mut Self {
        self.open.push((self.program.len(), place));
        self.write([jump])
    }

    /// Places a label here, as the target of earlier jumps.
    pub(crate) fn place(&mut self, place: P) -> &mut Self {
        let (here, program) = (self.program.len(), &mut self.program);
        self.open.retain(|&(jump, target)| {
            if target == place {
                // Programs here are a few dozen instructions long, so the distance fits.
                program[jump].offset = (here - jump - 1) as i16;
            }
            target != place
        });
        self
    }

    /// Returns the program. All labels must have been placed.
    pub(crate) fn finish(self) -> Vec<Instruction> {
        debug_assert!(self.open.is_empty(), "a jump leads nowhere");
        self.program
    }
}
