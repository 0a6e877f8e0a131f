//! What a gateway answered to a controller. Whoever answers at its address is believed so far and no farther: few and short texts of one
//! line each.

use serde::de::DeserializeOwned;
use serde_json::Value;
use sheave_control::api::gateway_report::GatewayReport;
use sheave_control::text::one_line;

use crate::views::problem::LISTED;
use crate::views::status::ProcessView;

/// The longest text, as of a Problem's message.
const LONGEST_TEXT: usize = 1024;
/// The longest list, as of the endpoints of a Service.
const LONGEST_LIST: usize = 1000;

/// What is known of one gateway.
#[derive(Clone, Debug)]
pub(crate) enum GatewayAnswer {
    /// Its status.
    Status(Box<ProcessView>),
    /// Its report, since there is no status: the first failures of so many.
    Report { report: GatewayReport, failures: usize, why: String },
    /// Nothing, and why.
    Silent(String),
}

impl GatewayAnswer {
    /// Its status, with as many Problems and endpoints as an honest one lists.
    pub(crate) fn of_status(mut status: ProcessView) -> Self {
        status.first_problems.truncate(LISTED);
        status.first_unhealthy.truncate(LISTED);
        status.first_unwell.truncate(LISTED);
        Self::Status(Box::new(status))
    }

    /// Its report, with as many failures, and why there is no status.
    pub(crate) fn of_report(mut report: GatewayReport, why: String) -> Self {
        let failures = report.troubles.len();
        report.troubles.truncate(LISTED);
        Self::Report { report, failures, why }
    }
}

/// A view that a gateway answered with, within the limits.
///
/// # Errors
/// If it is none.
pub(crate) fn bounded_view<T: DeserializeOwned>(answer: &[u8]) -> serde_json::Result<T> {
    let mut value: Value = serde_json::from_slice(answer)?;
    bound(&mut value);
    serde_json::from_value(value)
}

fn bound(value: &mut Value) {
    match value {
        Value::String(text) => one_line(text, LONGEST_TEXT),
        Value::Array(items) => {
            items.truncate(LONGEST_LIST);
            items.iter_mut().for_each(bound);
        }
        // Keys are fields of views: others are ignored.
        Value::Object(fields) => fields.values_mut().for_each(bound),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
