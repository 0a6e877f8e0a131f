//! Where a client's packets go whatever the tables choose: to the endpoint of its open connection, or of its affinity record.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use sheave_model::FrontendAddr;

use crate::attributes::Attributes;
use crate::batch::GET_ELEMENTS;
use crate::conntrack::Flows;
use crate::encoding::{Dumped, LIST_ELEMENTS, LIST_SET, LIST_TABLE, record_key, write_key};
use crate::error::Error;
use crate::expressions::protocol_family;
use crate::netlink::{NFTABLES, Netfilter};
use crate::ruleset::Family;
use crate::sets::AFFINITY;
use crate::table::NAME;

/// The endpoint of a client's affinity record, and how long that lasts unless the client opens another connection; `None`: it has none,
/// or there is no table.
pub fn affinity_record(
    frontend: FrontendAddr,
    client: IpAddr,
) -> Result<Option<(SocketAddr, Duration)>, Error> {
    let family = Family::of(frontend.ip);
    if Family::of(client) != family {
        return Ok(None);
    }
    let mut list = Attributes::new();
    write_key(&mut list, &record_key(client, frontend));
    let mut which = Attributes::new();
    which.text(LIST_TABLE, NAME).text(LIST_SET, AFFINITY).nested(LIST_ELEMENTS, |all| all.append(&list));
    let found =
        Netfilter::open()?.find(NFTABLES | GET_ELEMENTS, [protocol_family(family), 0], &which, |message| {
            Dumped::list(family, message).find_map(|one| Some((one.record()?.endpoint, one.remaining()?)))
        });
    Ok(found?)
}

/// The endpoint of the connection or flow that the client has open from this address and port.
pub fn open_connection(frontend: FrontendAddr, client: SocketAddr) -> Result<Option<SocketAddr>, Error> {
    if Family::of(client.ip()) != Family::of(frontend.ip) {
        return Ok(None);
    }
    Flows::open()?.endpoint(frontend, client)
}
