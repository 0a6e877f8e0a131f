//! Recorder of the `metrics` crate, for measurements of the event loop.

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

use super::families::{Family, PROGRAMMING_SECONDS, UPDATE_SECONDS};

/// Upper bounds of the buckets of [`UPDATE_SECONDS`], in seconds. One Service takes well under a millisecond, ten thousand less than a
/// second.
const UPDATE_BUCKETS: [f64; 8] = [0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0];

/// Upper bounds of the buckets of [`PROGRAMMING_SECONDS`], in seconds, as in kube-proxy's
/// `kubeproxy_network_programming_duration_seconds`. The trigger time has a resolution of one second.
const PROGRAMMING_BUCKETS: [f64; 9] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 60.0, 300.0];

/// Installs the recorder of the process.
///
/// # Errors
/// If a recorder is already installed.
pub fn install() -> Result<PrometheusHandle, BuildError> {
    let builder = PrometheusBuilder::new();
    let whole = |family: &Family| Matcher::Full(family.name.to_owned());
    let handle = builder
        .set_buckets_for_metric(whole(&UPDATE_SECONDS), &UPDATE_BUCKETS)?
        .set_buckets_for_metric(whole(&PROGRAMMING_SECONDS), &PROGRAMMING_BUCKETS)?
        .install_recorder()?;
    for Family { name, help, .. } in [UPDATE_SECONDS, PROGRAMMING_SECONDS] {
        metrics::describe_histogram!(name, help);
    }
    Ok(handle)
}
