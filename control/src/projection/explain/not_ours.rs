//! Reasons why Services and Gateways are not ours: for the explained one, and for all that ask for a load balancer together with the
//! class that they would need. A wrong class is the most likely mistake of a first installation.

mod gateway_api;

use std::fmt;

use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use sheave_model::FrontendSource;

use crate::api::problem::{Problem, reason};
use crate::api::store::{Objects, ServiceKey};
use crate::projection::class::NotOurs;
use crate::projection::multi_cluster;
use crate::projection::options::Options;
use crate::projection::{Projector, class};

impl Projector {
    /// One note for each Service and MultiClusterService of type LoadBalancer that is not for this installation, the most likely
    /// mistakes first, then for each such Gateway, and for routes whose Gateway does not exist. The objects have no Problem, because
    /// other load balancers may serve them.
    pub fn unserved(&self, objects: &Objects) -> Vec<Problem> {
        let services = objects.services.iter().filter_map(|(key, service)| {
            let spec = service.spec.as_ref().filter(|spec| spec.type_.as_deref() == Some("LoadBalancer"))?;
            Some((key, class::not_ours(spec, &self.options)?))
        });
        let fleet = &objects.fleet;
        let exposed = fleet.services.iter().filter_map(|(key, service)| {
            service.spec.types.iter().find(|name| *name == "LoadBalancer")?;
            let whose = multi_cluster::whose(service, multi_cluster::template(fleet, key), &self.options);
            let (why, ours) = (whose.err()?, &self.options.load_balancer_class);
            let named = why.contains(ours.as_str());
            let why = if named { why } else { format!("{why}; this gateway serves class {ours:?}") };
            Some((key, NotOurs::other(why)))
        });
        let mut unserved: Vec<(&ServiceKey, NotOurs)> = services.chain(exposed).collect();
        unserved.sort_by_key(|(key, elsewhere)| (elsewhere.likelihood, *key));
        let notes = unserved.into_iter().map(|(key, elsewhere)| note(key, elsewhere));
        notes.chain(gateway_api::notes(objects, self.options.gateway_controller.as_deref())).collect()
    }
}

fn note(key: &ServiceKey, elsewhere: NotOurs) -> Problem {
    let field = match key.source {
        FrontendSource::Service => elsewhere.field.to_owned(),
        // The API of a MultiClusterService has no field for a class.
        FrontendSource::MultiClusterService | FrontendSource::Gateway => String::new(),
    };
    Problem {
        object: key.object(),
        reason: reason::NOT_SERVED,
        field,
        message: elsewhere.message,
        port: None,
    }
}

/// Reason why a Service is not ours. Displays as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotOursReason(String);

impl NotOursReason {
    pub(super) fn because(why: String) -> Self {
        Self(why)
    }

    pub(super) fn new(service: &Service, options: &Options) -> Self {
        let nothing = ServiceSpec::default();
        let spec = service.spec.as_ref().unwrap_or(&nothing);
        let type_ = spec.type_.as_deref().unwrap_or("ClusterIP");
        if let Some((field, message)) = class::skipped(service, spec, type_) {
            return Self(format!("{field}: {message}"));
        }
        let class = spec.load_balancer_class.as_ref();
        let class = class.map_or_else(
            || "without a loadBalancerClass".to_owned(),
            |class| format!("with loadBalancerClass {class:?}"),
        );
        let kinds: Vec<String> = options.frontends.iter().map(ToString::to_string).collect();
        let unclassified = if options.handle_unclassified { " or without any" } else { "" };
        Self(format!(
            "the Service is of type {type_} {class}; this gateway makes frontends of kind {} (frontends in the \
             configuration), and load balancers for loadBalancerClass {:?}{unclassified} only",
            kinds.join(", "),
            options.load_balancer_class
        ))
    }
}

impl fmt::Display for NotOursReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
