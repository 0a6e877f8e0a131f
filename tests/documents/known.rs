//! What does not keep to the rules of the house yet. These lists are exact and only get shorter.

/// Type names that stand more than once in a crate.
pub(crate) const TWINS: &[&str] = &[
    "control: Answer",
    "control: Backoff",
    "control: CollectedWorks",
    "control: Command",
    "control: Held",
    "control: Key",
    "control: Kind",
    "control: Line",
    "control: Manifest",
    "control: Outcome",
    "control: Sender",
    "control: ServiceWorks",
    "control: Step",
    "control: Templates",
];

/// Files of one crate that import each other.
pub(crate) const CIRCLES: &[&str] = &[
    "sheave: config/section.rs, config/values.rs",
    "sheave: controller.rs, gateway.rs",
    "sheave: explain/text.rs, explain/view.rs",
];
