//! States that count at once, and states that must last.

use super::*;

const A: &str = "203.0.113.10";
const B: &str = "2001:db8::1";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn gateway(node: &str, addresses: &[&str]) -> Announcer {
    let addresses = Some(addresses.iter().map(|it| ip(it)).collect());
    Announcer { node: node.to_owned(), answers: true, shared: false, addresses }
}

fn shared(announcer: Announcer) -> Announcer {
    Announcer { shared: true, ..announcer }
}

fn silent(announcer: Announcer) -> Announcer {
    Announcer { answers: false, ..announcer }
}

fn by_one(nodes: &[(&str, &str)]) -> Announcement {
    Announcement::ByOne(nodes.iter().map(|(address, node)| (ip(address), (*node).to_owned())).collect())
}

fn by_none(addresses: &[&str]) -> Announcement {
    Announcement::ByNone(addresses.iter().map(|it| ip(it)).collect())
}

fn by_several(address: &str, nodes: &[&str]) -> Announcement {
    Announcement::BySeveral([(ip(address), nodes.iter().map(|it| (*it).to_owned()).collect())].into())
}

fn web() -> ServiceKey {
    ServiceKey::new("shop", "web")
}

/// The Service `web` with these addresses, after `polls` polls.
struct World {
    announcements: Announcements,
    polls: u64,
}

impl World {
    fn new(addresses: &[&str]) -> Self {
        let mut announcements = Announcements::default();
        announcements.set_addresses(&web(), addresses.iter().map(|it| ip(it)).collect());
        Self { announcements, polls: 0 }
    }

    /// Observes reports without another poll. Returns whether the announcement changed.
    fn read(&mut self, announcers: &[Announcer]) -> bool {
        let changed = self.announcements.observe(AnnounceMode::On, announcers.to_vec(), self.polls);
        changed.contains(&web())
    }

    /// Like [`Self::read`], after another poll.
    fn poll(&mut self, announcers: &[Announcer]) -> bool {
        self.polls += 1;
        self.read(announcers)
    }

    fn now(&self) -> Announcement {
        self.announcements.of(&web())
    }
}

#[test]
fn one_gateway_for_each_address_counts_at_once() {
    let mut world = World::new(&[A, B]);
    assert_eq!(world.now(), Announcement::Unknown);
    assert!(world.read(&[gateway("gw-1", &[A]), gateway("gw-2", &[B])]));
    assert_eq!(world.now(), by_one(&[(A, "gw-1"), (B, "gw-2")]));
    assert!(!world.read(&[gateway("gw-1", &[A]), gateway("gw-2", &[B])]));
    assert!(!world.announcements.await_poll());
}

#[test]
fn in_a_move_nobody_and_two_do_not_count() {
    let mut world = World::new(&[A]);
    world.read(&[gateway("gw-1", &[A]), gateway("gw-2", &[])]);
    assert!(!world.poll(&[gateway("gw-1", &[]), gateway("gw-2", &[])]));
    assert!(world.announcements.await_poll());
    assert!(!world.poll(&[gateway("gw-1", &[A]), gateway("gw-2", &[A])]), "it is another doubt");
    assert!(!world.poll(&[gateway("gw-1", &[A]), gateway("gw-2", &[A])]));
    assert_eq!(world.now(), by_one(&[(A, "gw-1")]));
    assert!(world.poll(&[gateway("gw-1", &[]), gateway("gw-2", &[A])]));
    assert_eq!(world.now(), by_one(&[(A, "gw-2")]));
    assert!(!world.announcements.await_poll());
}

#[test]
fn nobody_counts_after_two_polls_however_often_the_reports_are_read() {
    let mut world = World::new(&[A, B]);
    let reports = [gateway("gw-1", &[B])];
    for _ in 0..10 {
        assert!(!world.read(&reports));
    }
    assert!(!world.poll(&reports));
    assert_eq!(world.now(), Announcement::Unknown);
    assert!(world.poll(&reports));
    assert_eq!(world.now(), by_none(&[A]));
    assert!(!world.announcements.await_poll());
    assert!(world.read(&[gateway("gw-1", &[A, B])]));
    assert_eq!(world.now(), by_one(&[(A, "gw-1"), (B, "gw-1")]));
}

