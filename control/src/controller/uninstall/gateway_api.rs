//! Removal of Sheave's marks from objects of the Gateway API: applied statuses, parents of routes, and the finalizer of classes.

use std::collections::BTreeSet;
use std::fmt;

use k8s_openapi::Resource as _;
use kube::Resource as _;
use kube::api::{Patch, Request};
use serde_json::{Value, json};

use super::{UninstallError, list, until_clean};
use crate::api::gateway_api::{Gateway, GatewayClass, ListenerSet, TcpRoute, TlsRoute, UdpRoute};
use crate::controller::api_writer::{API_TIMEOUT, ApiAnswer, ApiWriter};
use crate::controller::gateway_status::class::FINALIZER;
use crate::controller::ownership::Ownership;
use crate::sources::connection::Connection;

/// Kinds with marks, in the order of the cleanup: a class is free once its Gateways are.
const KINDS: [GatewayApiKind; 6] = [
    GatewayApiKind { name: TcpRoute::KIND, path: |namespace| TcpRoute::url_path(&(), namespace) },
    GatewayApiKind { name: UdpRoute::KIND, path: |namespace| UdpRoute::url_path(&(), namespace) },
    GatewayApiKind { name: TlsRoute::KIND, path: |namespace| TlsRoute::url_path(&(), namespace) },
    GatewayApiKind { name: ListenerSet::KIND, path: |namespace| ListenerSet::url_path(&(), namespace) },
    GatewayApiKind { name: Gateway::KIND, path: |namespace| Gateway::url_path(&(), namespace) },
    GatewayApiKind { name: GatewayClass::KIND, path: |_| GatewayClass::url_path(&(), None) },
];

/// A kind, and the path of its objects in a namespace or in all.
#[derive(Clone, Copy, Debug)]
struct GatewayApiKind {
    name: &'static str,
    path: fn(Option<&str>) -> String,
}

/// Removes marks from all objects of the Gateway API.
pub struct GatewayApiUninstall {
    writer: ApiWriter,
    controller: String,
}

/// An object with marks of ours. Displays as text for users.
#[derive(Clone, Debug)]
pub struct GatewayApiLeftover {
    kind: GatewayApiKind,
    object: Value,
    marks: Marks,
}

/// Marks on an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Marks {
    /// Whether status fields are owned by our field manager.
    status: bool,
    /// Number of our entries in `status.parents`.
    parents: usize,
    /// Whether the class has the finalizer.
    finalizer: bool,
}

/// Objects that a search found.
#[derive(Debug, Default)]
pub struct GatewayApiMarks {
    /// Objects with marks.
    pub marked: Vec<GatewayApiLeftover>,
    /// Gateways that use a class of ours, as `namespace/name`: nothing serves them any more.
    pub gateways: BTreeSet<String>,
}

impl GatewayApiUninstall {
    /// Removes marks of the installation with this controller of GatewayClasses.
    pub fn new(connection: &Connection, names: Ownership, controller: &str) -> Self {
        let names = names.with_gateway_controller(controller);
        let writer = ApiWriter::new(connection, names.gateway_field_manager());
        Self { writer, controller: controller.to_owned() }
    }

    /// All objects with marks. Kinds that the API server does not have are left out.
    ///
    /// # Errors
    /// If a page cannot be listed.
    pub async fn find(&self) -> Result<GatewayApiMarks, UninstallError> {
        let mut found = GatewayApiMarks::default();
        let (mut used, mut classes) = (Vec::new(), BTreeSet::new());
        for kind in KINDS {
            let path = Request::new((kind.path)(None));
            for object in list(&self.writer, &path, true).await? {
                if kind.name == Gateway::KIND {
                    used.push((text(&object["spec"]["gatewayClassName"]), full_name(&object)));
                } else if kind.name == GatewayClass::KIND && self.is_class_of_ours(&object) {
                    classes.insert(text(&object["metadata"]["name"]));
                }
                found.marked.extend(self.leftover(kind, object));
            }
        }
        let of_ours = used.into_iter().filter(|(class, _)| classes.contains(class)).map(|(_, name)| name);
        found.gateways = of_ours.collect();
        Ok(found)
    }

