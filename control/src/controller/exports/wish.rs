//! Which endpoints Karmada is to collect for a MultiClusterService. Pure. It must not know how Karmada is asked for it.

use std::collections::BTreeSet;

use super::Export;
use crate::controller::publication::Exposed;
use crate::karmada::ResourceBinding;
use crate::store::{Objects, ServiceKey};

/// What is to be there for an object.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Wish {
    /// This.
    Kept(Export),
    /// Nothing of ours.
    Nothing,
    /// What is there stays, and nothing is made: the Service is not there, and may come back.
    AsIs,
}

/// What is to be there for a MultiClusterService, which is `ours` to serve or not.
pub fn wish(objects: &Objects, key: &ServiceKey, ours: bool) -> Wish {
    let Some(service) = objects.fleet.services.get(key) else { return Wish::Nothing };
    let wanted = ours && Exposed::from(service).is_load_balancer();
    if !wanted || service.metadata.deletion_timestamp.is_some() {
        return Wish::Nothing;
    }
    let Some(uid) = service.metadata.uid.as_deref().filter(|_| objects.fleet.templates.contains_key(key))
    else {
        return Wish::AsIs;
    };
    let named = service.spec.provider_clusters.iter().map(|it| it.name.as_str());
    let mut clusters: BTreeSet<&str> = named.filter(|name| !name.is_empty()).collect();
    if clusters.is_empty() {
        clusters =
            objects.fleet.bindings.get(key).map(|it| ResourceBinding::clusters(it)).unwrap_or_default();
    }
    Wish::Kept(Export { owner_uid: uid.into(), clusters: clusters.into_iter().map(str::to_owned).collect() })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Service;
    use serde_json::{Value, json};

    use super::*;
    use crate::karmada::MultiClusterService;

    fn objects(spec: &Value) -> Objects {
        let mut objects = Objects::default();
        let service = json!({"metadata": {"namespace": "shop", "name": "web", "uid": "u1"}, "spec": spec});
        objects.fleet.put_service(serde_json::from_value::<MultiClusterService>(service).unwrap());
        let template = json!({"metadata": {"namespace": "shop", "name": "web"}});
        objects.fleet.put_template(serde_json::from_value::<Service>(template).unwrap());
        objects
    }

    fn bind(objects: &mut Objects, spec: Value) {
        let mut spec = spec;
        spec["resource"] = json!({"apiVersion": "v1", "kind": "Service", "namespace": "shop", "name": "web"});
        let binding = json!({"metadata": {"namespace": "shop", "name": "web-service"}, "spec": spec});
        objects.fleet.put_binding(serde_json::from_value::<ResourceBinding>(binding).unwrap());
    }

    fn key() -> ServiceKey {
        ServiceKey::multi_cluster("shop", "web")
    }

    fn clusters(objects: &Objects) -> Vec<String> {
        let Wish::Kept(export) = wish(objects, &key(), true) else { panic!("nothing is wanted") };
        assert_eq!(export.owner_uid, "u1");
        export.clusters.into_iter().collect()
    }

    #[test]
    fn clusters_are_those_named_or_those_of_the_service_or_all() {
        let mut some = objects(&json!({"types": ["LoadBalancer"]}));
        assert_eq!(clusters(&some), [""; 0]);
        bind(
            &mut some,
            json!({"clusters": [{"name": "west"}], "requiredBy": [{"clusters": [{"name": "east"}]}],
                               "gracefulEvictionTasks": [{"fromCluster": "north"}]}),
        );
        assert_eq!(clusters(&some), ["east", "north", "west"], "one that is being left still has endpoints");
        let mut named =
            objects(&json!({"types": ["LoadBalancer"], "providerClusters": [{"name": "b"}, {"name": "a"}]}));
        bind(&mut named, json!({"clusters": [{"name": "west"}]}));
        assert_eq!(clusters(&named), ["a", "b"]);
    }

    #[test]
    fn what_is_not_ours_or_of_another_type_or_goes_gets_nothing() {
        let some = objects(&json!({"types": ["LoadBalancer"]}));
        assert_eq!(wish(&some, &key(), false), Wish::Nothing);
        let inside = objects(&json!({"types": ["CrossCluster"]}));
        assert_eq!(wish(&inside, &key(), true), Wish::Nothing);
        assert_eq!(wish(&Objects::default(), &key(), true), Wish::Nothing);
        let mut going = some;
        let mut service = (*going.fleet.services[&key()]).clone();
        service.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        going.fleet.put_service(service);
        assert_eq!(wish(&going, &key(), true), Wish::Nothing);
    }

    #[test]
    fn without_its_service_everything_stays_as_it_is() {
        let mut lone = objects(&json!({"types": ["LoadBalancer"]}));
        lone.fleet.templates.clear();
        assert_eq!(wish(&lone, &key(), true), Wish::AsIs);
    }
}
