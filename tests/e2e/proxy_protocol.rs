//! Tests of PROXY protocol headers between Sheave and real programs: HAProxy and nginx read Sheave's headers, HAProxy and
//! curl send headers to it.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};

use sheave_dataplane::proxy_protocol::{self, Addresses, Transport};
use tempfile::TempDir;

use crate::support::gateway::{Gateway, Settings};
use crate::support::host::Host;
use crate::support::manifest::{App, at, vip};
use crate::support::patience::{eventually, patience};
use crate::support::process::Process;
use crate::support::world::{Family, World};
use crate::support::{tcp, udp};

for_both_families!(
    haproxy_and_nginx_read_headers_of_both_versions,
    the_header_comes_first_though_the_client_says_nothing,
    each_datagram_brings_its_header,
    headers_of_trusted_peers_name_the_client,
    the_named_client_is_the_client_in_all_respects,
    who_is_not_trusted_is_a_client_without_a_header,
    what_is_no_header_ends_the_connection,
);

fn file(folder: &TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn wait_for_port(host: &Host, addr: SocketAddr) {
    eventually(&format!("{addr} is open"), || host.run(|| tcp::connect(addr)));
}

/// HAProxy that requires a header, and answers with its contents.
fn haproxy(host: &Host, ip: IpAddr, folder: &TempDir) -> Process {
    let listen = at(ip, 8080);
    let configuration = format!(
        "defaults\n  mode http\n  timeout connect 5s\n  timeout client 5s\n  timeout server 5s\nfrontend f\n  \
         bind {listen} accept-proxy\n  http-request return status 200 content-type text/plain lf-string \
         \"haproxy %[src] %[dst] %[dst_port]\\n\"\n"
    );
    let file = file(folder, "haproxy.cfg", &configuration);
    let process = host.start("haproxy", &["-db", "-q", "-f", &file]);
    wait_for_port(host, listen);
    process
}

/// nginx with the same behavior.
fn nginx(host: &Host, ip: IpAddr, folder: &TempDir) -> Process {
    let (listen, root) = (at(ip, 8080), folder.path().display());
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {root}/{kind}; "))
        .concat();
    let configuration = format!(
        "user root root; daemon off; master_process off; error_log stderr; pid {root}/nginx.pid;\n\
         events {{ worker_connections 64; }}\nhttp {{ access_log off; {temporary}\n  server {{\n    \
         listen {listen} proxy_protocol;\n    return 200 \"nginx $proxy_protocol_addr \
         $proxy_protocol_server_addr $proxy_protocol_server_port\\n\";\n  }}\n}}\n"
    );
    let file = file(folder, "nginx.conf", &configuration);
    let process = host.start("nginx", &["-e", "stderr", "-c", &file]);
    wait_for_port(host, listen);
    process
}

fn curl(host: &Host, arguments: &[&str]) -> String {
    let fixed = ["--silent", "--show-error", "--fail", "--globoff", "--max-time", "20"];
    host.finish("curl", &[&fixed, arguments].concat()).expect_success()
}

fn haproxy_and_nginx_read_headers_of_both_versions(family: Family) {
    let (world, folder) = (World::new(2), tempfile::tempdir().unwrap());
    let _haproxy = haproxy(world.backend(0), family.backend(0), &folder);
    let _nginx = nginx(world.backend(1), family.backend(1), &folder);
    let app = |version: &str, backend| {
        App::new("web", &[family.vip(0)])
            .tcp(80, 8080)
            .annotation("sheave.dev/client-source", version)
            .ready(family.backend(backend))
    };
    let gateway = Gateway::start(&world, &[]);
    for (backend, program) in [(0, "haproxy"), (1, "nginx")] {
        for version in ["proxy-v1", "proxy-v2"] {
            gateway.apply(&[app(version, backend)]);
            let expected = format!("{program} {} {} 80\n", family.client(3), family.vip(0));
            let (from, url) = (family.client(3).to_string(), format!("http://{}/", vip(family)));
            eventually(&format!("{program} reads {version}"), || {
                let answer =
                    world.client.finish("curl", &["-s", "-g", "-m", "5", "--interface", &from, &url]).stdout;
                if answer == expected { Ok(()) } else { Err(answer) }
            });
            // Other hosts of the network are clients like any other.
            let inside = curl(world.backend(backend.into()), &[&url]);
            assert_eq!(inside, format!("{program} {} {} 80\n", family.backend(backend), family.vip(0)));
        }
    }
}

fn the_header_comes_first_though_the_client_says_nothing(family: Family) {
    let world = World::new(1);
    let (server, connections) = tcp::Server::handing_over(world.backend(0), at(family.backend(0), 8080));
    let app = App::new("mail", &[family.vip(0)])
        .tcp(80, server.addr().port())
        .annotation("sheave.dev/client-source", "proxy-v1")
        .ready(family.backend(0));
    let _gateway = Gateway::start(&world, &[app]);
    let mut client = world.client.run(|| tcp::connect(vip(family))).unwrap();
    let mut stream = connections.recv_timeout(patience(10.0)).unwrap();
    let header = proxy_protocol::write_v1(&Addresses {
        client: client.local_addr().unwrap(),
        destination: vip(family),
    });
    let mut received = vec![0; header.len()];
    stream.set_read_timeout(Some(patience(10.0))).unwrap();
    stream.read_exact(&mut received).unwrap();
    assert_eq!(String::from_utf8(received), String::from_utf8(header));
    // Then they communicate normally.
    stream.write_all(b"220 hello").unwrap();
    client.read_exact(&mut [0; 9]).unwrap();
    client.write_all(b"EHLO").unwrap();
    let mut said = [0; 4];
    stream.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"EHLO");
}

