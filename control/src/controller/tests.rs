//! Pauses after broken terms.

pub(crate) mod objects;

use super::*;

#[test]
fn terms_that_break_one_after_the_other_begin_ever_more_slowly() {
    let pauses: Vec<u64> = [1, 2, 5, 6, 7, u32::MAX].map(|it| pause(it).as_secs()).to_vec();
    assert_eq!(pauses, [2, 4, 32, 64, 64, 64]);
}
