//! The wire format: round trips, bounds, and whatever bytes come.

use proptest::prelude::*;

use super::*;
use crate::ability::{InterfaceId, Reach, ReachedSubnet};
use crate::network::Network;

const FLEET: u64 = 7;

prop_compose! {
    fn state()(bits in 0u8..32) -> NodeState { NodeState::from_bits(bits) }
}

prop_compose! {
    fn entry()(id in 0u64..1 << 48, echo: Option<u32>, unproven: bool, silence: u8, state in state()) -> Entry {
        Entry { id: MemberId(id), echo, unproven, silence: Silence(silence), state }
    }
}

prop_compose! {
    fn subnet()(interface: u32, address: std::net::IpAddr, prefix in 0u8..=128, by_default: bool) -> ReachedSubnet {
        ReachedSubnet { network: Network::of(address, prefix), interface: InterfaceId(interface), by_default }
    }
}

fn ability() -> impl Strategy<Value = Arc<Ability>> {
    let subnets = proptest::collection::btree_set(subnet(), 0..9).prop_map(Reach::Subnets);
    let reach = prop_oneof![Just(Reach::Everywhere), subnets];
    (1u8..=10, reach).prop_map(|(weight, reach)| Ability { weight, reach }.into())
}

prop_compose! {
    fn passed_on()(id in 0u64..1 << 48, ability in ability()) -> (MemberId, Arc<Ability>) {
        (MemberId(id), ability)
    }
}

fn contested() -> impl Strategy<Value = Contested> {
    proptest::collection::vec(any::<std::net::IpAddr>(), 0..20).prop_map(|ips| Contested::of(&ips))
}

prop_compose! {
    fn heartbeat()(
        node in "[a-z0-9.-]{1,253}", incarnation: u64, sequence: u32, state in state(), asks: bool, cut_off: bool, listening: u8,
        fail_after in 1u64..65_536, view: u64, assignment: u64, entries in proptest::collection::vec(entry(), 0..40),
        ability in ability(), passed_on in proptest::collection::vec(passed_on(), 0..5), contested in contested(),
    ) -> Heartbeat {
        let applied = Applied { view, assignment };
        let (listening, fail_after) = (Silence(listening), Duration::from_millis(fail_after));
        Heartbeat {
            node, incarnation, sequence, state, asks, cut_off, listening, fail_after, applied, entries, ability, passed_on,
            contested,
        }
    }
}

fn of(members: usize) -> Heartbeat {
    let entry = |n: usize| Entry {
        id: MemberId::of(&format!("node-{n}")),
        echo: Some(n as u32),
        unproven: false,
        silence: Silence(9),
        state: NodeState::default(),
    };
    Heartbeat {
        node: "n".repeat(63),
        incarnation: 1,
        sequence: 2,
        state: NodeState { eligible: true, ..NodeState::default() },
        asks: false,
        cut_off: false,
        listening: Silence(255),
        fail_after: Duration::from_millis(350),
        applied: Applied { view: 3, assignment: 4 },
        entries: (1..members).map(entry).collect(),
        ability: Arc::default(),
        passed_on: Vec::new(),
        contested: Contested::default(),
    }
}

proptest! {
    #[test]
    fn round_trip(heartbeat in heartbeat()) {
        let bytes = heartbeat.encode(FLEET);
        prop_assert_eq!(Heartbeat::decode(&bytes, FLEET), Ok(heartbeat));
    }

    #[test]
    fn takes_any_bytes(bytes: Vec<u8>, behind: Vec<u8>) {
        prop_assert!(Heartbeat::decode(&bytes, FLEET).is_err());
        let mut header = of(1).encode(FLEET)[..HEADER - 2].to_vec();
        header.extend_from_slice(&(behind.len() as u16).to_be_bytes());
        header.extend_from_slice(&behind);
        let decoded = Heartbeat::decode(&header, FLEET);
        prop_assert!(decoded.is_err() || behind.len() >= 35);
    }

    #[test]
    fn takes_a_changed_heartbeat(heartbeat in heartbeat(), index: prop::sample::Index, to: u8) {
        let mut bytes = heartbeat.encode(FLEET);
        let index = index.index(bytes.len());
        bytes[index] = to;
        if let Ok(read) = Heartbeat::decode(&bytes, FLEET) {
            prop_assert!(read.entries.len() <= MOST_ENTRIES);
        }
    }

    #[test]
    fn a_silence_is_never_made_longer(time in 0u64..10_000_000, fail_after in 1u64..65_536) {
        let (time, fail_after) = (Duration::from_micros(time), Duration::from_millis(fail_after));
        let silence = Silence::of(time, fail_after);
        prop_assert!(silence.at_least(fail_after) <= time);
        prop_assert_eq!(silence.is_heard(), time < fail_after);
    }
}

#[test]
fn a_hundred_members_fit_into_a_frame() {
    assert_eq!(of(100).encode(FLEET).len(), 1_306);
}

#[test]
fn a_cut_heartbeat_is_malformed() {
    let bytes = of(3).encode(FLEET);
    for length in 0..bytes.len() {
        assert_eq!(Heartbeat::decode(&bytes[..length], FLEET), Err(WireError::Malformed), "{length} bytes");
    }
}

#[test]
fn what_a_newer_minor_version_appends_is_ignored() {
    let mut bytes = of(3).encode(FLEET);
    bytes[5] = MINOR + 1;
    bytes.extend_from_slice(b"more");
    let length = (bytes.len() - HEADER) as u16;
    bytes[HEADER - 2..HEADER].copy_from_slice(&length.to_be_bytes());
    assert_eq!(Heartbeat::decode(&bytes, FLEET), Ok(of(3)));
}

#[test]
fn a_heartbeat_without_all_that_every_version_says_is_malformed() {
    let whole = of(3).encode(FLEET);
    for missing in 1..whole.len() - HEADER {
        let mut bytes = whole[..whole.len() - missing].to_vec();
        let length = (bytes.len() - HEADER) as u16;
        bytes[HEADER - 2..HEADER].copy_from_slice(&length.to_be_bytes());
        assert_eq!(
            Heartbeat::decode(&bytes, FLEET),
            Err(WireError::Malformed),
            "{missing} bytes are missing"
        );
    }
}

#[test]
fn more_conflicts_than_fit_stand_for_all_addresses() {
    let ips: Vec<std::net::IpAddr> = (0..17).map(|n| std::net::Ipv4Addr::new(192, 0, 2, n).into()).collect();
    assert_eq!(Contested::of(&ips), Contested::All);
    assert!(matches!(Contested::of(&ips[..16]), Contested::These(hashes) if hashes.len() == 16));
}

#[test]
fn another_major_version_or_fleet_is_refused() {
    let mut bytes = of(3).encode(FLEET);
    assert_eq!(Heartbeat::decode(&bytes, FLEET + 1), Err(WireError::ForeignFleet));
    bytes[4] = MAJOR + 1;
    assert_eq!(Heartbeat::decode(&bytes, FLEET), Err(WireError::Version(MAJOR + 1)));
}
