//! Packet filters of others.

use sheave_trace::packet_filter::{Hook, TableFamily, base_chains, legacy_tables};

use crate::network::{ip, soon};
use crate::support::host::Host;

fn nft(host: &Host, rules: &str) {
    host.finish("nft", &[rules]).expect_success();
}

#[test]
fn chains_of_others_are_listed_in_their_order() {
    let host = Host::new("filtered");
    let look = |of| host.run(|| base_chains(ip(of), soon())).unwrap();
    assert_eq!(look("10.0.0.1"), []);
    nft(
        &host,
        "add table ip sheave; add chain ip sheave c { type filter hook input priority 0; policy drop; }",
    );
    nft(&host, "add table ip sheave-x; add chain ip sheave-x c { type filter hook input priority 0; }");
    assert_eq!(look("10.0.0.1"), []);
    nft(
        &host,
        "add table inet guard; \
         add chain inet guard in { type filter hook input priority 10; policy drop; }; \
         add chain inet guard early { type filter hook prerouting priority -200; }; \
         add chain inet guard sub; \
         add rule inet guard in tcp dport 22 accept; \
         add rule inet guard in jump sub; \
         add rule inet guard sub tcp dport 23 counter drop; \
         add rule inet guard sub tcp dport 24 reject; \
         add table ip6 six; add chain ip6 six f { type filter hook forward priority 0; }; \
         add chain ip6 six o { type filter hook output priority 0; }",
    );
    let found = look("10.0.0.1");
    let [early, input] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((early.hook, early.priority, early.drops_by_policy), (Hook::Prerouting, -200, false));
    assert_eq!((input.hook, input.priority, input.drops_by_policy), (Hook::Input, 10, true));
    assert_eq!(
        (input.family, input.table.as_str(), input.chain.as_str()),
        (TableFamily::Inet, "guard", "in")
    );
    assert!(early.has_drops && input.has_drops);
    let found = look("2001:db8::1");
    assert_eq!(Vec::from_iter(found.iter().map(|chain| chain.chain.as_str())), ["early", "in", "f", "o"]);
    assert_eq!((found[2].has_drops, found[3].hook), (false, Hook::Output));
}

#[test]
fn tables_of_the_older_iptables_are_named() {
    let host = Host::new("filtered");
    assert_eq!(host.run(|| legacy_tables(ip("10.0.0.1"))), Ok(vec![]));
}
