//! Access control of the admin server.
//!
//! There is no authentication here, so only clients on this machine are answered: those that connect from a loopback address, as `kubectl
//! port-forward` and `kubectl exec` do. Any website may lead a browser to this server, so requests with another origin are rejected, as are
//! requests under a name that a website could own (DNS rebinding): only addresses, `localhost` and names without a dot are accepted.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};

use super::server::Peer;

/// Restricts `router` to clients on this machine, and excludes websites; `node` is a name of this machine.
pub(crate) fn guarded(router: Router, node: &str) -> Router {
    router.layer(from_fn_with_state(Arc::<str>::from(node), guard))
}

async fn guard(State(node): State<Arc<str>>, request: Request, next: Next) -> Response {
    let peer = request.extensions().get().copied();
    let admitted = admit_peer(peer).and_then(|()| admit(request.uri().path(), request.headers(), &node));
    match admitted {
        Ok(()) => shielded(request, next).await,
        Err(refused) => refused.into_response(),
    }
}

async fn shielded(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let shields = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in shields {
        response.headers_mut().insert(name, header::HeaderValue::from_static(value));
    }
    response
}

/// Checks the client address. The listener may be open to the network for probes; everything else is for this machine.
fn admit_peer(peer: Option<Peer>) -> Result<(), (StatusCode, &'static str)> {
    let advice = "only /livez and /readyz are answered to other machines and Pods: connect to a loopback address here, \
                  as kubectl port-forward does; metrics.listen answers scrapers\n";
    if peer.is_some_and(Peer::is_loopback) { Ok(()) } else { Err((StatusCode::FORBIDDEN, advice)) }
}

fn admit(path: &str, headers: &HeaderMap, node: &str) -> Result<(), (StatusCode, &'static str)> {
    // HTTP/1.0 requires no Host header, and browsers do not use it.
    if !text(headers, header::HOST).is_none_or(|host| is_ours(host, node)) {
        let advice = "no name of this server; use its address, localhost or the node's name\n";
        return Err((StatusCode::MISDIRECTED_REQUEST, advice));
    }
    admit_site(path, headers)
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("invalid.invalid"))
}

/// Rejects requests from other websites, which could cause work even without reading the answer. Links to the page are allowed.
fn admit_site(path: &str, headers: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
    let text = |name| text(headers, HeaderName::from_static(name));
    let foreign = text("sec-fetch-site").is_some_and(|site| site.ends_with("-site"));
    let is_link = path == "/" && text("sec-fetch-mode") == Some("navigate");
    if foreign && !is_link {
        return Err((StatusCode::FORBIDDEN, "other websites get nothing from this server\n"));
    }
    Ok(())
}

/// Whether the authority is one that no website can own.
fn is_ours(authority: &str, node: &str) -> bool {
    let port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let name = match authority.rsplit_once(':') {
        Some((name, digits)) if port(digits) => name,
        _ => authority,
    };
    let v6 = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Some(v6) = v6 {
        return v6.parse::<Ipv6Addr>().is_ok();
    }
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name.parse::<IpAddr>().is_ok()
        || !name.contains('.')
        || name.ends_with(".localhost")
        || name == node.to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_answered() {
        let status = |ip: &str| admit_peer(Some(Peer(ip.parse().unwrap()))).err().map(|it| it.0.as_u16());
        for here in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(status(here), None, "{here}");
        }
        for other in ["10.1.0.7", "192.0.2.1", "::ffff:10.1.0.7", "fe80::1", "2001:db8::1"] {
            assert_eq!(status(other), Some(403), "{other}");
        }
        assert!(admit_peer(None).is_err(), "nobody knows who asks");
    }

    fn answer(headers: &[(&'static str, &'static str)]) -> Option<u16> {
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), header::HeaderValue::from_static(value)));
        admit("/", &headers.collect(), "gw-1.Example.org").err().map(|(status, _)| status.as_u16())
    }

    #[test]
    fn a_website_reaches_nothing_by_its_own_name() {
        for host in
            ["127.0.0.1:9841", "[::1]:9841", "10.1.2.3", "localhost:1", "sheave.localhost", "gw-1:9841"]
        {
            assert_eq!(answer(&[("host", host)]), None, "{host}");
        }
        assert_eq!(answer(&[("host", "gw-1.example.org:9841")]), None);
        assert_eq!(answer(&[]), None);
        for host in [
            "evil.example",
            "evil.example:9841",
            "127.0.0.1.evil.example",
            "localhost.evil.example.",
            "[::1].evil.example",
            "[evil.example]",
        ] {
            assert_eq!(answer(&[("host", host)]), Some(421), "{host}");
        }
    }

    #[test]
    fn another_websites_page_gets_nothing_but_links_work() {
        let from = |site, mode| answer(&[("sec-fetch-site", site), ("sec-fetch-mode", mode)]);
        assert_eq!(from("cross-site", "no-cors"), Some(403));
        assert_eq!(from("same-site", "cors"), Some(403));
        assert_eq!(from("cross-site", "navigate"), None);
        assert_eq!(from("same-origin", "cors"), None);
        assert_eq!(from("none", "navigate"), None);
        let foreign = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")];
        let foreign = foreign
            .map(|(name, value)| (HeaderName::from_static(name), header::HeaderValue::from_static(value)));
        let foreign: HeaderMap = foreign.into_iter().collect();
        let refused = |path| admit_site(path, &foreign).is_err();
        assert_eq!(["/", "/api/status", "/api/fleet", "/metrics"].map(refused), [false, true, true, true]);
    }
}
