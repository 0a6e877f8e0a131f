//! Tests of every key and every kind of mistake, alone and together.

use std::num::NonZeroU32;

use sheave_console::http::metrics::SeriesLimits;
use sheave_console::http::server::tls::TlsFiles;
use sheave_model::{Ipv6Prefix, ServiceLimits};
use tracing::level_filters::LevelFilter;

use super::*;

fn environment() -> node::Environment {
    node::Environment { node_name: None, host_name: Some("Host-1\n".to_owned()) }
}

pub(super) fn read(text: &str) -> Result<Config, Vec<String>> {
    Config::parse(text, &Overrides::default(), &environment())
        .map_err(|mistakes| mistakes.iter().map(ToString::to_string).collect())
}

#[test]
fn the_reference_shown_by_help_says_what_an_empty_file_means() {
    assert_eq!(read(REFERENCE), read(""));
    assert_eq!(read("# nothing\n\n"), read(""));
}

#[test]
fn the_defaults_are_those_of_the_contract() {
    let config = read("").unwrap();
    assert_eq!((config.node.as_str(), config.cluster.as_str()), ("host-1", "local"));
    assert_eq!(config.load_balancer_class, "sheave.dev/l4");
    assert_eq!(config.frontends, BTreeSet::from([FrontendKind::LoadBalancer]));
    assert_eq!((config.workers, config.handle_unclassified), (0, false));
    assert_eq!((config.steering, config.busy_poll), (SteeringMode::Auto, Duration::ZERO));
    assert_eq!(config.admin_listen.to_string(), "127.0.0.1:9841");
    assert_eq!((config.healthz_listen, config.metrics.listen), (None, None));
    assert_eq!(config.metrics.limits, SeriesLimits { frontends: 1_000, endpoints: 0 });
    let seconds = |length: Duration| length.as_secs();
    let Timeouts { connect, idle, udp_idle, udp_unanswered, drain } = config.timeouts;
    let timeouts = [connect, idle, udp_idle, udp_unanswered, config.lame_duck, drain];
    assert_eq!(timeouts.map(seconds), [2, 3600, 60, 10, 5, 60]);
    assert_eq!(config.limits, Limits::default());
    assert_eq!(config.logging, Logging { format: LogFormat::Text, level: LevelFilter::INFO });
    let karmada = Karmada {
        kubeconfig: None,
        handle_unclassified: true,
        not_ready_hold: None,
        export_services: false,
        service_works: false,
    };
    assert_eq!((config.karmada, config.kubeconfig), (karmada, None));
    assert_eq!(config.failover, Failover { overprovisioning: 140, panic_threshold: 50 });
    assert!(config.clusters.is_empty());
    assert!(config.external_ips_allow.is_empty() && config.internal_cidrs.is_empty());
    assert_eq!(config.state_dir, Path::new("/var/lib/sheave"));
}

#[test]
fn the_fallback_does_without_a_node_when_nothing_names_a_good_one() {
    assert_eq!(Ok(Config::fallback_in(&environment())), read(""));
    let bad = node::Environment { node_name: Some("Not a name".to_owned()), ..environment() };
    assert_eq!(Config::fallback_in(&bad).node, "");
}

/// A file with every key.
const EVERY_KEY: &str = "node: gw-1\nkubeconfig: /k\ncluster: west\nloadBalancerClass: example.com/Mine\nhandleUnclassified: true\n\
         frontends: [LoadBalancer, ExternalIP, NodePort, ClusterIP]\nexternalIPs: {allow: [192.0.2.0/24]}\n\
         internalCIDRs: ['10.0.0.0/8', '2001:db8::/32']\nworkers: 4\nbusyPoll: 50us\nsteering: always\nadmin: {listen: '[::1]:0'}\n\
         healthz: {listen: '[::]:10256'}\n\
         metrics: {listen: '$(NODE_IP):9843', authorization: file, tokenFile: /t, tls: {certificate: /c, key: /k}, \
         maxFrontends: 5, maxEndpoints: 6}\n\
         report: {listen: '[::]:9842', authorization: kubernetes}\ngateways: {service: a/b, tokenFile: /g}\n\
         timeouts: {connect: 500ms, idle: 1m30s, udpIdle: 5s, udpUnanswered: 2s, lameDuck: 0s, drain: 1h}\n\
         limits: {connections: 5000, udpFlows: 300, memory: 2Gi, perService: {connections: 9, connectionRate: 8}, \
         perClient: {connections: 7, connectionRate: 6, ipv6Prefix: 56}}\nstateDir: /s\n\
         logging: {format: json, level: debug}\n\
         karmada: {kubeconfig: /kk, handleUnclassified: false, notReadyHold: 5m, exportServices: true, serviceWorks: true}\n\
         clusters: {member2: {interface: wg-member2}, member1: {allow: [10.1.0.0/16]}}\n\
         failover: {overprovisioning: 100, panicThreshold: 0}\n";

