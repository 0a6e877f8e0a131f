//! Tests of how command lines are parsed.

use clap::CommandFactory as _;
use sheave_console::arguments::{AdminUrl, Folders, TableFormat};
use sheave_console::views::explain::{Client, Port, Question};
use sheave_control::api::store::ServiceKey;
use sheave_model::Protocol;

use super::*;

fn parse(line: &str) -> Result<Cli, ErrorKind> {
    Cli::try_parse_from(line.split(' ')).map_err(|error| error.kind())
}

#[test]
fn the_definition_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn the_configuration_that_help_shows_can_be_copied() {
    let help = Cli::command().render_long_help().to_string();
    let shown = help.split_once("with every key and its default:\n\n").unwrap().1;
    let lines = |text: &str| text.trim_end().lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines(shown), lines(config::REFERENCE), "no line is so long that it wraps");
}

#[test]
fn every_command_takes_the_configuration_before_or_after_its_name() {
    for line in ["sheave --config f version", "sheave version --config f", "sheave run --config f"] {
        assert_eq!(parse(line).unwrap().config.as_deref(), Some("f".as_ref()), "{line}");
    }
}

#[test]
fn flags_are_read() {
    let cli = parse("sheave run --manifests d --karmada-manifests k --node n1").unwrap();
    assert_eq!(cli.overrides().node.as_deref(), Some("n1"));
    let Command::Run(run) = cli.command else { panic!("run") };
    assert_eq!(run.manifests.local.as_deref(), Some("d".as_ref()));
    assert_eq!(run.manifests.karmada.as_deref(), Some("k".as_ref()));
    let cli = parse("sheave demo --for 10s").unwrap();
    assert_eq!(cli.overrides().node.as_deref(), Some("demo"));
    assert_eq!(cli.command, Command::Demo(Demo { duration: Some(Duration::from_secs(10)) }));
    let Command::Routes(routes) = parse("sheave routes --admin http://[::1]:80/ -o json").unwrap().command
    else {
        panic!("routes")
    };
    assert_eq!(
        (routes.sources.running.admin.unwrap().authority.as_str(), routes.output),
        ("[::1]:80", TableFormat::Json)
    );
}

#[test]
fn services_are_migrated_to_services_unless_the_gateway_api_is_named() {
    let to = |line: &str| match parse(line).map(|cli| cli.command) {
        Ok(Command::Migrate(migrate)) => Ok(migrate.to),
        other => Err(format!("{other:?}")),
    };
    assert_eq!(to("sheave migrate --manifests d"), Ok(MigrateTo::Services));
    assert_eq!(to("sheave migrate --manifests d --to gateway-api"), Ok(MigrateTo::GatewayApi));
    assert!(to("sheave migrate --manifests d --to ingress").is_err());
}

#[test]
fn a_status_is_asked_of_a_process() {
    let Command::Status(status) = parse("sheave status").unwrap().command else { panic!("status") };
    let expected =
        Status { running: RunningArgs::default(), here: false, fleet: false, output: TextFormat::Text };
    assert_eq!(status, expected);
    let cli = parse("sheave status --admin http://h:1 -o json").unwrap();
    let Command::Status(status) = cli.command else { panic!("status") };
    let admin = Some(AdminUrl { authority: "h:1".to_owned() });
    let running = RunningArgs { admin, ..RunningArgs::default() };
    assert_eq!(status, Status { running, output: TextFormat::Json, ..expected });
}

