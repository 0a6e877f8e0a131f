//! Controllers of ingress-nginx in the input: the ConfigMaps that they read, the ports that they keep for themselves, and the Service
//! that leads to them. From cmd/nginx/flags.go and the manifests of ingress-nginx.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::super::draft::left;
use super::super::services::is_load_balancer;
use crate::sources::manifests::{FileProblem, RawObject};

const TCP_MAP: &str = "tcp-services";
const UDP_MAP: &str = "udp-services";
/// Name of a Gateway without a known controller.
const NAME: &str = "ingress-nginx";
/// Label of the Services of ingress-nginx in its manifests and its chart.
const APP: (&str, &str) = ("app.kubernetes.io/name", "ingress-nginx");
/// Flags with ports that the controller keeps for itself, and their defaults.
const RESERVED: [(&str, u16); 8] = [
    ("http-port", 80),
    ("https-port", 443),
    ("ssl-passthrough-proxy-port", 442),
    ("default-server-port", 8181),
    ("healthz-port", 10254),
    ("profiler-port", 10245),
    ("status-port", 10246),
    ("stream-port", 10247),
];

/// Ports that one controller forwards.
#[derive(Debug)]
pub(super) struct StreamMaps<'a> {
    /// Name for its Gateway.
    pub(super) name: String,
    /// Its Deployment or DaemonSet; `None` if only its ConfigMaps were read.
    pub(super) source: Option<&'a RawObject>,
    pub(super) tcp: Option<&'a RawObject>,
    pub(super) udp: Option<&'a RawObject>,
    /// The Service that leads to it.
    pub(super) service: Option<&'a RawObject>,
    /// Ports that it keeps for itself.
    pub(super) reserved: BTreeSet<u16>,
}

impl<'a> StreamMaps<'a> {
    /// One of its ConfigMaps.
    pub(super) fn any(&self) -> Option<&'a RawObject> {
        self.tcp.or(self.udp)
    }
}

/// The controllers in the input or, without any, the ConfigMaps with the names of the manifests, one controller for each namespace.
pub(super) fn find<'a>(objects: &'a [RawObject], problems: &mut Vec<FileProblem>) -> Vec<StreamMaps<'a>> {
    let workloads = objects.iter().filter(|it| matches!(it.kind(), "Deployment" | "DaemonSet"));
    let controllers = workloads.filter_map(Arguments::read).collect::<Vec<_>>();
    if !controllers.is_empty() {
        return controllers.iter().map(|it| it.maps(objects, problems)).collect();
    }
    let named = |name: &str, namespace: &str| {
        config_maps(objects).find(|it| it.name() == name && it.namespace() == namespace)
    };
    let is_ours = |it: &&RawObject| matches!(it.name(), TCP_MAP | UDP_MAP);
    let namespaces: BTreeSet<&str> = config_maps(objects).filter(is_ours).map(RawObject::namespace).collect();
    let maps = namespaces.into_iter().map(|namespace| StreamMaps {
        name: NAME.to_owned(),
        source: None,
        tcp: named(TCP_MAP, namespace),
        udp: named(UDP_MAP, namespace),
        service: only_service(objects, namespace, |service| {
            service.texts("labels").get(APP.0).is_some_and(|name| name == APP.1)
        }),
        reserved: RESERVED.into_iter().map(|(_, port)| port).collect(),
    });
    maps.collect()
}

fn config_maps(objects: &[RawObject]) -> impl Iterator<Item = &RawObject> {
    objects.iter().filter(|it| it.kind() == "ConfigMap" && it.group().is_empty())
}

/// The LoadBalancer Service of the namespace that fits, if it is the only one.
fn only_service<'a>(
    objects: &'a [RawObject],
    namespace: &str,
    fits: impl Fn(&RawObject) -> bool,
) -> Option<&'a RawObject> {
    let of_namespace =
        objects.iter().filter(|it| is_load_balancer(it) && it.namespace() == namespace && fits(it));
    let fitting: Vec<&RawObject> = of_namespace.collect();
    <[&RawObject; 1]>::try_from(fitting).ok().map(|[service]| service)
}

/// Arguments of a container that names at least one of the ConfigMaps.
struct Arguments<'a> {
    source: &'a RawObject,
    arguments: Vec<String>,
}

