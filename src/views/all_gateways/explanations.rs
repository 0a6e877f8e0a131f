//! Where a client of a Service goes, by all gateways: which of them it comes to, and what each would do. `sheave explain --fleet` and
//! `/api/fleet/explain`. The JSON is a contract: keys are added, never renamed.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use sheave_control::controller::all_gateways::KnownGateway;
use sheave_control::projection::explain::ExplainView;
use sheave_control::text::first_few;

use crate::views::View;
use crate::views::explain::{Answer, keep_endpoints, outcome, shorten};

/// How many gateways a line names, and how many reasons one has that others do not have.
const NAMED: usize = 5;

/// How many groups keep endpoints: with `externalTrafficPolicy: Local` each gateway may be a group.
const WITH_ENDPOINTS: usize = 8;

/// What became of the question at one gateway: its answer, or why there is none.
pub(crate) type GatewayExplanation = Result<Answer, String>;

/// The answers of all gateways.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExplanationsView {
    /// Gateways that do the same, those that the client comes to first.
    pub(crate) groups: Vec<ExplanationGroupView>,
    /// Gateways without an answer.
    pub(crate) silent: Vec<SilentGatewayView>,
    /// The gateways that the client comes to, by node; none if that is not known.
    pub(crate) comes_to: Vec<String>,
    /// How that is known: `announced`, `nodeAddress`, or null if something else brings packets to the gateways.
    pub(crate) known_by: Option<String>,
}

/// Gateways that would do the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExplanationGroupView {
    /// By node.
    pub(crate) gateways: Vec<String>,
    /// Whether the Service and port exist there.
    pub(crate) found: bool,
    /// The answer of the first. Of all but a few groups without `endpoints`, which `allEndpoints` counts.
    pub(crate) explanation: ExplainView,
}

/// A gateway that did not answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SilentGatewayView {
    pub(crate) node: String,
    pub(crate) error: String,
}

impl View for ExplanationsView {}

impl ExplanationsView {
    /// Adds what a gateway answered. Of those that do the same one explanation is kept: that of one that the client comes to, if there
    /// is any.
    pub(crate) fn add(&mut self, known: KnownGateway, answer: GatewayExplanation) {
        let (found, mut explanation) = match answer {
            Ok(Answer::Explained(view)) => (true, view),
            Ok(Answer::NotFound(view)) => (false, view),
            Err(error) => {
                self.silent.push(SilentGatewayView { node: known.node, error });
                return;
            }
        };
        shorten(&mut explanation);
        let comes_here = self.note_arrival(&known, &explanation);
        let alike = |group: &&mut ExplanationGroupView| {
            group.found == found && decision(&group.explanation) == decision(&explanation)
        };
        match self.groups.iter_mut().find(alike) {
            Some(group) => {
                let as_good = || group.explanation.endpoints.is_empty() && !group.is_come_to(&self.comes_to);
                if comes_here || as_good() {
                    group.explanation = explanation;
                }
                group.gateways.push(known.node);
            }
            None => self.groups.push(ExplanationGroupView { gateways: vec![known.node], found, explanation }),
        }
        self.drop_endpoints(2 * WITH_ENDPOINTS);
    }

    /// Where more groups than so many have endpoints, only those keep them that come first.
    fn drop_endpoints(&mut self, most: usize) {
        let comes_to = &self.comes_to;
        let mut full: Vec<&mut ExplanationGroupView> =
            self.groups.iter_mut().filter(|group| !group.explanation.endpoints.is_empty()).collect();
        if full.len() > most {
            full.sort_by_cached_key(|group| group.place(comes_to));
            full.into_iter().skip(WITH_ENDPOINTS).for_each(|group| keep_endpoints(&mut group.explanation, 0));
        }
    }

