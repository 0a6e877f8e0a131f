//! Which installation the Problems about the Leases name.

use std::time::Duration;

use tokio::time::Instant;

use super::*;

const OWN: &str = "one/7c1d";

fn lease(name: &str, leader: Option<&str>, held: bool) -> KarmadaLease {
    let election = Election::that_has_seen(OWN, leader);
    KarmadaLease { lease: ServiceKey::new("sheave-system", name), election, held }
}

fn side(class: KarmadaLease, unclassified: Option<KarmadaLease>) -> KarmadaSide {
    KarmadaSide {
        connection: Connection::to("http://127.0.0.1:9"),
        installation: OWN.to_owned(),
        class,
        unclassified,
        leadership: Leadership::until(Instant::now() + Duration::from_secs(60)),
        writer: None,
    }
}

fn messages(side: &KarmadaSide) -> Vec<String> {
    side.problems().map(|problem| problem.message).collect()
}

/// All processes of an installation hold the Lease under one name, so its holder may be this installation before this process leads.
#[tokio::test]
async fn an_installation_does_not_blame_itself() {
    for (leader, named) in [(Some("two/9e3f"), Some("two/9e3f")), (Some(OWN), None), (None, None)] {
        let told = messages(&side(lease("sheave", leader, false), None));
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].contains("another loadBalancerClass"), named.is_some(), "{told:?}");
        assert_eq!(told[0].contains("does not hold the Lease yet"), named.is_none(), "{told:?}");
        assert!(named.is_none_or(|named| told[0].contains(named)), "{told:?}");
        let told = messages(&side(
            lease("sheave", Some(OWN), true),
            Some(lease("sheave-unclassified", leader, false)),
        ));
        assert_eq!(told.len(), usize::from(named.is_some()), "{told:?}");
    }
}
