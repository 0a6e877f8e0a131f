//! Names of objects as kubectl users type them: `web`, `shop/web`, `svc/web`, `svc web` and `mcs/shop/web`.

/// A Service or MultiClusterService by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObjectName {
    /// Whether the kind was given as MultiClusterService.
    pub(super) multi_cluster: bool,
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
        let parts: Vec<&str> = words.iter().flat_map(|word| word.split('/')).collect();
        let kind = parts.first().filter(|_| parts.len() > 1).and_then(|word| is_multi_cluster(word));
        let (multi_cluster, rest) = match kind {
            Some(multi_cluster) => (multi_cluster, &parts[1..]),
            None => (false, &parts[..]),
        };
        let (namespace, name) = match *rest {
            [name] => (None, name),
            [namespace, name] if words.len() == 1 || kind.is_some() => (Some(namespace), name),
            [kind, _] => return Err(format!("\"{kind}\" is not svc or mcs; {HINT}")),
            _ => return Err(format!("\"{}\" does not name an object; {HINT}", words.join(" "))),
        };
        if let Some(bad) = namespace.into_iter().chain(flag).chain([name]).find(|part| !is_name(part)) {
            return Err(format!("\"{bad}\" is not a name; {HINT}"));
        }
        match (namespace, flag) {
            (Some(namespace), Some(flag)) if namespace != flag => {
                Err(format!("the namespace is both {namespace} and {flag}; {HINT}"))
            }
            _ => Ok(Self {
                multi_cluster,
                namespace: namespace.or(flag).map(str::to_owned),
                name: name.to_owned(),
            }),
        }
    }
}

const HINT: &str = "write it as web, shop/web, svc/web or mcs/web, with -n NAMESPACE if needed";

/// Whether a word that names a kind means MultiClusterService; `None` if it is no kind. Knows singular, plural and short
/// names, and the API group, as kubectl does.
fn is_multi_cluster(word: &str) -> Option<bool> {
    match word.to_ascii_lowercase().as_str() {
        "svc" | "service" | "services" => Some(false),
        "mcs"
        | "multiclusterservice"
        | "multiclusterservices"
        | "multiclusterservices.networking.karmada.io" => Some(true),
        _ => None,
    }
}

fn is_name(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|char| char.is_ascii_alphanumeric() || "-.".contains(char))
}

#[cfg(test)]
mod tests {
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
        ] {
            let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let flag = (words[0] == "-n").then(|| words.drain(..2).next_back()).flatten();
            let expected =
                ObjectName { multi_cluster, namespace: namespace.map(str::to_owned), name: "web".to_owned() };
            assert_eq!(ObjectName::parse(&words, flag.as_deref()), Ok(expected), "{line}");
        }
    }

    #[test]
    fn what_names_no_object_is_refused() {
        for line in ["", "shop/", "/web", "a/b/c", "pod web", "shop/web?x=1", "svc/", "svc/a/b/c", "a b/c"] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert!(ObjectName::parse(&words, None).is_err(), "{line}");
        }
        let words = ["shop/web".to_owned()];
        assert!(ObjectName::parse(&words, Some("other")).unwrap_err().contains("both shop and other"));
    }
}
