//! Tests of what the gateway answers about a Service, and of the help.

use super::*;
use crate::top::ask::{Request, RequestKind};

fn request(service: &str, source: &str, kind: RequestKind) -> Request {
    let of = crate::top::messages::LiveService { service: service.to_owned(), source: source.to_owned() };
    Request { of, kind }
}

impl Scene {
    fn key(&mut self, code: KeyCode) -> Next {
        self.app.press(KeyEvent::from(code))
    }

    fn answer(&mut self, answer: Result<&str, &str>) {
        let request = self.app.request().cloned().unwrap();
        let answer = answer.map(str::to_owned).map_err(str::to_owned);
        assert_eq!(self.app.answered(&request, answer, "10:00:05".to_owned()), Next::Draw);
    }
}

#[test]
fn enter_explains_and_esc_goes_back() {
    let mut scene = Scene::of_services();
    assert_eq!(scene.key(KeyCode::Enter), Next::Ask);
    assert_eq!(scene.app.request(), Some(&request("shop/db", "Service", RequestKind::Explain)));
    let lines = scene.lines();
    assert_eq!(lines[..3], ["shop/db  asking the gateway", "Services: 1 broken, 2 serving", ""]);
    assert_eq!(lines[23], "q back  r ask again  Enter explain  t trace");
    scene.answer(Ok("Service shop/db is not served here.\n\nWhy\n  - no endpoint is ready\n"));
    let expected = [
        "shop/db  explained at 10:00:05",
        "Services: 1 broken, 2 serving",
        "Service shop/db is not served here.",
        "",
        "Why",
    ];
    assert_eq!(scene.lines()[..5], expected);
    // What has been answered stays while it is asked again, and when nothing comes.
    assert_eq!(scene.outcome('r'), Next::Ask);
    assert_eq!(
        (scene.lines()[0].as_str(), scene.lines()[4].as_str()),
        ("shop/db  asking the gateway", "Why")
    );
    scene.answer(Err("Connection\u{7} refused"));
    assert_eq!(scene.lines()[0], r"shop/db  explained at 10:00:05  Connection\u{7} refused");
    assert_eq!(scene.lines()[4], "Why");
    for back in [KeyCode::Esc, KeyCode::Char('q')] {
        assert_eq!(scene.key(back), Next::Draw);
        assert!(scene.lines()[5].starts_with("shop/db"));
        assert_eq!(scene.key(KeyCode::Enter), Next::Ask);
    }
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(scene.app.press(interrupt), Next::Quit);
}

#[test]
fn an_answer_that_nobody_waits_for_is_dropped() {
    let mut scene = Scene::of_services();
    assert_eq!(scene.key(KeyCode::Enter), Next::Ask);
    let late = scene.app.request().cloned().unwrap();
    assert_eq!(scene.outcome('t'), Next::Ask);
    assert_eq!(scene.app.request(), Some(&request("shop/db", "Service", RequestKind::Trace)));
    assert_eq!(scene.lines()[0], "shop/db  tracing, which takes some seconds");
    let answered = scene.app.answered(&late, Ok("of before".to_owned()), String::new());
    assert_eq!(answered, Next::Draw);
    assert_eq!(scene.lines()[2], "");
    scene.answer(Ok("STOPPED: it refuses"));
    assert_eq!(
        scene.lines()[..3],
        ["shop/db  traced at 10:00:05", "Services: 1 broken, 2 serving", "STOPPED: it refuses"]
    );
}

#[test]
fn a_long_answer_is_scrolled() {
    let mut scene = Scene::of_services();
    scene.press("?q");
    assert_eq!(scene.key(KeyCode::Enter), Next::Ask);
    let text: String = (1..=100).map(|line| format!("line {line}\n")).collect();
    scene.answer(Ok(&text));
    let shown = |scene: &mut Scene| {
        let lines = scene.lines();
        (lines[2].clone(), lines[22].clone(), lines[23].split("  ").nth(1).unwrap_or_default().to_owned())
    };
    let at = |first: usize| {
        (
            format!("line {first}"),
            format!("line {}", first + 20),
            format!("j k scroll, {first}-{} of 100", first + 20),
        )
    };
    assert_eq!(shown(&mut scene), at(1));
    scene.press("jjjk");
    assert_eq!(shown(&mut scene), at(3));
    assert_eq!(scene.key(KeyCode::PageDown), Next::Draw);
    assert_eq!(shown(&mut scene), at(23));
    scene.press("G");
    assert_eq!(shown(&mut scene), at(80));
    assert_eq!(scene.key(KeyCode::Down), Next::Draw);
    assert_eq!(shown(&mut scene), at(80));
    assert_eq!(scene.key(KeyCode::PageUp), Next::Draw);
    assert_eq!(shown(&mut scene), at(60));
    assert_eq!(scene.key(KeyCode::Home), Next::Draw);
    assert_eq!(shown(&mut scene), at(1));
    assert_eq!(scene.outcome('x'), Next::Wait);
    // In a narrow window lines are broken, and the place stays within the text.
    scene.press("G");
    scene.size = (6, 5);
    scene.lines();
    scene.press("G");
    assert_eq!(scene.lines()[2..4], ["line", "  100"]);
    scene.size = (300, 200);
    assert_eq!(scene.lines()[2], "line 1");
    for size in [(1, 1), (20, 2), (20, 5)] {
        scene.size = size;
        scene.lines();
    }
}

#[test]
fn rows_without_a_service_explain_nothing() {
    let mut scene = Scene::of_endpoints(TopRows::Endpoints);
    assert_eq!(scene.key(KeyCode::Enter), Next::Ask);
    assert_eq!(scene.app.request(), Some(&request("shop/web", "Service", RequestKind::Explain)));
    let mut scene = Scene::of_endpoints(TopRows::Clusters);
    assert_eq!((scene.key(KeyCode::Enter), scene.outcome('t')), (Next::Wait, Next::Wait));
    let mut scene = Scene::new(TopRows::Services);
    assert_eq!(scene.key(KeyCode::Enter), Next::Wait);
}

#[test]
fn help_is_no_question() {
    let mut scene = Scene::of_services();
    scene.press("?");
    assert_eq!(scene.lines()[0], "Keys and columns");
    assert!(scene.lines()[23].starts_with("q back  j k scroll, 1-21 of "), "{}", scene.lines()[23]);
    assert_eq!(
        (scene.outcome('r'), scene.outcome('t'), scene.key(KeyCode::Enter)),
        (Next::Wait, Next::Wait, Next::Wait)
    );
    scene.press("?");
    assert!(scene.lines()[0].starts_with("sheave top"));
}
