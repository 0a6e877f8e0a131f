use std::fs::File;
use std::os::fd::OwnedFd;

use ipnet::IpNet;

use super::*;

fn hosts(count: u32) -> AddressSet {
    let cidrs: Vec<IpNet> =
        (0..count).map(|n| IpNet::from(IpAddr::V4((0x0a00_0000 + 2 * n).into()))).collect();
    AddressSet::from_cidrs(&cidrs)
}

#[test]
fn a_set_without_limits_needs_no_filter_in_its_family() {
    let v4: Vec<IpNet> = vec!["0.0.0.0/0".parse().unwrap()];
    let all_of_v4 = AddressSet::from_cidrs(&v4);
    let mut filters = SourceFilters::default();
    assert!(matches!(filters.admitting(&all_of_v4, "192.0.2.1".parse().unwrap()), SourceFilter::Everyone));
    assert!(matches!(
        filters.admitting(&all_of_v4, "2001:db8::1".parse().unwrap()),
        SourceFilter::Classic(_)
    ));
}

#[test]
fn small_sets_go_by_classic_filters_whatever_is_allowed() {
    let mut filters = SourceFilters::default();
    let small = hosts(MOST_CLASSIC as u32);
    assert!(matches!(filters.admitting(&small, "192.0.2.1".parse().unwrap()), SourceFilter::Classic(_)));
    assert!(!filters.told);
}

#[test]
fn once_refused_nothing_is_loaded_again_and_large_sets_go_by_classic_filters() {
    let mut filters = SourceFilters::default();
    filters.complain(&io::Error::from(Errno::EPERM));
    assert!(filters.told && filters.refused);
    assert!(matches!(
        filters.admitting(&hosts(5000), "192.0.2.1".parse().unwrap()),
        SourceFilter::Classic(_)
    ));
}

#[test]
fn a_shortage_is_not_taken_for_a_refusal() {
    let mut filters = SourceFilters::default();
    filters.complain(&io::Error::from(Errno::ENOMEM));
    assert!(filters.told && !filters.refused);
}

#[test]
fn sockets_that_admit_the_same_and_themselves_share_a_program() {
    let clients = hosts(100);
    let [one, other]: [IpAddr; 2] = ["192.0.2.1", "192.0.2.2"].map(|ip| ip.parse().unwrap());
    assert_eq!(
        AllowedSources::new(&clients.with(one), one),
        AllowedSources::new(&clients.with(other), other)
    );
    assert_eq!(AllowedSources::new(&clients, one), AllowedSources::new(&clients, other));
    assert_ne!(AllowedSources::new(&clients.with(one), one), AllowedSources::new(&clients, one));
    assert_ne!(AllowedSources::new(&clients.with(other), one), AllowedSources::new(&clients.with(one), one));
    // The other family's addresses make no difference.
    let more = clients.with("2001:db8::1".parse().unwrap());
    assert_eq!(AllowedSources::new(&more, one), AllowedSources::new(&clients, one));
}

#[test]
fn a_program_lives_as_long_as_a_listener_has_it() {
    let own = "192.0.2.1".parse().unwrap();
    let kept = AllowedSources::new(&hosts(100), own);
    let program = Arc::new(SocketFilter::from(OwnedFd::from(File::open("/dev/null").unwrap())));
    let mut filters = SourceFilters::default();
    filters.shared.insert(kept.clone(), &program);
    let (share, ()) = filters
        .with(&hosts(100), "192.0.2.2".parse().unwrap(), SynPolicy::Accept, |filter| match filter {
            SourceFilter::Shared(found) if Arc::ptr_eq(found, &program) => Ok(()),
            other => panic!("{other:?}"),
        })
        .unwrap();
    drop(program);
    assert!(filters.shared.get(&kept).is_some());
    drop(share);
    assert!(filters.shared.get(&kept).is_none());
}

#[test]
fn filters_get_shorter_while_the_kernel_has_no_memory_for_them() {
    let mut filters = SourceFilters { refused: true, ..SourceFilters::default() };
    let mut lengths = Vec::new();
    let outcome = filters.with(&hosts(5000), "192.0.2.1".parse().unwrap(), SynPolicy::Accept, |filter| {
        let SourceFilter::Classic(program) = filter else { panic!("{filter:?}") };
        lengths.push(program.len());
        Err::<(), _>(io::Error::from(Errno::ENOMEM))
    });
    assert_eq!(outcome.unwrap_err().raw_os_error(), Some(Errno::ENOMEM as i32));
    assert_eq!(lengths.len(), 7);
    for (length, halvings) in lengths.iter().zip(0..) {
        assert!(*length <= LONGEST >> halvings && *length > LONGEST >> (halvings + 1), "{lengths:?}");
    }
}

#[test]
fn where_classic_filters_may_not_be_attached_the_pick_alone_decides() {
    let mut filters = SourceFilters { refused: true, ..SourceFilters::default() };
    let own = "192.0.2.1".parse().unwrap();
    let refuse_classic = |filter: &SourceFilter| match filter {
        SourceFilter::Classic(_) => Err(io::Error::from(Errno::EPERM)),
        SourceFilter::Everyone => Ok(()),
        SourceFilter::Shared(_) => panic!("{filter:?}"),
    };
    filters.with(&hosts(3), own, SynPolicy::Accept, refuse_classic).unwrap();
    assert!(filters.told_of_none);
    // An error that no filter can avoid is returned.
    let error = filters
        .with(&hosts(3), own, SynPolicy::Accept, |_| Err::<(), _>(io::Error::from(Errno::EPERM)))
        .unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::EPERM as i32));
}

#[test]
fn where_classic_filters_may_not_be_attached_small_sets_are_shared() {
    let own = "192.0.2.1".parse().unwrap();
    let program = Arc::new(SocketFilter::from(OwnedFd::from(File::open("/dev/null").unwrap())));
    let mut filters = SourceFilters::default();
    filters.shared.insert(AllowedSources::new(&hosts(3), own), &program);
    let take_shared = |filter: &SourceFilter| match filter {
        SourceFilter::Shared(found) if Arc::ptr_eq(found, &program) => Ok(()),
        _ => Err(io::Error::from(Errno::EPERM)),
    };
    filters.with(&hosts(3), own, SynPolicy::Accept, take_shared).unwrap();
    assert!(!filters.told_of_none);
}
