//! Tests of malicious names: the page shows them as text, with invisible characters escaped.

use std::net::Ipv4Addr;

use serde_json::json;

use crate::browser::{Browser, Look};
use crate::scene::{Gateway, Service, host};

const MARKUP: &str = "<img src=x onerror=document.title=1>\\\"'><script>document.title=1</script>";
/// Reverses the direction of the following text, and colors a terminal.
const CONTROL: &str = "n1\u{202e}gro.live\u{1b}[31m\u{200b}";

#[test]
fn hostile_names_are_text() {
    let host = host();
    let quoted = ", annotations: {sheave.dev/balance: \"<b>\\\" or 1=1\\u202e\"}";
    let long = "a-name-of-sixty-three-characters-".to_owned() + &"x".repeat(30);
    let services = [
        Service {
            node: CONTROL,
            zone: MARKUP.trim_matches('\\'),
            metadata: quoted,
            ..Service::new("web", 10)
        },
        Service { slice: "<svg/onload=alert(1)>", ..Service::new(&long, 11) },
        Service {
            address: Some(Ipv4Addr::new(203, 0, 113, 12)),
            ..Service::new("<script>alert(1)</script>", 12)
        },
        Service { address: None, ..Service::new("\u{202e}bew/pohs\u{7}", 13) },
    ];
    let gateway = Gateway::start(&host, &services, "");
    let browser = Browser::open(&host, Look::default());
    browser.visit(&gateway.url("/?search=%3Cscript%3E&explain=%3Cimg%20src%3Dx%3E"));
    browser.until_text("#answer", "write it as NAMESPACE/NAME");
    browser.run("const box = document.querySelector('#search'); box.value = ''; box.dispatchEvent(new Event('input'))");
    browser.until("document.querySelectorAll('#rows .disclose').length >= 3");
    let toggle = "for (const it of document.querySelectorAll('#rows .disclose')) it.click()";
    browser.run(toggle);
    browser.until_text("#rows", "127.0.1.10:8080");
    browser.until("document.querySelector('#rows').innerText.includes('gro.live')");
    browser.run("document.querySelector('#more-findings').click()");

    let text = browser.text("main");
    assert!(text.contains("<img src=x onerror=document.title=1>"), "{text}");
    assert!(text.contains(r"n1\u{202e}gro.live\u{1b}[31m\u{200b}"), "{text}");
    assert!(text.contains(r#"<b>\" or 1=1\u{202e}"#), "{text}");
    assert!(text.contains(&long), "{text}");
    let unseen = |char: &char| {
        char.is_control() && *char != '\n' && *char != '\t' || "\u{202e}\u{200b}".contains(*char)
    };
    assert_eq!(text.chars().filter(unseen).collect::<String>(), "");
    assert_eq!(
        browser.value("document.querySelectorAll('main :is(img, script, b b, svg[onload])').length"),
        json!(0)
    );
    assert!(browser.value("document.title").as_str().is_some_and(|title| title.ends_with("gw · Sheave")));
    let attributes = "[...document.querySelectorAll('main *')].flatMap((it) => [...it.attributes]).filter((it) => \
                      it.name.startsWith('on') || /[\\u202e\\u200b\\u001b]/.test(it.value)).length";
    assert_eq!(browser.value(attributes), json!(0));
    // Each foreign name is isolated in its text direction.
    assert_eq!(
        browser.value("[...document.querySelectorAll('#rows .name')].every((it) => it.querySelector('bdi'))"),
        json!(true)
    );
    browser.picture("hostile");
    assert!(browser.complaints().iter().all(|line| line.contains("/api/explain")));
}

/// Terminals interpret what the page and JSON only show.
#[test]
fn no_command_lets_hostile_names_steer_a_terminal_or_forge_a_line() {
    const FORGED: &str = "n1\nFORGED\u{202e}\u{1b}[31m\u{200b}\r";
    let host = host();
    let services = [
        Service { node: FORGED, zone: FORGED, ..Service::new("web", 10) },
        Service { address: None, ..Service::new(&format!("web-{FORGED}"), 11) },
        Service {
            address: None,
            class: "\"other\\nFORGED\\e[2J\"",
            ..Service::new(&format!("other-{FORGED}"), 12)
        },
    ];
    let gateway = Gateway::start(&host, &services, "");
    let (admin, manifests) = (gateway.url(""), gateway.manifests().display().to_string());
    let empty = tempfile::tempdir().expect("a temporary folder");
    let empty = empty.path().display().to_string();
    let at_gateway = ["--admin", admin.as_str()];
    let of_files = ["--manifests", manifests.as_str(), "--node", "gw"];
    let commands: [(&[&str], &[&str]); 11] = [
        (&["routes"], &at_gateway),
        (&["routes", "-o", "wide"], &at_gateway),
        (&["routes"], &of_files),
        (&["explain", "shop/web"], &at_gateway),
        (&["explain", "shop/web"], &of_files),
        (&["status"], &at_gateway),
        (&["gateways"], &at_gateway),
        (&["top", "--once", "--view", "endpoints"], &at_gateway),
        (&["validate"], &of_files),
        (&["diff", "--old", &empty], &of_files),
        (&["status", "--fleet"], &at_gateway),
    ];
    let mut all = gateway.log();
    for (command, source) in commands {
        let done = gateway.command(&[command, source].concat());
        assert!(!done.stdout.is_empty() || command.contains(&"--fleet"), "{command:?}: {}", done.stderr);
        all += &format!("{}{}", done.stdout, done.stderr);
    }
    let unseen = |char: char| char != '\n' && char.is_control() || "\u{202e}\u{200b}".contains(char);
    let steering: Vec<&str> = all.lines().filter(|line| line.contains(unseen)).collect();
    assert!(steering.is_empty(), "{steering:?}");
    let forged: Vec<&str> = all.lines().filter(|line| line.trim_start().starts_with("FORGED")).collect();
    assert!(forged.is_empty(), "{forged:?}");
    assert!(all.contains(r"n1\u{a}FORGED\u{202e}\u{1b}[31m"), "{all}");
}
