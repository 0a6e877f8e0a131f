//! Tests of `trace`: staged faults on the way of a client's packet, each of which the verdict names.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, UdpSocket};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::gateway::Gateway;
use crate::support::manifest::{App, at, vip};
use crate::support::patience::{eventually, patience};
use crate::support::process::Finished;
use crate::support::tcp::{self, Conversation};
use crate::support::udp;
use crate::support::world::{Family, World};

for_both_families!(
    a_way_without_a_fault_is_told_as_such,
    an_address_that_nobody_has,
    an_address_that_two_machines_have,
    a_client_whose_packets_go_elsewhere,
    a_policy_that_drops,
    rules_that_send_the_packets_elsewhere,
    a_rule_that_drops,
    full_packets_that_are_lost,
    source_ranges_without_the_client,
    the_policy_local_without_an_endpoint_here,
    a_wrong_target_port,
    an_endpoint_that_refuses_among_others,
    an_endpoint_that_answers_nothing,
    an_endpoint_that_resets,
    an_endpoint_in_an_unknown_network,
    a_proxy_header_that_nobody_asked_for,
    a_proxy_header_that_is_missing,
    an_answer_from_another_port,
    a_limit_that_is_reached,
    a_gateway_that_drains,
    the_kernel_path_without_forwarding,
    a_client_that_is_its_own_endpoint,
    a_client_on_the_network_of_an_endpoint,
    the_command_prints_the_verdict_and_saves_packets,
);

/// A Service without endpoints.
fn bare(ip: IpAddr) -> App {
    App::new("web", &[ip]).tcp(80, 9000)
}

/// A Service with an endpoint on each backend.
fn web(world: &World, family: Family) -> App {
    at_address(world, family, family.vip(0))
}

fn at_address(world: &World, family: Family, ip: IpAddr) -> App {
    bare(ip).all_ready((0..).zip(&world.backends).map(|(index, _)| family.backend(index)))
}

/// An address of the client's network, for which machines there ask by ARP or neighbour discovery.
fn neighbour_vip(family: Family) -> IpAddr {
    match family.gateway() {
        IpAddr::V4(ip) => IpAddr::V4((u32::from(ip) | 100).into()),
        IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) | 0x100).into()),
    }
}

/// Gives a host the address on its link.
fn assign(host: &crate::support::host::Host, link: &str, ip: IpAddr) {
    let line = match ip {
        IpAddr::V4(_) => format!("addr add {ip}/32 dev {link}"),
        IpAddr::V6(_) => format!("addr add {ip}/128 dev {link} nodad"),
    };
    host.ip(&[line]);
}

/// Trace of `e2e/web` for a client.
fn trace(gateway: &Gateway<'_>, family: Family, more: &str) -> Value {
    trace_for(gateway, family.client(0), more)
}

fn trace_for(gateway: &Gateway<'_>, client: IpAddr, more: &str) -> Value {
    let answer = gateway.ask(&format!("/api/trace{more}?service=e2e/web&client={client}"));
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {}", answer.body))
}

/// Expects the verdict of this state and step, whose text has all these words.
#[track_caller]
fn expect(traced: &Value, state: &str, step: &str, words: &[&str]) {
    let verdict = &traced["verdict"];
    let text = verdict["text"].as_str().unwrap_or_default();
    let is_so =
        verdict["state"] == state && verdict["step"] == step && words.iter().all(|word| text.contains(word));
    assert!(is_so, "expected {state} at {step} with {words:?}: {traced:#}");
}

/// Traces until the verdict is so: a neighbour may not be known at first.
fn expect_stopped(gateway: &Gateway<'_>, family: Family, step: &str, words: &[&str]) {
    expect(&trace(gateway, family, ""), "stopped", step, words);
}