#[test]
fn two_sides_of_a_diff_are_manifests_or_a_gateway() {
    let sides = |line: &str| {
        let Command::Diff(diff) = parse(line).unwrap().command else { panic!("diff") };
        let paths = |folders: Option<Folders<'_>>| {
            let folders = folders?;
            Some([folders.local, folders.karmada].map(|path| path.map(Path::to_owned)))
        };
        (paths(diff.new_folders()), paths(diff.old_folders()))
    };
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| Some(PathBuf::from(name)));
    let (new, none) = (Some([a.clone(), None]), None);
    assert_eq!(sides("sheave diff --manifests a"), (new.clone(), none));
    assert_eq!(sides("sheave diff --manifests a --manifests b"), (new.clone(), Some([b.clone(), None])));
    assert_eq!(sides("sheave diff --old b --manifests a"), (new, Some([b.clone(), None])));
    assert_eq!(
        sides("sheave diff --manifests a --karmada-manifests c --manifests b --karmada-manifests d"),
        (Some([a, c]), Some([b, d]))
    );
}

#[test]
fn a_question_is_read() {
    let line = "sheave explain shop/web --port http --protocol udp --address ::ffff:203.0.113.10 \
                --client [2001:db8::7]:5000 --sni Shop.example --multi-cluster --manifests d --node n1 -o json";
    let cli = parse(line).unwrap();
    assert_eq!(cli.overrides().node.as_deref(), Some("n1"));
    let Command::Explain(explain) = cli.command else { panic!("explain") };
    assert_eq!(explain.output, TextFormat::Json);
    let question = Question {
        service: ServiceKey::new("shop", "web"),
        gateway_api: None,
        multi_cluster: true,
        port: Some(Port::Name("http".to_owned())),
        protocol: Some(Protocol::Udp),
        address: Some([203, 0, 113, 10].into()),
        client: Some(Client { ip: "2001:db8::7".parse().unwrap(), port: Some(5000) }),
        sni: Some("shop.example".to_owned()),
    };
    assert_eq!(explain.asked.question(String::new), Ok(question));
}

#[test]
fn validate_answers_programs_as_well() {
    let Command::Validate(validate) = parse("sheave validate --manifests d -o json").unwrap().command else {
        panic!("another command")
    };
    assert_eq!(validate.output, TextFormat::Json);
}

#[test]
fn mistakes_are_usage_errors() {
    for line in [
        "sheave",
        "sheave fly",
        "sheave run --nod n1",
        "sheave demo --for ten",
        "sheave routes -o xml",
        "sheave routes --admin http://h:1 --manifests d",
        "sheave routes --admin http://h:1 --karmada-manifests d",
        "sheave routes --admin http://h:1 --node n1",
        "sheave routes --admin h",
        "sheave routes --admin https://h:1",
        "sheave status --manifests d",
        "sheave status -o table",
        "sheave explain",
        "sheave explain pod web",
        "sheave explain shop/web -n other",
        "sheave man fly",
        "sheave completions tcsh",
        "sheave routes -n shop",
        "sheave explain shop/web/x",
        "sheave explain shop/",
        "sheave explain shop/web?x=1",
        "sheave explain shop/web --port 0",
        "sheave explain shop/web --port 65536",
        "sheave explain shop/web --protocol sctp",
        "sheave explain shop/web --client host",
        "sheave explain shop/web --client 198.51.100.7:x",
        "sheave explain shop/web --address 198.51.100.0/24",
        "sheave explain shop/web -o table",
        "sheave explain shop/web --admin http://h:1 --manifests d",
        "sheave watch",
        "sheave watch pod web",
        "sheave watch shop/web -o yaml",
        "sheave watch shop/web --manifests d",
        "sheave diff",
        "sheave diff --old d",
        "sheave diff --manifests a --manifests b --manifests c",
        "sheave diff --manifests a --manifests b --old c",
        "sheave diff --manifests a --manifests b --admin http://h:1",
        "sheave diff --manifests a --old b --gateway n1",
        "sheave replay --manifests a",
        "sheave replay --log l",
        "sheave replay --log - --log - --manifests a",
        "sheave replay --log l --manifests a --manifests b",
        "sheave routes --gateway n1 --manifests d",
        "sheave explain shop/web --gateway n1 --node n1",
        "sheave explain shop/web --gateway n1 --fleet",
        "sheave trace shop/web --gateway n1 --fleet",
        "sheave status --gateway n1 --admin http://h:1",
        "sheave status --gateway n1 --fleet",
        "sheave status --gateway n1 --here",
        "sheave run --manifests d --kubeconfig k",
        "sheave gateway --manifests d --context c",
        "sheave top -o json",
        "sheave top --view pods",
        "sheave uninstall shop/web",
    ] {
        let args = line.split(' ').map(OsString::from);
        assert_eq!(Cli::from_args(args), Err(Exit::Usage), "{line}");
    }
}

