//! Classic BPF programs that pass packets of some source addresses. They need no privilege, and hold a limited number of addresses.
//!
//! A program is a binary search in which every edge of an interval costs one comparison. An IPv4 address is one word. IPv6 is
//! searched word by word, and a word is examined once for all addresses that share the words before it.

use socket2::SockFilter;

use super::Family;
use crate::sys::bpf::classic::{
    AND, Instruction, JUMP, JUMP_IF_AT_LEAST, JUMP_IF_EQUAL, LOAD_BYTE, LOAD_WORD, NETWORK_HEADER, RETURN,
};
use sheave_model::AddressSet;

/// Maximum distance of a jump target: offsets of comparisons have 8 bits, and another jump may have to be inserted before one.
const REACH: usize = u8::MAX as usize - 1;

/// A program of at most `longest` instructions that admits the set's addresses of one family.
///
/// A set with too many intervals is widened by closing its smallest gaps. The pick checks the address again, so after widening some
/// clients are refused visibly, but none is admitted.
pub(super) fn admitting(set: &AddressSet, family: Family, longest: usize) -> Vec<SockFilter> {
    let program = program(set, family, longest);
    program.into_iter().map(|i| SockFilter::new(i.code, i.jt, i.jf, i.k)).collect()
}

/// A program that only drops packets which begin a TCP connection. A socket filter's packet begins with the TCP header
/// (`tcp_filter` in net/ipv4/tcp_ipv4.c).
pub(super) fn begun() -> Vec<SockFilter> {
    const FLAGS: u32 = 13;
    const SYN: u32 = 0x02;
    const ACK: u32 = 0x10;
    [
        (LOAD_BYTE, 0, 0, FLAGS),
        (AND, 0, 0, SYN | ACK),
        (JUMP_IF_EQUAL, 0, 1, SYN),
        (RETURN, 0, 0, 0),
        (RETURN, 0, 0, u32::MAX),
    ]
    .map(|(code, if_true, if_false, k)| SockFilter::new(code, if_true, if_false, k))
    .into()
}

fn program(set: &AddressSet, family: Family, longest: usize) -> Vec<Instruction> {
    let edges = edges(set, family);
    let mut intervals = edges.len().div_ceil(2);
    loop {
        let program = ProgramWriter::new(family).program(&widened(&edges, intervals));
        if program.len() <= longest || intervals <= 1 {
            return program;
        }
        // Decreases each time, because the program is longer than allowed.
        intervals = (intervals * longest / program.len()).max(1);
    }
}

/// The first addresses of intervals and the first ones after them, alternately. IPv4 addresses are the highest word of such a
/// number.
fn edges(set: &AddressSet, family: Family) -> Vec<u128> {
    const V4_SHIFT: u32 = 96;
    let v4 = set.v4().iter().flat_map(|&(first, last)| [Some(first), last.checked_add(1)]);
    let v6 = set.v6().iter().flat_map(|&(first, last)| [Some(first), last.checked_add(1)]);
    match family {
        Family::V4 => v4.flatten().map(|edge| u128::from(edge) << V4_SHIFT).collect(),
        Family::V6 => v6.flatten().collect(),
    }
}

/// The edges of at most `intervals` intervals, after closing the smallest gaps.
fn widened(edges: &[u128], intervals: usize) -> Vec<u128> {
    let excess = edges.len().div_ceil(2).saturating_sub(intervals);
    let mut gaps: Vec<usize> = (1..edges.len().saturating_sub(1)).step_by(2).collect();
    gaps.sort_by_key(|&at| edges[at + 1] - edges[at]);
    let mut kept = vec![true; edges.len()];
    for at in gaps.into_iter().take(excess) {
        kept[at..=at + 1].fill(false);
    }
    edges.iter().zip(kept).filter_map(|(&edge, kept)| kept.then_some(edge)).collect()
}

/// Handling of a word's values from one value up to the next region.
#[derive(Clone, Copy, Debug)]
enum Region<'a> {
    /// The address is admitted or not.
    Settled(bool),
    /// The next words decide. `passed` edges are at or below the lowest address with this value; `edges` are above it.
    Open { passed: usize, edges: &'a [u128] },
}

/// Decides by the number of edges passed: after an odd number the address is inside an interval.
fn settled(passed: usize) -> Region<'static> {
    Region::Settled(passed % 2 == 1)
}