fn a_way_without_a_fault_is_told_as_such(family: Family) {
    let world = World::new(2);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let gateway = Gateway::start(&world, &[web(&world, family)]);
    world.client.run(|| tcp::ask(vip(family))).expect("the client is served");
    let traced = trace(&gateway, family, "");
    expect(&traced, "ok", "", &["goes to one of 2 endpoints"]);
    let unseen = traced["steps"].as_array().unwrap().iter().find(|step| step["state"] == "unseen");
    assert_eq!(unseen, None, "{traced:#}");
}

fn an_address_that_nobody_has(family: Family) {
    let world = World::without_vips(1);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let ip = neighbour_vip(family);
    let gateway = Gateway::start(&world, &[at_address(&world, family, ip)]);
    // The frontend cannot be opened either, but that is for the same reason.
    let traced = trace(&gateway, family, "");
    let text = traced["verdict"].to_string();
    assert!(text.contains("stopped") && text.contains(&ip.to_string()), "{traced:#}");
}

fn an_address_that_two_machines_have(family: Family) {
    let world = World::new(1);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let ip = neighbour_vip(family);
    assign(&world.gateway, "client", ip);
    let gateway = Gateway::start(&world, &[at_address(&world, family, ip)]);
    expect(&trace(&gateway, family, ""), "ok", "", &[]);
    assign(&world.client, "eth0", ip);
    expect(
        &trace(&gateway, family, ""),
        "doubtful",
        "address",
        &["answers for it", "neighbours reach that machine"],
    );
}

fn a_client_whose_packets_go_elsewhere(family: Family) {
    let world = World::new(1);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let gateway = Gateway::start(&world, &[web(&world, family)]);
    // Without packets in the time of the capture, nothing of the client arrives.
    expect(&trace(&gateway, family, "/1"), "stopped", "capture", &["no packet of", "arrived"]);
}

fn a_policy_that_drops(family: Family) {
    let world = World::new(1);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let gateway = Gateway::start(&world, &[web(&world, family)]);
    let rules = "table inet guard { chain way_in { type filter hook input priority 0; policy drop; \
                 iif lo accept; iif != client accept; meta l4proto { icmp, ipv6-icmp } accept; }; }";
    world.gateway.finish("nft", &[rules]).expect_success();
    expect_stopped(&gateway, family, "filters", &["no rule accepts", "guard way_in", "arrives on client"]);
    // A rule that accepts the packet comes before the policy.
    world.gateway.finish("nft", &["add rule inet guard way_in tcp dport { 22, 80 } accept"]).expect_success();
    expect(&trace(&gateway, family, ""), "ok", "", &[]);
}

fn a_rule_that_drops(family: Family) {
    let world = World::new(1);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let gateway = Gateway::start(&world, &[web(&world, family)]);
    let (kind, client) = (if family == Family::V4 { "ip" } else { "ip6" }, family.client(0));
    let rules = format!(
        "table inet corp {{ chain in {{ type filter hook input priority -5; policy accept; \
         iifname client {kind} saddr {client} tcp dport 80 drop; }}; }}"
    );
    world.gateway.finish("nft", &[rules]).expect_success();
    let rule = format!("a rule of table inet corp, chain in (handle 2), drops a SYN of {client} to");
    expect_stopped(&gateway, family, "filters", &[&rule, "arrives on client"]);
    // What a limit does depends on other packets.
    let limit = "add chain inet corp in { policy drop; }; flush chain inet corp in; \
                 add rule inet corp in iif lo accept; add rule inet corp in iif != client accept; \
                 add rule inet corp in ct state established accept; \
                 add rule inet corp in meta l4proto { icmp, ipv6-icmp } accept; \
                 add rule inet corp in tcp dport 80 limit rate 9/second accept";
    world.gateway.finish("nft", &[limit]).expect_success();
    expect(
        &trace(&gateway, family, ""),
        "doubtful",
        "filters",
        &["inet corp in (1 of its rules", "may drop it"],
    );
    world.client.run(|| tcp::ask(vip(family))).expect("the client is served");
    expect(&trace(&gateway, family, ""), "ok", "", &[]);
}

