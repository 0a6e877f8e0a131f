//! Tests of limits with given times: none of them waits.

use std::net::Ipv4Addr;
use std::time::Duration;

use sheave_model::Algorithm;
use sheave_model::test_util::frontend;

use super::*;

const CLIENT: Option<IpAddr> = Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));
const OTHER: Option<IpAddr> = Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)));

fn limited(limits: [u32; 4]) -> (Arc<Limiter>, Instant) {
    let limiter = Arc::new(Limiter::new(&service(limits)));
    let epoch = limiter.epoch;
    (limiter, epoch)
}

fn service(limits: [u32; 4]) -> ServiceLimits {
    let [connections, connection_rate, connections_per_client, connection_rate_per_client] =
        limits.map(NonZeroU32::new);
    ServiceLimits {
        connections,
        connection_rate,
        connections_per_client,
        connection_rate_per_client,
        ..ServiceLimits::default()
    }
}

#[test]
fn so_many_are_open_at_a_time() {
    let (limiter, now) = limited([2, 0, 0, 0]);
    let first = limiter.admit(CLIENT, now).unwrap();
    let _second = limiter.admit(OTHER, now).unwrap();
    assert_eq!(limiter.admit(CLIENT, now).unwrap_err(), ShedReason::Connections);
    drop(first);
    assert!(limiter.admit(CLIENT, now).is_ok());
}

#[test]
fn as_many_come_at_once_as_in_a_second_and_then_one_by_one() {
    let (limiter, start) = limited([0, 10, 0, 0]);
    let admitted = |now| (0..100).filter(|_| limiter.admit(CLIENT, now).is_ok()).count();
    assert_eq!(admitted(start), 10);
    assert_eq!(admitted(start), 0);
    assert_eq!(admitted(start + Duration::from_millis(99)), 0);
    assert_eq!(admitted(start + Duration::from_millis(300)), 3);
    assert_eq!(admitted(start + Duration::from_secs(60)), 10, "nothing is saved up beyond a second");
    let all: usize =
        (0..100).map(|tenth| admitted(start + Duration::from_millis(61_000 + 100 * tenth))).sum();
    assert!((100..=120).contains(&all), "{all} in ten seconds");
}

#[test]
fn each_client_has_its_own() {
    let (limiter, now) = limited([0, 0, 1, 0]);
    let first = limiter.admit(CLIENT, now).unwrap();
    assert_eq!(limiter.admit(CLIENT, now).unwrap_err(), ShedReason::ClientConnections);
    let _other = limiter.admit(OTHER, now).unwrap();
    drop(first);
    assert!(limiter.admit(CLIENT, now).is_ok());
    let (limiter, now) = limited([0, 0, 0, 1]);
    assert!(limiter.admit(CLIENT, now).is_ok() && limiter.admit(OTHER, now).is_ok());
    assert_eq!(limiter.admit(CLIENT, now).unwrap_err(), ShedReason::ClientConnectionRate);
    assert!(limiter.admit(CLIENT, now + Duration::from_secs(1)).is_ok());
}

#[test]
fn who_is_refused_takes_nothing() {
    let (limiter, now) = limited([3, 2, 1, 0]);
    let _one = limiter.admit(CLIENT, now).unwrap();
    for _ in 0..10 {
        assert_eq!(limiter.admit(CLIENT, now).unwrap_err(), ShedReason::ClientConnections);
    }
    let _two = limiter.admit(OTHER, now).unwrap();
    assert_eq!(limiter.admit(None, now).unwrap_err(), ShedReason::ConnectionRate);
    assert_eq!(limiter.open.load(Ordering::Relaxed), 2);
    let open: u32 = limiter.clients().known.values().map(|client| client.open).sum();
    assert_eq!(open, 2);
}

