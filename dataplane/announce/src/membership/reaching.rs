//! Networks in which this gateway can announce, as others know them. It reports a loss at once, so that others take over, and a return
//! after a hold-down, so that a link that flaps does not move addresses to and fro.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::options::MembershipOptions;
use super::quorum::HoldDown;
use crate::ability::{Ability, Reach, ReachedSubnet};
use crate::network::Network;

#[derive(Debug)]
pub(super) struct Reaching {
    /// Ability that others know.
    pub(super) told: Arc<Ability>,
    /// Subnets that this machine has again, and others do not know yet.
    returned: BTreeMap<ReachedSubnet, Returned>,
    /// Subnets that were lost before.
    lost: BTreeMap<ReachedSubnet, Lost>,
}

/// A subnet that is there again.
#[derive(Clone, Copy, Debug)]
struct Returned {
    since: Instant,
    hold_down: Duration,
    /// No other gateway is in it: the network was away, and not this gateway's link.
    dark: bool,
}

/// A subnet that was lost before.
#[derive(Debug)]
struct Lost {
    hold_down: HoldDown,
    /// Others know again that it is there.
    back: bool,
    /// When that was told, or the loss.
    since: Instant,
}

/// A subnet that is away for longer is another one when it returns.
const FORGOTTEN: Duration = Duration::from_hours(1);

impl Reaching {
    pub(super) fn new(options: &MembershipOptions) -> Self {
        let told = Ability { weight: options.weight, reach: Reach::Everywhere }.into();
        Self { told, returned: BTreeMap::new(), lost: BTreeMap::new() }
    }

    /// Sets the networks of this machine. `settled` = this gateway owns addresses, or might; otherwise all of them are reported at once. True if
    /// there is something to tell them.
    pub(super) fn set(
        &mut self,
        reach: Reach,
        options: &MembershipOptions,
        settled: bool,
        now: Instant,
    ) -> bool {
        let (Reach::Subnets(told), Reach::Subnets(present)) = (&self.told.reach, &reach) else {
            self.returned.clear();
            return self.tell(reach);
        };
        if !settled {
            self.returned.clear();
            let back = self.lost.iter_mut().filter(|(subnet, lost)| !lost.back && present.contains(*subnet));
            back.for_each(|(_, lost)| (lost.back, lost.since) = (true, now));
            return self.tell(reach);
        }
        let kept: BTreeSet<_> = told.intersection(present).copied().collect();
        for subnet in told.iter().chain(self.returned.keys()).filter(|subnet| !present.contains(subnet)) {
            let new = || Lost { hold_down: HoldDown::new(options), back: false, since: now };
            let lost = self.lost.entry(*subnet).or_insert_with(new);
            lost.hold_down.lost(options);
            (lost.back, lost.since) = (false, now);
        }
        let returned = present.difference(&kept).map(|subnet| {
            let lost = self.lost.get(subnet);
            let hold_down = lost.map_or(options.hold_down, |lost| lost.hold_down.time);
            let new = || Returned { since: now, hold_down, dark: false };
            (*subnet, self.returned.get(subnet).copied().unwrap_or_else(new))
        });
        self.returned = returned.collect();
        self.tell(Reach::Subnets(kept))
    }

    /// Tells what has been there for long enough. `others` = some other gateway is in the network. True if there is something to tell.
    pub(super) fn update(
        &mut self,
        options: &MembershipOptions,
        settled: bool,
        others: impl Fn(Network) -> bool,
        now: Instant,
    ) -> bool {
        self.lost.retain(|_, lost| {
            let kept = if lost.back { lost.hold_down.forgiven_after(options) } else { FORGOTTEN };
            now < lost.since + kept
        });
        if self.returned.is_empty() {
            return false;
        }
        let Reach::Subnets(mut told) = self.told.reach.clone() else { return false };
        self.returned.retain(|subnet, returned| {
            let lit = others(subnet.network);
            // Where a whole network was away, those who are back go on together with the first of them.
            let due = !settled || now >= returned.due(options) || returned.dark && lit;
            returned.dark |= !lit;
            if due || now >= returned.due(options) {
                told.insert(*subnet);
                if let Some(lost) = self.lost.get_mut(subnet) {
                    (lost.back, lost.since) = (true, now);
                }
                return false;
            }
            true
        });
        self.tell(Reach::Subnets(told))
    }

    /// When `update` has something to tell, if nothing else happens.
    pub(super) fn next_due(&self, options: &MembershipOptions) -> Option<Instant> {
        self.returned.values().map(|returned| returned.due(options)).min()
    }

    fn tell(&mut self, reach: Reach) -> bool {
        let differs = self.told.reach != reach;
        if differs {
            self.told = Ability { weight: self.told.weight, reach }.into();
        }
        differs
    }
}

