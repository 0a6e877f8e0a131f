//! Section `gatewayAPI`: whether Gateways are served, and which.

use serde_json::Value;
use sheave_control::projection::GATEWAY_CONTROLLER;
use sheave_control::sources::api_server::GatewayApiMode;

use super::section::Section;
use super::values::{self, ValueError};

/// Largest length of `spec.controllerName` of a GatewayClass.
const MAX_CONTROLLER_NAME: usize = 253;

/// Names of the modes.
const MODES: [(&str, GatewayApiMode); 3] =
    [("auto", GatewayApiMode::Auto), ("on", GatewayApiMode::On), ("off", GatewayApiMode::Off)];

/// The Gateway API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GatewayApi {
    /// Whether its kinds are read.
    pub(crate) mode: GatewayApiMode,
    /// `spec.controllerName` of the GatewayClasses that are served.
    pub(crate) controller_name: String,
}

impl GatewayApi {
    /// The name of the controller, if Gateways are served.
    pub(crate) fn controller(&self) -> Option<&str> {
        (self.mode != GatewayApiMode::Off).then_some(&self.controller_name)
    }

    /// The name whose objects are this installation's to remove. One that serves no Gateways, and has not been given a name of its own,
    /// has none: those of the default name may belong to another installation.
    pub(crate) fn owned_name(&self) -> Option<&str> {
        let is_default = self.controller_name == GATEWAY_CONTROLLER;
        (self.mode != GatewayApiMode::Off || !is_default).then_some(&self.controller_name)
    }
}

pub(super) fn read(section: &mut Section<'_>) -> GatewayApi {
    GatewayApi {
        mode: section.get("mode", GatewayApiMode::default(), mode),
        controller_name: section.get("controllerName", GATEWAY_CONTROLLER.to_owned(), controller_name),
    }
}

/// Parses a mode. YAML 1.1 reads an unquoted `on` or `off` as a truth value.
fn mode(value: &Value) -> Result<GatewayApiMode, ValueError> {
    match value {
        Value::Bool(true) => Ok(GatewayApiMode::On),
        Value::Bool(false) => Ok(GatewayApiMode::Off),
        _ => values::one_of(&MODES)(value),
    }
}

/// Parses a path with a domain as its prefix, as the API server does (`GatewayController`).
fn controller_name(value: &Value) -> Result<String, ValueError> {
    let is_path = |path: &str| {
        !path.is_empty()
            && path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte))
    };
    let is_name = |text: &str| {
        text.len() <= MAX_CONTROLLER_NAME
            && text
                .split_once('/')
                .is_some_and(|(domain, path)| values::is_subdomain(domain) && is_path(path))
    };
    match value.as_str() {
        Some(text) if is_name(text) => Ok(text.to_owned()),
        _ => Err(ValueError::expected("a path with a domain as its prefix", value)
            .hint("write it as example.com/gateway")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::changes::tests::config;
    use crate::config::tests::read;

    #[test]
    fn the_mode_may_be_written_without_quotes() {
        for (text, mode, served) in [
            ("", GatewayApiMode::Auto, true),
            ("gatewayAPI: {mode: auto}", GatewayApiMode::Auto, true),
            ("gatewayAPI: {mode: on}", GatewayApiMode::On, true),
            ("gatewayAPI: {mode: \"on\"}", GatewayApiMode::On, true),
            ("gatewayAPI: {mode: off}", GatewayApiMode::Off, false),
        ] {
            let GatewayApi { mode: found, .. } = config(text).gateway_api;
            assert_eq!(found, mode, "{text}");
            assert_eq!(config(text).gateway_api.controller().is_some(), served, "{text}");
        }
        let mistakes = read("gatewayAPI: {mode: aut}").unwrap_err();
        assert!(mistakes[0].contains("did you mean auto?"), "{mistakes:?}");
    }

    #[test]
    fn uninstall_leaves_the_default_name_to_others_while_no_gateways_are_served() {
        let owned = |text| config(text).gateway_api.owned_name().map(str::to_owned);
        assert_eq!(owned("gatewayAPI: {mode: off}"), None);
        assert_eq!(owned("").as_deref(), Some(GATEWAY_CONTROLLER));
        assert_eq!(owned("gatewayAPI: {mode: off, controllerName: a.b/c}").as_deref(), Some("a.b/c"));
    }

    #[test]
    fn the_name_of_a_controller_is_what_the_api_server_admits() {
        let longest = format!("example.com/{}", "a".repeat(MAX_CONTROLLER_NAME - "example.com/".len()));
        for name in ["sheave.dev/gateway", "example.com/a/b", "a/B_c~%!$&()*+,;=:", &longest] {
            assert_eq!(controller_name(&name.into()).unwrap(), name);
        }
        let longer = format!("{longest}a");
        for name in [
            "",
            "gateway",
            "sheave.dev",
            "sheave.dev/",
            "/gateway",
            "Sheave.dev/a",
            "a.b/c d",
            "a_b/c",
            &longer,
        ] {
            assert!(controller_name(&name.into()).is_err(), "{name}");
        }
    }
}
