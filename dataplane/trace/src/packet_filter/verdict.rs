//! Verdicts of rules, and their encoding in `nft_data`.

use sheave_kernel::attributes::Walk;

/// NFTA_DATA_VALUE and NFTA_DATA_VERDICT; NFTA_VERDICT_CODE and NFTA_VERDICT_CHAIN (linux/netfilter/nf_tables.h).
const DATA_VALUE: u16 = 1;
const DATA_VERDICT: u16 = 2;
const VERDICT_CODE: u16 = 1;
const VERDICT_CHAIN: u16 = 2;
/// NF_DROP and NF_ACCEPT (linux/netfilter.h), NFT_CONTINUE, NFT_JUMP, NFT_GOTO and NFT_RETURN.
pub(super) const DROP: u32 = 0;
const ACCEPT: u32 = 1;
const CONTINUE: u32 = -1_i32 as u32;
const JUMP: u32 = -3_i32 as u32;
const GOTO: u32 = -4_i32 as u32;
const RETURN: u32 = -5_i32 as u32;

/// Decision of a rule or of an element of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Accept,
    Drop,
    Continue,
    Return,
    Jump(String),
    Goto(String),
    /// One that gives the packet to something else, such as a program.
    Other,
}

/// Effect of an expression on its rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// The rule goes on, or does not match; `None`: one of both.
    Matches(Option<bool>),
    /// One of these verdicts, or perhaps none.
    Decides { verdicts: Vec<Verdict>, may_not: bool },
}

impl Effect {
    pub(super) fn decides(verdict: Verdict) -> Self {
        Self::Decides { verdicts: vec![verdict], may_not: false }
    }
}

/// The bytes of `nft_data`.
pub(super) fn data_value(data: &[u8]) -> Option<&[u8]> {
    Walk(data).find(DATA_VALUE)
}

/// The verdict of `nft_data`; `None` if it is none.
pub(super) fn read_verdict(data: &[u8]) -> Option<Verdict> {
    let verdict = Walk(Walk(data).find(DATA_VERDICT)?);
    let chain = || verdict.text(VERDICT_CHAIN).map(str::to_owned);
    Some(match verdict.number(VERDICT_CODE)? {
        DROP => Verdict::Drop,
        ACCEPT => Verdict::Accept,
        CONTINUE => Verdict::Continue,
        RETURN => Verdict::Return,
        JUMP => Verdict::Jump(chain()?),
        GOTO => Verdict::Goto(chain()?),
        _ => Verdict::Other,
    })
}
