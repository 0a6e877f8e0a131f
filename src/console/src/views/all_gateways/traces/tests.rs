//! Tests of the verdict over all gateways.

use super::*;
use crate::views::trace::StepView;

/// A gateway that saw this number of packets and answered each second one, if it captured; `found` is what the step found.
fn answer(node: &str, steps: Vec<StepView>, came: Option<u64>) -> (KnownGateway, GatewayTrace) {
    let mut steps = steps;
    steps.extend(came.map(|came| match came {
        0 => StepView::new("capture", "packets").stopped("no packet arrived", "look at the client"),
        came => StepView::new("capture", "packets").ok(format!("{came} packets came")),
    }));
    let trace = TraceView {
        node: "any name".to_owned(),
        service: "shop/web".to_owned(),
        source: "Service".to_owned(),
        frontend: Some("203.0.113.10:80/TCP".to_owned()),
        client: Some("198.51.100.7".to_owned()),
        verdict: VerdictView::of(&steps, "it gets through".to_owned()),
        steps,
        capture: came.map(|came| CaptureView {
            packets: came,
            bytes: 24,
            came,
            answered: came / 2,
            path: String::new(),
            file: None,
        }),
    };
    (known(node), Ok((true, trace)))
}

fn known(node: &str) -> KnownGateway {
    KnownGateway { node: node.to_owned(), addresses: Vec::new(), listeners: Vec::new(), ready: true }
}

fn mute(node: &str) -> (KnownGateway, GatewayTrace) {
    (known(node), Err("no answer within 3 s".to_owned()))
}

fn fine(step: &str) -> StepView {
    StepView::new(step, "something").ok("fine")
}

fn refuses() -> StepView {
    StepView::new("endpoints", "each").stopped("each refuses", "let it listen")
}

fn announced_by(node: &str) -> StepView {
    StepView::new("address", "who").doubtful(format!("gateway {node} announces it"), "trace there")
}

#[track_caller]
fn expect(view: &TracesView, state: StepState, text: &str, of: &[&str]) {
    assert_eq!((view.verdict.state, view.verdict.text.as_str()), (state, text), "{view:#?}");
    assert_eq!(view.verdict_of, of);
}

#[test]
fn the_verdict_is_from_where_packets_were_seen() {
    let view = TracesView::new(vec![
        answer("gw-2", vec![fine("address")], Some(0)),
        answer("gw-1", vec![fine("address"), refuses()], Some(8)),
        mute("gw-3"),
    ]);
    expect(&view, StepState::Stopped, "on gw-1: each refuses", &["gw-1"]);
    assert_eq!(view.gateways.iter().map(|it| it.comes_here).collect::<Vec<_>>(), [Some(true), Some(false)]);
    let expected = "STOPPED: on gw-1: each refuses
  let it listen

Service shop/web, 203.0.113.10:80/TCP, for 198.51.100.7, on 3 gateways:
  GATEWAY  CAME  ANSWERED  VERDICT    WHY
  gw-1     8     4         STOPPED    endpoints: each refuses
  gw-2     0     0         elsewhere  saw none: the client's packets do not come here
  gw-3     -     -         no answer  no answer within 3 s

On gw-1:
  ok        address: something
            fine
  STOPPED   endpoints: each
            each refuses
            -> let it listen
  ok        capture: packets
            8 packets came
";
    assert_eq!(view.to_text(), expected);
    assert_eq!(serde_json::from_str::<TracesView>(&view.to_json()).unwrap(), view);
}

#[test]
fn without_a_capture_gateways_that_do_not_have_the_address_do_not_count() {
    let view = TracesView::new(vec![
        answer("gw-1", vec![fine("address")], None),
        answer("gw-2", vec![announced_by("gw-1"), refuses()], None),
    ]);
    expect(&view, StepState::Ok, "on gw-1: it gets through", &["gw-1"]);
    assert!(
        view.to_text().contains("  gw-2     elsewhere  gateway gw-1 announces it\n"),
        "{}",
        view.to_text()
    );
    // Any of them may get the client, and one of them stops it.
    let stopping = |node| answer(node, vec![fine("address"), refuses()], None);
    let view = TracesView::new(vec![stopping("gw-2"), answer("gw-1", vec![fine("address")], None)]);
    expect(&view, StepState::Doubtful, "on gw-2: each refuses", &["gw-2"]);
    let view = TracesView::new(vec![stopping("gw-2"), stopping("gw-1")]);
    expect(&view, StepState::Stopped, "on gw-1, gw-2: each refuses", &["gw-1", "gw-2"]);
}

#[test]
fn a_client_that_sends_to_the_wrong_gateway_is_told() {
    let view = TracesView::new(vec![
        answer("gw-1", vec![fine("address")], Some(0)),
        answer("gw-2", vec![announced_by("gw-1")], Some(1)),
    ]);
    let text = "packets of 198.51.100.7 come to gw-2, and the address is at gw-1";
    expect(&view, StepState::Stopped, text, &["gw-2"]);
    assert!(view.verdict.advice.contains("wrong gateway"), "{view:?}");
}

#[test]
fn packets_that_nobody_saw_go_elsewhere_or_to_who_does_not_answer() {
    let saw_none = |node| answer(node, vec![fine("address")], Some(0));
    let view = TracesView::new(vec![saw_none("gw-1"), saw_none("gw-2")]);
    let text = "no packet of 198.51.100.7 came to any of 2 gateways";
    expect(&view, StepState::Stopped, text, &["gw-1", "gw-2"]);
    let view = TracesView::new(vec![saw_none("gw-1"), mute("gw-2")]);
    let text = "no packet of 198.51.100.7 came to gw-1; they may come to gw-2, without an answer from there";
    expect(&view, StepState::Doubtful, text, &["gw-1"]);
    // What stops them earlier tells more.
    let nobody = StepView::new("address", "who").stopped("nobody answers for it", "announce it");
    let view = TracesView::new(vec![answer("gw-1", vec![nobody], Some(0))]);
    expect(&view, StepState::Stopped, "on gw-1: nobody answers for it", &["gw-1"]);
    let view = TracesView::new(vec![mute("gw-1")]);
    expect(&view, StepState::Unseen, "no gateway answers", &[]);
    assert!(view.to_text().contains("gw-1     no answer  no answer within 3 s"), "{}", view.to_text());
}
