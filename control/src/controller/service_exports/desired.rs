//! Desired exports: the clusters in which Karmada should collect endpoints for a MultiClusterService. No I/O.

use std::collections::BTreeSet;

use super::object::Export;
use crate::api::karmada::{MultiClusterService, ResourceBinding};
use crate::api::store::{Objects, ServiceKey};
use crate::controller::service_object::ServiceObject;

/// The desired export of a MultiClusterService.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum DesiredExport {
    /// The export must exist with these contents.
    Kept(Export),
    /// No export of ours.
    Nothing,
    /// An existing export stays and none is created: the Service does not exist and may come back, or no cluster is known.
    AsIs,
}

/// The desired export of a MultiClusterService; `ours` is whether this installation serves it.
pub fn desired_export(objects: &Objects, key: &ServiceKey, ours: bool) -> DesiredExport {
    let Some(service) = objects.fleet.services.get(key) else { return DesiredExport::Nothing };
    let wanted = ours && ServiceObject::from(service).is_load_balancer();
    if !wanted || service.metadata.deletion_timestamp.is_some() {
        return DesiredExport::Nothing;
    }
    let Some(uid) = service.metadata.uid.as_deref().filter(|_| objects.fleet.templates.contains_key(key))
    else {
        return DesiredExport::AsIs;
    };
    let registered = &objects.fleet.clusters;
    // The API that serves clusters is unavailable: no cluster is known.
    if registered.is_empty() {
        return DesiredExport::AsIs;
    }
    let mut export = Export { owner_uid: uid.into(), ..Export::default() };
    for name in candidates(objects, key, service) {
        let list = match registered.get(name).map(|cluster| cluster.serves_exports()) {
            Some(Some(true)) => &mut export.clusters,
            Some(None) => &mut export.unsure,
            Some(Some(false)) | None => &mut export.waiting,
        };
        list.insert(name.to_owned());
    }
    DesiredExport::Kept(export)
}