impl<'a> Arguments<'a> {
    fn read(source: &'a RawObject) -> Option<Self> {
        let containers = source.at(&["spec", "template", "spec", "containers"])?.as_array()?;
        let arguments = containers.iter().map(|container| arguments(container, source.namespace()));
        let mut all = arguments.map(|arguments| Self { source, arguments });
        all.find(|it| {
            it.flag("tcp-services-configmap").is_some() || it.flag("udp-services-configmap").is_some()
        })
    }

    /// The value of a flag; the last one counts, as with pflag.
    fn flag(&self, name: &str) -> Option<&str> {
        let arguments = self.arguments.iter().enumerate();
        let mut values = arguments.filter_map(|(index, argument)| {
            match argument.strip_prefix("--")?.strip_prefix(name)? {
                "" => self.arguments.get(index + 1).map(String::as_str),
                rest => rest.strip_prefix('='),
            }
        });
        values.next_back().filter(|value| !value.is_empty())
    }

    fn maps(&self, objects: &'a [RawObject], problems: &mut Vec<FileProblem>) -> StreamMaps<'a> {
        let reserved = RESERVED
            .into_iter()
            .map(|(flag, default)| self.flag(flag).and_then(|port| port.parse().ok()).unwrap_or(default));
        StreamMaps {
            name: self.source.name().to_owned(),
            source: Some(self.source),
            tcp: self.config_map("tcp-services-configmap", objects, problems),
            udp: self.config_map("udp-services-configmap", objects, problems),
            service: self.service(objects, problems),
            reserved: reserved.collect(),
        }
    }

    fn config_map(
        &self,
        flag: &str,
        objects: &'a [RawObject],
        problems: &mut Vec<FileProblem>,
    ) -> Option<&'a RawObject> {
        let named = self.flag(flag)?;
        let found = config_maps(objects).find(|it| is_named(it, named));
        if found.is_none() {
            let message = format!("--{flag}={named}: this ConfigMap was not read, so nothing is made of it");
            problems.push(self.left(message));
        }
        found
    }

    /// The Service that `--publish-service` names, or the only one that selects the controller's Pods.
    fn service(&self, objects: &'a [RawObject], problems: &mut Vec<FileProblem>) -> Option<&'a RawObject> {
        if let Some(named) = self.flag("publish-service") {
            let found = objects.iter().find(|it| is_load_balancer(it) && is_named(it, named));
            if found.is_none() {
                let message =
                    format!("--publish-service={named}: no LoadBalancer Service of this name was read");
                problems.push(self.left(message));
            }
            return found;
        }
        let labels = self.source.at(&["spec", "template", "metadata", "labels"]);
        only_service(objects, self.source.namespace(), |service| {
            let selector = service.at(&["spec", "selector"]).and_then(Value::as_object);
            selector.is_some_and(|selector| {
                !selector.is_empty()
                    && selector.iter().all(|(key, value)| labels.and_then(|it| it.get(key)) == Some(value))
            })
        })
    }

    fn left(&self, message: String) -> FileProblem {
        left(self.source, "spec.template.spec.containers", message)
    }
}

fn is_named(object: &RawObject, name: &str) -> bool {
    name.split_once('/') == Some((object.namespace(), object.name()))
}

/// Command and arguments of a container, with the variables whose values its manifest has.
fn arguments(container: &Value, namespace: &str) -> Vec<String> {
    let variables = variables(container, namespace);
    let listed = ["command", "args"].into_iter().filter_map(|field| container.get(field)?.as_array());
    let texts = listed.flatten().filter_map(Value::as_str);
    let expand = |text: &str| {
        let replace =
            |text: String, (name, value): (&String, &String)| text.replace(&format!("$({name})"), value);
        variables.iter().fold(text.to_owned(), replace)
    };
    texts.map(expand).collect()
}

/// Variables with a value, and those with the Pod's namespace (`POD_NAMESPACE` in the manifests).
fn variables(container: &Value, namespace: &str) -> BTreeMap<String, String> {
    let variables = container.get("env").and_then(Value::as_array).into_iter().flatten();
    let value = |variable: &Value| {
        let path = variable.pointer("/valueFrom/fieldRef/fieldPath").and_then(Value::as_str);
        let of_pod = path.filter(|path| *path == "metadata.namespace").map(|_| namespace);
        let value = of_pod.or_else(|| variable.get("value")?.as_str())?;
        Some((variable.get("name")?.as_str()?.to_owned(), value.to_owned()))
    };
    variables.filter_map(value).collect()
}
