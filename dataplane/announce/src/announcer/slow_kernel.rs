//! Gateways whose kernels take long for each change of an address and each list of links, as on nodes where Pods come and go.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sheave_test_support::host::Host;
use sheave_test_support::patience::{eventually, let_pass};

use super::{Announcer, Options};
use crate::layer2::OnConflict;
use crate::layer2::netlink::slowness;
use crate::membership::{MembershipOptions, Start};
use crate::status::GatewayState;
use crate::tie_breaker::TieBreaker;
use crate::{Claim, Member};

const PORT: u16 = 7946;
const INTERVAL: Duration = Duration::from_millis(100);
/// Twice the default, for machines that are busy with other things.
const FAIL_AFTER: Duration = Duration::from_millis(700);
/// How long the kernel takes for each address, in milliseconds: all of one gateway take longer than `FAIL_AFTER`.
const EACH: u64 = 100;
const ADDRESSES: u8 = 30;

struct Gateway {
    host: Host,
    options: Options,
    announcer: Announcer,
}

impl Gateway {
    fn start(switch: &Host, number: u8, folder: &Path) -> Self {
        let host = Host::new(&format!("gateway {number}"));
        switch.plug(&format!("p{number}"), &host, "eth0");
        host.ip(&[format!("addr add {}/24 dev eth0", own(number))]);
        let state = folder.join(number.to_string());
        std::fs::create_dir(&state).unwrap();
        let mut membership = MembershipOptions::new(node(number), "f".into(), PORT);
        membership.interval = INTERVAL;
        (membership.fail_after, membership.fail_after_max) = (FAIL_AFTER, FAIL_AFTER);
        membership.hold_down = Duration::from_secs(1);
        let options = Options {
            membership,
            keys: folder.join("keys"),
            interfaces: Vec::new(),
            tie_breaker: TieBreaker::Address(own(254)),
            repeat: None,
            on_conflict: OnConflict::default(),
            state,
        };
        let announcer = host.run(|| Announcer::start(options.clone(), Start::Fresh(None))).unwrap();
        Self { host, options, announcer }
    }

    /// Another process goes on for this one.
    fn upgrade(&mut self) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let successor = self.host.run(|| Announcer::prepare(self.options.clone())).unwrap();
        runtime.block_on(successor.ready());
        let continuation = runtime.block_on(self.announcer.continuation()).unwrap();
        std::mem::replace(&mut self.announcer, successor).detach();
        self.announcer.begin(Start::Continued(continuation));
    }

    /// Another process begins anew, with all that this one has left.
    fn begin_anew(&mut self) {
        let next = self.host.run(|| Announcer::prepare(self.options.clone())).unwrap();
        std::mem::replace(&mut self.announcer, next).detach();
        self.announcer.begin(Start::Fresh(None));
        self.announcer.set_members(members());
    }

    /// The announced addresses that its kernel has.
    fn kernel(&self) -> Vec<String> {
        let all = self.host.finish("ip", &["-o", "addr"]).expect_success();
        let announced = all.lines().filter(|line| line.contains("deprecated"));
        announced.filter_map(|line| Some(line.split_once("inet ")?.1.split_once('/')?.0.to_owned())).collect()
    }

    fn has(&self) -> usize {
        self.kernel().len()
    }

    /// Its rules about what the kernel does not answer.
    fn rules(&self) -> String {
        self.host.finish("nft", &["list", "ruleset"]).expect_success()
    }

    fn fenced(&self) -> u64 {
        self.announcer.status().counts.fenced
    }
}

fn own(number: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, number).into()
}

fn node(number: u8) -> Arc<str> {
    format!("n{number}").into()
}

fn claims() -> BTreeMap<IpAddr, Claim> {
    (100..100 + ADDRESSES).map(|number| (own(number), Claim::default())).collect()
}

