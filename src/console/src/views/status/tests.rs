//! Tests of JSON keys and text.

use serde_json::json;

use super::*;

/// A healthy gateway in a cluster.
fn well() -> ProcessView {
    let kind = |kind: &str, objects| KindView {
        kind: kind.to_owned(),
        synced: true,
        objects,
        last_heard_seconds: Some(3),
        ..KindView::default()
    };
    let snapshot = SnapshotView {
        path: "/var/lib/sheave/snapshot.jsonl".to_owned(),
        written_at: Some("2026-01-02T03:04:05Z".to_owned()),
        age_seconds: Some(7_380),
        error: None,
    };
    ProcessView {
        node: "gw-1".to_owned(),
        version: "0.1.0".to_owned(),
        role: "gateway".to_owned(),
        uptime_seconds: 90,
        generation: 7,
        frontends: 12,
        source: SourceView {
            kind: "api".to_owned(),
            server: Some("https://10.0.0.1:6443/".to_owned()),
            synced: true,
            kinds: vec![kind("Service", 120), kind("Node", 5)],
            from_snapshot: false,
            snapshot: Some(snapshot),
        },
        karmada: None,
        guard: Vec::new(),
        problems: 0,
        controller: None,
        steering: Some(SteeringView {
            mode: "auto".to_owned(),
            sockets: 9,
            steered: 2,
            kernel: 1,
            unavailable: None,
        }),
        ..ProcessView::default()
    }
}

/// Entries under the heading of the list.
fn wrong(view: &ProcessView) -> Vec<String> {
    let text = view.to_text();
    let (_, list) = text.split_once("\nWhat is wrong, and what to do\n").unwrap_or_else(|| panic!("{text}"));
    list.lines().map(|line| line.strip_prefix("  - ").unwrap().to_owned()).collect()
}

#[test]
fn the_keys_are_those_of_the_contract() {
    let mut view = well();
    view.guard =
        vec![GuardView { kind: "Node".to_owned(), there: 50, listed: 1, kept: 49, remaining_seconds: 42 }];
    view.controller = Some(standby());
    view.takeover = Some(TakeoverView { seconds: Some(0.25), failures: 1 });
    let json: serde_json::Value = serde_json::from_str(&view.to_json()).unwrap();
    let expected = json!({
        "node": "gw-1", "version": "0.1.0", "role": "gateway", "uptimeSeconds": 90, "generation": 7, "tableAgeSeconds": null, "tableHash": null, "frontends": 12,
        "karmada": null, "source": {
            "kind": "api", "server": "https://10.0.0.1:6443/", "synced": true,
            "kinds": [
                {"kind": "Service", "synced": true, "objects": 120, "lastHeardSeconds": 3, "restarts": 0, "watches": 0, "error": null},
                {"kind": "Node", "synced": true, "objects": 5, "lastHeardSeconds": 3, "restarts": 0, "watches": 0, "error": null},
            ],
            "fromSnapshot": false,
            "snapshot": {
                "path": "/var/lib/sheave/snapshot.jsonl", "writtenAt": "2026-01-02T03:04:05Z", "ageSeconds": 7380,
                "error": null,
            },
        },
        "guard": [{"kind": "Node", "there": 50, "listed": 1, "kept": 49, "remainingSeconds": 42}],
        "problems": 0, "controller": {
            "leading": false, "leader": "gw-2", "gateways": null, "services": null, "writeFailures": null, "problems": [],
            "moreProblems": 0,
        },
        "steering": {"mode": "auto", "sockets": 9, "steered": 2, "kernel": 1, "unavailable": null}, "lameDuck": false, "draining": false,
        "takeover": {"seconds": 0.25, "failures": 1}, "announcing": null, "firstProblems": [], "unhealthyEndpoints": 0, "firstUnhealthy": [], "services": null, "firstUnwell": [], "notReady": null, "workerStuck": false,
    });
    assert_eq!(json, expected);
    assert_eq!(serde_json::from_str::<ProcessView>(&view.to_json()).unwrap(), view);
}

