//! What the event loop measures itself, recorded through the `metrics` crate.

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

/// From new objects to the table in force.
pub(crate) const UPDATE_SECONDS: &str = "sheave_control_update_seconds";
/// Upper bounds of its buckets, in seconds: one Service takes well under a millisecond, ten thousand under a second.
const UPDATE_BUCKETS: [f64; 8] = [0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0];

/// From a trigger of an endpoint change to the table that has it, as kube-proxy measures it
/// (`kubeproxy_network_programming_duration_seconds`).
pub(crate) const PROGRAMMING_SECONDS: &str = "sheave_network_programming_seconds";

/// Upper bounds of the buckets of [`PROGRAMMING_SECONDS`]. The trigger has whole seconds only.
const PROGRAMMING_BUCKETS: [f64; 9] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 60.0, 300.0];

/// How long a process that took over from another one needed for it.
pub(crate) const TAKEOVER_SECONDS: &str = "sheave_takeover_seconds";

/// How many processes were to take over from this one and did not.
pub(crate) const TAKEOVER_FAILURES: &str = "sheave_takeover_failures_total";

/// Makes what the control loop measures itself available to scrapes. Once per process.
///
/// # Errors
/// If it was called before.
pub(crate) fn install() -> Result<PrometheusHandle, BuildError> {
    let builder = PrometheusBuilder::new();
    let name = Matcher::Full(UPDATE_SECONDS.to_owned());
    let programming = Matcher::Full(PROGRAMMING_SECONDS.to_owned());
    let handle = builder
        .set_buckets_for_metric(name, &UPDATE_BUCKETS)?
        .set_buckets_for_metric(programming, &PROGRAMMING_BUCKETS)?
        .install_recorder()?;
    metrics::describe_histogram!(
        PROGRAMMING_SECONDS,
        "Time from the change that an EndpointSlice is written for to the routing table in force."
    );
    metrics::describe_histogram!(UPDATE_SECONDS, "Time from new objects to the routing table in force.");
    metrics::describe_gauge!(
        TAKEOVER_SECONDS,
        "Time that this process needed to take over from the one before; 0 if there was none."
    );
    metrics::describe_counter!(
        TAKEOVER_FAILURES,
        "Times that another process asked to take over from this one and did not: it was refused, ended or stopped, so this one went on."
    );
    Ok(handle)
}