#[test]
fn every_key_is_read() {
    let config = read(EVERY_KEY).unwrap();
    assert_eq!((config.node.as_str(), config.cluster.as_str(), config.workers), ("gw-1", "west", 4));
    assert_eq!((config.load_balancer_class.as_str(), config.handle_unclassified), ("example.com/Mine", true));
    assert_eq!((config.frontends.len(), config.steering), (4, SteeringMode::Always));
    assert_eq!(config.busy_poll, Duration::from_micros(50));
    assert_eq!(config.external_ips_allow, ["192.0.2.0/24".parse().unwrap()]);
    assert_eq!(config.internal_cidrs.len(), 2);
    assert_eq!(config.admin_listen.to_string(), "[::1]:0");
    assert_eq!(config.healthz_listen, Some("[::]:10256".parse().unwrap()));
    let metrics = Metrics {
        listen: Some(metrics::MetricsListen::OnNode(9843)),
        authorization: Authorization::TokenFile("/t".into()),
        tls: Some(TlsFiles { certificate: "/c".into(), key: "/k".into() }),
        limits: SeriesLimits { frontends: 5, endpoints: 6 },
    };
    assert_eq!(config.metrics, metrics);
    assert_eq!(config.report_listen, Some("[::]:9842".parse().unwrap()));
    assert_eq!(config.report_authorization, Authorization::Kubernetes);
    assert_eq!((config.gateways, config.gateway_token), (ServiceKey::new("a", "b"), Some("/g".into())));
    assert_eq!(config.timeouts.connect, Duration::from_millis(500));
    assert_eq!(config.timeouts.idle, Duration::from_secs(90));
    assert_eq!(config.lame_duck, Duration::ZERO);
    let number = |number| NonZeroU32::new(number);
    let service = ServiceLimits {
        connections: number(9),
        connection_rate: number(8),
        connections_per_client: number(7),
        connection_rate_per_client: number(6),
        client_prefix: Ipv6Prefix::new(56).unwrap(),
    };
    let limits = Limits { connections: number(5000), udp_flows: number(300), memory: Some(2 << 30), service };
    assert_eq!(config.limits, limits);
    assert_eq!(config.logging, Logging { format: LogFormat::Json, level: LevelFilter::DEBUG });
    let karmada = Karmada {
        kubeconfig: Some("/kk".into()),
        handle_unclassified: false,
        not_ready_hold: Some(Duration::from_secs(300)),
        export_services: true,
        service_works: true,
    };
    assert_eq!(config.karmada, karmada);
    let member1 = ClusterNetwork { interface: None, allow: Some(vec!["10.1.0.0/16".parse().unwrap()]) };
    let member2 = ClusterNetwork { interface: Some("wg-member2".to_owned()), allow: None };
    assert!(config.clusters.into_values().eq([member1, member2]));
    assert_eq!(config.failover, Failover { overprovisioning: 100, panic_threshold: 0 });
    assert_eq!(
        (config.kubeconfig.as_deref(), config.state_dir.as_path()),
        (Some(Path::new("/k")), Path::new("/s"))
    );
}

