//! An address from its first announcement to its end.

use super::*;

const LIFETIME: Duration = Duration::from_secs(3);
const SETTLED: Duration = Duration::from_secs(4);

fn manner(repeat: Option<u64>) -> Manner {
    let repeat = repeat.map(Duration::from_secs);
    Manner { lifetime: LIFETIME, repeat, on_conflict: OnConflict::Defend }
}

/// Runs until `end`, and returns what was done when, in milliseconds from `start`.
fn run(one: &mut Announcement, start: Instant, end: Duration, manner: &Manner) -> Vec<(u128, Step)> {
    let mut done = Vec::new();
    while let Some(due) = one.due(manner).filter(|due| *due <= start + end) {
        while let Some(step) = one.step(due, manner) {
            done.push(((due - start).as_millis(), step));
        }
    }
    done
}

fn announced(done: &[(u128, Step)]) -> Vec<u128> {
    done.iter().filter(|(_, step)| *step == Step::Announce).map(|(at, _)| *at).collect()
}

fn taken_over(start: Instant) -> Announcement {
    Announcement::taken_over(start, Vec::new(), vec![1], &manner(None))
}

#[test]
fn it_is_announced_in_the_first_seconds_and_then_every_so_often() {
    let start = Instant::now();
    let mut one = taken_over(start);
    let done = run(&mut one, start, Duration::from_secs(26), &manner(Some(10)));
    assert_eq!(announced(&done), [0, 20, 100, 400, 1000, 2000, 5000, 15_000, 25_000]);
    let mut one = taken_over(start);
    assert_eq!(announced(&run(&mut one, start, Duration::from_secs(500), &manner(None))).len(), 7);
    assert_eq!(one.due(&manner(None)), None);
}

#[test]
fn a_pause_is_made_up_for_by_one_announcement() {
    let start = Instant::now();
    let mut one = taken_over(start);
    let late = start + Duration::from_secs(3);
    assert_eq!(one.step(late, &manner(None)), Some(Step::Announce));
    assert_eq!(one.step(late, &manner(None)), None);
    assert_eq!(one.due(&manner(None)), Some(start + Duration::from_secs(5)));
}

#[test]
fn a_probe_is_made_three_times_and_then_it_is_put_on_and_announced() {
    let start = Instant::now();
    let mut one = Announcement::probed(start, Vec::new(), vec![1], &manner(None));
    let done = run(&mut one, start, Duration::from_millis(160), &manner(None));
    let on = Step::PutOn { after_conflict: false };
    assert_eq!(
        done,
        [(0, Step::Probe), (50, Step::Probe), (100, Step::Probe), (150, on), (150, Step::Announce)]
    );
}

/// Makes the first two probes; when the second is made.
fn probe_twice(one: &mut Announcement, start: Instant) -> Instant {
    let second = start + PROBE_INTERVAL;
    assert_eq!(one.step(start, &manner(None)), Some(Step::Probe));
    assert_eq!(one.step(second, &manner(None)), Some(Step::Probe));
    second
}

#[test]
fn what_is_heard_before_the_second_probe_may_be_of_a_gateway_that_has_just_let_go() {
    let start = Instant::now();
    let mut one = Announcement::probed(start, Vec::new(), vec![1], &manner(None));
    assert_eq!(one.on_claim(start, OnConflict::Defend), Verdict::Known);
    assert_eq!(one.step(start, &manner(None)), Some(Step::Probe));
    assert_eq!(one.on_probe(start), Verdict::Known);
    let done = run(&mut one, start, Duration::from_millis(160), &manner(None));
    assert_eq!(done[2], (150, Step::PutOn { after_conflict: false }));
}

/// A gateway answers the second probe, gives the address up and reports that; the report is read first.
#[test]
fn an_answer_on_its_way_when_the_other_gives_up_the_address_does_not_count() {
    let start = Instant::now();
    let mut one = Announcement::probed(start, Vec::new(), vec![1], &manner(None));
    assert!(!one.probe_again(start), "nothing was asked yet");
    let second = probe_twice(&mut one, start);
    assert!(one.probe_again(second));
    assert_eq!(one.on_claim(second, OnConflict::Defend), Verdict::Known);
    let done = run(&mut one, second, Duration::from_millis(160), &manner(None));
    assert_eq!(done[3], (150, Step::PutOn { after_conflict: false }));
    assert!(!one.probe_again(start + SETTLED), "it is announced");
}

