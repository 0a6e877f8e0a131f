//! Where a client's packet goes or stops, for `sheave trace` and `/api/trace`. JSON keys and steps may be added, but are never renamed.

use serde::{Deserialize, Serialize};

use super::View;
use super::escape::line;

/// A packet's way through this gateway, step by step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TraceView {
    /// Node of the gateway that looked.
    pub(crate) node: String,
    /// `namespace/name`.
    pub(crate) service: String,
    /// Kind of the object.
    pub(crate) source: String,
    /// `address:port/protocol` of the traced frontend; null if there is none.
    pub(crate) frontend: Option<String>,
    /// Client; null means any client outside the cluster.
    pub(crate) client: Option<String>,
    /// The answer in short.
    pub(crate) verdict: VerdictView,
    /// Steps in the order of the way.
    pub(crate) steps: Vec<StepView>,
    /// Captured packets, if a capture was asked for and possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) capture: Option<CaptureView>,
}

/// The worst that the steps found, as one sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VerdictView {
    /// `ok`, `doubtful` or `stopped`.
    pub(crate) state: StepState,
    /// Step that it is from; empty if all is well.
    pub(crate) step: String,
    pub(crate) text: String,
    /// What to do; may be empty.
    pub(crate) advice: String,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StepView {
    /// Name of the step, one word.
    pub(crate) step: String,
    pub(crate) state: StepState,
    /// What was looked at.
    pub(crate) looked: String,
    /// What was found.
    pub(crate) found: String,
    /// What to do; may be empty.
    pub(crate) advice: String,
}

/// What a step says of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum StepState {
    /// It passes.
    Ok,
    /// It may not pass, or not every packet does.
    Doubtful,
    /// It stops here.
    Stopped,
    /// This could not be seen; `found` has the reason.
    Unseen,
}

/// Packets of the client and the endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CaptureView {
    /// Number of packets in the file.
    pub(crate) packets: u64,
    /// Size of the file in bytes.
    pub(crate) bytes: u64,
    /// Packets of the client to the frontend.
    #[serde(default)]
    pub(crate) came: u64,
    /// Packets of the frontend to the client.
    #[serde(default)]
    pub(crate) answered: u64,
    /// Path of the file on the admin server; it is kept until the next capture.
    pub(crate) path: String,
    /// Where the command has written it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<String>,
}

impl View for TraceView {}

impl StepView {
    /// A step of this name that looked at this.
    pub(crate) fn new(step: &str, looked: impl Into<String>) -> Self {
        Self {
            step: step.to_owned(),
            state: StepState::Ok,
            looked: looked.into(),
            found: String::new(),
            advice: String::new(),
        }
    }

    /// The packet passes.
    pub(crate) fn ok(self, found: impl Into<String>) -> Self {
        Self { found: found.into(), ..self }
    }

    /// The packet stops here.
    pub(crate) fn stopped(self, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { state: StepState::Stopped, found: found.into(), advice: advice.into(), ..self }
    }

    /// The packet may stop here.
    pub(crate) fn doubtful(self, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { state: StepState::Doubtful, found: found.into(), advice: advice.into(), ..self }
    }

    /// This cannot be seen.
    pub(crate) fn unseen(self, why: impl Into<String>) -> Self {
        Self { state: StepState::Unseen, found: why.into(), ..self }
    }
}

impl VerdictView {
    /// The first step at which the packet stops, or else the first at which it may; `otherwise` if there is neither.
    pub(crate) fn of(steps: &[StepView], otherwise: String) -> Self {
        let worst = [StepState::Stopped, StepState::Doubtful];
        let step = worst.into_iter().find_map(|state| steps.iter().find(|step| step.state == state));
        match step {
            Some(StepView { step, state, found, advice, .. }) => {
                Self { state: *state, step: step.clone(), text: found.clone(), advice: advice.clone() }
            }
            None => {
                let unseen = steps.iter().filter(|step| step.state == StepState::Unseen);
                let unseen: Vec<&str> = unseen.map(|step| step.step.as_str()).collect();
                let text = match unseen.as_slice() {
                    [] => otherwise,
                    unseen => format!("{otherwise}; not seen: {}", unseen.join(", ")),
                };
                Self { state: StepState::Ok, step: String::new(), text, advice: String::new() }
            }
        }
    }
}

