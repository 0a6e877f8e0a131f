//! Traces of all gateways: which ones a client's packets come to, and where they stop there. `sheave trace --fleet` and `/api/fleet/trace`. JSON
//! keys may be added, but are never renamed.

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use sheave_control::controller::all_gateways::KnownGateway;
use sheave_control::text::first_few;

use super::SilentGatewayView;
use crate::views::View;
use crate::views::escape::line;
use crate::views::text_table::columns;
use crate::views::trace::{CaptureView, StepState, TraceView, VerdictView};

/// Limit of gateways in a sentence.
const NAMED: usize = 5;

/// Trace of one gateway, and whether the Service and port exist there; or why there is none.
pub(crate) type GatewayTrace = Result<(bool, TraceView), String>;

/// Traces of all gateways.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TracesView {
    /// The answer in short; `unseen` if no gateway answers.
    pub(crate) verdict: VerdictView,
    /// Nodes of the gateways that it is from; their steps tell more.
    pub(crate) verdict_of: Vec<String>,
    /// Gateways that answer, by node.
    pub(crate) gateways: Vec<GatewayTraceView>,
    /// Gateways without an answer, by node.
    pub(crate) silent: Vec<SilentGatewayView>,
}

/// Trace of one gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GatewayTraceView {
    /// Whether the Service and port exist there.
    pub(crate) found: bool,
    /// Whether the client's packets come here: by what was captured, or else false if only other gateways have the address. Null if this is
    /// not known.
    pub(crate) comes_here: Option<bool>,
    /// The steps there.
    pub(crate) trace: TraceView,
}

impl View for TracesView {}

impl GatewayTraceView {
    fn node(&self) -> &str {
        &self.trace.node
    }

    fn state(&self) -> StepState {
        self.trace.verdict.state
    }

    /// Whether its capture saw packets of the client. `None`: nothing was captured, or the file was full before one came.
    fn saw(&self) -> Option<bool> {
        let CaptureView { came, .. } = self.trace.capture.as_ref()?;
        let is_judged =
            self.trace.steps.iter().any(|it| it.step == "capture" && it.state != StepState::Unseen);
        (*came > 0 || is_judged).then_some(*came > 0)
    }

    /// The finding at the address, if clients should go elsewhere.
    fn elsewhere(&self) -> Option<&str> {
        let bad = |state| matches!(state, StepState::Doubtful | StepState::Stopped);
        let step = self.trace.steps.iter().find(|it| it.step == "address" && bad(it.state))?;
        Some(&step.found)
    }
}

impl TracesView {
    /// Judges the answers of all gateways.
    pub(crate) fn new(answers: Vec<(KnownGateway, GatewayTrace)>) -> Self {
        let (mut gateways, mut silent) = (Vec::new(), Vec::new());
        for (known, answer) in answers {
            match answer {
                Ok((found, mut trace)) => {
                    trace.node.clone_from(&known.node);
                    gateways.push(GatewayTraceView { found, comes_here: None, trace });
                }
                Err(error) => silent.push(SilentGatewayView::new(known, error)),
            }
        }
        gateways.sort_by(|one, other| one.node().cmp(other.node()));
        silent.sort_by(|one, other| one.node.cmp(&other.node));
        find_arrivals(&mut gateways);
        let (verdict, verdict_of) = judge(&gateways, &silent);
        Self { verdict, verdict_of, gateways, silent }
    }

    /// Whether any gateway knows the Service and port.
    pub(crate) fn is_found(&self) -> bool {
        self.gateways.iter().any(|gateway| gateway.found)
    }

    /// Text for people: the verdict, a line for each gateway, and the steps of the first gateway that the verdict is from.
    pub(crate) fn to_text(&self) -> String {
        let mut lines = self.verdict.to_text();
        let shown = self.gateways.iter().find(|it| self.verdict_of.iter().any(|node| node == it.node()));
        if let Some(GatewayTraceView { trace, .. }) = shown {
            let subject = trace.subject();
            lines += "\n";
            lines += &line(&format!("{subject}, on {} gateways:", self.gateways.len() + self.silent.len()));
        }
        lines += &self.table();
        if let Some(GatewayTraceView { trace, .. }) = shown {
            lines += "\n";
            lines += &line(&format!("On {}:", trace.node));
            lines += &trace.steps_text();
        }
        let saved = self.gateways.iter().filter_map(|it| it.trace.saved().map(|saved| (it.node(), saved)));
        lines.extend(saved.map(|(node, saved)| line(&format!("{node}: {saved}"))));
        lines
    }

    fn table(&self) -> String {
        let captured = self.gateways.iter().any(|it| it.trace.capture.is_some());
        let row = |node: &str, [came, answered]: [String; 2], state: &str, why: &str| {
            let counts = captured.then_some([came, answered]).into_iter().flatten();
            let ends = [state.to_owned(), why.to_owned()];
            [node.to_owned()].into_iter().chain(counts).chain(ends).collect::<Vec<_>>()
        };
        let unknown = || ["-".to_owned(), "-".to_owned()];
        let mut rows = vec![row("GATEWAY", ["CAME".to_owned(), "ANSWERED".to_owned()], "VERDICT", "WHY")];
        rows.extend(self.gateways.iter().map(|gateway| {
            let capture = gateway.trace.capture.as_ref();
            let counts = capture.map_or_else(unknown, |it| [it.came.to_string(), it.answered.to_string()]);
            let (state, why) = gateway.told();
            row(gateway.node(), counts, state, &why)
        }));
        rows.extend(self.silent.iter().map(|it| row(&it.node, unknown(), "no answer", &it.error)));
        columns(&rows)
    }
}

