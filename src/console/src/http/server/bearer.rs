//! Bearer token authentication, with a token file or through the API server. Prometheus sends such a token for
//! `authorization` in its configuration, and the controller sends one to gateways.

use std::io;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use sheave_control::delegated_auth::{AuthDecision, DelegatedAuth};

use super::Authorized;

/// Access control of a listener.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// Anyone who can connect.
    Open,
    /// Clients with the token of this file. It is read for each request, so that a new token needs no restart.
    TokenFile(Arc<Path>),
    /// Clients that the API server authorizes.
    Kubernetes(DelegatedAuth),
}

/// Restricts `router` to clients with `access`.
pub(super) fn guarded(router: Router, access: Access) -> Router {
    match access {
        Access::Open => router,
        access => router.layer(middleware::from_fn_with_state(access, check)),
    }
}

/// Restricts the routes of `router` to clients that also have the right to this path, where rights have paths.
pub(super) fn also_guarded(router: Router, access: &Access, path: &'static str) -> Router {
    match access {
        Access::Kubernetes(auth) => {
            let access = Access::Kubernetes(auth.for_path(path));
            router.route_layer(middleware::from_fn_with_state(access, check))
        }
        Access::Open | Access::TokenFile(_) => router,
    }
}

async fn check(State(access): State<Access>, request: Request, next: Next) -> Response {
    let decision = match shown(request.headers()) {
        Some(token) => access.decide(token).await,
        None => AuthDecision::Unauthenticated,
    };
    // Unauthorized callers learn neither paths nor reasons.
    match decision {
        AuthDecision::Allowed => {
            if let Some(authorized) = request.extensions().get::<Authorized>() {
                authorized.set();
            }
            next.run(request).await
        }
        AuthDecision::Unauthenticated => {
            let headers = [(header::WWW_AUTHENTICATE, "Bearer")];
            (StatusCode::UNAUTHORIZED, headers, "show a valid bearer token\n").into_response()
        }
        AuthDecision::Forbidden => {
            (StatusCode::FORBIDDEN, "this user may not get this path\n").into_response()
        }
        AuthDecision::Unavailable => {
            (StatusCode::SERVICE_UNAVAILABLE, "the token cannot be checked now\n").into_response()
        }
    }
}

impl Access {
    async fn decide(&self, shown: &str) -> AuthDecision {
        let file = match self {
            Self::Open => return AuthDecision::Allowed,
            Self::Kubernetes(auth) => return auth.decide(shown).await,
            Self::TokenFile(file) => file,
        };
        let path = Arc::clone(file);
        let token = tokio::task::spawn_blocking(move || read(&path)).await;
        match token.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(token) if equal(shown, &token) => AuthDecision::Allowed,
            Ok(_) => AuthDecision::Unauthenticated,
            Err(error) => {
                tracing::debug!(file = %file.display(), %error, "the token file cannot be read");
                AuthDecision::Unavailable
            }
        }
    }
}

/// Reads a token from a file, without the line break at its end.
///
/// # Errors
/// If the file cannot be read, or `InvalidData` if it is empty.
pub(crate) fn read(file: &Path) -> io::Result<String> {
    let token = std::fs::read_to_string(file)?.trim().to_owned();
    if token.is_empty() { Err(io::Error::new(io::ErrorKind::InvalidData, "it is empty")) } else { Ok(token) }
}

fn shown(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    Some(token.trim()).filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}

/// Compares in constant time for texts of the same length.
fn equal(one: &str, other: &str) -> bool {
    let differences =
        one.bytes().zip(other.bytes()).fold(0, |differences, (one, other)| differences | (one ^ other));
    one.len() == other.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};

    use axum::http::HeaderValue;
    use tokio::net::TcpListener;

    use super::super::{Connections, Server};
    use super::*;

    #[test]
    fn a_token_is_shown_with_its_scheme() {
        let of = |value: &'static str| {
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static(value))]);
            shown(&headers).map(str::to_owned)
        };
        assert_eq!(of("Bearer a.b-c").as_deref(), Some("a.b-c"));
        assert_eq!(of("bearer  abc").as_deref(), Some("abc"));
        assert_eq!(
            (of("Basic abc"), of("abc"), of("Bearer  "), shown(&HeaderMap::new())),
            (None, None, None, None)
        );
    }

    #[test]
    fn only_the_whole_token_is_the_token() {
        assert!(equal("abc", "abc"));
        for other in ["abd", "ab", "abcd", ""] {
            assert!(!equal("abc", other) && !equal(other, "abc"), "{other}");
        }
    }

    #[test]
    fn a_file_without_a_token_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        assert_eq!(read(&file).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::write(&file, " \n").unwrap();
        assert_eq!(read(&file).unwrap_err().kind(), io::ErrorKind::InvalidData);
        fs::write(&file, "abc\n").unwrap();
        assert_eq!(read(&file).unwrap(), "abc");
    }

    /// Status of the response to a scraper with this header.
    async fn status(addr: SocketAddr, header: &str) -> String {
        let request = format!("GET / HTTP/1.1\r\nHost: node\r\n{header}\r\n");
        let ask = move || {
            let mut stream = TcpStream::connect(addr).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            text
        };
        let text = tokio::task::spawn_blocking(ask).await.unwrap();
        text.split(' ').nth(1).unwrap().to_owned()
    }

    #[tokio::test]
    async fn who_shows_the_token_of_the_moment_is_let_in() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let router =
            guarded(Router::new().fallback(async || "well"), Access::TokenFile(file.as_path().into()));
        let _server = Server::start(listener, router, Connections::of_admin(4));
        let (first, second) = ("Authorization: Bearer first\r\n", "Authorization: Bearer second\r\n");
        assert_eq!(status(addr, first).await, "503");
        fs::write(&file, "first\n").unwrap();
        assert_eq!(status(addr, first).await, "200");
        assert_eq!(
            (status(addr, second).await, status(addr, "").await),
            ("401".to_owned(), "401".to_owned())
        );
        fs::write(&file, "second\n").unwrap();
        assert_eq!(
            (status(addr, first).await, status(addr, second).await),
            ("401".to_owned(), "200".to_owned())
        );
    }
}