/// A guest that goes on after a pause announces what it had, gives it up and reports that; the report is read first.
#[test]
fn an_announcement_on_its_way_when_the_other_gives_up_the_address_counts_for_a_moment() {
    let start = Instant::now();
    let mut one = taken_over(start);
    run(&mut one, start, Duration::from_secs(9), &manner(None));
    let report = start + Duration::from_secs(10);
    assert!(!one.probe_again(report));
    assert_eq!(give_way(&mut one, true, report), Verdict::GiveWay);
    let repeated = report + Duration::from_millis(20);
    assert_eq!(give_way(&mut one, true, repeated), Verdict::Known);
    let done = run(&mut one, repeated, Duration::from_millis(600), &manner(None));
    assert_eq!(done[3], (550, Step::PutOn { after_conflict: true }));
    let later = report + Duration::from_secs(1);
    assert_eq!(give_way(&mut one, true, later), Verdict::GiveWay);
    assert_eq!(one.due(&manner(None)), Some(later + FIRST_RETRY));
}

/// Each takes the others for dead, which may have had the address, just before it hears that another one has it.
#[test]
fn of_two_that_give_way_to_each_other_the_lower_one_comes_back_first() {
    let start = Instant::now();
    let mut both = [taken_over(start), taken_over(start)];
    let now = start + Duration::from_secs(10);
    for (one, lower) in both.iter_mut().zip([false, true]) {
        run(one, start, Duration::from_secs(9), &manner(None));
        assert!(!one.probe_again(now));
        assert_eq!(give_way(one, lower, now), Verdict::GiveWay);
    }
    let [first, second] = &mut both;
    let done = run(first, now, Duration::from_millis(360), &manner(None));
    assert_eq!(done[3], (350, Step::PutOn { after_conflict: true }));
    assert_eq!(second.due(&manner(None)), Some(now + AFTER_LATE));
}

#[test]
fn an_address_that_another_has_is_probed_again_until_it_is_free() {
    let start = Instant::now();
    let mut one = Announcement::probed(start, Vec::new(), vec![1], &manner(None));
    let second = probe_twice(&mut one, start);
    assert_eq!(one.on_claim(second, OnConflict::Defend), Verdict::NotAnnounced);
    assert_eq!(one.on_claim(second, OnConflict::Defend), Verdict::Known);
    let mut answered = second;
    // It may be of a gateway that has just died, or somebody else's.
    for wait in [1, 2, 4, 8, 16, 30, 30] {
        let until = answered + Duration::from_secs(wait);
        assert_eq!(one.due(&manner(None)), Some(until));
        answered = probe_twice(&mut one, until);
        assert_eq!(one.on_claim(answered, OnConflict::Defend), Verdict::Known);
    }
    let done = run(&mut one, answered, CONFLICT_END + Duration::from_millis(150), &manner(None));
    assert_eq!(done[3], (30_150, Step::PutOn { after_conflict: true }));
}

#[test]
fn a_probe_of_another_counts_while_it_is_probed_and_not_when_it_is_answered() {
    let start = Instant::now();
    let mut one = Announcement::probed(start, Vec::new(), vec![1], &manner(None));
    let second = probe_twice(&mut one, start);
    assert_eq!(one.on_probe(second), Verdict::NotAnnounced);
    assert_eq!(taken_over(start).on_probe(start + SETTLED), Verdict::Known);
}

#[test]
fn what_is_left_of_the_former_owner_is_answered_and_not_reported() {
    let start = Instant::now();
    let mut one = taken_over(start);
    assert_eq!(one.step(start, &manner(None)), Some(Step::Announce));
    one.on_question(start + Duration::from_millis(150));
    let done = run(&mut one, start, Duration::from_millis(900), &manner(None));
    assert_eq!(announced(&done), [20, 100, 170, 400]);
    for policy in [OnConflict::Defend, OnConflict::Withdraw] {
        assert_eq!(one.on_claim(start + Duration::from_millis(1500), policy), Verdict::Known);
    }
    let done = run(&mut one, start, Duration::from_millis(1900), &manner(None));
    assert_eq!(announced(&done), [1000, 1520]);
    one.on_question(start + SETTLED);
    assert_eq!(announced(&run(&mut one, start, Duration::from_secs(9), &manner(None))), [2000, 5000]);
}