/// IPv6 has no `rp_filter`.
#[test]
fn packets_of_a_client_that_arrive_on_the_wrong_link() {
    let (world, family) = (World::new(1), Family::V4);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let ip = neighbour_vip(family);
    assign(&world.gateway, "client", ip);
    world.gateway.sysctl("ipv4/conf/client/rp_filter", "1");
    let gateway = Gateway::start(&world, &[at_address(&world, family, ip)]);
    expect(&trace(&gateway, family, ""), "ok", "", &[]);
    world.gateway.ip(&[format!("route add {}/32 via {}", family.client(0), family.backend(0))]);
    expect_stopped(
        &gateway,
        family,
        "client",
        &["rp_filter (strict)", "arrive on client", "leave by backend-0"],
    );
}

/// The address is routed here: its packets may come by any link.
#[test]
fn packets_of_a_client_that_may_arrive_on_another_link() {
    let (world, family) = (World::new(1), Family::V4);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    for link in ["all", "backend-0"] {
        world.gateway.sysctl(&format!("ipv4/conf/{link}/rp_filter"), "0");
    }
    world.gateway.sysctl("ipv4/conf/client/rp_filter", "1");
    let gateway = Gateway::start(&world, &[web(&world, family)]);
    expect(&trace(&gateway, family, ""), "ok", "", &[]);
    world.gateway.ip(&[format!("route add {}/32 via {}", family.client(0), family.backend(0))]);
    let other = "if they came by client, rp_filter (strict) would drop them, with ARP requests";
    expect(&trace(&gateway, family, ""), "doubtful", "client", &[other]);
    let captured = trace(&gateway, family, "/1");
    expect(&captured, "stopped", "capture", &["no packet of"]);
    let advice = captured["verdict"]["advice"].to_string();
    assert!(advice.contains("rp_filter (strict) drops packets of 10.1.0.2 on client"), "{advice}");
}

fn full_packets_that_are_lost(family: Family) {
    let world = World::new(1);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let gateway = Gateway::start(&world, &[web(&world, family)]);
    // A veth drops what its other end's MTU does not take, without a report.
    world.backend(0).ip(&["link set eth0 mtu 1300".to_owned()]);
    let endpoint = family.backend(0).to_string();
    expect_stopped(&gateway, family, "mtu", &["1500 bytes", &endpoint, "lost without a report"]);
}

fn source_ranges_without_the_client(family: Family) {
    let world = World::new(1);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let ranges = [format!("{}/{}", family.client(5), family.host_prefix())];
    let gateway = Gateway::start(&world, &[web(&world, family).source_ranges(&ranges)]);
    expect_stopped(&gateway, family, "service", &["not admitted"]);
}

fn the_policy_local_without_an_endpoint_here(family: Family) {
    let world = World::new(1);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let gateway = Gateway::start(&world, &[bare(family.vip(0)).local_policy().ready(family.backend(0))]);
    expect_stopped(&gateway, family, "service", &["policy is Local", "no endpoint is on this node"]);
}

fn a_wrong_target_port(family: Family) {
    let world = World::new(2);
    let _servers = tcp::Server::on_every_backend(&world, family, 9001);
    let gateway = Gateway::start(&world, &[web(&world, family)]);
    expect_stopped(&gateway, family, "endpoints", &["refuses connections", "port 9000"]);
}

fn an_endpoint_that_refuses_among_others(family: Family) {
    let world = World::new(2);
    let _server = tcp::Server::who_am_i(world.backend(0), at(family.backend(0), 9000), "backend-0");
    let gateway = Gateway::start(&world, &[web(&world, family)]);
    let refusing = at(family.backend(1), 9000).to_string();
    expect(&trace(&gateway, family, ""), "doubtful", "endpoints", &[&refusing, "refuses"]);
}

fn an_endpoint_that_answers_nothing(family: Family) {
    let world = World::new(1);
    let gateway = Gateway::start(&world, &[bare(family.vip(0)).ready(family.black_hole())]);
    expect_stopped(&gateway, family, "endpoints", &["does not answer"]);
}