    /// Whether the client comes to this gateway.
    fn note_arrival(&mut self, known: &KnownGateway, view: &ExplainView) -> bool {
        if view.announced_here.is_some() && self.known_by.as_deref() != Some(ANNOUNCED) {
            // Who announces decides, not who has the address.
            self.comes_to.clear();
            self.known_by = Some(ANNOUNCED.to_owned());
        }
        let frontend =
            view.frontend.as_deref().and_then(|it| it.split('/').next()?.parse::<SocketAddr>().ok());
        let at_node = frontend.is_some_and(|frontend| known.addresses.contains(&frontend.ip()));
        let here = match self.known_by.as_deref() {
            Some(ANNOUNCED) => view.announced_here == Some(true),
            _ => at_node,
        };
        if here {
            self.known_by.get_or_insert_with(|| NODE_ADDRESS.to_owned());
            self.comes_to.push(known.node.clone());
        }
        here
    }

    /// All answers, in their order: first what those do that the client comes to.
    #[must_use]
    pub(crate) fn sorted(mut self) -> Self {
        self.comes_to.sort_unstable();
        self.silent.sort_by(|one, other| one.node.cmp(&other.node));
        self.drop_endpoints(WITH_ENDPOINTS);
        let comes = |node: &String| self.comes_to.binary_search(node).is_ok();
        for group in &mut self.groups {
            group.gateways.sort_by_cached_key(|node| (!comes(node), node.clone()));
        }
        self.groups.sort_by_cached_key(|group| group.place(&self.comes_to));
        self
    }

    /// Whether some gateway knows the Service and port.
    pub(crate) fn is_found(&self) -> bool {
        self.groups.iter().any(|group| group.found)
    }

    /// For people, with a newline at the end.
    pub(crate) fn to_text(&self) -> String {
        let Some((first, others)) = self.groups.split_first() else {
            return "No gateway answers.\n".to_owned() + &self.silent_text();
        };
        let mut text =
            self.headline(first) + "\n\n" + &Answer::Explained(first.explanation.clone()).to_text();
        if !others.is_empty() || !self.silent.is_empty() {
            text += "\nOther gateways\n";
        }
        for group in others {
            let ExplanationGroupView { gateways, explanation, .. } = group;
            let what = outcome_of(explanation);
            // Writing to a String never fails.
            writeln!(text, "  - on {}, the client {what}", names(gateways)).unwrap_or_default();
            let known = &first.explanation.reasons;
            let own = explanation.reasons.iter().filter(|reason| !known.contains(reason));
            text.extend(own.take(NAMED).map(|reason| format!("      {reason}\n")));
        }
        text + &self.silent_text()
    }

    fn headline(&self, first: &ExplanationGroupView) -> String {
        let frontend = first.explanation.frontend.as_deref().unwrap_or(&first.explanation.service);
        let same = match (self.groups.len(), first.gateways.len()) {
            (_, 1) => String::new(),
            (1, count) => format!(" All {count} gateways that answer do the same."),
            (_, count) => {
                format!(" What follows is the same on {count} gateways: {}.", names(&first.gateways))
            }
        };
        let shown = &first.gateways[0];
        match (self.known_by.as_deref(), self.comes_to.as_slice()) {
            (Some(ANNOUNCED), []) => format!(
                "No gateway announces the address of {frontend}: its packets come to none. As {shown} sees it:"
            ),
            (Some(ANNOUNCED), [one]) => {
                format!("{one} announces the address of {frontend}, so the client comes to {one}.{same}")
            }
            (Some(ANNOUNCED), several) => {
                format!(
                    "{} announce the address of {frontend}, and routers choose among them.{same}",
                    names(several)
                )
            }
            (Some(_), several) => {
                format!("{frontend} is at an address of {}, so the client comes there.{same}", names(several))
            }
            (None, _) if self.groups.len() == 1 => format!("Any gateway may get the client.{same}"),
            (None, _) => format!(
                "Any gateway may get the client, and they differ. As {} would do it:",
                names(&first.gateways)
            ),
        }
    }

    fn silent_text(&self) -> String {
        let lines = self
            .silent
            .iter()
            .take(NAMED)
            .map(|SilentGatewayView { node, error }| format!("  - {node} does not answer: {error}\n"));
        let mut text: String = lines.collect();
        let more = self.silent.len().saturating_sub(NAMED);
        if more > 0 {
            text += &format!("  and {more} more do not answer\n");
        }
        text
    }
}