#[test]
fn two_count_after_two_polls_and_no_longer_once_one_gives_way() {
    let mut world = World::new(&[A]);
    let reports = [gateway("gw-1", &[A]), gateway("gw-2", &[A])];
    world.read(&[gateway("gw-1", &[A])]);
    assert!(!world.read(&reports) && !world.poll(&reports));
    assert!(world.poll(&reports));
    assert_eq!(world.now(), by_several(A, &["gw-1", "gw-2"]));
    assert!(world.read(&[gateway("gw-1", &[]), gateway("gw-2", &[A])]));
    assert_eq!(world.now(), by_one(&[(A, "gw-2")]));
}

#[test]
fn a_gateway_that_is_polled_in_both_families_is_one() {
    let mut world = World::new(&[A]);
    let reports = [gateway("gw-1", &[A]), gateway("gw-1", &[A])];
    assert!(world.read(&reports));
    assert!(!world.poll(&reports) && !world.poll(&reports) && !world.poll(&reports));
    assert_eq!(world.now(), by_one(&[(A, "gw-1")]));
}

#[test]
fn the_last_report_of_a_silent_gateway_proves_neither_two_nor_nobody() {
    let mut world = World::new(&[A]);
    world.read(&[gateway("gw-1", &[A])]);
    for _ in 0..5 {
        assert!(!world.poll(&[silent(gateway("gw-1", &[A]))]), "it may be busy");
    }
    assert_eq!(world.now(), by_one(&[(A, "gw-1")]));
    assert!(world.poll(&[silent(gateway("gw-1", &[A])), gateway("gw-2", &[A])]), "it was replaced");
    for _ in 0..5 {
        assert!(!world.poll(&[silent(gateway("gw-1", &[A])), gateway("gw-2", &[A])]));
    }
    assert_eq!(world.now(), by_one(&[(A, "gw-2")]));
}

#[test]
fn where_no_gateway_announces_there_is_no_condition() {
    let mut world = World::new(&[A]);
    world.read(&[gateway("gw-1", &[A])]);
    let nothing = |mode, world: &mut World| world.announcements.observe(mode, Vec::new(), world.polls);
    assert!(nothing(AnnounceMode::Unknown, &mut world).is_empty(), "it stays while nothing is known");
    assert_eq!(world.now(), by_one(&[(A, "gw-1")]));
    assert_eq!(nothing(AnnounceMode::Off, &mut world), [web()].into());
    assert_eq!(world.now(), Announcement::NotNeeded);
    assert!(nothing(AnnounceMode::Off, &mut world).is_empty());
}

#[test]
fn other_addresses_are_judged_anew() {
    let mut world = World::new(&[A]);
    let reports = [gateway("gw-1", &[A])];
    world.read(&reports);
    world.announcements.set_addresses(&web(), vec![ip(A)]);
    assert_eq!(world.now(), by_one(&[(A, "gw-1")]), "they are the same");
    world.announcements.set_addresses(&web(), vec![ip(B)]);
    assert_eq!(world.now(), Announcement::Unknown);
    assert!(!world.poll(&reports) && world.poll(&reports));
    assert_eq!(world.now(), by_none(&[B]));
    world.announcements.set_addresses(&web(), vec![ip(A)]);
    world.announcements.set_addresses(&web(), vec![ip(B)]);
    assert!(world.announcements.await_poll());
    world.announcements.set_addresses(&web(), Vec::new());
    assert_eq!(world.now(), Announcement::NotNeeded, "it has none, or those of gateway nodes");
    assert!(!world.announcements.await_poll());
}

#[test]
fn gateways_that_share_addresses_come_and_go_without_another_condition() {
    let mut world = World::new(&[A]);
    let by_all = by_one(&[(A, ALL_THAT_SERVE)]);
    let (one, two) = (shared(gateway("gw-1", &[A])), shared(gateway("gw-2", &[A])));
    assert!(world.poll(std::slice::from_ref(&one)));
    assert_eq!(world.announcements.of(&web()), by_all);
    for announcers in [vec![one, two.clone()], vec![two.clone()]] {
        for _ in 0..=LASTS {
            assert!(!world.poll(&announcers));
        }
        assert_eq!(world.announcements.of(&web()), by_all);
    }
    // A gateway that claims the address for itself does not share it.
    let alone = gateway("gw-3", &[A]);
    for _ in 0..=LASTS {
        world.poll(&[two.clone(), alone.clone()]);
    }
    assert_eq!(world.announcements.of(&web()), by_several(A, &["gw-3", ALL_THAT_SERVE]));
}