/// The regions of a word, each with its first value, for addresses that share the words before it with all `edges`.
fn regions(passed: usize, edges: &[u128], word: u32) -> Vec<(u32, Region<'_>)> {
    let mut regions = vec![(0, settled(passed))];
    let mut passed = passed;
    for group in edges.chunk_by(|a, b| value(*a, word) == value(*b, word)) {
        let value = value(group[0], word);
        let (at_lowest, above) = group.split_at(usize::from(is_lowest(group[0], word)));
        let open = Region::Open { passed: passed + at_lowest.len(), edges: above };
        regions.pop_if(|&mut (first, _)| first == value);
        regions.push((value, if above.is_empty() { settled(passed + at_lowest.len()) } else { open }));
        passed += group.len();
        regions
            .extend(value.checked_add(1).filter(|_| !above.is_empty()).map(|next| (next, settled(passed))));
    }
    regions
}

/// One 32-bit word of an address; word 0 is the first on the wire.
fn value(address: u128, word: u32) -> u32 {
    (address >> (96 - 32 * word)) as u32
}

/// Whether all words after this one are zero.
fn is_lowest(address: u128, word: u32) -> bool {
    address.checked_shl(32 * (word + 1)).is_none_or(|rest| rest == 0)
}

/// Target of a jump.
#[derive(Clone, Copy, Debug)]
enum JumpTarget {
    /// A return that admits or drops the packet.
    Verdict(bool),
    /// The n-th instruction written, counted from 0.
    Written(usize),
}

/// Writes a program from its end, because jumps only go forward, to instructions that exist already.
struct ProgramWriter {
    /// Offset of the source address.
    source: u32,
    /// Instructions, the last one first.
    reversed: Vec<Instruction>,
    /// The most recently written return of each verdict.
    returns: [Option<usize>; 2],
}

impl ProgramWriter {
    fn new(family: Family) -> Self {
        Self {
            source: NETWORK_HEADER + u32::from(family.source_offset()),
            reversed: Vec::new(),
            returns: [None; 2],
        }
    }

    fn program(mut self, edges: &[u128]) -> Vec<Instruction> {
        if let JumpTarget::Verdict(admit) = self.word(0, edges, 0) {
            self.verdict(admit);
        }
        self.reversed.reverse();
        self.reversed
    }

    /// Writes the search in a word and those after it.
    fn word(&mut self, passed: usize, edges: &[u128], word: u32) -> JumpTarget {
        let regions = regions(passed, edges, word);
        let Some(((_, lowest), higher)) = regions.split_first() else { return JumpTarget::Verdict(false) };
        match self.search(*lowest, higher, word) {
            JumpTarget::Written(_) => self.write(LOAD_WORD, 0, 0, self.source + 4 * word),
            verdict @ JumpTarget::Verdict(_) => verdict,
        }
    }

    /// Writes the search for the region of the loaded word.
    fn search(&mut self, lowest: Region<'_>, higher: &[(u32, Region<'_>)], word: u32) -> JumpTarget {
        let (below, above) = higher.split_at(higher.len() / 2);
        let Some((&(bound, region), above)) = above.split_first() else {
            return match lowest {
                Region::Settled(admit) => JumpTarget::Verdict(admit),
                Region::Open { passed, edges } => self.word(passed, edges, word + 1),
            };
        };
        let yes = self.search(region, above, word);
        let no = self.search(lowest, below, word);
        let yes = self.reachable(yes);
        let no = self.reachable(no);
        self.write(JUMP_IF_AT_LEAST, self.distance(yes) as u8, self.distance(no) as u8, bound)
    }

    /// An instruction within reach of the next two that leads to the target.
    fn reachable(&mut self, target: JumpTarget) -> usize {
        match target {
            JumpTarget::Verdict(admit) => match self.returns[usize::from(admit)] {
                Some(at) if self.distance(at) <= REACH => at,
                _ => self.verdict(admit),
            },
            JumpTarget::Written(at) if self.distance(at) <= REACH => at,
            JumpTarget::Written(at) => {
                self.write(JUMP, 0, 0, self.distance(at) as u32);
                self.reversed.len() - 1
            }
        }
    }

    fn verdict(&mut self, admit: bool) -> usize {
        let at = self.reversed.len();
        self.write(RETURN, 0, 0, if admit { u32::MAX } else { 0 });
        self.returns[usize::from(admit)] = Some(at);
        at
    }

    /// Number of instructions between the next one and the one at `at`.
    fn distance(&self, at: usize) -> usize {
        self.reversed.len() - 1 - at
    }

    fn write(&mut self, code: u16, jt: u8, jf: u8, k: u32) -> JumpTarget {
        self.reversed.push(Instruction { code, jt, jf, k });
        JumpTarget::Written(self.reversed.len() - 1)
    }
}

#[cfg(test)]
mod tests;