#[test]
fn a_client_that_is_named_later_counts_from_then_on() {
    let (limiter, now) = limited([0, 0, 1, 0]);
    let mut first = limiter.admit(None, now).unwrap();
    first.identify(CLIENT.unwrap(), now).unwrap();
    let mut second = limiter.admit(None, now).unwrap();
    assert_eq!(second.identify(CLIENT.unwrap(), now).unwrap_err(), ShedReason::ClientConnections);
    drop((first, second));
    assert!(limiter.admit(CLIENT, now).is_ok());
    assert_eq!(limiter.open.load(Ordering::Relaxed), 0);
}

#[test]
fn clients_are_forgotten_and_never_more_than_so_many_known() {
    let (limiter, start) = limited([0, 0, 1, 1]);
    let client = |number: u32| Some(IpAddr::V4(Ipv4Addr::from(number)));
    for number in 0..100_000 {
        drop(limiter.admit(client(number), start + Duration::from_millis(u64::from(number))).unwrap());
    }
    let known = limiter.clients().known.len();
    assert!(known < 3000, "{known} of those that asked within the last second");
    // All at one time: the oldest are forgotten for new ones, but not a client with an open connection.
    let moment = start + Duration::from_secs(1000);
    let _open = limiter.admit(CLIENT, moment).unwrap();
    for number in 0..2 * MOST_CLIENTS as u32 {
        drop(limiter.admit(client(number), moment).unwrap());
    }
    assert!(limiter.clients().known.len() <= MOST_CLIENTS);
    assert_eq!(limiter.admit(CLIENT, moment).unwrap_err(), ShedReason::ClientConnections);
}

#[test]
fn addresses_of_one_ipv6_network_are_one_client() {
    let client = |text: &str| Some(text.parse::<IpAddr>().unwrap());
    let [first, same_64, same_56, mapped] =
        ["2001:db8::1", "2001:db8::ffff:0:0:1", "2001:db8:0:1::1", "::ffff:192.0.2.1"].map(client);
    let refused = |limiter: &Arc<Limiter>, client, now| {
        limiter.admit(client, now).err() == Some(ShedReason::ClientConnections)
    };
    let (limiter, now) = limited([0, 0, 1, 0]);
    let one = limiter.admit(first, now).unwrap();
    assert!(refused(&limiter, same_64, now) && !refused(&limiter, same_56, now));
    assert!(!refused(&limiter, mapped, now) && !refused(&limiter, CLIENT, now));
    // Open connections stay counted under the prefix of their admission.
    let shorter = ServiceLimits { client_prefix: Ipv6Prefix::new(56).unwrap(), ..service([0, 0, 1, 0]) };
    limiter.set(&shorter);
    assert!(refused(&limiter, same_56, now));
    drop(one);
    limiter.set(&ServiceLimits { client_prefix: Ipv6Prefix::new(128).unwrap(), ..shorter });
    let _each = limiter.admit(first, now).unwrap();
    assert!(!refused(&limiter, same_64, now));
}

#[test]
fn clients_for_whom_there_is_no_room_share_one_limit() {
    let (limiter, now) = limited([0, 0, 2, 0]);
    let client = |number: u32| Some(IpAddr::V4(Ipv4Addr::from(number)));
    let held: Vec<Permit> =
        (0..MOST_CLIENTS as u32).map(|number| limiter.admit(client(number), now).unwrap()).collect();
    let mut others: Vec<Permit> =
        (0..2).map(|number| limiter.admit(client(1 << 24 | number), now).unwrap()).collect();
    let late = client(1 << 25);
    assert_eq!(limiter.admit(late, now).unwrap_err(), ShedReason::ClientConnections);
    assert!(limiter.admit(client(1), now).is_ok(), "who is known has its own");
    let taken_over = limiter.take_over(late.unwrap(), now);
    others.pop();
    assert!(limiter.admit(late, now).is_err());
    drop(taken_over);
    assert!(limiter.admit(late, now).is_ok());
    drop(held);
    drop(others);
    assert_eq!(limiter.clients().others.open, 0);
    let _first = limiter.admit(late, now).unwrap();
    let _second = limiter.admit(late, now).unwrap();
    assert_eq!(limiter.clients().others.open, 0, "there is room for it again");
}

