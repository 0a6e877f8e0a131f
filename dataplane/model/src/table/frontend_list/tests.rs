//! Tests: a list of frontends against a map that is changed in the same way, and the chunks that two lists share.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::Algorithm;
use crate::test_util::{frontend, frontend_addr};

fn plain(number: u32, endpoints: u32) -> Arc<Frontend> {
    let endpoints: Vec<_> = (0..endpoints).map(|endpoint| (endpoint, 1)).collect();
    Arc::new(frontend(number, Algorithm::LeastConnections, &endpoints))
}

fn list(numbers: impl Iterator<Item = u32>) -> FrontendList {
    let all: Vec<_> = numbers.map(|number| plain(number, 1)).collect();
    FrontendList::from_sorted(&all)
}

fn unshared(one: &FrontendList, other: &FrontendList) -> [usize; 2] {
    one.unshared(other).map(|frontends| frontends.len())
}

#[test]
fn one_change_among_fifty_thousand_copies_one_chunk() {
    const MANY: u32 = 50_000;
    let old = list((0..MANY).map(|number| 2 * number));
    assert_eq!((old.len(), unshared(&old, &old.clone())), (MANY as usize, [0, 0]));
    for (number, replacement, len) in [
        (MANY, Some(plain(MANY, 2)), MANY),
        (MANY, None, MANY - 1),
        (MANY + 1, Some(plain(MANY + 1, 2)), MANY + 1),
        (4 * MANY, Some(plain(4 * MANY, 2)), MANY + 1),
        (MANY + 1, None, MANY),
    ] {
        let new = old.with(&[(frontend_addr(number), replacement.clone())]);
        assert_eq!(new.len(), len as usize, "{number}");
        assert_eq!(new.get(frontend_addr(number)), replacement.as_ref());
        let [before, after] = unshared(&old, &new);
        assert!(before <= CHUNK && after <= CHUNK + 1, "{number}: {before} and {after}");
        assert!(new.iter().map(|frontend| frontend.addr).is_sorted());
    }
}

#[test]
fn a_chunk_that_has_grown_is_split_and_an_empty_one_goes() {
    let mut grown = list(0..1);
    for number in 1..5_000 {
        grown = grown.with(&[(frontend_addr(number), Some(plain(number, 1)))]);
    }
    assert_eq!((grown.len(), grown[4_711].addr), (5_000, frontend_addr(4_711)));
    assert!(grown.chunks.iter().all(|chunk| chunk.len() < 2 * CHUNK) && grown.chunks.len() < 50);
    let all: Vec<FrontendChange> = (1..5_000).map(|number| (frontend_addr(number), None)).collect();
    let left = grown.with(&all);
    assert_eq!((left.len(), left.chunks.len()), (1, 1));
    assert!(left.with(&[(frontend_addr(0), None)]).is_empty());
}

fn changes() -> impl Strategy<Value = Vec<BTreeMap<u32, Option<u32>>>> {
    let change = prop::option::of(0..3_u32);
    prop::collection::vec(prop::collection::btree_map(0..3_000_u32, change, 0..400), 1..6)
}

proptest! {
    #[test]
    fn a_list_is_what_its_changes_make_of_it(rounds in changes()) {
        let mut known: BTreeMap<FrontendAddr, Arc<Frontend>> = BTreeMap::new();
        let mut list = FrontendList::default();
        for round in rounds {
            let changes: Vec<FrontendChange> = round
                .iter()
                .map(|(number, endpoints)| (frontend_addr(*number), endpoints.map(|count| plain(*number, count))))
                .collect();
            let before = list.clone();
            list = list.with(&changes);
            for (addr, frontend) in changes {
                match frontend {
                    Some(frontend) => known.insert(addr, frontend),
                    None => known.remove(&addr),
                };
            }
            prop_assert!(list.iter().eq(known.values()) && list.len() == known.len());
            prop_assert!(known.iter().all(|(addr, frontend)| list.get(*addr) == Some(frontend)));
            prop_assert_eq!(&list, &FrontendList::from_sorted(&known.values().cloned().collect::<Vec<_>>()));
            // Frontends that `unshared` leaves out are the same allocations in both lists.
            let [old, new] = before.unshared(&list);
            let same = |all: &FrontendList, named: &[&Arc<Frontend>]| {
                let named: Vec<_> = named.iter().map(|frontend| frontend.addr).collect();
                all.iter().filter(|it| named.binary_search(&it.addr).is_err()).map(Arc::as_ptr).collect::<Vec<_>>()
            };
            prop_assert_eq!(same(&before, &old), same(&list, &new));
        }
    }
}