fn each_datagram_brings_its_header(family: Family) {
    let world = World::new(1);
    let _server = udp::Server::echo(world.backend(0), at(family.backend(0), 5300));
    let app = App::new("dns", &[family.vip(0)])
        .udp(80, 5300)
        .annotation("sheave.dev/client-source", "proxy-v2")
        .ready(family.backend(0));
    let _gateway = Gateway::start(&world, &[app]);
    let client = udp::Client::new(&world.client, family.client(2), vip(family));
    let addresses = Addresses { client: client.local_addr(), destination: vip(family) };
    let header = proxy_protocol::write_v2(Transport::Datagram, &addresses);
    for payload in [&b"one"[..], &b""[..], &[7; 1200][..]] {
        assert_eq!(client.exchange(payload).unwrap(), [&header, payload].concat());
    }
    // They arrive as a batch, and each still has its own header.
    let burst: Vec<Vec<u8>> = (0..20_u8).map(|n| vec![n; 100]).collect();
    burst.iter().for_each(|payload| client.send(payload).unwrap());
    for payload in &burst {
        assert_eq!(client.receive().unwrap(), [&header, payload.as_slice()].concat());
    }
}

/// Settings that allow Services to trust any peer.
pub(crate) fn any_peer() -> Settings {
    Settings { config: "acceptProxy: {allow: [\"0.0.0.0/0\", \"::/0\"]}\n", ..Settings::default() }
}

/// A Service whose endpoint answers with the client it sees, and that trusts the client host's first address.
fn trusting(family: Family) -> App {
    let peer = format!("{}/{}", family.client(0), family.host_prefix());
    App::new("web", &[family.vip(0)])
        .tcp(80, 8080)
        .annotation("sheave.dev/accept-proxy", &peer)
        .annotation("sheave.dev/client-source", "proxy-v1")
        .ready(family.backend(0))
}

