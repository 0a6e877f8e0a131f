//! Status pages of gateways and controllers: documents, style and modules, all embedded in the program.

use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// All content is from this server, only the modules are run, and no text is treated as markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! assets {
    ($($path:literal: $kind:ident),+ $(,)?) => {
        [$((concat!("/page/", $path), $kind, include_str!(concat!("../page/", $path)))),+]
    };
}

/// Assets of the pages, by path.
const ASSETS: [(&str, &str, &str); 27] = assets! {
    "style.css": STYLE,
    "all_gateways.js": SCRIPT,
    "ask.js": SCRIPT,
    "chart.js": SCRIPT,
    "controller.js": SCRIPT,
    "counters.js": SCRIPT,
    "dom.js": SCRIPT,
    "events.js": SCRIPT,
    "explain.js": SCRIPT,
    "explain_all.js": SCRIPT,
    "filters.js": SCRIPT,
    "findings.js": SCRIPT,
    "format.js": SCRIPT,
    "frame.js": SCRIPT,
    "gateway.js": SCRIPT,
    "list.js": SCRIPT,
    "order.js": SCRIPT,
    "process.js": SCRIPT,
    "row.js": SCRIPT,
    "service_detail.js": SCRIPT,
    "services.js": SCRIPT,
    "shares.js": SCRIPT,
    "stream.js": SCRIPT,
    "strip.js": SCRIPT,
    "tiles.js": SCRIPT,
    "trace.js": SCRIPT,
    "traffic.js": SCRIPT,
};

/// Documents of a gateway and of a controller.
const GATEWAY: &str = concat!(include_str!("../page/head.html"), include_str!("../page/gateway.html"));
const CONTROLLER: &str = concat!(include_str!("../page/head.html"), include_str!("../page/controller.html"));

/// Routes of a gateway's page at `/`, and its assets.
pub(crate) fn of_gateway() -> Router {
    router(GATEWAY)
}

/// Routes of a controller's page, which shows all gateways.
pub(crate) fn of_controller() -> Router {
    router(CONTROLLER)
}

fn router(document: &'static str) -> Router {
    let mut router = Router::new().route("/", get(move || async move { asset(HTML, document) }));
    for (path, kind, text) in ASSETS {
        router = router.route(path, get(move || async move { asset(kind, text) }));
    }
    router
}

/// Responds with an asset, which must not be cached: after an upgrade the page must match the program.
fn asset(kind: &'static str, text: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    (headers, text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_each_of_its_parts_and_nothing_else() {
        for html in [GATEWAY, CONTROLLER] {
            let foreign = ["http:", "https:", " style=", " on"].into_iter().find(|it| html.contains(it));
            assert_eq!(foreign, None, "inline or foreign");
        }
        for (path, kind, text) in ASSETS {
            assert!(text.lines().count() < 400, "{path} is long");
            if kind == SCRIPT {
                assert!(!text.contains("innerHTML") && !text.contains("insertAdjacentHTML"), "{path}");
                for line in text.lines().filter(|line| line.starts_with("import ")) {
                    let from = line.rsplit('"').nth(1).and_then(|from| from.strip_prefix("./"));
                    let from = from.map(|from| format!("/page/{from}"));
                    assert!(ASSETS.iter().any(|(path, ..)| Some(*path) == from.as_deref()), "{path}: {line}");
                }
            }
        }
    }
}