#[test]
fn limits_are_whole_numbers_within_reason_and_memory_has_units() {
    for (text, bytes) in [("64Mi", 64 << 20), ("1G", 1_000_000_000), ("33554432", 32 << 20), ("1Ti", 1 << 40)]
    {
        assert_eq!(
            read(&format!("limits: {{memory: {text}}}")).unwrap().limits.memory,
            Some(bytes),
            "{text}"
        );
    }
    for zero in ["0", "0Mi"] {
        assert_eq!(read(&format!("limits: {{memory: {zero}}}")).unwrap().limits.memory, None);
    }
    for (key, value) in [
        ("connections", "-1"),
        ("connections", "10000001"),
        ("connections", "many"),
        ("udpFlows", "1.5"),
        ("memory", "31Mi"),
        ("memory", "2 Gi"),
        ("memory", "-2Gi"),
        ("memory", "9999999999Ti"),
    ] {
        let mistakes = read(&format!("limits: {{{key}: {value}}}")).unwrap_err();
        assert!(mistakes.len() == 1 && mistakes[0].starts_with(&format!("limits.{key}: ")), "{mistakes:?}");
    }
    let mistakes = read("limits: {perClient: {connectionRate: 1000001}}").unwrap_err();
    assert!(mistakes[0].starts_with("limits.perClient.connectionRate: "), "{mistakes:?}");
}

#[test]
fn metrics_beyond_loopback_need_a_token() {
    const MISSING: &str = "metrics.tokenFile: is missing, and metrics.listen is not a loopback address; \
                           write the path of a file with the bearer token that scrapers show, or authorization: kubernetes";
    for listen in ["$(NODE_IP):9843", "0.0.0.0:9843", "[::]:9843", "192.0.2.7:9843"] {
        assert_eq!(read(&format!("metrics: {{listen: '{listen}'}}")).unwrap_err(), [MISSING]);
        assert!(read(&format!("metrics: {{listen: '{listen}', tokenFile: /t}}")).is_ok());
    }
    for listen in ["127.0.0.1:9843", "[::1]:9843", ""] {
        assert!(read(&format!("metrics: {{listen: '{listen}'}}")).is_ok(), "{listen}");
    }
    for listen in ["$(NODE_IP)", "$(NODE_IP):", "$(NODE_IP):65536", "$(POD_IP):9843", "node:9843"] {
        let expected = format!(
            "metrics.listen: \"{listen}\" is not an address and port; write it as \"$(NODE_IP):9843\", \
             \"127.0.0.1:9843\" or \"[::1]:9843\"; a name is not resolved"
        );
        assert_eq!(read(&format!("metrics: {{listen: '{listen}'}}")).unwrap_err(), [expected]);
    }
}

#[test]
fn kubernetes_tokens_are_not_sent_in_the_clear() {
    let of = |keys: &str| read(&format!("metrics: {{authorization: kubernetes, {keys}}}"));
    let kept =
        ["listen: '0.0.0.0:9843', tls: {certificate: /c, key: /k}", "listen: '127.0.0.1:9843'", "listen: ''"];
    for keys in kept {
        assert_eq!(of(keys).unwrap().metrics.authorization, Authorization::Kubernetes, "{keys}");
    }
    for (keys, mistake) in [
        (
            "listen: '$(NODE_IP):9843'",
            "metrics.tls: is missing, and metrics.listen is not a loopback address: scrapers would send their Kubernetes \
             tokens unencrypted; write tls: {certificate: FILE, key: FILE}",
        ),
        ("tls: {certificate: /c}", "metrics.tls.key: is missing, and metrics.tls.certificate is given"),
        ("tls: {key: /k}", "metrics.tls.certificate: is missing, and metrics.tls.key is given"),
        (
            "tokenFile: /t",
            "metrics.tokenFile: has no effect, since authorization is kubernetes; remove one of them",
        ),
    ] {
        assert_eq!(of(keys).unwrap_err(), [mistake]);
    }
}

#[test]
fn reports_are_for_everybody_unless_somebody_is_named() {
    for (keys, expected) in [
        ("listen: '0.0.0.0:9842'", Authorization::Open),
        ("tokenFile: /t", Authorization::TokenFile("/t".into())),
        ("authorization: kubernetes", Authorization::Kubernetes),
    ] {
        assert_eq!(read(&format!("report: {{{keys}}}")).unwrap().report_authorization, expected);
    }
    assert_eq!(
        read("report: {authorization: file}").unwrap_err(),
        ["report.tokenFile: is missing, and authorization is file"]
    );
}

