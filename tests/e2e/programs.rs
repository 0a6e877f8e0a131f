//! Tests with real clients and servers and their habits: keep-alive, bulk data, parallel streams, datagrams with
//! fallback to TCP, pipelining.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::gateway::Gateway;
use crate::support::host::Host;
use crate::support::manifest::{App, at};
use crate::support::patience::eventually;
use crate::support::process::Process;
use crate::support::tcp;
use crate::support::world::{Family, World};

for_both_families!(
    curl_reads_pages_and_files_from_nginx,
    iperf3_moves_streams_and_datagrams,
    dig_asks_dnsmasq_over_udp_and_tcp,
    redis_serves_its_command_line_and_its_benchmark,
);

fn wait_for_port(host: &Host, addr: SocketAddr) {
    eventually(&format!("{addr} is open"), || host.run(|| tcp::connect(addr)));
}

fn path(folder: &TempDir, name: &str) -> String {
    folder.path().join(name).display().to_string()
}

/// nginx with this server at `listen`, its files in `folder`. Without a master process, which would change users, and a user namespace
/// does not allow that.
pub(crate) fn nginx(host: &Host, listen: SocketAddr, name: &str, folder: &Path, server: &str) -> Process {
    let root = folder.display();
    let configuration = format!(
        "user root root; daemon off; master_process off; error_log stderr; pid {root}/{name}.pid;\n\
         events {{ worker_connections 512; }}\n\
         http {{\n  access_log off; client_body_temp_path {root}/{name}-body; proxy_temp_path {root}/{name}-proxy;\n  \
         fastcgi_temp_path {root}/{name}-fastcgi; uwsgi_temp_path {root}/{name}-uwsgi;\n  \
         scgi_temp_path {root}/{name}-scgi;\n  server {{ {server} }}\n}}\n"
    );
    let file = folder.join(format!("{name}.conf")).display().to_string();
    fs::write(&file, configuration).unwrap();
    let process = host.start("nginx", &["-e", "stderr", "-c", &file]);
    wait_for_port(host, listen);
    process
}

fn curl_reads_pages_and_files_from_nginx(family: Family) {
    let (world, folder) = (World::new(3), tempfile::tempdir().unwrap());
    let mut file = vec![0; 32 << 20];
    fastrand::Rng::with_seed(7).fill(&mut file);
    fs::create_dir(folder.path().join("files")).unwrap();
    fs::write(folder.path().join("files/big"), &file).unwrap();
    let root = folder.path().display();
    let start = |(n, host)| {
        let (listen, name) = (at(family.backend(n), 8080), format!("nginx-{n}"));
        let server = format!(
            "listen {listen}; location = /name {{ return 200 \"{name}\\n\"; }} location / {{ root {root}/files; }}"
        );
        nginx(host, listen, &name, folder.path(), &server)
    };
    let _servers: Vec<Process> = (0..).zip(&world.backends).map(start).collect();
    let app = App::new("web", &[family.vip(0)]).tcp(80, 8080).all_ready((0..3).map(|n| family.backend(n)));
    let _gateway = Gateway::start(&world, &[app]);
    let base = format!("http://{}", at(family.vip(0), 80));
    let curl = |arguments: &[&str]| {
        let fixed = ["--silent", "--show-error", "--fail", "--globoff", "--max-time", "60"];
        world.client.finish("curl", &[&fixed, arguments].concat()).expect_success()
    };

    let name = format!("{base}/name");
    let served: BTreeSet<String> = (0..40).map(|_| curl(&[&name])).collect();
    assert_eq!(served, (0..3).map(|n| format!("nginx-{n}\n")).collect());
    // One connection, and so one endpoint, for all requests on it.
    let pages = curl(&vec![name.as_str(); 100]);
    assert_eq!(pages.lines().count(), 100);
    assert_eq!(pages.lines().collect::<BTreeSet<_>>().len(), 1, "{pages}");
    let copy = path(&folder, "copy");
    curl(&["--output", &copy, &format!("{base}/big")]);
    assert!(fs::read(&copy).unwrap() == file, "the file arrives as it is");
}