    /// Removes the marks of an object, or the current ones if it has changed. An object that is gone counts as clean.
    ///
    /// # Errors
    /// If all attempts failed.
    pub async fn clean(&self, found: &GatewayApiLeftover) -> Result<(), UninstallError> {
        let (kind, metadata) = (found.kind, &found.object["metadata"]);
        let path = Request::new((kind.path)(metadata["namespace"].as_str()));
        let name = text(&metadata["name"]);
        let leftover = |object| Ok(self.leftover(kind, object));
        until_clean(
            &self.writer,
            (&path, &name),
            found.clone(),
            leftover,
            async |left: &GatewayApiLeftover| leftover(self.remove(&path, &name, left).await.object()?),
        )
        .await
    }

    async fn remove(&self, path: &Request, name: &str, left: &GatewayApiLeftover) -> ApiAnswer {
        let params = self.writer.patch_params(false);
        let request = if left.marks.status {
            let empty = Patch::Apply(left.empty_status());
            path.patch_subresource("status", name, &params, &empty)
        } else if left.marks.parents > 0 {
            let patch = Patch::Merge(left.without_parents(&self.controller));
            path.patch_subresource("status", name, &params, &patch)
        } else {
            path.patch(name, &params, &Patch::Merge(left.without_finalizer()))
        };
        self.writer.send(request, API_TIMEOUT).await
    }

    fn is_class_of_ours(&self, class: &Value) -> bool {
        class["spec"]["controllerName"] == *self.controller
    }

    fn leftover(&self, kind: GatewayApiKind, object: Value) -> Option<GatewayApiLeftover> {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let is_class = kind.name == GatewayClass::KIND && self.is_class_of_ours(&object);
        let marks = Marks {
            status: list(&object["metadata"]["managedFields"]).iter().any(|entry| self.owns_status(entry)),
            parents: list(&object["status"]["parents"])
                .iter()
                .filter(|entry| entry["controllerName"] == *self.controller)
                .count(),
            finalizer: is_class && list(&object["metadata"]["finalizers"]).iter().any(|it| it == FINALIZER),
        };
        (marks != Marks::default()).then_some(GatewayApiLeftover { kind, object, marks })
    }

    /// Whether our field manager applied status fields and still owns some.
    fn owns_status(&self, entry: &Value) -> bool {
        let fields = entry["fieldsV1"]["f:status"].as_object();
        entry["manager"] == *self.writer.field_manager()
            && entry["operation"] == "Apply"
            && entry["subresource"] == "status"
            && fields.is_some_and(|fields| !fields.is_empty())
    }
}

impl GatewayApiLeftover {
    /// Kind, namespace and name of the object.
    pub fn name(&self) -> String {
        format!("{} {}", self.kind.name, full_name(&self.object))
    }

    fn identity(&self) -> Value {
        let metadata = &self.object["metadata"];
        json!({"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]})
    }

    fn empty_status(&self) -> Value {
        let (mut metadata, own) = (self.identity(), &self.object["metadata"]);
        metadata["name"] = own["name"].clone();
        if own["namespace"].is_string() {
            metadata["namespace"] = own["namespace"].clone();
        }
        json!({"apiVersion": Gateway::API_VERSION, "kind": self.kind.name, "metadata": metadata, "status": {}})
    }

    fn without_parents(&self, controller: &str) -> Value {
        let parents = self.object["status"]["parents"].as_array().into_iter().flatten();
        let others: Vec<&Value> = parents.filter(|entry| entry["controllerName"] != *controller).collect();
        json!({"metadata": self.identity(), "status": {"parents": others}})
    }

    fn without_finalizer(&self) -> Value {
        let finalizers = self.object["metadata"]["finalizers"].as_array().into_iter().flatten();
        let others: Vec<&Value> = finalizers.filter(|it| *it != FINALIZER).collect();
        let mut metadata = self.identity();
        metadata["finalizers"] = json!(others);
        json!({"metadata": metadata})
    }
}

impl fmt::Display for GatewayApiLeftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if self.marks.status {
            parts.push("status".to_owned());
        }
        match self.marks.parents {
            0 => {}
            1 => parts.push("1 entry of status.parents".to_owned()),
            more => parts.push(format!("{more} entries of status.parents")),
        }
        if self.marks.finalizer {
            parts.push(format!("finalizer {FINALIZER}"));
        }
        write!(f, "{}: {}", self.name(), parts.join(", "))
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// `namespace/name`, or the name of an object without a namespace.
fn full_name(object: &Value) -> String {
    let (namespace, name) = (&object["metadata"]["namespace"], text(&object["metadata"]["name"]));
    namespace.as_str().map(|namespace| format!("{namespace}/{name}")).unwrap_or(name)
}
