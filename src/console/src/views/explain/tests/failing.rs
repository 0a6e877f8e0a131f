//! Tests of valid objects whose traffic fails nevertheless: endpoints that do not answer, and limits.

use sheave_control::api::problem::reason;

use super::*;
use crate::views::explain::headline;
use crate::views::problem::PortView;

impl Fixture {
    /// Makes these endpoints of `shop/web`, port `http`, unhealthy.
    fn unhealthy(mut self, endpoints: &[&str]) -> Self {
        let mut health = self.active.health().clone();
        for frontend in self.active.table().frontends().iter().filter(|it| &*it.service.port_name == "http") {
            let all = frontend.backends.iter().flat_map(|backend| &backend.endpoints);
            for endpoint in all.filter(|it| endpoints.contains(&it.addr.to_string().as_str())) {
                health.set_unhealthy(&frontend.service, endpoint.addr, "refused".into());
            }
        }
        self.active = self.active.with_health(health);
        self
    }

    /// Adds a Problem to `shop/web`, port 80.
    fn problem(mut self, reason: &str) -> Self {
        self.problems.push(ProblemView {
            object: "Service shop/web".to_owned(),
            reason: reason.to_owned(),
            message: "too many".to_owned(),
            port: Some(PortView { port: 80, protocol: "TCP".to_owned() }),
            ..ProblemView::default()
        });
        self
    }
}

fn sentence(view: &ExplainView) -> String {
    headline(view).lines().last().unwrap_or_default().to_owned()
}

#[test]
fn an_unhealthy_endpoint_says_why_and_whether_it_is_used_all_the_same() {
    let one = Fixture::new(&web("")).unhealthy(&["10.1.0.7:8080"]).ask("protocol=TCP");
    let [failing, healthy] = one.endpoints.as_slice() else { panic!("{one:?}") };
    assert_eq!((failing.used, failing.unhealthy.as_deref()), (false, Some("refused")));
    assert_eq!(failing.reason, "it is unhealthy (refused), and others are not");
    assert_eq!((healthy.used, healthy.unhealthy.as_deref()), (true, None));
    reason(&one, "1 of them gets nothing new at present");
    assert_eq!(sentence(&one), "A client outside the cluster goes to 10.1.0.8:8080.");

    let all = Fixture::new(&web("")).unhealthy(&["10.1.0.7:8080", "10.1.0.8:8080"]).ask("protocol=TCP");
    for endpoint in &all.endpoints {
        assert!(endpoint.used);
        assert_eq!(endpoint.reason, "it is unhealthy (refused), but too few others are healthy");
    }
    assert_eq!(
        sentence(&all),
        "A client outside the cluster goes to one of 2 endpoints, all of which are unhealthy."
    );
    assert!(!all.reasons.iter().any(|reason| reason.contains("nothing new")), "{all:?}");

    let sticky = Fixture::new(&web("sessionAffinity: ClientIP"));
    let sticky = sticky.unhealthy(&["10.1.0.7:8080", "10.1.0.8:8080"]).ask("protocol=TCP&client=192.0.2.77");
    let endpoint = sticky.endpoint.clone().unwrap();
    let expected = format!("192.0.2.77, outside the cluster, goes to {endpoint}, which is unhealthy.");
    assert_eq!(sentence(&sticky), expected);
}

#[test]
fn the_verdict_knows_that_connections_are_refused() {
    let view = Fixture::new(&web("")).problem(reason::LIMIT_REACHED).ask("protocol=TCP");
    assert_eq!(view.refusing.as_deref(), Some("LimitReached"));
    let expected = "A client outside the cluster goes to one of 2 endpoints, but some new connections are being refused (LimitReached).";
    assert_eq!(sentence(&view), expected);
    let other_port = Fixture::new(&web("")).problem(reason::LIMIT_REACHED).ask("protocol=UDP");
    assert_eq!(other_port.refusing, None);
    let other_reason = Fixture::new(&web("")).problem(reason::INVALID_VALUE).ask("protocol=TCP");
    assert_eq!(other_reason.refusing, None);
}

#[test]
fn after_a_refusal_it_says_for_whom_the_rest_is() {
    let ranges = "loadBalancerSourceRanges: [192.0.2.0/24]";
    let denied = Fixture::new(&web(ranges)).ask("protocol=TCP&client=198.51.100.7");
    reason(&denied, "what follows is for clients that are admitted");
    let admitted = Fixture::new(&web(ranges)).ask("protocol=TCP&client=192.0.2.7");
    assert!(!admitted.reasons.iter().any(|reason| reason.contains("what follows")), "{admitted:?}");
}