fn an_endpoint_that_resets(family: Family) {
    let world = World::new(1);
    let reset = |stream| {
        tcp::reset(stream);
        Ok(())
    };
    let _server = tcp::Server::start(world.backend(0), at(family.backend(0), 9000), reset);
    let gateway = Gateway::start(&world, &[web(&world, family)]);
    expect_stopped(&gateway, family, "endpoints", &["accepts connections and resets them"]);
}

fn an_endpoint_in_an_unknown_network(family: Family) {
    let world = World::new(1);
    let (network, ip): (&str, IpAddr) = match family {
        Family::V4 => ("10.77.0.0/16", [10, 77, 0, 1].into()),
        Family::V6 => ("fd77::/32", [0xfd77, 0, 0, 0, 0, 0, 0, 1].into()),
    };
    world.gateway.ip(&[format!("route add unreachable {network}")]);
    let gateway = Gateway::start(&world, &[bare(family.vip(0)).ready(ip)]);
    expect_stopped(&gateway, family, "endpoints", &["cannot be reached from this node"]);
}

/// A server that speaks if a connection begins with a PROXY header, or if it does not, and otherwise ends it.
fn picky_server(world: &World, family: Family, wants_header: bool) -> tcp::Server {
    tcp::Server::start(world.backend(0), at(family.backend(0), 9000), move |mut stream| {
        let mut first = [0; 5];
        stream.read_exact(&mut first[..1])?;
        let has_header = first[0] == b'P'
            || first[0] == b'\r' && {
                // The other line end is alone, and version 2 goes on.
                stream.set_read_timeout(Some(Duration::from_millis(50)))?;
                stream.read_exact(&mut first[1..]).is_ok()
            };
        if has_header == wants_header {
            stream.set_read_timeout(Some(patience(10.0)))?;
            while stream.read(&mut first)? > 0 {}
        }
        Ok(())
    })
}

fn a_proxy_header_that_nobody_asked_for(family: Family) {
    let world = World::new(1);
    let _server = picky_server(&world, family, false);
    let gateway =
        Gateway::start(&world, &[web(&world, family).annotation("sheave.dev/client-source", "proxy-v1")]);
    expect_stopped(&gateway, family, "endpoints", &["PROXY header, which this Service sends"]);
}

fn a_proxy_header_that_is_missing(family: Family) {
    let world = World::new(1);
    let _server = picky_server(&world, family, true);
    let gateway = Gateway::start(&world, &[web(&world, family)]);
    // Only a Service none of whose clients ever got a byte is asked so.
    world.client.run(|| {
        let mut stream = tcp::connect(vip(family)).expect("the gateway accepts");
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("the request is sent");
        stream.read_to_end(&mut Vec::new()).ok();
    });
    expect_stopped(&gateway, family, "endpoints", &["do not begin with a PROXY header"]);
}

fn an_answer_from_another_port(family: Family) {
    let world = World::new(1);
    let from = at(family.backend(0), 9000);
    let _server = world.backend(0).spawn(move || {
        let asked = UdpSocket::bind(from).expect("a port");
        asked.set_read_timeout(Some(patience(20.0))).expect("a deadline");
        let answering = UdpSocket::bind(at(family.backend(0), 9009)).expect("another port");
        while let Ok((length, peer)) = asked.recv_from(&mut [0; 64]) {
            answering.send_to(&[b'x'; 64][..length], peer).expect("an answer is sent");
        }
    });
    let gateway =
        Gateway::start(&world, &[App::new("web", &[family.vip(0)]).udp(80, 9000).ready(family.backend(0))]);
    expect_stopped(&gateway, family, "endpoints", &["answers from", "9009"]);
}

