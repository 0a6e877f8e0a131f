//! Pauses after broken terms.

pub(crate) mod objects;

use super::*;

#[test]
fn terms_that_break_one_after_the_other_begin_ever_more_slowly() {
    let mut broken_terms = broken_terms();
    for most in [2, 4, 8, 16, 32, 64, 64] {
        let (pause, most) = (broken_terms.pause(None), Duration::from_secs(most));
        assert!(pause >= most / 2 && pause <= most, "{pause:?} of {most:?}");
    }
}