fn headers_of_trusted_peers_name_the_client(family: Family) {
    let (world, folder) = (World::new(1), tempfile::tempdir().unwrap());
    let _nginx = nginx(world.backend(0), family.backend(0), &folder);
    let _gateway = Gateway::start_with(&world, &[trusting(family)], &any_peer());
    // A real HAProxy in front, for each version.
    for (send, port) in [("send-proxy", 8001), ("send-proxy-v2", 8002)] {
        let front = at(family.client(1), port);
        let configuration = format!(
            "defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 5s\n  timeout server 5s\nlisten f\n  \
             bind {front}\n  server sheave {} {send} source {}\n",
            vip(family),
            at(family.client(0), 0)
        );
        let file = file(&folder, &format!("front-{port}.cfg"), &configuration);
        let _front = world.client.start("haproxy", &["-db", "-q", "-f", &file]);
        wait_for_port(&world.client, front);
        let from = family.client(4).to_string();
        let answer = curl(&world.client, &["--interface", &from, &format!("http://{front}/")]);
        assert_eq!(answer, format!("nginx {from} {} {port}\n", family.client(1)), "{send}");
    }
    // curl sends its own addresses.
    let from = family.client(0).to_string();
    let url = format!("http://{}/", vip(family));
    let answer = curl(&world.client, &["--interface", &from, "--haproxy-protocol", &url]);
    assert_eq!(answer, format!("nginx {from} {} 80\n", family.vip(0)));
}

/// Answer of the endpoint for a client that a trusted peer names as `client`.
pub(crate) fn ask_as(world: &World, family: Family, client: IpAddr) -> std::io::Result<tcp::Answer> {
    let addresses = Addresses { client: at(client, 4711), destination: at(family.vip(3), 443) };
    world.client.run(|| {
        let mut stream = tcp::connect_from(Some(family.client(0)), vip(family), patience(10.0))?;
        stream.write_all(&proxy_protocol::write_v2(Transport::Stream, &addresses))?;
        tcp::ask_on(stream)
    })
}

fn the_named_client_is_the_client_in_all_respects(family: Family) {
    let world = World::new(2);
    let _servers = tcp::Server::on_every_backend(&world, family, 8080);
    let peer = format!("{}/{}", family.client(0), family.host_prefix());
    let listed = format!("{}/{}", family.client(5), family.host_prefix());
    let app = App::new("web", &[family.vip(0)])
        .tcp(80, 8080)
        .local_policy()
        .annotation("sheave.dev/accept-proxy", &peer)
        .annotation("sheave.dev/client-source", "gateway");
    let ranges = [listed, family.pod_cidr().to_owned()];
    let app = app.source_ranges(&ranges).ready(family.backend(0)).ready_here(family.backend(1));
    let _gateway = Gateway::start_with(&world, &[app], &any_peer());
    // External: the local endpoint. Internal: any. Not listed: none, although the peer itself is admitted.
    let names = |client| -> std::collections::BTreeSet<String> {
        (0..20).map(|_| ask_as(&world, family, client).unwrap().name).collect()
    };
    assert_eq!(names(family.client(5)), ["backend-1".to_owned()].into());
    assert_eq!(names(family.backend(0)), ["backend-0".to_owned(), "backend-1".to_owned()].into());
    ask_as(&world, family, family.client(6)).expect_err("the ranges leave it out");
}

fn who_is_not_trusted_is_a_client_without_a_header(family: Family) {
    let (world, folder) = (World::new(1), tempfile::tempdir().unwrap());
    let _nginx = nginx(world.backend(0), family.backend(0), &folder);
    let _gateway = Gateway::start_with(&world, &[trusting(family)], &any_peer());
    let from = family.client(1).to_string();
    let url = format!("http://{}/", vip(family));
    let answer = curl(&world.client, &["--interface", &from, &url]);
    assert_eq!(answer, format!("nginx {from} {} 80\n", family.vip(0)));
    // Headers of untrusted clients are data: the endpoint gets two headers, and takes the second one for a bad request.
    let lie = ["-s", "-g", "-m", "5", "-o", "/dev/null", "-w", "%{http_code}", "--interface", &from];
    let refused = world.client.finish("curl", &[&lie[..], &["--haproxy-protocol", &url]].concat());
    assert_eq!(refused.stdout, "400");
}

fn what_is_no_header_ends_the_connection(family: Family) {
    let world = World::new(1);
    let servers = tcp::Server::on_every_backend(&world, family, 8080);
    let gateway = Gateway::start_with(&world, &[trusting(family)], &any_peer());
    let mut stream =
        world.client.run(|| tcp::connect_from(Some(family.client(0)), vip(family), patience(10.0))).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let error = stream.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(servers[0].accepted(), 0);
    assert!(gateway.metric("sheave_tcp_closed_total", &["reason=\"bad_proxy_header\""]) > 0.0);
}