fn a_limit_that_is_reached(family: Family) {
    let world = World::new(1);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let gateway =
        Gateway::start(&world, &[web(&world, family).annotation("sheave.dev/max-connections", "1")]);
    // Its greeting says that the gateway counts it; the kernel alone accepts more than one.
    let _first = world.client.run(|| Conversation::open(vip(family))).expect("the first one is forwarded");
    world.client.run(|| tcp::ask(vip(family))).expect_err("the second one is refused");
    eventually("the limit is a Problem", || match gateway.problems().as_slice() {
        [] => Err("no Problem".to_owned()),
        _ => Ok(()),
    });
    expect(&trace(&gateway, family, ""), "doubtful", "service", &["LimitReached"]);
}

fn a_gateway_that_drains(family: Family) {
    let world = World::new(1);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let gateway = Gateway::start(&world, &[web(&world, family)]);
    let _open = world.client.run(|| tcp::ask(vip(family))).map(drop);
    let _open =
        world.client.run(|| tcp::connect(vip(family))).expect("a connection that keeps it from ending");
    gateway.terminate();
    eventually("it drains", || {
        let traced = trace(&gateway, family, "");
        let text = traced["steps"].to_string();
        if text.contains("it drains") { Ok(()) } else { Err(traced.to_string()) }
    });
}

/// The setting by which the kernel forwards.
fn forwarding(family: Family) -> &'static str {
    match family {
        Family::V4 => "ipv4/ip_forward",
        Family::V6 => "ipv6/conf/all/forwarding",
    }
}

fn by_kernel(traced: &Value) -> bool {
    let steps = traced["steps"].as_array().expect("steps");
    let path = steps.iter().find(|step| step["step"] == "path").map(|step| step["found"].to_string());
    path.is_some_and(|found| found.contains("the kernel"))
}

fn wait_for_kernel_path(gateway: &Gateway<'_>, family: Family) {
    eventually("the kernel carries it", || {
        let traced = trace(gateway, family, "");
        if by_kernel(&traced) { Ok(()) } else { Err(traced.to_string()) }
    });
}

/// As kube-proxy does with node ports, or the portmap plugin with host ports.
fn rules_that_send_the_packets_elsewhere(family: Family) {
    let world = World::new(2);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let gateway = Gateway::start(&world, &[bare(family.vip(0)).all_ready([family.backend(0)])]);
    world.gateway.sysctl(forwarding(family), "1");
    let [ip, to] = [family.vip(0), family.backend(1)];
    let (kind, to) = if ip.is_ipv4() { ("ip", to.to_string()) } else { ("ip6", format!("[{to}]")) };
    for rule in [
        format!("add table {kind} others"),
        format!("add chain {kind} others pre {{ type nat hook prerouting priority -100; }}"),
        format!("add rule {kind} others pre {kind} daddr {ip} tcp dport 80 dnat to {to}:9000"),
    ] {
        world.gateway.finish("nft", &rule.split(' ').collect::<Vec<_>>()).expect_success();
    }
    let client = family.client(0);
    let answer = world.client.run(|| tcp::ask_from(client, vip(family))).expect("the other endpoint answers");
    assert_eq!(answer.name, "backend-1");
    expect_stopped(&gateway, family, "connection", &["another program", &to, "past this gateway"]);
}

fn the_kernel_path_without_forwarding(family: Family) {
    let world = World::new(1);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let forwarding = forwarding(family);
    world.gateway.sysctl(forwarding, "1");
    let gateway = Gateway::start(&world, &[web(&world, family).annotation("sheave.dev/path", "kernel")]);
    wait_for_kernel_path(&gateway, family);
    expect(&trace(&gateway, family, ""), "ok", "", &[]);
    world.gateway.sysctl(forwarding, "0");
    let traced = trace(&gateway, family, "");
    // The gateway may have noticed already, and carry it itself.
    if by_kernel(&traced) {
        expect(&traced, "stopped", "path", &["is 0"]);
    }
}