impl VerdictView {
    /// The verdict, and what to do.
    pub(crate) fn to_text(&self) -> String {
        let Self { state, text, advice, .. } = self;
        let mut lines = line(&format!("{}: {text}", state.word()));
        if !advice.is_empty() {
            lines += &line(&format!("  {advice}"));
        }
        lines
    }
}

impl StepState {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Doubtful => "doubtful",
            Self::Stopped => "STOPPED",
            Self::Unseen => "not seen",
        }
    }
}

impl TraceView {
    /// Text for people: the verdict, then each step with what was looked at, what was found, and what to do.
    pub(crate) fn to_text(&self) -> String {
        let mut lines = self.verdict.to_text() + "\n";
        lines += &line(&format!("{}, on gateway {}:", self.subject(), self.node));
        lines += &self.steps_text();
        lines.extend(self.saved().map(|saved| line(&saved)));
        lines
    }

    /// What is traced.
    pub(super) fn subject(&self) -> String {
        let frontend = self.frontend.as_ref().map(|frontend| format!(", {frontend}")).unwrap_or_default();
        let client = self.client.as_deref().unwrap_or("any client outside the cluster");
        format!("{} {}{frontend}, for {client}", self.source, self.service)
    }

    /// The steps, with what was looked at, what was found, and what to do.
    pub(super) fn steps_text(&self) -> String {
        let mut lines = String::new();
        for StepView { step, state, looked, found, advice } in &self.steps {
            lines += &line(&format!("  {:<8}  {step}: {looked}", state.word()));
            lines += &line(&format!("            {found}"));
            if !advice.is_empty() {
                lines += &line(&format!("            -> {advice}"));
            }
        }
        lines
    }

    /// Where captured packets are.
    pub(super) fn saved(&self) -> Option<String> {
        let CaptureView { packets, file, .. } = self.capture.as_ref()?;
        file.as_ref().map(|file| format!("{packets} packets are in {file}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_is_the_first_stop_or_else_the_first_doubt() {
        let step = |name: &str| StepView::new(name, "something");
        let mut steps = vec![step("one").ok("fine"), step("two").unseen("no right")];
        let verdict = VerdictView::of(&steps, "it arrives".to_owned());
        assert_eq!((verdict.state, verdict.text.as_str()), (StepState::Ok, "it arrives; not seen: two"));
        steps.push(step("three").doubtful("maybe", ""));
        steps.push(step("four").stopped("here", "do this"));
        let verdict = VerdictView::of(&steps, String::new());
        assert_eq!((verdict.step.as_str(), verdict.advice.as_str()), ("four", "do this"));
        steps.pop();
        assert_eq!(VerdictView::of(&steps, String::new()).step, "three");
    }

    #[test]
    fn the_text_begins_with_the_verdict_and_names_what_was_looked_at() {
        let steps = vec![
            StepView::new("service", "the Service").ok("it has 2 endpoints"),
            StepView::new("address", "who answers for it").stopped("nobody\nanswers", "announce it"),
        ];
        let view = TraceView {
            node: "gw-1".to_owned(),
            service: "shop/web".to_owned(),
            source: "Service".to_owned(),
            frontend: Some("203.0.113.10:80/TCP".to_owned()),
            client: None,
            verdict: VerdictView::of(&steps, String::new()),
            steps,
            capture: None,
        };
        let expected = "STOPPED: nobody\\u{a}answers
  announce it

Service shop/web, 203.0.113.10:80/TCP, for any client outside the cluster, on gateway gw-1:
  ok        service: the Service
            it has 2 endpoints
  STOPPED   address: who answers for it
            nobody\\u{a}answers
            -> announce it
";
        assert_eq!(view.to_text(), expected);
        assert_eq!(serde_json::from_str::<TraceView>(&view.to_json()).unwrap(), view);
    }
}