/// Every claim is followed by a defence, soon at first, and in the end by at most one defence a second.
#[test]
fn every_claim_is_answered_and_ever_more_rarely() {
    let start = Instant::now();
    let mut one = taken_over(start);
    run(&mut one, start, Duration::from_secs(6), &manner(None));
    let claims = [6000, 6010, 6060, 6120, 6180, 6260, 6999, 7000, 7900, 9500, 9501];
    let mut defences = Vec::new();
    for (place, at) in claims.into_iter().enumerate() {
        let expected = if place == 0 { Verdict::Defend } else { Verdict::Known };
        // As in the program: what is heard comes before what is due.
        assert_eq!(one.on_claim(start + Duration::from_millis(at), OnConflict::Defend), expected);
        let until = claims.get(place + 1).map_or(20_000, |next| next - 1);
        defences.extend(announced(&run(&mut one, start, Duration::from_millis(until), &manner(None))));
    }
    assert_eq!(defences, [6050, 6110, 6210, 6410, 7049, 7950, 9550]);
}

#[test]
fn a_conflict_is_over_when_the_other_was_not_seen_for_half_a_minute() {
    let start = Instant::now();
    let mut one = taken_over(start);
    run(&mut one, start, Duration::from_secs(6), &manner(None));
    for (at, verdict) in [(10, Verdict::Defend), (20, Verdict::Known)] {
        assert_eq!(one.on_claim(start + Duration::from_secs(at), OnConflict::Defend), verdict);
    }
    let done = run(&mut one, start, Duration::from_secs(60), &manner(None));
    assert_eq!(done.last(), Some(&(50_000, Step::ConflictOver)));
    let again = one.on_claim(start + Duration::from_secs(70), OnConflict::Defend);
    assert_eq!(again, Verdict::Defend);
}

#[test]
fn a_withdrawn_address_is_probed_before_it_returns() {
    let start = Instant::now();
    let mut one = taken_over(start);
    run(&mut one, start, Duration::from_secs(6), &manner(None));
    let at = start + Duration::from_secs(10);
    assert_eq!(one.on_claim(at, OnConflict::Withdraw), Verdict::Withdraw);
    assert!(!one.is_on());
    let later = start + Duration::from_secs(20);
    assert_eq!(one.on_claim(later, OnConflict::Withdraw), Verdict::Known);
    let done = run(&mut one, start, Duration::from_secs(51), &manner(None));
    assert_eq!(done[0], (50_000, Step::Probe));
    assert_eq!(done[3], (50_150, Step::PutOn { after_conflict: true }));
}

fn give_way(one: &mut Announcement, lower: bool, now: Instant) -> Verdict {
    one.on_announcement(Precedence::Other, lower, OnConflict::Defend, now)
}

/// Both have fewer than half of the gateways.
#[test]
fn of_two_that_give_way_to_each_other_the_one_with_the_lower_mac_address_is_back_soon() {
    let start = Instant::now();
    let [mut lower, mut higher] = [taken_over(start), taken_over(start)];
    assert_eq!(give_way(&mut lower, false, start), Verdict::GiveWay);
    assert_eq!(give_way(&mut higher, true, start), Verdict::GiveWay);
    // What others announced that have given way as well does not keep it.
    assert_eq!(give_way(&mut lower, false, start + Duration::from_millis(1)), Verdict::Known);
    let on = Step::PutOn { after_conflict: true };
    let done = run(&mut lower, start, Duration::from_millis(400), &manner(None));
    assert!(done.contains(&(350, on)), "{done:?}");
    assert_eq!(run(&mut higher, start, Duration::from_millis(999), &manner(None)), []);
    // The other one has a majority: it answers the probes.
    let mut lower = taken_over(start);
    let _verdict = give_way(&mut lower, false, start);
    assert_eq!(run(&mut lower, start, Duration::from_millis(250), &manner(None)).len(), 2);
    let _verdict = lower.on_claim(start + Duration::from_millis(251), OnConflict::Defend);
    assert_eq!(lower.due(&manner(None)), Some(start + Duration::from_millis(2_251)));
}

/// Another one with an even lower MAC address comes back before it.
#[test]
fn of_three_that_give_way_to_each_other_only_the_one_with_the_lowest_mac_address_is_back_soon() {
    let start = Instant::now();
    let mut middle = taken_over(start);
    assert_eq!(give_way(&mut middle, false, start), Verdict::GiveWay);
    assert_eq!(give_way(&mut middle, true, start), Verdict::Known);
    assert_eq!(run(&mut middle, start, Duration::from_millis(999), &manner(None)), []);
}
