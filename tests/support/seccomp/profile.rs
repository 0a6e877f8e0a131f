//! Profile in `deploy`, with the semantics of a container runtime (runtime-spec, config-linux.md), compiled as by libseccomp.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use super::{ALLOW, AND, ARCHITECTURE, ARGUMENTS, EQUAL, ERRNO, Instruction, KILL_PROCESS, NUMBER};

/// Result of calls that the profile does not name.
#[derive(Clone, Copy, Debug)]
pub enum Otherwise {
    /// They fail as the profile defines.
    Fail,
    /// They end the process, so that none goes unnoticed.
    End,
}

/// Seccomp profile.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Profile {
    default_action: Action,
    default_errno_ret: u16,
    #[serde(rename = "architectures")]
    _architectures: Vec<String>,
    syscalls: Vec<Rule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Action {
    #[serde(rename = "SCMP_ACT_ALLOW")]
    Allow,
    #[serde(rename = "SCMP_ACT_ERRNO")]
    Errno,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rule {
    names: Vec<String>,
    action: Action,
    #[serde(default)]
    errno_ret: u16,
    #[serde(default)]
    args: Vec<Argument>,
    #[serde(default, rename = "comment")]
    _comment: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Argument {
    index: u32,
    value: u32,
    /// With a mask, this is the value, and `value` is the mask.
    value_two: Option<u32>,
    op: Comparison,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Comparison {
    #[serde(rename = "SCMP_CMP_EQ")]
    Equal,
    #[serde(rename = "SCMP_CMP_MASKED_EQ")]
    MaskedEqual,
}

impl Profile {
    pub fn of_deploy() -> Self {
        let path = Path::new(crate::program::PROJECT).join("deploy/seccomp.json");
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    pub(super) fn program(&self, otherwise: Otherwise) -> Vec<Instruction> {
        assert_eq!(self.default_action, Action::Errno);
        let mut program = vec![
            Instruction::load(ARCHITECTURE),
            Instruction { code: EQUAL, jumps: (1, 0), value: AUDIT_ARCH },
            Instruction::answer(KILL_PROCESS),
        ];
        let numbers = numbers();
        self.syscalls.iter().for_each(|rule| rule.compile(&numbers, &mut program));
        program.push(Instruction::answer(match otherwise {
            Otherwise::Fail => ERRNO | u32::from(self.default_errno_ret),
            Otherwise::End => KILL_PROCESS,
        }));
        program
    }
}

impl Rule {
    fn compile(&self, numbers: &HashMap<String, u32>, program: &mut Vec<Instruction>) {
        let answer = Instruction::answer(match self.action {
            Action::Allow => ALLOW,
            Action::Errno => ERRNO | u32::from(self.errno_ret),
        });
        // The check of an argument overwrites the number in the accumulator.
        assert!(self.args.is_empty() || (self.names.len(), self.args.len()) == (1, 1), "{self:?}");
        let condition: Vec<Instruction> = self.args.iter().flat_map(Argument::check).collect();
        let skipped = u8::try_from(condition.len() + 1).expect("a few");
        program.push(Instruction::load(NUMBER));
        // Calls that this machine does not have are skipped, as in libseccomp.
        for number in self.names.iter().filter_map(|name| numbers.get(name)) {
            program.push(Instruction::skip_unless(*number, skipped));
            program.extend(&condition);
            program.push(answer);
        }
    }
}

impl Argument {
    /// Skips one instruction after it unless the condition holds.
    fn check(&self) -> Vec<Instruction> {
        let lower = ARGUMENTS + 8 * self.index;
        match (self.op, self.value_two) {
            (Comparison::Equal, None) => vec![
                Instruction::load(lower + 4),
                Instruction::skip_unless(0, 3),
                Instruction::load(lower),
                Instruction::skip_unless(self.value, 1),
            ],
            (Comparison::MaskedEqual, Some(value)) => vec![
                Instruction::load(lower),
                Instruction { code: AND, jumps: (0, 0), value: self.value },
                Instruction::skip_unless(value, 1),
            ],
            other => panic!("{other:?} is not known"),
        }
    }
}

/// `AUDIT_ARCH_X86_64` or `AUDIT_ARCH_AARCH64` of linux/audit.h.
const AUDIT_ARCH: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };

/// Numbers of this machine's system calls, from its C headers.
fn numbers() -> HashMap<String, u32> {
    let headers =
        Command::new("cc").args(["-E", "-dM", "-include", "asm/unistd.h", "-x", "c", "/dev/null"]).output();
    let headers = headers.expect("the compiler that Rust links with");
    let text = String::from_utf8_lossy(&headers.stdout);
    let number = |line: &str| {
        let (name, number) = line.strip_prefix("#define __NR_")?.split_once(' ')?;
        Some((name.to_owned(), number.trim().parse().ok()?))
    };
    let numbers: HashMap<String, u32> = text.lines().filter_map(number).collect();
    assert!(numbers.len() > 200, "asm/unistd.h has system calls: {headers:?}");
    numbers
}
