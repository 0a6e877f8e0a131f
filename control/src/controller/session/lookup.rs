//! Objects as Events and Problems name them. It must not know what is said of them.

use std::sync::Arc;

use k8s_openapi::Resource as _;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::super::events::Uid;
use super::super::publication::Exposed;
use crate::address_pool;
use crate::karmada::MultiClusterService;
use crate::problem::ObjectRef;
use crate::projection::LoadBalancerStatus;
use crate::store::{Objects, ServiceKey};

/// What the object says of itself, if it is there.
fn metadata<'a>(objects: &'a Objects, object: &ObjectRef) -> Option<&'a ObjectMeta> {
    let key = || ServiceKey::of_service(object.namespace.clone(), object.name.clone());
    match object.kind {
        "Service" => objects.services.get(&key()).map(|it| &it.metadata),
        MultiClusterService::KIND => {
            let key = ServiceKey::multi_cluster(&object.namespace, &object.name);
            objects.fleet.services.get(&key).map(|it| &it.metadata)
        }
        "EndpointSlice" => slice(objects, object).map(|it| &it.metadata),
        "Node" => objects.nodes.get(&object.name).map(|it| &it.metadata),
        address_pool::KIND => objects.pools.get(&object.name).map(|it| &it.metadata),
        _ => None,
    }
}

/// The slice of this name. Slices are kept by their Services, which are few in a Namespace.
fn slice<'a>(objects: &'a Objects, object: &ObjectRef) -> Option<&'a EndpointSlice> {
    let first = ServiceKey::of_service(object.namespace.clone(), "".into());
    let owners = objects.slices.range(first..).take_while(|(owner, _)| owner.namespace == object.namespace);
    owners.map(|(_, slices)| slices).find_map(|slices| slices.get(&object.name)).map(|slice| &**slice)
}

/// What Events say about which object is meant.
pub(super) fn uid(objects: &Objects, object: &ObjectRef) -> Option<Uid> {
    let metadata = metadata(objects, object)?;
    let text = |text: &Option<String>| text.as_deref().map(Arc::from);
    Some(Uid { uid: text(&metadata.uid)?, resource_version: text(&metadata.resource_version) })
}

/// Whether the object's status has these addresses already.
pub(super) fn publishes(object: &Exposed, status: &LoadBalancerStatus) -> bool {
    let published =
        object.ingress().iter().map(|ingress| ingress.ip.as_deref().unwrap_or_default().to_owned());
    published.eq(status.ingress.iter().map(|ingress| ingress.ip.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::{Change, Delta, Store};

    #[test]
    fn events_find_the_slice_that_a_problem_is_about() {
        let mut store = Store::default();
        for (namespace, name) in [("shop", "web-1"), ("shop", "web-2"), ("garden", "web-2")] {
            let slice = json!({"metadata": {"namespace": namespace, "name": name, "uid": format!("{namespace}-{name}"),
                "labels": {"kubernetes.io/service-name": name}}, "addressType": "FQDN", "endpoints": []});
            store.apply(Change::Slices(Delta::Put(Arc::new(serde_json::from_value(slice).unwrap()))));
        }
        let uid = |namespace: &str, name: &str| {
            let object = ObjectRef { kind: "EndpointSlice", namespace: namespace.into(), name: name.into() };
            uid(store.objects(), &object).map(|it| it.uid.to_string())
        };
        assert_eq!(uid("shop", "web-2").as_deref(), Some("shop-web-2"));
        assert_eq!(uid("garden", "web-2").as_deref(), Some("garden-web-2"));
        assert_eq!(uid("garden", "web-1"), None);
    }
}
