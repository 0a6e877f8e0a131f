//! Snapshots of other versions: an older one without new fields, a newer one with unknown fields, and recorded samples of the
//! current format, so that no change of the types goes unnoticed.

use serde_json::{Value, json};

use super::*;

/// Samples of the current format. Later versions must read them like this one. An incompatible change must raise the format
/// version, and keep these as samples that are refused.
const LOCAL: &str = include_str!("snapshot-1.jsonl");
const KARMADA: &str = include_str!("karmada-1.jsonl");

fn of(part: ControlPlane) -> Identity {
    Identity { part, ..trusted_by(&["aa"]) }
}

/// A snapshot of these lines, with a matching last line.
fn sealed(lines: &[Value]) -> String {
    let mut text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let end = json!({"end": {"objects": lines.len() - 1, "crc32": crc32fast::hash(text.as_bytes())}});
    text += &format!("{end}\n");
    text
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn header() -> Value {
    json!({
        "sheaveSnapshot": 1, "sheave": "9.9.9", "server": "https://10.0.0.1:6443/", "cluster": "local",
        "writtenAt": "2026-01-02T03:04:05Z",
    })
}

#[test]
fn a_recorded_snapshot_is_read_and_would_be_written_the_same() {
    for (part, recorded) in [(ControlPlane::Local, LOCAL), (ControlPlane::Karmada, KARMADA)] {
        let snapshot = decode(recorded.as_bytes(), &of(part)).unwrap();
        assert_eq!((snapshot.identity, snapshot.sheave.as_str()), (of(part), "0.1.0"));
        let header = Header::new(&of(part), snapshot.written_at);
        let mut written = Vec::new();
        encode(&header, &snapshot.objects, part, &mut written).unwrap();
        let written = String::from_utf8(written).unwrap();
        let (mut written, recorded) = (lines(&written), lines(recorded));
        written[0]["sheave"] = "0.1.0".into();
        let last = written.len() - 1;
        written[last]["end"]["crc32"] = recorded[last]["end"]["crc32"].clone();
        assert_eq!(written, recorded);
    }
}

#[test]
fn what_an_older_version_did_not_write_has_its_default() {
    let lines = [
        header(),
        json!({"pool": {"apiVersion": "sheave.dev/v1alpha1", "kind": "AddressPool", "metadata": {"name": "public"},
            "spec": {"addresses": ["203.0.113.0/28"]}}}),
        json!({"service": {"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "shop", "name": "web"}}}),
    ];
    let objects = decode(sealed(&lines).as_bytes(), &identity()).unwrap().objects;
    let pool = &objects.pools["public"].spec;
    let addresses = vec!["203.0.113.0/28".to_owned()];
    assert_eq!(*pool, AddressPoolSpec { addresses, ..AddressPoolSpec::default() });
    assert_eq!(objects.services.len(), 1);
    let lines = [
        header(),
        json!({"multiClusterService": {"metadata": {"namespace": "shop", "name": "web"}}}),
        json!({"work": {"metadata": {"namespace": "karmada-es-member1", "name": "web", "labels": {
            "multiclusterservice.karmada.io/namespace": "shop", "multiclusterservice.karmada.io/name": "web",
        }}}}),
        json!({"cluster": {"metadata": {"name": "member1"}}}),
    ];
    let fleet = decode(sealed(&lines).as_bytes(), &of(ControlPlane::Karmada)).unwrap().objects.fleet;
    assert_eq!((fleet.services.len(), fleet.works.len(), fleet.clusters.len()), (1, 1, 1));
}

/// The format keeps its version: a snapshot without objects of the Gateway API is the same for an older version, which refuses a line
/// of a kind that it does not know, and waits for the API server.
#[test]
fn objects_of_the_gateway_api_have_lines_of_their_own_only() {
    let part = ControlPlane::Local;
    let before = decode(LOCAL.as_bytes(), &of(part)).unwrap().objects;
    assert_eq!(before.gateway_api, crate::api::objects::GatewayApiObjects::default());
    let named = |name: &str| json!({"metadata": {"namespace": "shop", "name": name}});
    let slice = json!({"metadata": {"namespace": "shop", "name": "web-1", "labels": {
        "multicluster.kubernetes.io/service-name": "web", "multicluster.kubernetes.io/source-cluster": "member1",
        "kubernetes.io/service-name": "web",
    }}, "addressType": "IPv4", "endpoints": []});
    let written = [
        header(),
        json!({"slice": slice}),
        json!({"gatewayClass": {"metadata": {"name": "sheave"}, "spec": {"controllerName": "sheave.dev/gateway"}}}),
        json!({"gateway": named("edge")}),
        json!({"listenerSet": named("more")}),
        json!({"tcpRoute": named("web")}),
        json!({"udpRoute": named("dns")}),
        json!({"tlsRoute": named("tls")}),
        json!({"referenceGrant": named("grant")}),
        json!({"serviceImport": named("web")}),
        json!({"importSlice": slice}),
    ];
    let objects = decode(sealed(&written).as_bytes(), &of(part)).unwrap().objects;
    let mut again = Vec::new();
    encode(&Header::new(&of(part), jiff::Timestamp::UNIX_EPOCH), &objects, part, &mut again).unwrap();
    let again = lines(&String::from_utf8(again).unwrap());
    let kinds = |lines: &[Value]| -> Vec<String> {
        lines.iter().skip(1).flat_map(|it| it.as_object().unwrap().keys().cloned()).collect()
    };
    assert_eq!(kinds(&again[..again.len() - 1]), kinds(&written));
    assert_eq!(decode(sealed(&again[..again.len() - 1]).as_bytes(), &of(part)).unwrap().objects, objects);
}

#[test]
fn fields_of_a_newer_version_are_ignored() {
    let mut lines = lines(LOCAL);
    lines.pop();
    lines[0]["future"] = json!({"x": 1});
    for line in &mut lines[1..] {
        let object = line.as_object_mut().unwrap().values_mut().next().unwrap();
        object["future"] = json!([1]);
        object["metadata"]["future"] = json!("x");
        if let Some(spec) = object.get_mut("spec") {
            spec["future"] = json!({"y": null});
        }
    }
    let newer = decode(sealed(&lines).as_bytes(), &of(ControlPlane::Local)).unwrap();
    assert_eq!(newer.objects, decode(LOCAL.as_bytes(), &of(ControlPlane::Local)).unwrap().objects);
}

/// Objects of the wrong file would be served in addition to those of the other file.
#[test]
fn what_belongs_into_the_other_file_is_refused_with_its_line() {
    for (recorded, part) in [(LOCAL, ControlPlane::Karmada), (KARMADA, ControlPlane::Local)] {
        match decode(recorded.as_bytes(), &of(part)) {
            Err(DecodeError::Damaged(found)) => {
                assert_eq!(found, "line 2: the object belongs into the file of the other API server");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_only_a_newer_version_understands_is_refused_with_its_line() {
    for (line, why) in [
        (json!({"httpRoute": {"metadata": {"name": "x"}}}), "line 3: unknown variant `httpRoute`"),
        (json!({"pool": {"spec": {"sharing": "Tenant"}}}), "line 3: unknown variant `Tenant`"),
    ] {
        let lines = [header(), json!({"namespace": {"metadata": {"name": "shop"}}}), line];
        match decode(sealed(&lines).as_bytes(), &identity()) {
            Err(DecodeError::Damaged(found)) => assert!(found.starts_with(why), "{found}"),
            other => panic!("{other:?}"),
        }
    }
    for format in [0, 2, u32::MAX] {
        let newer = format!("{{\"sheaveSnapshot\":{format},\"objects\":\"elsewhere\"}}\n");
        let error = decode(newer.as_bytes(), &identity()).unwrap_err();
        assert!(matches!(error, DecodeError::OtherFormat(found) if found == format), "{error:?}");
    }
}