impl GatewayTraceView {
    /// Its verdict in a word, and why.
    fn told(&self) -> (&'static str, String) {
        let VerdictView { state, step, text, .. } = &self.trace.verdict;
        match (self.comes_here, self.elsewhere()) {
            (Some(false), _) if self.saw() == Some(false) => {
                ("elsewhere", "saw none: the client's packets do not come here".to_owned())
            }
            (Some(false), Some(found)) => ("elsewhere", found.to_owned()),
            _ if step.is_empty() => (state.word(), text.clone()),
            _ => (state.word(), format!("{step}: {text}")),
        }
    }
}

/// Finds out which gateways the client's packets come to.
fn find_arrivals(gateways: &mut [GatewayTraceView]) {
    let seen = gateways.iter().any(|it| it.saw() == Some(true));
    let is_somewhere = gateways.iter().any(|it| it.elsewhere().is_none());
    for gateway in gateways {
        gateway.comes_here = match gateway.saw() {
            Some(true) => Some(true),
            Some(false) if seen => Some(false),
            _ => (is_somewhere && gateway.elsewhere().is_some()).then_some(false),
        };
    }
}

/// The verdict, and the gateways that it is from: those that the client's packets come to, or else those that they may come to.
fn judge(gateways: &[GatewayTraceView], silent: &[SilentGatewayView]) -> (VerdictView, Vec<String>) {
    let comes = |wanted: Option<bool>| gateways.iter().filter(move |it| it.comes_here == wanted);
    let known = comes(Some(true)).count() > 0;
    let may_get: Vec<&GatewayTraceView> = comes(known.then_some(true)).collect();
    let names = |of: &[&GatewayTraceView]| first_few(of.iter().map(|it| it.node()), ", ", NAMED);
    let all = |of: &[&GatewayTraceView]| of.iter().map(|it| it.node().to_owned()).collect();
    if let Some(astray) = may_get.iter().find(|it| known && it.elsewhere().is_some())
        && let right = gateways.iter().filter(|it| it.elsewhere().is_none()).collect::<Vec<_>>()
        && !right.is_empty()
    {
        return (astray.goes_astray(&names(&right)), vec![astray.node().to_owned()]);
    }
    let is_worse = |state| may_get.iter().find(|it| it.state() == state);
    let worst = is_worse(StepState::Stopped).or_else(|| is_worse(StepState::Doubtful));
    let Some(shown) = worst.or(may_get.first()) else {
        let text = "no gateway answers".to_owned();
        let advice = "`sheave status --fleet` says what is wrong with each".to_owned();
        return (VerdictView { state: StepState::Unseen, step: String::new(), text, advice }, Vec::new());
    };
    let VerdictView { state, step, advice, text } = shown.trace.verdict.clone();
    let alike: Vec<&GatewayTraceView> =
        may_get.iter().filter(|it| it.state() == state && it.trace.verdict.step == step).copied().collect();
    if step == "capture" && may_get.iter().all(|it| it.saw() == Some(false)) {
        return (nobody_saw(shown, advice, gateways.len(), silent), all(&alike));
    }
    // Whoever comes to another gateway may get through.
    let state = match state {
        StepState::Stopped if alike.len() < may_get.len() => StepState::Doubtful,
        state => state,
    };
    let text = format!("on {}: {text}", names(&alike));
    (VerdictView { state, step, text, advice }, all(&alike))
}

impl GatewayTraceView {
    /// Verdict if the client's packets come here, and these gateways have the address.
    fn goes_astray(&self, right: &str) -> VerdictView {
        let unanswered = self.trace.capture.as_ref().is_some_and(|it| it.answered == 0);
        let who = self.trace.client.as_deref().unwrap_or("clients");
        VerdictView {
            state: if unanswered { StepState::Stopped } else { StepState::Doubtful },
            step: "address".to_owned(),
            text: format!("packets of {who} come to {}, and the address is at {right}", self.node()),
            advice: "the client, or a router before it, sends to the wrong gateway: look at its route and neighbours (ip route get, ip neigh)"
                .to_owned(),
        }
    }
}

fn nobody_saw(
    shown: &GatewayTraceView,
    advice: String,
    answering: usize,
    silent: &[SilentGatewayView],
) -> VerdictView {
    let who = shown.trace.client.as_deref().unwrap_or("clients");
    let mut text = match answering {
        1 => format!("no packet of {who} came to {}", shown.node()),
        all => format!("no packet of {who} came to any of {all} gateways"),
    };
    if !silent.is_empty() {
        let names = first_few(silent.iter().map(|it| it.node.as_str()), ", ", NAMED);
        text += &format!("; they may come to {names}, without an answer from there");
    }
    let state = if silent.is_empty() { StepState::Stopped } else { StepState::Doubtful };
    VerdictView { state, step: "capture".to_owned(), text, advice }
}
