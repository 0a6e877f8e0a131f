//! Who answers for an address.

use sheave_trace::segment::who_has;

use crate::network::{ip, link_of};
use crate::support::for_both_families;
use crate::support::host::Host;
use crate::support::patience::patience;
use crate::support::world::Family;

for_both_families!(
    all_machines_that_answer_are_found,
    nobody_answers_for_a_free_address,
    the_own_address_is_not_found,
);

fn address(family: Family, number: u8) -> std::net::IpAddr {
    match family {
        Family::V4 => ip(&format!("192.0.2.{number}")),
        Family::V6 => ip(&format!("2001:db8::{number}")),
    }
}

/// Machines on a bridge; machine `i` has the address with number `i + 1`.
fn machines(count: u8) -> (Host, Vec<Host>) {
    let switch = Host::new("switch");
    switch.ip(&["link add br0 type bridge mcast_snooping 0".into(), "link set br0 up".into()]);
    let machine = |place: u8| {
        let host = Host::new(&format!("machine {place}"));
        switch.plug(&format!("p{place}"), &host, "eth0");
        add(&host, place + 1);
        host
    };
    let machines = (0..count).map(machine).collect();
    (switch, machines)
}

fn add(host: &Host, number: u8) {
    host.ip(&[
        format!("addr add {}/24 dev eth0", address(Family::V4, number)),
        format!("addr add {}/64 dev eth0 nodad", address(Family::V6, number)),
    ]);
}

fn all_machines_that_answer_are_found(family: Family) {
    let (_switch, machines) = machines(3);
    for host in &machines[1..] {
        add(host, 100);
    }
    let link = link_of(&machines[0], "eth0");
    let ask = || machines[0].run(|| who_has(address(family, 100), &link, patience(0.5))).unwrap();
    let mut found = ask();
    found.sort();
    let mut owners = Vec::from_iter(machines[1..].iter().filter_map(|host| link_of(host, "eth0").mac));
    owners.sort();
    assert_eq!(found, owners);
    machines[2].ip(&["link set eth0 down".into()]);
    assert_eq!(ask(), Vec::from_iter(link_of(&machines[1], "eth0").mac));
}

fn nobody_answers_for_a_free_address(family: Family) {
    let (_switch, machines) = machines(2);
    let link = link_of(&machines[0], "eth0");
    assert_eq!(machines[0].run(|| who_has(address(family, 100), &link, patience(0.2))), Ok(vec![]));
}

fn the_own_address_is_not_found(family: Family) {
    let (_switch, machines) = machines(2);
    let link = link_of(&machines[0], "eth0");
    assert_eq!(machines[0].run(|| who_has(address(family, 1), &link, patience(0.2))), Ok(vec![]));
}

#[test]
fn a_link_without_neighbours_cannot_be_asked() {
    let host = Host::new("alone");
    let unseen = host.run(|| who_has(ip("127.0.0.9"), &link_of(&host, "lo"), patience(0.2)));
    let text = unseen.unwrap_err().to_string();
    assert_eq!(text, "cannot see who answers for the address: lo has no neighbours");
}