#[test]
fn all_mistakes_are_told_together_each_with_its_path_and_a_hint() {
    let mistakes = read(
        "worker: 3\nworkers: -1\ntimeouts: {connect: 2, idel: 1h, idle: soon, drain: 0s}\n\
         internalCIDRs: [10.0.0.0/8, 10.1.2.3/8, 10.1.2.3, ten]\nadmin: {listen: ':9841'}\n\
         healthz: {listen: 10256}\n\
         logging: {level: information, format: Json}\nloadBalancerClass: ''\nfrontends: [Loadbalancer]\n\
         handleUnclassified: maybe\nkarmada: {kubeConfig: /k}\n\
         clusters: {A: {interface: a}, b: {}, c: {interface: a/b}}\nfailover: {overprovisioning: 99, panicThreshold: 101}\nexternalIPs: 10.0.0.0/8\nstateDir: ''\ncluster: A B\n",
    )
    .unwrap_err();
    assert_eq!(
        mistakes,
        [
            "timeouts.connect: 2 is not a duration; write it with a unit, as 2s",
            "timeouts.idle: \"soon\" is not a duration; write it as 500ms, 2s, 1m30s or 1h",
            "timeouts.drain: must be longer than zero",
            "timeouts.idel: unknown key; did you mean idle?",
            "cluster: \"A B\" is not a name of small letters, digits, '-' and '.'",
            "loadBalancerClass: \"\" is not a class; write it as example.com/name",
            "handleUnclassified: \"maybe\" is not true or false",
            "frontends[0]: \"Loadbalancer\" is not one of LoadBalancer, ExternalIP, NodePort, ClusterIP; \
             did you mean LoadBalancer?",
            "externalIPs: \"10.0.0.0/8\" is not a mapping of keys to values",
            "internalCIDRs[1]: \"10.1.2.3/8\" has bits set behind its prefix length; \
             write 10.0.0.0/8 or 10.1.2.3/32",
            "internalCIDRs[2]: \"10.1.2.3\" is not a CIDR; write 10.1.2.3/32",
            "internalCIDRs[3]: \"ten\" is not a CIDR; write it as 10.0.0.0/8 or 2001:db8::/32",
            "workers: -1 is not a whole number from 0 to 1024",
            "admin.listen: \":9841\" is not an address and port; \
             write it as \"127.0.0.1:9841\" or \"[::1]:9841\"; a name is not resolved",
            "healthz.listen: 10256 is not an address and port; \
             write it as \"127.0.0.1:9841\" or \"[::1]:9841\"; a name is not resolved",
            "stateDir: \"\" is not a path",
            "logging.format: \"Json\" is not one of text, json; did you mean json?",
            "logging.level: \"information\" is not one of error, warn, info, debug, trace",
            "karmada.kubeConfig: unknown key; did you mean kubeconfig?",
            "clusters.A: \"A\" is not a name of small letters, digits, '-' and '.'",
            "clusters.b.interface: is missing",
            "clusters.c.interface: \"a/b\" is not the name of a network interface",
            "failover.overprovisioning: 99 is not a whole number from 100 to 10000",
            "failover.panicThreshold: 101 is not a whole number from 0 to 100",
            "worker: unknown key; did you mean workers?",
        ]
    );
}