#[test]
fn unhealthy_endpoints_are_listed_and_the_others_counted() {
    let endpoint = UnhealthyView {
        service: "shop/web".to_owned(),
        protocol: "TCP".to_owned(),
        endpoint: "10.0.0.7:8080".to_owned(),
        reason: "Connection refused (os error 111)".to_owned(),
        seconds: 90,
        checked: false,
    };
    let view = ProcessView { unhealthy_endpoints: 3, first_unhealthy: vec![endpoint], ..well() };
    let listed = "\nUnhealthy endpoints\n  - 10.0.0.7:8080 (TCP) of shop/web for 90 s: Connection refused (os error \
                  111)\n  and 2 more\n\nNothing is wrong.\n";
    assert!(view.to_text().ends_with(listed), "{}", view.to_text());
}

#[test]
fn a_service_that_is_not_well_is_wrong_and_named() {
    let row = |service: &str, state, why: &str| ServiceRow {
        service: service.to_owned(),
        source: "Service",
        state,
        why: why.to_owned(),
        ..ServiceRow::default()
    };
    let fine = row("shop/fine", ServiceState::Serving, "");
    let well = well().serving(std::slice::from_ref(&fine));
    assert!(well.to_text().contains("\nServices: 1 serving, 0 degraded, 0 broken.\n"), "{}", well.to_text());
    assert_eq!(well.exit(), Exit::Ok);
    let rows = [
        row("shop/half", ServiceState::Degraded, "1 of 2 endpoints is unhealthy"),
        fine,
        row("shop/web", ServiceState::Broken, "it has no endpoints for this port"),
    ];
    let unwell = well.serving(&rows);
    let listed = "\nServices that are not well\n  - Service shop/web is broken: it has no endpoints for this port\n  - \
                  Service shop/half is degraded: 1 of 2 endpoints is unhealthy\n";
    assert!(unwell.to_text().contains(listed), "{}", unwell.to_text());
    assert_eq!(wrong(&unwell).len(), 1, "{}", unwell.to_text());
    assert_eq!(unwell.exit(), Exit::Degraded);
    assert_eq!(unwell.wrong_with_process(), [""; 0], "it is no fault of the process");
    assert_eq!(serde_json::from_str::<ProcessView>(&unwell.to_json()).unwrap(), unwell);
}

#[test]
fn frontends_that_accept_nothing_are_counted() {
    assert!(!well().to_text().contains("Not reached"), "{}", well().to_text());
    let one = ProcessView { frontends: 13, ..well() }.to_text();
    let told = "\nNot reached: 1 frontend, which accepts nothing here; the Problems say why.\n";
    assert!(one.contains(told), "{one}");
}

#[test]
fn a_status_with_keys_of_a_newer_version_is_read() {
    let mut json: serde_json::Value = serde_json::from_str(&well().to_json()).unwrap();
    json["new"] = json!(1);
    json["source"]["new"] = json!(1);
    assert_eq!(serde_json::from_value::<ProcessView>(json).unwrap(), well());
}

#[test]
fn people_see_what_it_does_and_that_nothing_is_wrong() {
    let expected = "\
Sheave 0.1.0 (gateway) on node gw-1, up for 90 s.
Routing table: generation 7, 12 frontends.
Reached: 9 by sockets of their own, 2 by steering (mode auto), 1 by the kernel path.
Source: API server https://10.0.0.1:6443/.
Snapshot: /var/lib/sheave/snapshot.jsonl, written 2 h 3 min ago.

  KIND     OBJECTS  LISTED  LAST HEARD OF  LISTED AGAIN
  Service  120      yes     3 s ago        0
  Node     5        yes     3 s ago        0

Nothing is wrong.
";
    assert_eq!(well().to_text(), expected);
}

/// A standalone controller, while another one leads.
fn standby() -> ControllerView {
    ControllerView { leader: Some("gw-2".to_owned()), ..ControllerView::default() }
}