impl ExplanationGroupView {
    fn is_come_to(&self, comes_to: &[String]) -> bool {
        self.gateways.iter().any(|node| comes_to.contains(node))
    }

    /// Where it comes in the order of groups.
    fn place(&self, comes_to: &[String]) -> (bool, Reverse<usize>, Option<String>) {
        (!self.is_come_to(comes_to), Reverse(self.gateways.len()), self.gateways.iter().min().cloned())
    }
}

const ANNOUNCED: &str = "announced";
const NODE_ADDRESS: &str = "nodeAddress";

/// What two gateways have in common that do the same.
fn decision(view: &ExplainView) -> impl PartialEq + use<'_> {
    let used = view.all_endpoints.as_ref().map(|it| &it.used_hash);
    (&view.frontend, view.closed.is_some(), view.allowed, &view.action, &view.endpoint, &view.origin, used)
}

fn outcome_of(view: &ExplainView) -> String {
    match &view.frontend {
        Some(_) => outcome(view),
        None => "is not served".to_owned(),
    }
}

fn names(of: &[String]) -> String {
    first_few(of, ", ", NAMED)
}

#[cfg(test)]
mod tests {
    use sheave_control::projection::explain::ExplainedEndpoint;

    use super::*;

    fn known(node: &str, address: &str) -> KnownGateway {
        KnownGateway {
            node: node.to_owned(),
            addresses: vec![address.parse().unwrap()],
            listeners: Vec::new(),
            ready: true,
        }
    }

    fn explained(endpoint: &str, announced_here: Option<bool>) -> ExplainView {
        ExplainView {
            service: "shop/web".to_owned(),
            source: "Service".to_owned(),
            frontend: Some("203.0.113.10:80/TCP".to_owned()),
            kind: Some("LoadBalancer".to_owned()),
            client: Some("192.0.2.1".to_owned()),
            allowed: true,
            action: Some("Forward".to_owned()),
            endpoint: Some(endpoint.to_owned()),
            announced_here,
            reasons: vec![format!("it goes to {endpoint}")],
            ..ExplainView::default()
        }
    }

    fn view(answers: Vec<(&str, GatewayExplanation)>) -> ExplanationsView {
        let mut view = ExplanationsView::default();
        for (index, (node, answer)) in answers.into_iter().enumerate().rev() {
            view.add(known(node, &format!("192.0.2.{index}")), answer);
        }
        view.sorted()
    }

