//! Whether a Service is ours to serve. Must not look at anything but the Service and the class that we go by.

use k8s_openapi::api::core::v1::{Service, ServiceSpec};

use sheave_dataplane::model::FrontendKind;

use super::Options;
use crate::problem::reason;
use crate::report::Report;

/// Services with this label belong to another proxy (kube-proxy skips them as well).
const PROXY_NAME_LABEL: &str = "service.kubernetes.io/service-proxy-name";
/// Set by the endpoints controllers on what belongs to a headless Service.
const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";

/// Whose Service it is.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Claim {
    /// Another implementation's, or nobody's: never touched, never complained about.
    Foreign,
    /// It asks for us, but cannot be served; the reason is in the report.
    Refused,
    /// To be served.
    Ours,
}

/// Decides, and reports why a Service that asks for us is refused.
pub(super) fn claim(service: &Service, options: &Options, report: &mut Report) -> Claim {
    // A class only ever asks for load balancer addresses.
    if !options.frontends.contains(&FrontendKind::LoadBalancer) {
        return Claim::Foreign;
    }
    let Some(spec) = &service.spec else { return Claim::Foreign };
    let type_ = spec.type_.as_deref().unwrap_or("ClusterIP");
    let asks = match spec.load_balancer_class.as_deref() {
        Some(class) => class == options.load_balancer_class,
        None => options.handle_unclassified && type_ == "LoadBalancer",
    };
    if !asks {
        return Claim::Foreign;
    }
    match refusal(service, spec, type_) {
        None => Claim::Ours,
        Some((field, message)) => {
            report.add(reason::NOT_SERVED, field, None, message);
            Claim::Refused
        }
    }
}

/// The rules by which kube-proxy skips a Service (pkg/proxy/util, `ShouldSkipService`), without the one for a missing
/// clusterIP: manifests have none until an API server allocated it.
fn refusal(service: &Service, spec: &ServiceSpec, type_: &str) -> Option<(String, String)> {
    if type_ != "LoadBalancer" {
        return Some((
            "spec.type".into(),
            format!("type {type_} is not LoadBalancer; the Service is not served"),
        ));
    }
    let first_of_many = spec.cluster_ips.as_ref().and_then(|ips| ips.first());
    if spec.cluster_ip.as_deref().or(first_of_many.map(String::as_str)) == Some("None") {
        return Some((
            "spec.clusterIP".into(),
            "a headless Service has no load balancer; it is not served".into(),
        ));
    }
    let labels = service.metadata.labels.as_ref()?;
    [PROXY_NAME_LABEL, HEADLESS_LABEL].into_iter().find(|label| labels.contains_key(*label)).map(|label| {
        (
            format!("metadata.labels[{label}]"),
            "the label says that others take care of the Service; it is not served".into(),
        )
    })
}