#[test]
fn text_that_is_no_mapping_is_one_mistake() {
    let mistakes = read("a: b: c\n").unwrap_err();
    assert_eq!(
        mistakes,
        ["not readable as YAML: mapping values are not allowed in this context at line 1, column 5"]
    );
    assert_eq!(read("- node\n").unwrap_err(), ["[\"node\"] is not a mapping of keys to values"]);
    assert_eq!(
        read("frontends: []\n").unwrap_err(),
        ["frontends: is empty, so nothing would be served; write [LoadBalancer]"]
    );
    assert_eq!(
        read("reservedPorts: [0, 22-, 9-8, 70000, ssh, 22, \"1-65535\"]\n").unwrap_err(),
        ["0", "\"22-\"", "\"9-8\"", "70000", "\"ssh\""].iter().enumerate().map(|(index, value)| format!(
            "reservedPorts[{index}]: {value} is not a port or a range of ports; write it as 22 or \"10248-10260\""
        )).collect::<Vec<_>>()
    );
    assert_eq!(
        read("leaderElection: {leaseDuration: 1500ms, renewDeadline: 20s, retryPeriod: 11s}\n").unwrap_err(),
        [
            "leaderElection.leaseDuration: \"1500ms\" is not a whole number of seconds; write it as 15s",
            "leaderElection.renewDeadline: is not shorter than leaseDuration, so two controllers could lead at once",
            "leaderElection.retryPeriod: is more than half of renewDeadline, so one failed renewal would end a leader",
        ]
    );
    assert_eq!(read("reservedPorts:\n").unwrap().reserved_ports, RESERVED_PORTS);
    assert!(read("reservedPorts: []\n").unwrap().reserved_ports.is_empty());
    for empty in ["acceptProxy:\n", "acceptProxy: {allow: }\n"] {
        assert!(read(empty).unwrap().accept_proxy_allow.is_empty(), "{empty}");
    }
    let open = read("acceptProxy: {allow: [10.0.0.0/8]}\n").unwrap();
    assert_eq!(open.accept_proxy_allow, ["10.0.0.0/8".parse().unwrap()]);
    let quick = read("leaderElection: {leaseDuration: 5s, renewDeadline: 3s, retryPeriod: 1s}\n").unwrap();
    assert_eq!(quick.timing.lease, Duration::from_secs(5));
    assert_eq!(
        read("internalCIDRs: 10.0.0.0/8\n").unwrap_err(),
        ["internalCIDRs: \"10.0.0.0/8\" is not a list; write internalCIDRs: [\"10.0.0.0/8\"]"]
    );
    assert_eq!(
        read("timeouts: {idle: 9999999h}\n").unwrap_err(),
        ["timeouts.idle: \"9999999h\" is longer than a year"]
    );
    assert_eq!(
        read("busyPoll: 50\n").unwrap_err(),
        ["busyPoll: 50 is not a duration of at most 10ms; write it with a unit, as 50us"]
    );
    assert_eq!(read("busyPoll: 1s\n").unwrap_err(), ["busyPoll: \"1s\" is longer than 10ms"]);
}

#[test]
fn the_flag_wins_over_the_file_and_the_file_over_the_environment() {
    let node = |flag: Option<&str>, text: &str, variable: Option<&str>| {
        let overrides = Overrides { node: flag.map(str::to_owned), ..Overrides::default() };
        let environment = node::Environment { node_name: variable.map(str::to_owned), ..environment() };
        Config::parse(text, &overrides, &environment).unwrap().node
    };
    assert_eq!(node(Some("flag"), "node: file", Some("variable")), "flag");
    assert_eq!(node(None, "node: file", Some("variable")), "file");
    assert_eq!(node(None, "node: ''", Some("variable")), "variable");
    assert_eq!(node(None, "", Some("")), "host-1");
    let odd = node::Environment { node_name: None, host_name: Some("My_Host\n".to_owned()) };
    assert_eq!(Config::parse("", &Overrides::default(), &odd).unwrap().node, "my_host");
}

#[test]
fn without_any_name_of_the_node_the_configuration_is_refused() {
    let refused = |environment: &node::Environment| {
        Config::parse("", &Overrides::default(), environment).unwrap_err().remove(0).to_string()
    };
    let advice = "set node, --node or $NODE_NAME to the name of the Node that this runs on";
    assert_eq!(
        refused(&node::Environment::default()),
        format!("node: nothing says which node this is; {advice}")
    );
    let odd = node::Environment { node_name: Some("a b".to_owned()), host_name: None };
    assert_eq!(
        refused(&odd),
        format!(
            "node: \"a b\" is not a name of small letters, digits, '-' and '.', as $NODE_NAME says; {advice}"
        )
    );
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let mistakes = Config::load(Some(Path::new("/nowhere/sheave.yaml")), &Overrides::default()).unwrap_err();
    assert_eq!(
        mistakes[0].to_string(),
        "cannot read /nowhere/sheave.yaml: No such file or directory (os error 2)"
    );
}