fn iperf3_moves_streams_and_datagrams(family: Family) {
    let world = World::new(1);
    let _server = world.backend(0).start("iperf3", &["--server", "--interval", "0"]);
    wait_for_port(world.backend(0), at(family.backend(0), 5201));
    let app = App::new("iperf", &[family.vip(0)]).tcp(5201, 5201).udp(5201, 5201).ready(family.backend(0));
    let _gateway = Gateway::start(&world, &[app]);
    let run = |arguments: &[&str]| {
        let vip = family.vip(0).to_string();
        let fixed = ["--client", &vip, "--json", "--time", "2", "--connect-timeout", "5000"];
        // The server ends a test shortly after its client, and refuses the next one until then.
        eventually("iperf3 gets its test", || {
            let report = world.client.finish("iperf3", &[&fixed, arguments].concat());
            let json: Value = serde_json::from_str(&report.stdout).map_err(|error| error.to_string())?;
            json.get("error").map_or(Ok(()), |error| Err(error.to_string()))?;
            Ok::<Value, String>(json)
        })
    };
    let number = |report: &Value, pointer: &str| report.pointer(pointer).and_then(Value::as_f64).unwrap();
    // Not --bidir, since iperf3 identifies the directions by the order of its connections, which no proxy guarantees.
    for arguments in [vec![], vec!["--reverse"], vec!["--parallel", "4"]] {
        let report = run(&arguments);
        let received = number(&report, "/end/sum_received/bytes");
        assert!(received > 50e6, "{arguments:?}: {received} bytes in two seconds");
    }
    // A machine that stands still for a moment has iperf3 send what it missed at once. Small datagrams, few of them and twice the usual buffer:
    // 550 datagrams fit where 625 are sent in a second.
    let datagrams = ["--udp", "--bitrate", "1M", "--length", "200", "--window", "200K"];
    for direction in [vec![], vec!["--reverse"]] {
        let report = run(&[&datagrams, direction.as_slice()].concat());
        let (packets, lost) = (number(&report, "/end/sum/packets"), number(&report, "/end/sum/lost_packets"));
        assert!(packets > 1000.0, "{direction:?}: {packets} datagrams");
        assert!(lost / packets < 0.05, "{direction:?}: {lost} of {packets} datagrams lost");
    }
}

fn dig_asks_dnsmasq_over_udp_and_tcp(family: Family) {
    let world = World::new(2);
    // Three strings of 250 characters, five times: more than one UDP answer may carry.
    let long = format!("--txt-record=long.test{}", format!(",{}", "x".repeat(250)).repeat(15));
    let start = |(n, host): (u16, &Host)| {
        let listen = format!("--listen-address={}", family.backend(n));
        let who = format!("--txt-record=who.test,dns-{n}");
        let fixed =
            ["--no-daemon", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--bind-interfaces"];
        let process = host.start("dnsmasq", &[&fixed[..], &["--port=5300", &listen, &who, &long]].concat());
        wait_for_port(host, at(family.backend(n), 5300));
        process
    };
    let _servers: Vec<Process> = (0..).zip(&world.backends).map(start).collect();
    let app = App::new("dns", &[family.vip(0)]).udp(53, 5300).tcp(53, 5300);
    let _gateway = Gateway::start(&world, &[app.all_ready([family.backend(0), family.backend(1)])]);
    let server = format!("@{}", family.vip(0));
    let dig = |arguments: &[&str]| {
        let fixed = [server.as_str(), "+short", "+tries=1", "+time=5"];
        world.client.finish("dig", &[&fixed, arguments].concat()).expect_success()
    };
    for transport in ["+notcp", "+tcp"] {
        let served: BTreeSet<String> = (0..30).map(|_| dig(&[transport, "who.test", "TXT"])).collect();
        assert_eq!(
            served,
            BTreeSet::from(["\"dns-0\"\n".to_owned(), "\"dns-1\"\n".to_owned()]),
            "{transport}"
        );
    }
    let whole = dig(&["long.test", "TXT"]);
    assert_eq!(whole.matches('x').count(), 15 * 250, "a cut answer is asked for again over TCP");
}

fn redis_serves_its_command_line_and_its_benchmark(family: Family) {
    let (world, folder) = (World::new(1), tempfile::tempdir().unwrap());
    let (ip, data) = (family.backend(0).to_string(), folder.path().display().to_string());
    let server = ["--port", "6379", "--bind", &ip, "--dir", &data, "--save", "", "--protected-mode", "no"];
    let _server = world.backend(0).start("redis-server", &server);
    wait_for_port(world.backend(0), at(family.backend(0), 6379));
    let app = App::new("redis", &[family.vip(0)]).tcp(6379, 6379).ready(family.backend(0));
    let _gateway = Gateway::start(&world, &[app]);
    let vip = family.vip(0).to_string();
    let cli = |command: &[&str]| {
        world.client.finish("redis-cli", &[&["-h", vip.as_str()], command].concat()).expect_success()
    };
    assert_eq!(cli(&["SET", "greeting", "hello"]), "OK\n");
    assert_eq!(cli(&["GET", "greeting"]), "hello\n");
    for pipeline in ["1", "16"] {
        let load = ["-h", &vip, "-q", "-n", "20000", "-c", "20", "-P", pipeline, "-t", "incr"];
        world.client.finish("redis-benchmark", &load).expect_success();
    }
    assert_eq!(cli(&["GET", "counter:__rand_int__"]), "40000\n", "every command arrived once");
}
