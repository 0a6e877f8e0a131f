//! Version and owner of the tables, as a comment in their set `state`. Each process reads it before it touches what an earlier one left.

/// Version of what the tables consist of. One of another version is replaced as a whole; raise it when sets, rules or keys change.
pub(crate) const FORMAT: u32 = 5;
/// The first version with affinity records as they are now.
const RECORDS_SINCE: u32 = 3;
/// In characters.
const LONGEST_NAME: usize = 80;

/// Version and owner of a table: the comment in its set `state`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableState {
    pub(crate) format: u32,
    pub(crate) generation: u64,
    /// `None` before format 4.
    pub(crate) installation: Option<String>,
}

impl TableState {
    pub(crate) fn parse(comment: &str) -> Option<Self> {
        let (format, rest) = comment.strip_prefix("format ")?.split_once(" generation ")?;
        let (generation, installation) = match rest.split_once(" of ") {
            Some((generation, installation)) => (generation, Some(installation.to_owned())),
            None => (rest, None),
        };
        Some(Self { format: format.parse().ok()?, generation: generation.parse().ok()?, installation })
    }

    pub(crate) fn comment(&self) -> String {
        let Self { format, generation, installation } = self;
        let of = installation.iter().map(|name| format!(" of {name}"));
        std::iter::once(format!("format {format} generation {generation}")).chain(of).collect()
    }

    /// Whether tables with this state are like ours.
    pub(crate) fn has_our_format(&self) -> bool {
        self.format == FORMAT
    }

    /// Whether the affinity records of tables with this state are like ours.
    pub(crate) fn has_our_records(&self) -> bool {
        (RECORDS_SINCE..=FORMAT).contains(&self.format)
    }
}

/// The name of an installation as a table has it: nft(8) reads comments of 128 bytes.
pub(crate) fn shown(installation: &str) -> String {
    installation.chars().take(LONGEST_NAME).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_table_is_stands_in_its_comment() {
        for installation in
            [None, Some(shown("sheave.dev/l4")), Some(shown(&"x".repeat(300))), Some(String::new())]
        {
            let state = TableState { format: FORMAT, generation: u64::MAX, installation };
            assert_eq!(TableState::parse(&state.comment()), Some(state.clone()));
            assert!(state.comment().len() < 128, "{}", state.comment());
        }
        assert_eq!(TableState::parse("format 4 generations 7"), None);
    }
}
