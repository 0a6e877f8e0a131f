//! "Did you mean": the known word nearest to an unknown one.

/// The candidate that `word` was most likely meant to be, if any is near enough.
///
/// Near enough is one edit for three letters, so that `prot` finds `port` while `type` does not find `name`.
pub fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    let limit = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&lower, &candidate.to_lowercase()), candidate))
        .filter(|&(distance, _)| distance <= limit)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swapped_letters_wrong_case_and_small_slips_are_found() {
        let known = ["port", "protocol", "targetPort", "loadBalancerSourceRanges"];
        assert_eq!(closest("prot", known), Some("port"));
        assert_eq!(closest("targetport", known), Some("targetPort"));
        assert_eq!(closest("loadBalancerSourceRange", known), Some("loadBalancerSourceRanges"));
    }

    #[test]
    fn what_is_far_from_everything_gets_no_suggestion() {
        assert_eq!(closest("type", ["port", "name"]), None);
        assert_eq!(closest("x", []), None);
    }
}