/// Clusters where the Service may run: those that the object names, otherwise those it is scheduled to, otherwise all.
fn candidates<'a>(
    objects: &'a Objects,
    key: &ServiceKey,
    service: &'a MultiClusterService,
) -> BTreeSet<&'a str> {
    let named = service.spec.provider_clusters.iter().map(|it| it.name.as_str());
    let named: BTreeSet<&str> = named.filter(|name| !name.is_empty()).collect();
    if !named.is_empty() {
        return named;
    }
    let bound = objects.fleet.bindings.get(key).map(|it| ResourceBinding::clusters(it)).unwrap_or_default();
    if !bound.is_empty() {
        return bound;
    }
    objects.fleet.clusters.keys().map(|name| &**name).collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Service;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::karmada::Cluster;
    use crate::api::kinds;

    const EVERYWHERE: [&str; 6] = ["a", "b", "east", "late", "north", "west"];

    /// A fleet of [`EVERYWHERE`], in which `late` does not serve ServiceExports yet.
    fn objects(spec: &Value) -> Objects {
        let mut objects = Objects::default();
        let service = json!({"metadata": {"namespace": "shop", "name": "web", "uid": "u1"}, "spec": spec});
        objects.put::<kinds::MultiClusterServices>(
            serde_json::from_value::<MultiClusterService>(service).unwrap(),
        );
        let template = json!({"metadata": {"namespace": "shop", "name": "web"}});
        objects.put::<kinds::Templates>(serde_json::from_value::<Service>(template).unwrap());
        EVERYWHERE.into_iter().for_each(|name| member(&mut objects, name, name != "late", "True"));
        objects
    }

    /// Adds a cluster; `complete` is the status of its condition.
    fn member(objects: &mut Objects, name: &str, exports: bool, complete: &str) {
        let export = json!({"groupVersion": "multicluster.x-k8s.io/v1alpha1",
                            "resources": [{"name": "serviceexports", "kind": "ServiceExport"}]});
        let condition = json!({"type": "CompleteAPIEnablements", "status": complete, "reason": "R", "message": "",
                               "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let enabled = if exports { vec![export] } else { Vec::new() };
        let cluster = json!({"metadata": {"name": name},
                             "status": {"conditions": [condition], "apiEnablements": enabled}});
        objects.put::<kinds::Clusters>(serde_json::from_value::<Cluster>(cluster).unwrap());
    }

    fn bind(objects: &mut Objects, spec: Value) {
        let mut spec = spec;
        spec["resource"] = json!({"apiVersion": "v1", "kind": "Service", "namespace": "shop", "name": "web"});
        let binding = json!({"metadata": {"namespace": "shop", "name": "web-service"}, "spec": spec});
        objects.put::<kinds::Bindings>(serde_json::from_value::<ResourceBinding>(binding).unwrap());
    }

    fn key() -> ServiceKey {
        ServiceKey::multi_cluster("shop", "web")
    }

    fn export(objects: &Objects) -> Export {
        let DesiredExport::Kept(export) = desired_export(objects, &key(), true) else {
            panic!("nothing is wanted")
        };
        assert_eq!(export.owner_uid, "u1");
        export
    }

    fn clusters(objects: &Objects) -> Vec<String> {
        export(objects).clusters.into_iter().collect()
    }

    fn names(clusters: &[&str]) -> BTreeSet<String> {
        clusters.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn clusters_are_those_named_or_those_of_the_service_or_all() {
        let mut some = objects(&json!({"types": ["LoadBalancer"]}));
        assert_eq!(clusters(&some), ["a", "b", "east", "north", "west"]);
        assert_eq!(export(&some).waiting, names(&["late"]));
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

    /// Karmada's scheduler skips a cluster without the API and does not retry.
    #[test]
    fn a_cluster_is_waited_for_until_it_serves_exports() {
        let spec =
            json!({"types": ["LoadBalancer"], "providerClusters": [{"name": "late"}, {"name": "new"}]});
        let mut some = objects(&spec);
        let waiting = Export { waiting: names(&["late", "new"]), ..Export::default() };
        assert_eq!(export(&some), Export { owner_uid: "u1".into(), ..waiting });
        member(&mut some, "late", true, "True");
        assert_eq!((clusters(&some), export(&some).waiting), (vec!["late".to_owned()], names(&["new"])));
        member(&mut some, "new", false, "False");
        assert_eq!(export(&some).unsure, names(&["new"]), "its list of APIs is not whole");
    }

    #[test]
    fn while_nothing_is_known_of_clusters_everything_stays_as_it_is() {
        let mut some = objects(&json!({"types": ["LoadBalancer"], "providerClusters": [{"name": "a"}]}));
        some.fleet.clusters.clear();
        assert_eq!(desired_export(&some, &key(), true), DesiredExport::AsIs);
        assert_eq!(desired_export(&some, &key(), false), DesiredExport::Nothing);
    }

    #[test]
    fn what_is_not_ours_or_of_another_type_or_goes_gets_nothing() {
        let some = objects(&json!({"types": ["LoadBalancer"]}));
        assert_eq!(desired_export(&some, &key(), false), DesiredExport::Nothing);
        let inside = objects(&json!({"types": ["CrossCluster"]}));
        assert_eq!(desired_export(&inside, &key(), true), DesiredExport::Nothing);
        assert_eq!(desired_export(&Objects::default(), &key(), true), DesiredExport::Nothing);
        let mut going = some;
        let mut service = (*going.fleet.services[&key()]).clone();
        service.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        going.put::<kinds::MultiClusterServices>(service);
        assert_eq!(desired_export(&going, &key(), true), DesiredExport::Nothing);
    }

    #[test]
    fn without_its_service_everything_stays_as_it_is() {
        let mut lone = objects(&json!({"types": ["LoadBalancer"]}));
        lone.fleet.templates.clear();
        assert_eq!(desired_export(&lone, &key(), true), DesiredExport::AsIs);
    }
}
