//! The quick start for two machines without Kubernetes, from deploy/announce.md: its configuration, key and manifests, as a user would copy them.
//! systemd is not part of it; tests/deploy has it read the unit with the drop-in.

use std::fs;
use std::path::{Path, PathBuf};

use crate::segment::{Segment, Shape, gateway_address, service_address};
use crate::support::patience::eventually;
use crate::support::world::Family;

/// The blocks of the section, without their fences, each with its language.
fn blocks() -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/announce.md");
    let text = fs::read_to_string(path).expect("the document is there");
    let (_, section) =
        text.split_once("\n### Layer 2 on two machines without Kubernetes\n").expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let mut parts = section.split("```");
    parts.next();
    let mut blocks = Vec::new();
    while let (Some(block), Some(_)) = (parts.next(), parts.next()) {
        let (language, block) = block.split_once('\n').expect("a block has lines");
        blocks.push((language.to_owned(), block.to_owned()));
    }
    blocks
}

/// The block that begins with this comment or command.
fn block(language: &str, beginning: &str) -> String {
    let found = blocks().into_iter().find(|(of, text)| of == language && text.starts_with(beginning));
    found.unwrap_or_else(|| panic!("no block {language} begins with {beginning}")).1
}

#[test]
fn two_bare_machines_share_the_addresses_by_what_the_document_says() {
    let mut segment = Segment::new(Shape { gateways: 2, services: 4, ..Shape::default() });
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| -> PathBuf { folder.path().join(name) };
    let path = |name: &str| at(name).display().to_string();

    let key = block("sh", "sudo mkdir");
    let (key, rest) = key.split_once("sudo systemctl").expect("a restart after the key");
    assert!(rest.contains("sheave gateways"), "{rest}");
    let key = key.replace("sudo ", "").replace("/etc/sheave/keys", &path("keys"));
    segment.host(1).finish("sh", &["-ec", &key]).expect_success();
    // systemd gives the files of a folder the name of the credential and their own (LoadCredential= in systemd.exec(5)).
    fs::create_dir(at("credentials")).expect("a folder is made");
    fs::copy(at("keys/1"), at("credentials/key_1")).expect("the key is there");

    let config = block("yaml", "# /etc/sheave/config.yaml");
    let config = config.replace("/run/credentials/sheave.service", &path("credentials"));
    let mut gateways = block("yaml", "# /etc/sheave/manifests/gateways.yaml");
    for number in [1, 2] {
        let own = gateway_address(Family::V4, number).to_string();
        let replaced = gateways.replace(&format!("192.0.2.1{number}"), &own);
        assert_ne!(replaced, gateways, "an address for gw-{number}");
        gateways = replaced;
    }
    for number in [1, 2] {
        // Only what two machines would not share.
        segment.set_config(number, &format!("{config}stateDir: {}\n", path(&format!("state-{number}"))));
        segment.set_manifests_without_gateways(number);
        segment.add_manifest(number, "gateways.yaml", &gateways);
        segment.start(number);
    }
    segment.wait_until_all_eligible();
    segment.wait_until_owned();
    let shown = segment.host(1).finish(sheave_test_support::program::path(), &["gateways"]).expect_success();
    for part in ["gw-1", "gw-2", &service_address(Family::V4, 1).to_string()] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let owner = segment.wait_for_owner(Family::V4, 1);
    segment.kill(owner);
    eventually("the other one goes on, by the router", || match segment.owner(Family::V4, 1) {
        Ok(next) if next != owner => Ok(()),
        other => Err(format!("{other:?}")),
    });
}
