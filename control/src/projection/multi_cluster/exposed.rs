//! `spec.ports` of a MultiClusterService: which of its Service's ports are exposed. Karmada enforces it nowhere.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ServiceSpec;

use crate::api::karmada::ExposurePort;
use crate::api::problem::reason;
use crate::api::problem::report::Report;

/// What is exposed.
#[derive(Debug, Default)]
pub(super) struct Exposed {
    /// Indexes of the Service's ports; `None` = all.
    pub(super) indexes: Option<BTreeSet<usize>>,
    /// What the Service has no port for.
    pub(super) unmatched: Vec<String>,
}

/// Matches the ports: by name and number where a name is given, else by number, for every protocol.
pub(super) fn ports(wanted: &[ExposurePort], spec: &ServiceSpec, report: &mut Report) -> Exposed {
    if wanted.is_empty() {
        return Exposed::default();
    }
    let ports = spec.ports.as_deref().unwrap_or_default();
    let (mut indexes, mut unmatched) = (BTreeSet::new(), Vec::new());
    for (index, want) in wanted.iter().enumerate() {
        let named = |name: Option<&str>| want.name.is_empty() || name.unwrap_or_default() == want.name;
        let matching =
            ports.iter().enumerate().filter(|(_, it)| it.port == want.port && named(it.name.as_deref()));
        let mut any = false;
        indexes.extend(matching.map(|(at, _)| at).inspect(|_| any = true));
        if any {
            continue;
        }
        let same_name =
            ports.iter().find(|it| !want.name.is_empty() && it.name.as_deref() == Some(&*want.name));
        let message = match same_name {
            Some(port) => format!(
                "the Service's port {:?} is {}, not {}; it is not exposed",
                want.name, port.port, want.port
            ),
            None if want.name.is_empty() => {
                format!("the Service has no port {}; nothing is exposed for it", want.port)
            }
            None => {
                format!("the Service has no port {:?} {}; nothing is exposed for it", want.name, want.port)
            }
        };
        report.add(reason::PORT_NOT_FOUND, format!("spec.ports[{index}]"), None, message);
        unmatched.push(match want.name.as_str() {
            "" => want.port.to_string(),
            name => format!("{name}:{}", want.port),
        });
    }
    Exposed { indexes: Some(indexes), unmatched }
}