#[test]
fn a_controller_by_itself_has_no_table_and_says_who_leads() {
    let mut view = well();
    view.role = "controller".to_owned();
    view.source.snapshot = None;
    view.controller =
        Some(ControllerView { leading: true, gateways: Some(1), services: Some(120), ..standby() });
    let text = view.to_text();
    assert!(text.contains("\nController: this one leads; 1 gateway ready, 120 Services served.\n"), "{text}");
    assert!(!text.contains("Routing table") && text.ends_with("\nNothing is wrong.\n"), "{text}");
    view.source.kinds.clear();
    view.controller = Some(standby());
    let text = view.to_text();
    assert!(text.contains("\nController: gw-2 leads; this one is on standby.\n"), "{text}");
    assert!(text.ends_with("\nNothing is wrong.\n"), "{text}");
    view.controller = Some(ControllerView::default());
    assert!(wrong(&view)[0].starts_with("no controller leads"));
}

fn problem() -> ProblemView {
    ProblemView {
        object: "Service shop/web".to_owned(),
        reason: "NoAddress".to_owned(),
        message: "no pool has an address".to_owned(),
        ..ProblemView::default()
    }
}

#[test]
fn the_problems_are_listed_and_the_others_counted() {
    let one = ProcessView { problems: 1, first_problems: vec![problem()], ..well() };
    let text = one.to_text();
    assert!(
        text.ends_with(
            "\n  - there is one Problem, listed below\n\nProblems\n  - Service shop/web: NoAddress: no pool has an address\n"
        ),
        "{text}"
    );
    let many = ProcessView { problems: 3, first_problems: vec![problem(); 2], ..well() };
    assert_eq!(many.to_text().matches("  - Service shop/web: NoAddress").count(), 2);
    assert!(many.to_text().ends_with("\n  and 1 more; `sheave routes` lists all\n"), "{}", many.to_text());
}

#[test]
fn it_exits_by_whether_it_is_ready_and_whether_anything_is_wrong() {
    assert_eq!(well().exit(), Exit::Ok);
    assert_eq!(ProcessView { worker_stuck: true, ..well() }.exit(), Exit::Down, "/readyz refuses");
    let away = SourceView { synced: false, from_snapshot: true, ..well().source };
    let held = vec![GuardView::default()];
    let degraded = [
        ProcessView { problems: 1, ..well() },
        ProcessView { source: away, ..well() },
        ProcessView { guard: held, ..well() },
        ProcessView { controller: Some(ControllerView::default()), ..well() },
    ];
    for view in degraded {
        assert_eq!(view.exit(), Exit::Degraded, "{}", view.to_text());
        assert!(!view.to_text().contains("Nothing is wrong"), "{}", view.to_text());
    }
    let down = ProcessView { not_ready: Some("no objects have been read yet".to_owned()), ..well() };
    assert_eq!(down.exit(), Exit::Down);
    assert_eq!(wrong_first(&down), "it is not ready: no objects have been read yet");
    assert_eq!([Exit::Ok, Exit::Degraded, Exit::Down].map(Exit::code), [0, 1, 2]);
}

#[test]
fn a_leader_says_what_it_lacks_and_lists_the_problems_that_it_sees() {
    let mut view = well();
    view.role = "controller".to_owned();
    view.problems = 22;
    view.controller = Some(ControllerView {
        leading: true,
        gateways: Some(0),
        services: Some(1),
        write_failures: Some(2),
        problems: vec![problem(); 20],
        more_problems: 2,
        ..standby()
    });
    let text = view.to_text();
    assert!(text.contains("  - no gateway is ready, so nothing is served: "), "{text}");
    assert!(text.contains("  - the controller reports 22 Problems, listed below\n\n"), "{text}");
    assert!(
        text.contains("  - the API server keeps refusing what the controller writes to 2 objects: "),
        "{text}"
    );
    assert!(!text.contains("sheave routes"), "{text}");
    assert_eq!(
        text.matches("  - Service shop/web: NoAddress: no pool has an address\n").count(),
        20,
        "{text}"
    );
    assert!(text.ends_with("\n  and 2 more\n"), "{text}");
    view.source.synced = false;
    assert!(wrong_first(&view).starts_with("it leads, but allocates no address"), "{}", wrong_first(&view));
}

fn wrong_first(view: &ProcessView) -> String {
    let text = view.to_text();
    let (_, list) = text.split_once("What is wrong, and what to do\n  - ").unwrap();
    list.lines().next().unwrap().to_owned()
}

