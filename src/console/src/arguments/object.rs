//! Names of objects as kubectl users type them: `web`, `shop/web`, `svc/web`, `svc web`, `mcs/shop/web` and `gateway shop/gw#listener`.

use crate::views::explain::{GatewayApiObject, parse_listener};

/// Kind of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ObjectKind {
    /// Also if no kind is given.
    Service,
    MultiClusterService,
    GatewayApi(GatewayApiObject),
}

/// An object by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObjectName {
    pub(super) kind: ObjectKind,
    /// `None` stands for the default namespace.
    pub(super) namespace: Option<String>,
    pub(super) name: String,
}

impl ObjectName {
    /// Parses the words of the command line, with the namespace of `-n`.
    ///
    /// # Errors
    /// A message that names the mistake and how objects are named.
    pub(super) fn parse(words: &[String], flag: Option<&str>) -> Result<Self, String> {
        let typed = words.join("/");
        let (object, listener) = match typed.split_once('#') {
            Some((object, listener)) => (object, Some(listener)),
            None => (typed.as_str(), None),
        };
        let parts: Vec<&str> = object.split('/').collect();
        // One word of two parts is a namespace and a name, unless it begins with svc or mcs: a namespace may be called gateway.
        let is_short = words.len() == 1 && parts.len() == 2;
        let kind = parts.first().filter(|_| parts.len() > 1).and_then(|word| kind_of(word));
        let given = kind.filter(|kind| !is_short || !matches!(kind, ObjectKind::GatewayApi(_)));
        let has_kind = given.is_some();
        let rest = &parts[usize::from(has_kind)..];
        let kind = with_listener(given.unwrap_or(ObjectKind::Service), listener)?;
        let (namespace, name) = match *rest {
            [name] => (None, name),
            [namespace, name] if words.len() == 1 || has_kind => (Some(namespace), name),
            [kind, _] => {
                return Err(format!(
                    "\"{kind}\" is not svc, mcs, gateway, tcproute, udproute or tlsroute; {HINT}"
                ));
            }
            _ => return Err(format!("\"{}\" does not name an object; {HINT}", words.join(" "))),
        };
        if let Some(bad) = namespace.into_iter().chain(flag).chain([name]).find(|part| !is_name(part)) {
            return Err(format!("\"{bad}\" is not a name; {HINT}"));
        }
        match (namespace, flag) {
            (Some(namespace), Some(flag)) if namespace != flag => {
                Err(format!("the namespace is both {namespace} and {flag}; {HINT}"))
            }
            _ => Ok(Self { kind, namespace: namespace.or(flag).map(str::to_owned), name: name.to_owned() }),
        }
    }
}

const HINT: &str = "write it as web, shop/web, svc/web, mcs/web, `gateway shop/gw#listener` or `tcproute shop/web`, with -n NAMESPACE if needed";

/// Adds the listener that was given, which only a Gateway has.
fn with_listener(kind: ObjectKind, listener: Option<&str>) -> Result<ObjectKind, String> {
    match (kind, listener) {
        (kind, None) => Ok(kind),
        (ObjectKind::GatewayApi(GatewayApiObject::Gateway(_)), Some(listener)) => {
            let listener = parse_listener(listener).map_err(|why| format!("\"{listener}\": {why}"))?;
            Ok(ObjectKind::GatewayApi(GatewayApiObject::Gateway(Some(listener))))
        }
        (_, Some(_)) => Err(format!("only a Gateway has listeners; {HINT}")),
    }
}

/// The kind that a word means; `None` if it is no kind. Knows singular, plural and short names, and the API group, as kubectl does.
fn kind_of(word: &str) -> Option<ObjectKind> {
    match word.to_ascii_lowercase().as_str() {
        "svc" | "service" | "services" => Some(ObjectKind::Service),
        "mcs"
        | "multiclusterservice"
        | "multiclusterservices"
        | "multiclusterservices.networking.karmada.io" => Some(ObjectKind::MultiClusterService),
        _ => GatewayApiObject::named(word).map(ObjectKind::GatewayApi),
    }
}

fn is_name(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|char| char.is_ascii_alphanumeric() || "-.".contains(char))
}

#[cfg(test)]
mod tests {
    use sheave_control::api::gateway_api::RouteKind;

    use super::*;

    #[test]
    fn objects_are_named_as_with_kubectl() {
        for (line, multi_cluster, namespace) in [
            ("web", false, None),
            ("-n shop web", false, Some("shop")),
            ("shop/web", false, Some("shop")),
            ("svc/web", false, None),
            ("service web", false, None),
            ("-n shop svc/web", false, Some("shop")),
            ("-n shop shop/web", false, Some("shop")),
            ("mcs/web", true, None),
            ("mcs/shop/web", true, Some("shop")),
            ("mcs shop/web", true, Some("shop")),
            ("MultiClusterServices.networking.karmada.io/web", true, None),
            ("-n shop mcs web", true, Some("shop")),
            ("svc/svc/web", false, Some("svc")),
            ("gateway/web", false, Some("gateway")),
        ] {
            let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let flag = (words[0] == "-n").then(|| words.drain(..2).next_back()).flatten();
            let kind = if multi_cluster { ObjectKind::MultiClusterService } else { ObjectKind::Service };
            let expected =
                ObjectName { kind, namespace: namespace.map(str::to_owned), name: "web".to_owned() };
            assert_eq!(ObjectName::parse(&words, flag.as_deref()), Ok(expected), "{line}");
        }
    }

    #[test]
    fn objects_of_the_gateway_api_are_named_like_others_and_a_gateway_with_its_listener() {
        let gateway = |listener: Option<&str>| GatewayApiObject::Gateway(listener.map(str::to_owned));
        for (line, object, namespace) in [
            ("gateway shop/web", gateway(None), Some("shop")),
            ("gateway shop/web#tcp", gateway(Some("tcp")), Some("shop")),
            ("gtw web#ns/set/tcp", gateway(Some("ns/set/tcp")), None),
            ("gateways.gateway.networking.k8s.io web", gateway(None), None),
            ("gateway/shop/web", gateway(None), Some("shop")),
            ("tcproute shop/web", GatewayApiObject::Route(RouteKind::Tcp), Some("shop")),
            ("udproutes web", GatewayApiObject::Route(RouteKind::Udp), None),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let (kind, namespace) = (ObjectKind::GatewayApi(object), namespace.map(str::to_owned));
            let expected = ObjectName { kind, namespace, name: "web".to_owned() };
            assert_eq!(ObjectName::parse(&words, None), Ok(expected), "{line}");
        }
    }

    #[test]
    fn what_names_no_object_is_refused() {
        for line in [
            "shop/web#tcp",
            "tcproute web#tcp",
            "gateway web#",
            "gateway web#a&b",
            "",
            "shop/",
            "/web",
            "a/b/c",
            "pod web",
            "shop/web?x=1",
            "svc/",
            "svc/a/b/c",
            "a b/c",
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert!(ObjectName::parse(&words, None).is_err(), "{line}");
        }
        let words = ["shop/web".to_owned()];
        assert!(ObjectName::parse(&words, Some("other")).unwrap_err().contains("both shop and other"));
    }
}
