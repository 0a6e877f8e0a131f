//! Answer of a gateway to a controller. Any process may answer at its address, so answers are limited to few and short texts of one line
//! each.

use serde::de::DeserializeOwned;
use serde_json::Value;
use sheave_control::api::gateway_report::GatewayReport;
use sheave_control::text::one_line;

use crate::views::problem::LISTED;
use crate::views::status::ProcessView;

/// Maximum length of a text, such as a Problem's message, in bytes.
const LONGEST_TEXT: usize = 1024;
/// Maximum length of a list, such as the endpoints of a Service.
const LONGEST_LIST: usize = 1000;

/// Answer of one gateway.
#[derive(Clone, Debug)]
pub(crate) enum GatewayAnswer {
    /// Status of the gateway.
    Status(Box<ProcessView>),
    /// Report instead of a status: the first of `failures` failures.
    Report { report: GatewayReport, failures: usize, why: String },
    /// No answer, with the reason.
    Silent(String),
}

impl GatewayAnswer {
    /// Status with its lists cut to the number that a gateway normally sends.
    pub(crate) fn of_status(mut status: ProcessView) -> Self {
        status.first_problems.truncate(LISTED);
        status.first_unhealthy.truncate(LISTED);
        status.first_unwell.truncate(LISTED);
        Self::Status(Box::new(status))
    }

    /// Report with its failures cut likewise, and the reason for the missing status.
    pub(crate) fn of_report(mut report: GatewayReport, why: String) -> Self {
        let failures = report.troubles.len();
        report.troubles.truncate(LISTED);
        Self::Report { report, failures, why }
    }
}

/// Parses a gateway's view and limits its size.
///
/// # Errors
/// If it is not such a view.
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
        // Keys are fields of views; unknown ones are ignored.
        Value::Object(fields) => fields.values_mut().for_each(bound),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