    #[test]
    fn the_gateway_that_announces_comes_first_and_others_that_differ_are_told() {
        let ok = |endpoint, here| Ok(Answer::Explained(explained(endpoint, here)));
        let view = view(vec![
            ("gw-1", ok("10.1.0.7:80", Some(false))),
            ("gw-2", ok("10.1.0.8:80", Some(true))),
            ("gw-3", ok("10.1.0.7:80", Some(false))),
            ("gw-4", Err("no answer within 2 s".to_owned())),
        ]);
        assert_eq!(
            (view.comes_to.as_slice(), view.known_by.as_deref()),
            (&["gw-2".to_owned()][..], Some("announced"))
        );
        let text = view.to_text();
        for part in [
            "gw-2 announces the address of 203.0.113.10:80/TCP, so the client comes to gw-2.\n",
            "192.0.2.1, outside the cluster, goes to 10.1.0.8:80.\n",
            "Other gateways\n  - on gw-1, gw-3, the client goes to 10.1.0.7:80\n      it goes to 10.1.0.7:80\n",
            "  - gw-4 does not answer: no answer within 2 s\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn gateways_that_do_the_same_are_one_group_whose_answer_is_that_of_the_one_that_announces() {
        let same = |why: &str, here| {
            Ok(Answer::Explained(ExplainView {
                reasons: vec![why.to_owned()],
                ..explained("10.1.0.7:80", Some(here))
            }))
        };
        let view = view(vec![("gw-1", same("as gw-1", false)), ("gw-2", same("as gw-2", true))]);
        assert_eq!(view.groups.len(), 1);
        assert_eq!(view.groups[0].gateways, ["gw-2", "gw-1"]);
        let text = view.to_text();
        assert!(
            text.contains("comes to gw-2. All 2 gateways that answer do the same.\n")
                && text.contains("as gw-2"),
            "{text}"
        );
    }

    /// As with `externalTrafficPolicy: Local`.
    #[test]
    fn five_hundred_gateways_that_all_differ_make_a_short_answer() {
        let endpoint = |gateway: usize, index: usize| ExplainedEndpoint {
            address: format!("10.1.{}.{}:80", index / 250, index % 250),
            addr: None,
            cluster: String::new(),
            slice: "web-1".to_owned(),
            node: format!("gw-{:03}", index % 500),
            zone: String::new(),
            state: "Ready".to_owned(),
            local: index % 500 == gateway,
            used: index % 500 == gateway,
            share: None,
            reason: "it is on another Node".to_owned(),
        };
        let mut view = ExplanationsView::default();
        for gateway in (0..500).rev() {
            let endpoints = (0..1000).map(|index| endpoint(gateway, index)).collect();
            let explanation =
                ExplainView { endpoint: None, endpoints, ..explained("", Some(gateway == 250)) };
            view.add(known(&format!("gw-{gateway:03}"), "192.0.2.1"), Ok(Answer::Explained(explanation)));
            let kept = view.groups.iter().filter(|group| !group.explanation.endpoints.is_empty()).count();
            assert!(kept <= 2 * WITH_ENDPOINTS, "{kept}");
        }
        let view = view.sorted();
        assert_eq!((view.groups.len(), view.groups[0].gateways[0].as_str()), (500, "gw-250"));
        let told: Vec<usize> = view.groups.iter().map(|group| group.explanation.endpoints.len()).collect();
        assert_eq!((&told[..8], told[8..].iter().sum::<usize>()), (&[500; 8][..], 0));
        let text = view.to_text();
        for part in [
            "goes to one of 2 endpoints.\n",
            "  and 500 more, which `sheave explain` on the gateway lists\n",
            "  - on gw-499, the client goes to one of 2 endpoints\n",
        ] {
            assert!(text.contains(part), "{part}");
        }
    }

    #[test]
    fn an_address_that_nobody_or_several_announce_says_so() {
        let ok = |here| Ok(Answer::Explained(explained("10.1.0.7:80", Some(here))));
        let none = view(vec![("gw-1", ok(false)), ("gw-2", ok(false))]).to_text();
        assert!(none.starts_with("No gateway announces the address of 203.0.113.10:80/TCP"), "{none}");
        let both = view(vec![("gw-1", ok(true)), ("gw-2", ok(true))]).to_text();
        assert!(both.starts_with("gw-1, gw-2 announce the address"), "{both}");
    }

    #[test]
    fn without_announcements_a_node_address_leads_to_its_node() {
        let at_node =
            ExplainView { frontend: Some("192.0.2.1:80/TCP".to_owned()), ..explained("10.1.0.7:80", None) };
        let here = view(vec![
            ("gw-0", Ok(Answer::Explained(at_node.clone()))),
            ("gw-1", Ok(Answer::Explained(at_node))),
        ]);
        assert_eq!(
            (here.comes_to.as_slice(), here.known_by.as_deref()),
            (&["gw-1".to_owned()][..], Some("nodeAddress"))
        );
        let any = view(vec![("gw-0", Ok(Answer::Explained(explained("10.1.0.7:80", None))))]);
        assert!(any.to_text().starts_with("Any gateway may get the client."), "{}", any.to_text());
    }

    #[test]
    fn a_service_that_none_knows_is_not_found() {
        let unknown =
            || Ok(Answer::NotFound(ExplainView { service: "shop/web".to_owned(), ..ExplainView::default() }));
        assert!(!view(vec![("gw-1", unknown()), ("gw-2", unknown())]).is_found());
        let nobody = view(vec![("gw-1", Err("x".to_owned()))]);
        assert!(
            !nobody.is_found() && nobody.to_text() == "No gateway answers.\n  - gw-1 does not answer: x\n"
        );
    }
}
