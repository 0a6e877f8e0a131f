//! Objects of type LoadBalancer that get their addresses from somebody else, or from nobody, and the class that they would
//! need: the likeliest mistake of a first installation.

use sheave_model::FrontendSource;

use super::super::class::{self, Elsewhere};
use super::super::{Projector, multi_cluster};
use crate::api::problem::{Problem, reason};
use crate::api::store::{Objects, ServiceKey};

impl Projector {
    /// One note for each Service and MultiClusterService of type LoadBalancer that does not ask for this gateway, those
    /// first that most likely mean to. They are no Problems: others may serve them.
    pub fn unserved(&self, objects: &Objects) -> Vec<Problem> {
        let services = objects.services.iter().filter_map(|(key, service)| {
            let spec = service.spec.as_ref().filter(|spec| spec.type_.as_deref() == Some("LoadBalancer"))?;
            Some((key, class::elsewhere(spec, &self.options)?))
        });
        let fleet = &objects.fleet;
        let exposed = fleet.services.iter().filter_map(|(key, service)| {
            service.spec.types.iter().find(|name| *name == "LoadBalancer")?;
            let whose = multi_cluster::whose(service, multi_cluster::template(fleet, key), &self.options);
            let (why, ours) = (whose.err()?, &self.options.load_balancer_class);
            let named = why.contains(ours.as_str());
            let why = if named { why } else { format!("{why}; this gateway serves class {ours:?}") };
            Some((key, Elsewhere::other(why)))
        });
        let mut unserved: Vec<(&ServiceKey, Elsewhere)> = services.chain(exposed).collect();
        unserved.sort_by_key(|(key, elsewhere)| (elsewhere.likelihood, *key));
        unserved.into_iter().map(|(key, elsewhere)| note(key, elsewhere)).collect()
    }
}

fn note(key: &ServiceKey, elsewhere: Elsewhere) -> Problem {
    let field = match key.source {
        FrontendSource::Service => elsewhere.field.to_owned(),
        // Its API has no field for a class.
        FrontendSource::MultiClusterService => String::new(),
    };
    Problem {
        object: key.object(),
        reason: reason::NOT_SERVED,
        field,
        message: elsewhere.message,
        port: None,
    }
}
