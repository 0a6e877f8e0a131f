//! Class of a Service: whether this installation serves it, and on which kinds of frontends.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use sheave_model::FrontendKind;

use super::options::Options;
use crate::api::problem::reason;
use crate::api::problem::report::Report;

/// Services with this label belong to another proxy (kube-proxy skips them as well).
const PROXY_NAME_LABEL: &str = "service.kubernetes.io/service-proxy-name";

/// Set by the endpoints controllers on objects of headless Services.
const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";

/// Kinds of frontends of a Service, if it has addresses or ports for them.
pub(super) type FrontendKinds = BTreeSet<FrontendKind>;

/// Result of the class check.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum ClassMatch {
    /// The Service is not ours: never changed and never reported.
    Foreign,
    /// The Service is for this installation but cannot be served; the report has the reason.
    Refused,
    /// The Service is served.
    Ours(FrontendKinds),
}

/// Classifies the Service, and reports why one for this installation is refused.
pub(super) fn classify(service: &Service, options: &Options, report: &mut Report) -> ClassMatch {
    let Some(spec) = &service.spec else { return ClassMatch::Foreign };
    let type_ = spec.type_.as_deref().unwrap_or("ClusterIP");
    let asks = asks(spec, type_, options);
    if let Some((field, message)) = skipped(service, spec, type_) {
        if !asks {
            return ClassMatch::Foreign;
        }
        report.add(reason::NOT_SERVED, field, None, message);
        return ClassMatch::Refused;
    }
    let mut kinds = options.frontends.clone();
    if !asks || type_ != "LoadBalancer" {
        kinds.remove(&FrontendKind::LoadBalancer);
    }
    if !matches!(type_, "LoadBalancer" | "NodePort") {
        kinds.remove(&FrontendKind::NodePort);
    }
    if asks && type_ != "LoadBalancer" {
        let message = format!("type {type_} is not LoadBalancer; the Service gets no load balancer address");
        report.add(reason::NOT_SERVED, "spec.type", None, message);
    }
    if !asks && !kinds.is_empty() && !matches!(type_, "ClusterIP" | "NodePort" | "LoadBalancer") {
        let message = format!(
            "{type_:?} is not ClusterIP, NodePort, LoadBalancer or ExternalName; ClusterIP is assumed"
        );
        report.invalid("spec.type", message);
    }
    match kinds.is_empty() {
        true if asks => ClassMatch::Refused,
        true => ClassMatch::Foreign,
        false => ClassMatch::Ours(kinds),
    }
}

/// Whether the Service requests its load balancer addresses from this installation, which is all that a class decides.
pub(super) fn asks(spec: &ServiceSpec, type_: &str, options: &Options) -> bool {
    options.frontends.contains(&FrontendKind::LoadBalancer)
        && match spec.load_balancer_class.as_deref() {
            Some(class) => class == options.load_balancer_class,
            None => options.handle_unclassified && type_ == "LoadBalancer",
        }
}

/// How likely a load balancer of others was meant for this gateway, most likely first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Likelihood {
    /// The load balancer's class differs from ours only in case or blanks.
    Misspelled,
    /// The load balancer has no class.
    Unclassified,
    /// The load balancer has another class.
    Foreign,
}

/// Reason why a load balancer is not ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NotOurs {
    pub(super) likelihood: Likelihood,
    pub(super) field: &'static str,
    /// The reason, with the class that it would need.
    pub(super) message: String,
}

impl NotOurs {
    /// A load balancer that others should serve.
    pub(super) fn other(message: String) -> Self {
        Self { likelihood: Likelihood::Foreign, field: "spec.loadBalancerClass", message }
    }
}

/// The reason why a Service of type LoadBalancer is not for this installation; `None` if it is.
pub(super) fn not_ours(spec: &ServiceSpec, options: &Options) -> Option<NotOurs> {
    if asks(spec, "LoadBalancer", options) {
        return None;
    }
    let ours = &options.load_balancer_class;
    let (likelihood, message) = match spec.load_balancer_class.as_deref() {
        _ if !options.frontends.contains(&FrontendKind::LoadBalancer) => {
            let message =
                "this gateway makes no frontends of kind LoadBalancer (frontends in the configuration)";
            return Some(NotOurs { field: "spec.type", ..NotOurs::other(message.to_owned()) });
        }
        None => (
            Likelihood::Unclassified,
            format!("it names no class; set {ours:?}, or handleUnclassified: true in the configuration"),
        ),
        Some(class) if class.trim().eq_ignore_ascii_case(ours) => (
            Likelihood::Misspelled,
            format!(
                "{class:?} is not {ours:?}, the class that this gateway serves: upper and lower case and blanks count"
            ),
        ),
        Some(class) => (
            Likelihood::Foreign,
            format!("{class:?} is the class of another load balancer; this gateway serves {ours:?}"),
        ),
    };
    Some(NotOurs { likelihood, field: "spec.loadBalancerClass", message })
}

/// The rules with which kube-proxy skips a Service completely (pkg/proxy/util, `ShouldSkipService`, and the selectors of its
/// informers), except the one for a missing clusterIP: manifests have none until an API server allocates it.
pub(super) fn skipped(service: &Service, spec: &ServiceSpec, type_: &str) -> Option<(String, String)> {
    if type_ == "ExternalName" {
        let message = "an ExternalName Service is a DNS name without endpoints; it is not served";
        return Some(("spec.type".into(), message.into()));
    }
    let first_of_many = spec.cluster_ips.as_ref().and_then(|ips| ips.first());
    if spec.cluster_ip.as_deref().or(first_of_many.map(String::as_str)) == Some("None") {
        let message = "a headless Service has no frontends; it is not served";
        return Some(("spec.clusterIP".into(), message.into()));
    }
    let labels = service.metadata.labels.as_ref()?;
    [PROXY_NAME_LABEL, HEADLESS_LABEL].into_iter().find(|label| labels.contains_key(*label)).map(|label| {
        (
            format!("metadata.labels[{label}]"),
            "the label says that others take care of the Service; it is not served".into(),
        )
    })
}