/// Waits until the kernels have so many addresses together.
fn all_have(what: &str, gateways: &[Gateway], wanted: usize) {
    eventually(what, || {
        let has: Vec<usize> = gateways.iter().map(Gateway::has).collect();
        if has.iter().sum::<usize>() == wanted { Ok(()) } else { Err(format!("{has:?}")) }
    });
}

fn members() -> Vec<Member> {
    (1..=3).map(|number| Member { node: node(number), addresses: vec![own(number)], ready: true }).collect()
}

/// Three gateways on a switch.
fn start(switch: &Host, folder: &Path) -> Vec<Gateway> {
    std::fs::create_dir(folder.join("keys")).unwrap();
    std::fs::write(folder.join("keys/key"), "a key of more than 24 bytes").unwrap();
    switch.ip(&["link add br0 type bridge mcast_snooping 0".into(), "link set br0 up".into()]);
    let gateways: Vec<Gateway> = (1..=3).map(|number| Gateway::start(switch, number, folder)).collect();
    gateways.iter().for_each(|gateway| gateway.announcer.set_members(members()));
    all_may_own(&gateways);
    gateways
}

fn all_may_own(gateways: &[Gateway]) {
    eventually("all may own addresses", || {
        let states: Vec<GatewayState> =
            gateways.iter().map(|gateway| gateway.announcer.status().state).collect();
        if states.iter().all(|state| *state == GatewayState::Eligible) {
            Ok(())
        } else {
            Err(format!("{states:?}"))
        }
    });
}

#[test]
fn heartbeats_leave_in_time_while_addresses_wait_for_the_kernel() {
    let (switch, folder) = (Host::new("switch"), tempfile::tempdir().unwrap());
    let mut gateways = start(&switch, folder.path());
    let fenced: Vec<u64> = gateways.iter().map(Gateway::fenced).collect();
    let (began, sent) = (Instant::now(), gateways[0].announcer.status().counts.heartbeats_sent);

    let _alone = slowness::set(EACH);
    gateways.iter().for_each(|gateway| gateway.announcer.set_claims(claims()));
    all_have("each has its share", &gateways, ADDRESSES.into());
    // As if it were killed: the others take over what it had.
    drop(gateways.pop().map(|gateway| gateway.announcer));
    all_have("two have what three had", &gateways, ADDRESSES.into());
    gateways.iter().for_each(|gateway| gateway.announcer.set_claims(BTreeMap::new()));
    eventually("nobody has any", || {
        let mut left = 0;
        for gateway in &gateways {
            let rules = gateway.rules();
            let kernel = gateway.kernel();
            // The process does not answer for them any more.
            let answered = kernel.iter().find(|ip| !rules.contains(&format!(". {ip}")));
            assert_eq!(answered, None, "the kernel answers, with {rules}");
            left += kernel.len();
        }
        if left == 0 { Ok(()) } else { Err(left) }
    });
    // The status has the counts of the last second.
    let_pass(Duration::from_millis(1100));
    let now_fenced: Vec<u64> = gateways.iter().map(Gateway::fenced).collect();
    assert_eq!(now_fenced, fenced[..2]);
    // To one other gateway at the least.
    let (sent, due) = (
        gateways[0].announcer.status().counts.heartbeats_sent - sent,
        began.elapsed().as_millis() / INTERVAL.as_millis(),
    );
    assert!(u128::from(sent) * 4 > due * 3, "{sent} heartbeats in {due} intervals");
}