#[test]
fn an_object_is_in_the_namespace_of_the_flag_or_the_default() {
    let question = |line: &str| {
        let Command::Explain(explain) = parse(line).unwrap().command else { panic!("explain") };
        let Question { service, multi_cluster, .. } =
            explain.asked.question(|| "current".to_owned()).unwrap();
        (service.to_string(), multi_cluster)
    };
    assert_eq!(question("sheave explain web"), ("current/web".to_owned(), false));
    assert_eq!(question("sheave explain -n shop svc web"), ("shop/web".to_owned(), false));
    assert_eq!(question("sheave explain mcs/web --namespace shop"), ("shop/web".to_owned(), true));
    assert_eq!(question("sheave explain mcs/shop/web"), ("shop/web".to_owned(), true));
}

#[test]
fn the_api_server_is_chosen_by_flags() {
    for command in [
        "run",
        "gateway",
        "controller",
        "uninstall",
        "explain web",
        "watch web",
        "routes",
        "status",
        "top",
        "gateways",
        "diff --manifests d",
    ] {
        let overrides = parse(&format!("sheave {command} --kubeconfig f --context c")).unwrap().overrides();
        assert_eq!(overrides.kubeconfig.as_deref(), Some("f".as_ref()), "{command}");
        assert_eq!(overrides.context.as_deref(), Some("c"), "{command}");
    }
}

#[test]
fn as_a_kubectl_plugin_it_is_called_as_one() {
    for (program, usage, plugin) in [
        ("/usr/local/bin/kubectl-sheave", "Usage: kubectl sheave explain ", true),
        ("./sheave", "Usage: sheave explain ", false),
    ] {
        let args = [program, "explain", "--help"].map(OsString::from);
        let definition = Cli::definition(is_plugin(args.first()));
        let help = definition.try_get_matches_from(args).unwrap_err().to_string();
        assert!(help.contains(usage), "{help}");
        let Command::Top(top) = Cli::from_args([program, "top"].map(OsString::from)).unwrap().command else {
            panic!("top")
        };
        assert_eq!(top.running.plugin, plugin);
    }
}

#[test]
fn help_is_within_a_hundred_columns_at_every_level() {
    let names: Vec<String> =
        Cli::command().get_subcommands().map(|command| command.get_name().to_owned()).collect();
    for name in names.iter().map(String::as_str).chain([""]) {
        for flag in ["-h", "--help"] {
            let args = ["sheave", name, flag].into_iter().filter(|word| !word.is_empty());
            let help = Cli::command().try_get_matches_from(args).unwrap_err().to_string();
            let long = help.lines().find(|line| line.chars().count() > 100);
            assert_eq!(long, None, "sheave {name} {flag}");
        }
    }
}

#[test]
fn help_shows_defaults_and_is_no_mistake() {
    assert_eq!(Cli::from_args(["sheave", "--help"].map(OsString::from)), Err(Exit::Ok));
    let help = Cli::command().render_long_help().to_string();
    assert!(
        help.contains(
            "timeouts: {connect: 2s, idle: 1h, udpIdle: 60s, udpUnanswered: 10s, lameDuck: 5s, drain: 60s}"
        ),
        "{help}"
    );
    let mut command = Cli::command();
    let routes = command.find_subcommand_mut("routes").unwrap().render_help().to_string();
    assert!(routes.contains("[default: table]") && routes.contains("$NODE_NAME"), "{routes}");
}