#[test]
fn without_an_api_server_the_snapshot_is_named_or_that_nothing_is_served() {
    let mut view = well();
    view.source.synced = false;
    view.source.from_snapshot = true;
    for kind in &mut view.source.kinds {
        (kind.synced, kind.error) = (false, Some("connection refused".to_owned()));
    }
    assert_eq!(
        wrong(&view),
        [
            "it serves from the snapshot, 2 h 3 min old, and sees no changes until the API server at https://10.0.0.1:6443/ \
             answers: check that the server runs and is reachable from this node",
            "Services, Nodes cannot be watched: connection refused; their last known state stays in force",
        ]
    );
    view.source.from_snapshot = false;
    assert!(wrong(&view)[0].starts_with("it serves nothing until the API server at https://10.0.0.1:6443/"));
    view.source.server = None;
    assert!(wrong(&view)[0].starts_with("it serves nothing until the folder can be listed"));
}

#[test]
fn without_the_karmada_api_server_services_are_served_all_the_same() {
    let mut view = well();
    view.karmada = Some(SourceView {
        server: Some("https://10.9.0.1:5443/".to_owned()),
        synced: false,
        kinds: Vec::new(),
        ..view.source.clone()
    });
    let told = "it serves no MultiClusterService until the Karmada API server at https://10.9.0.1:5443/ answers: check \
                that the server runs and is reachable from this node";
    assert_eq!(wrong(&view), [told]);
    let karmada = view.karmada.as_mut().unwrap();
    karmada.from_snapshot = true;
    karmada.kinds = vec![KindView {
        kind: "Work".to_owned(),
        error: Some("timed out".to_owned()),
        ..KindView::default()
    }];
    let told = "Works of the Karmada control plane cannot be watched: timed out; their last known state stays in force";
    assert_eq!(wrong(&view)[1], told);
    view.karmada.as_mut().unwrap().kinds.clear();
    assert!(
        wrong(&view)[0].starts_with(
            "it serves MultiClusterServices from the snapshot, 2 h 3 min old, and sees no changes"
        )
    );
    view.karmada.as_mut().unwrap().server = None;
    let told = "it serves no MultiClusterService until the folder of the Karmada control plane can be listed: check that it exists";
    assert_eq!(wrong(&view), [told]);
}

#[test]
fn who_is_about_to_drain_says_so() {
    let view = ProcessView { lame_duck: true, ..well() };
    assert_eq!(
        wrong(&view),
        ["it is about to drain: it is not ready any more, but still accepts new connections"]
    );
}

#[test]
fn everything_that_is_wrong_is_told_with_what_to_do() {
    let mut view = well();
    view.draining = true;
    view.problems = 2;
    view.source.kinds[1].error = Some("timed out".to_owned());
    view.source.snapshot.as_mut().unwrap().error = Some("it is damaged".to_owned());
    view.guard = vec![GuardView {
        kind: "Service".to_owned(),
        there: 120,
        listed: 3,
        kept: 117,
        remaining_seconds: 42,
    }];
    assert_eq!(
        wrong(&view),
        [
            "it is draining: nothing new is accepted, and open connections finish",
            "Nodes cannot be watched: timed out; their last known state stays in force",
            "the API server lists 3 Services where there were 120: the 117 missing ones stay in force for another 42 s in \
             case the list is wrong; if they were deleted on purpose, wait",
            "the snapshot: it is damaged",
            "there are 2 Problems; `sheave routes` shows them",
        ]
    );
}

#[test]
fn spans_are_as_long_as_people_read() {
    let told = |uptime_seconds| {
        let text = ProcessView { uptime_seconds, ..well() }.to_text();
        let (line, _) = text.split_once(".\n").unwrap();
        line.split_once("up for ").unwrap().1.to_owned()
    };
    for (seconds, expected) in [
        (0, "0 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7_199, "119 min"),
        (7_200, "2 h 0 min"),
        (172_799, "47 h 59 min"),
        (172_800, "2 d 0 h"),
    ] {
        assert_eq!(told(seconds), expected);
    }
}
