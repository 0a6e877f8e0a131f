//! The source ranges of a Service, as those of a Gateway.

use ipnet::IpNet;

use super::super::draft::{left, texts};
use crate::projection::SOURCE_RANGES_OF_SERVICE;
use crate::sources::manifests::{FileProblem, RawObject};

const FIELD: &str = "spec.loadBalancerSourceRanges";

/// The ranges of a Service, if it has any, separated by commas. Entries that are not CIDRs are reported and left out; a list without
/// a CIDR admits nobody, on a Gateway as on a Service.
pub(in crate::migration) fn read(service: &RawObject, problems: &mut Vec<FileProblem>) -> Option<String> {
    let mut listed = texts(service.at(&["spec", "loadBalancerSourceRanges"]));
    let mut field = FIELD.to_owned();
    if listed.is_empty() {
        field = format!("metadata.annotations[{SOURCE_RANGES_OF_SERVICE}]");
        let annotations = service.texts("annotations");
        let list = annotations.get(SOURCE_RANGES_OF_SERVICE).filter(|list| !list.trim().is_empty())?;
        listed = list.split(',').map(str::to_owned).collect();
    }
    let is_cidr = |text: &String| text.trim().parse::<IpNet>().is_ok();
    let (cidrs, others): (Vec<String>, Vec<String>) = listed.into_iter().partition(is_cidr);
    for other in others.iter().filter(|text| !text.trim().is_empty()) {
        problems.push(left(service, &field, format!("{other:?} is not a CIDR; it is left out")));
    }
    Some(cidrs.iter().map(|cidr| cidr.trim()).collect::<Vec<_>>().join(","))
}