impl Returned {
    /// The time is short in a network without another gateway, where no address is answered for.
    fn due(&self, options: &MembershipOptions) -> Instant {
        let dark = options.hand_over().min(self.hold_down);
        self.since + if self.dark { dark } else { self.hold_down }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A gateway that others rely on, with its reports after each event, in networks by number.
    struct Told {
        reaching: Reaching,
        options: MembershipOptions,
        start: Instant,
        others: Vec<u8>,
    }

    impl Told {
        fn new(present: &[u8], others: &[u8]) -> Self {
            let options = MembershipOptions::new("a".into(), "fleet".into(), 1);
            let mut reaching = Reaching::new(&options);
            let start = Instant::now();
            assert!(reaching.set(reach(present), &options, true, start));
            Self { reaching, options, start, others: others.to_vec() }
        }

        fn others(&self) -> impl Fn(Network) -> bool + use<> {
            let others: Vec<Network> = self.others.iter().copied().map(network).collect();
            move |network| others.contains(&network)
        }

        fn set(&mut self, milliseconds: u64, present: &[u8]) -> Vec<u8> {
            let now = self.start + Duration::from_millis(milliseconds);
            self.reaching.set(reach(present), &self.options, true, now);
            self.at(milliseconds)
        }

        fn at(&mut self, milliseconds: u64) -> Vec<u8> {
            let now = self.start + Duration::from_millis(milliseconds);
            let others = self.others();
            self.reaching.update(&self.options, true, others, now);
            let Reach::Subnets(subnets) = &self.reaching.told.reach else { panic!("everywhere") };
            (0..9).filter(|&number| subnets.iter().any(|subnet| subnet.network == network(number))).collect()
        }
    }

    fn network(number: u8) -> Network {
        Network::of([10, number, 0, 0].into(), 16)
    }

    fn reach(numbers: &[u8]) -> Reach {
        Reach::of(numbers.iter().map(|&number| (network(number), "eth0", true)))
    }

    #[test]
    fn a_loss_is_told_at_once_and_a_return_after_the_hold_down() {
        let mut told = Told::new(&[1, 2], &[1, 2]);
        assert_eq!(told.set(0, &[1]), [1]);
        assert_eq!(told.set(1_000, &[1, 2]), [1]);
        assert_eq!(told.reaching.next_due(&told.options), Some(told.start + Duration::from_secs(6)));
        assert_eq!(told.at(5_999), [1]);
        assert_eq!(told.at(6_000), [1, 2]);
        assert_eq!(told.set(6_001, &[1, 2, 3]), [1, 2], "a new one waits like one that returns");
    }

    #[test]
    fn a_link_that_flaps_waits_longer_each_time_until_it_has_stayed() {
        let mut told = Told::new(&[1], &[1]);
        assert_eq!(told.set(0, &[]), [] as [u8; 0]);
        told.set(10, &[1]);
        assert_eq!(told.at(5_010), [1]);
        told.set(6_000, &[]);
        told.set(6_010, &[1]);
        assert_eq!(told.at(16_009), [] as [u8; 0], "twice as long");
        told.set(16_009, &[]);
        told.set(16_010, &[1]);
        assert_eq!(told.at(36_009), [] as [u8; 0], "and again, although nobody was told of it");
        assert_eq!(told.at(36_010), [1]);
        told.set(40_000, &[]);
        told.set(200_000, &[1]);
        assert_eq!(told.at(239_999), [] as [u8; 0], "while it is away it does not stay");
        assert_eq!(told.at(240_000), [1]);
        assert_eq!(told.at(400_000), [1]);
        told.set(400_000, &[]);
        told.set(400_010, &[1]);
        assert_eq!(told.at(405_010), [1], "forgiven");
    }

    #[test]
    fn each_subnet_has_a_hold_down_of_its_own() {
        let mut told = Told::new(&[1, 2], &[1, 2]);
        for flap in 0..9 {
            told.set(flap * 100, &[1]);
            told.set(flap * 100 + 50, &[1, 2]);
        }
        told.set(2_000, &[2]);
        told.set(2_010, &[1, 2]);
        assert_eq!(told.at(7_010), [1]);
    }

    #[test]
    fn a_network_that_the_last_of_the_others_leaves_is_told_of_soon() {
        let mut told = Told::new(&[1], &[1]);
        told.set(0, &[]);
        told.set(1_000, &[1]);
        told.others = Vec::new();
        assert_eq!(told.at(2_000), [1], "nobody else answers there any more");
    }

    #[test]
    fn gateways_that_lost_a_network_together_return_together() {
        let mut told = Told::new(&[1], &[1]);
        told.set(0, &[]);
        told.others = Vec::new();
        told.set(9_000, &[1]);
        assert_eq!(told.at(9_699), [] as [u8; 0]);
        assert_eq!(told.at(9_700), [1], "nobody else answers there");

        let mut told = Told::new(&[1], &[1]);
        told.set(0, &[]);
        told.others = Vec::new();
        told.set(9_000, &[1]);
        told.others = vec![1];
        assert_eq!(told.at(9_100), [1], "with the first of the others");
    }

    #[test]
    fn whoever_owns_nothing_tells_at_once() {
        let mut told = Told::new(&[1], &[1, 2]);
        let now = told.start;
        assert!(told.reaching.set(reach(&[2]), &told.options, false, now));
        assert_eq!(told.at(0), [2]);
        assert!(!told.reaching.set(reach(&[2]), &told.options, false, now));
    }
}