/// With its own address as the source, the endpoint would answer itself: it sees the gateway's on either path, and is served.
fn a_client_that_is_its_own_endpoint(family: Family) {
    for path in ["proxy", "kernel"] {
        let world = World::new(1);
        world.gateway.sysctl(forwarding(family), "1");
        let _servers = tcp::Server::on_every_backend(&world, family, 9000);
        let app = web(&world, family).annotation("sheave.dev/client-source", "transparent");
        let gateway = Gateway::start(&world, &[app.annotation("sheave.dev/path", path)]);
        if path == "kernel" {
            wait_for_kernel_path(&gateway, family);
        }
        let seen = |host: &crate::support::host::Host, client| {
            host.run(|| tcp::ask_from(client, vip(family))).expect("the client is served").peer.ip()
        };
        let [other, own] = [family.client(0), family.backend(0)];
        assert_eq!(seen(&world.client, other), other, "{path}: others are seen as they are");
        assert_eq!(seen(world.backend(0), own), family.gateway_towards(0), "{path}");
        expect(&trace_for(&gateway, family.backend(0), ""), "ok", "", &[]);
    }
}

/// The endpoint has the client's address itself, as if a bridge connected both. The kernel path masquerades such connections.
fn a_client_on_the_network_of_an_endpoint(family: Family) {
    let world = World::with_addresses(1, 2);
    world.gateway.sysctl(forwarding(family), "1");
    let _servers = udp::Server::on_every_backend(&world, family, 9000);
    let neighbour = family.backend_address(0, 1);
    let app = |path: &str| {
        let app = App::new("web", &[family.vip(0)]).udp(80, 9000).ready(family.backend(0));
        app.annotation("sheave.dev/client-source", "transparent").annotation("sheave.dev/path", path)
    };
    let gateway = Gateway::start(&world, &[app("proxy")]);
    let client = udp::Client::new(world.backend(0), neighbour, vip(family));
    client.send(b"hello").expect("the gateway takes it");
    client.expect_silence(Duration::from_millis(500));
    let endpoint = at(family.backend(0), 9000).to_string();
    let words = [endpoint.as_str(), "on backend-0", "straight to the client"];
    expect(&trace_for(&gateway, neighbour, ""), "doubtful", "path", &words);
    expect(&trace(&gateway, family, ""), "ok", "", &[]);
    drop(gateway);
    let gateway = Gateway::start(&world, &[app("kernel")]);
    wait_for_kernel_path(&gateway, family);
    let client = udp::Client::new(world.backend(0), neighbour, vip(family));
    assert_eq!(client.ask().expect("an answer").peer.ip(), family.gateway_towards(0));
    expect(&trace_for(&gateway, neighbour, ""), "ok", "", &[]);
}

fn the_command_prints_the_verdict_and_saves_packets(family: Family) {
    let world = World::new(1);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let _gateway = Gateway::start(&world, &[web(&world, family)]);
    let client = family.client(0).to_string();
    let folder = tempfile::tempdir().expect("a folder");
    let pcap = folder.path().join("web.pcap").display().to_string();
    let program = crate::support::program::path();
    let command = |more: &[&str]| -> Finished {
        let words = [&["trace", "e2e/web", "--client", &client][..], more].concat();
        world.gateway.finish(program, &words)
    };
    let said = command(&[]);
    assert_eq!(said.code(), Some(0), "{}", said.stdout);
    assert!(said.stdout.starts_with("ok: a connection through this gateway goes to"), "{}", said.stdout);
    let asking = world.client.spawn(move || {
        // Again and again, since nothing tells when the capture has begun.
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until {
            tcp::ask_from(family.client(0), vip(family)).expect("the client is served");
        }
    });
    let captured = command(&["--capture", "2s", "--pcap", &pcap]);
    asking.join().expect("the client is served");
    assert_eq!(captured.code(), Some(0), "{}", captured.stdout);
    let file = std::fs::read(&pcap).expect("the packets are saved");
    assert!(file.len() > 500 && captured.stdout.contains("packets are in"), "{}", captured.stdout);
    let missing = world.gateway.finish(program, &["trace", "e2e/wob"]);
    assert_eq!(missing.code(), Some(65), "{}", missing.stdout);
    assert!(missing.stdout.contains("did you mean e2e/web?"), "{}", missing.stdout);
}
