//! Addresses that other programs announce, with `announce: none`: what each leaves on a gateway's machine and on the network is made by
//! hand here. deploy/examples/metallb and deploy/examples/kube-vip describe the programs.

use std::io;
use std::net::IpAddr;

use crate::segment::{Segment, Shape, answering, service_address};
use crate::support::patience::eventually;
use crate::support::world::Family;

/// Gateways that announce nothing, and serve.
fn silent() -> Segment {
    let mut segment = Segment::new(Shape { mode: "none", announce: "interfaces: []", ..Shape::default() });
    for number in segment.numbers() {
        segment.start(number);
        eventually(&format!("gw-{number} is ready"), || {
            let page = segment.page(number, "/readyz")?;
            if page.starts_with("ok") { Ok(()) } else { Err(page) }
        });
    }
    segment
}

/// Which gateway answers a client that asks for the owner of the address anew.
fn answer(segment: &Segment, family: Family) -> io::Result<u8> {
    segment.client.ip(&["neigh flush dev eth0".to_owned()]);
    segment.client.run(|| answering(service_address(family, 1)))
}

fn of_machine(ip: IpAddr) -> String {
    let length = if ip.is_ipv4() { 32 } else { 128 };
    format!("{ip}/{length} dev eth0")
}

/// kube-vip has an address on an interface of one node at a time.
#[test]
fn a_gateway_serves_at_an_address_that_another_program_puts_on_its_machine() {
    let segment = silent();
    for family in Family::BOTH {
        let address = of_machine(service_address(family, 1));
        assert!(answer(&segment, family).is_err(), "nobody has it");
        for number in segment.numbers() {
            // As kube-vip has it: an address that is not deprecated is the source of connections to endpoints (RFC 6724, rule 8).
            let flags = if family == Family::V6 { "nodad" } else { "" };
            segment
                .host(number)
                .ip(&[format!("addr add {address} valid_lft forever preferred_lft 0 {flags}")]);
            eventually(&format!("gw-{number} answers"), || match answer(&segment, family) {
                Ok(owner) if owner == number => Ok(()),
                other => Err(format!("{other:?}")),
            });
            segment.host(number).ip(&[format!("addr del {address}")]);
        }
        assert!(answer(&segment, family).is_err(), "nobody has it any more");
    }
    for number in segment.numbers() {
        assert_eq!(segment.problems(number), [""; 0], "gw-{number}");
    }
}

/// MetalLB's speakers answer neighbours, and put the address nowhere: the machine takes packets for it by a local route. Such a route has the
/// kernel answer ARP by itself, on each machine, unless `arp_ignore` keeps it from that.
#[test]
fn a_gateway_serves_at_an_address_that_another_program_answers_for() {
    let segment = silent();
    for number in segment.numbers() {
        segment.host(number).ip(&[
            "route add local 10.5.100.0/24 dev lo".to_owned(),
            "route add local fd05::64:0/112 dev lo".to_owned(),
        ]);
    }
    eventually("without arp_ignore kernels answer", || answer(&segment, Family::V4));
    for number in segment.numbers() {
        segment.host(number).sysctl("ipv4/conf/all/arp_ignore", "1");
    }
    for family in Family::BOTH {
        assert!(answer(&segment, family).is_err(), "{family}: no kernel answers");
        for number in segment.numbers() {
            let link =
                segment.host(number).finish("ip", &["-o", "link", "show", "dev", "eth0"]).expect_success();
            let link = link
                .split_whitespace()
                .skip_while(|it| *it != "link/ether")
                .nth(1)
                .expect("a hardware address");
            let address = service_address(family, 1);
            // What the client learns from the speaker.
            segment.client.ip(&[format!("neigh replace {address} lladdr {link} dev eth0 nud permanent")]);
            eventually(&format!("gw-{number} serves {address}"), || {
                match segment.client.run(|| answering(address)) {
                    Ok(owner) if owner == number => Ok(()),
                    other => Err(format!("{other:?}")),
                }
            });
            segment.client.ip(&[format!("neigh del {address} dev eth0")]);
        }
    }
}