/// A kernel that takes longer than `FAIL_AFTER` for anything that needs its lock: the list of links that an upgrade and a new interface ask for, and what a
/// process has begun when another one goes on.
#[test]
fn heartbeats_leave_in_time_while_links_are_listed_and_during_an_upgrade() {
    let (switch, folder) = (Host::new("switch"), tempfile::tempdir().unwrap());
    let mut gateways = start(&switch, folder.path());
    let few: BTreeMap<IpAddr, Claim> = claims().into_iter().take(3).collect();
    gateways.iter().for_each(|gateway| gateway.announcer.set_claims(few.clone()));
    all_have("each has its share", &gateways, few.len());
    let fenced: Vec<u64> = gateways.iter().map(Gateway::fenced).collect();

    let _alone = slowness::set((FAIL_AFTER + INTERVAL * 2).as_millis() as u64);
    gateways[0].host.ip(&[
        "link add eth1 type veth peer name eth2".into(),
        "link set eth1 up".into(),
        "link set eth2 up".into(),
        "addr add 198.51.100.1/24 dev eth1".into(),
    ]);
    let_pass(FAIL_AFTER * 3);
    gateways[1].upgrade();
    gateways[1].announcer.set_members(members());
    gateways[1].announcer.set_claims(few.clone());
    let_pass(FAIL_AFTER * 4);
    all_may_own(&gateways);
    all_have("each has its share", &gateways, few.len());
    // The process that went on counts anew.
    let now: Vec<u64> = gateways.iter().map(Gateway::fenced).collect();
    assert_eq!(now, [fenced[0], 0, fenced[2]]);
}

/// All addresses of one gateway take longer than each lives where the kernel is quick.
#[test]
fn addresses_live_until_a_slow_kernel_has_renewed_them() {
    let (switch, folder) = (Host::new("switch"), tempfile::tempdir().unwrap());
    let mut gateways = start(&switch, folder.path());
    let fenced: Vec<u64> = gateways.iter().map(Gateway::fenced).collect();
    let monitor = |gateway: &Gateway| gateway.host.start("ip", &["-o", "monitor", "address"]);
    let monitors: Vec<_> = gateways.iter().map(monitor).collect();

    // About 10 addresses for each. Three rounds of them take longer than a successor has to learn that by itself.
    let _alone = slowness::set(750);
    gateways.iter().for_each(|gateway| gateway.announcer.set_claims(claims()));
    all_have("each has its share", &gateways, ADDRESSES.into());
    let_pass(Duration::from_secs(12));
    // The next process learns from what is left how slow the kernel is.
    gateways[0].upgrade();
    gateways[0].announcer.set_members(members());
    gateways[0].announcer.set_claims(claims());
    let_pass(Duration::from_secs(8));
    all_have("each has its share still", &gateways, ADDRESSES.into());
    for monitor in monitors {
        let text = monitor.stdout();
        let removed: Vec<&str> = text.lines().filter(|line| line.starts_with("Deleted")).collect();
        assert_eq!(removed, [] as [&str; 0]);
    }
    let now_fenced: Vec<u64> = gateways.iter().map(Gateway::fenced).collect();
    assert_eq!(now_fenced, [0, fenced[1], fenced[2]]);
}

/// Another gateway may own the addresses of a process that crashed.
#[test]
fn the_kernel_answers_for_nothing_that_it_has_yet_to_take_off() {
    let (switch, folder) = (Host::new("switch"), tempfile::tempdir().unwrap());
    let mut gateways = start(&switch, folder.path());
    gateways.iter().for_each(|gateway| gateway.announcer.set_claims(claims()));
    all_have("each has its share", &gateways, ADDRESSES.into());
    let _alone = slowness::set(400);
    let gateway = &mut gateways[0];
    gateway.begin_anew();
    eventually("its kernel is silent before they are off", || {
        let (has, rules) = (gateway.kernel(), gateway.rules());
        let silent = has.iter().filter(|ip| rules.contains(&format!("\"eth0\" . {ip}"))).count();
        if !has.is_empty() && silent == has.len() {
            Ok(())
        } else {
            Err(format!("{silent} of {}", has.len()))
        }
    });
    eventually("they are off, and nothing is left", || {
        let (has, rules) = (gateway.has(), gateway.rules());
        if has == 0 && !rules.contains("eth0") { Ok(()) } else { Err(format!("{has}: {rules}")) }
    });
}