#[test]
fn frontends_of_a_service_share_and_new_limits_count_what_is_open() {
    let limiters = Limiters::default();
    let shaped = |number, limits| {
        let mut frontend = frontend(number, Algorithm::Random, &[(1, 100)]);
        (frontend.limits, frontend.service.name) = (limits, "same".into());
        frontend
    };
    assert!(limiters.get(&shaped(1, ServiceLimits::default())).is_none());
    let first = limiters.get(&shaped(1, service([2, 0, 0, 0]))).unwrap();
    let _permit = first.admit(CLIENT, Instant::now()).unwrap();
    let second = limiters.get(&shaped(2, service([1, 0, 0, 0]))).unwrap();
    assert!(Arc::ptr_eq(&first, &second));
    assert_eq!(first.admit(CLIENT, Instant::now()).unwrap_err(), ShedReason::Connections);
}

/// As two ListenerSets of one Gateway.
#[test]
fn limits_of_another_object_count_for_themselves_and_frontends_without_limits_change_nothing() {
    let limiters = Limiters::default();
    let shaped = |number, owner: Option<&str>, limits| {
        let mut frontend = frontend(number, Algorithm::Random, &[(1, 100)]);
        (frontend.limits, frontend.service.name) = (limits, "same".into());
        frontend.service.settings_of = owner.map(Into::into);
        frontend
    };
    let few = limiters.get(&shaped(1, Some("few"), service([2, 0, 0, 0]))).unwrap();
    let many = limiters.get(&shaped(2, Some("many"), service([100, 0, 0, 0]))).unwrap();
    assert!(limiters.get(&shaped(3, None, ServiceLimits::default())).is_none());
    assert!(limiters.get(&shaped(4, Some("none"), ServiceLimits::default())).is_none());
    let now = few.epoch;
    let open: Vec<_> = std::iter::from_fn(|| few.admit(CLIENT, now).ok()).collect();
    assert_eq!((open.len(), open_at_once(&many, now)), (2, 100));
    let again = limiters.get(&shaped(1, Some("few"), service([3, 0, 0, 0]))).unwrap();
    assert_eq!(open_at_once(&again, now), 1, "what is open stays counted");
    let counted: Vec<_> = limiters.counts().into_iter().map(|(id, open)| (id.settings_of, open)).collect();
    assert!(counted.contains(&(Some("few".into()), 2)) && counted.contains(&(Some("many".into()), 0)));
}

/// The state after a takeover.
#[test]
fn what_a_service_has_in_another_process_counts_until_it_has_ended() {
    let limiters = Limiters::default();
    let mut web = frontend(1, Algorithm::Random, &[]);
    web.limits = service([3, 0, 0, 0]);
    let limiter = limiters.get(&web).unwrap();
    let now = limiter.epoch;
    let own = limiter.admit(CLIENT, now).unwrap();
    let [(web, 1)] = &limiters.counts()[..] else { panic!("one Service with one connection") };
    drop(own);
    for (open, room) in [(2, 1), (3, 0), (70, 0), (1, 2), (0, 3)] {
        limiters.count_elsewhere(web, open);
        assert_eq!(open_at_once(&limiter, now), room, "{open} in the other process");
    }
    limiters.count_elsewhere(web, 3);
    assert!(!limiter.has_room_again());
    let mut another = web.clone();
    another.service.2 = "another".into();
    limiters.count_elsewhere(&another, 0);
    assert_eq!(open_at_once(&limiter, now), 0, "said of another Service");
    limiters.forget_elsewhere();
    assert_eq!(open_at_once(&limiter, now), 3);
}

fn open_at_once(limiter: &Arc<Limiter>, now: Instant) -> usize {
    let permits: Vec<_> = std::iter::from_fn(|| limiter.admit(CLIENT, now).ok()).collect();
    permits.len()
}
