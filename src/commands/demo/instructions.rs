//! Instructions that the demo prints: the page, and the commands to try. They fit a terminal of 24 lines.

use std::net::SocketAddr;
use std::path::Path;

use super::karmada::SHOP_PORT;
use super::manifests::{ECHO_PORT, VIP, WEB_PORT};

/// Values that the instructions contain.
pub(super) struct Instructions<'a> {
    /// How this program was called, so that the commands can be pasted.
    pub(super) program: &'a str,
    /// Address of the gateway's admin server.
    pub(super) admin: SocketAddr,
    /// Whether commands query that address by default.
    pub(super) admin_is_default: bool,
    /// Manifests of the gateways' own cluster.
    pub(super) manifests: &'a Path,
    /// Manifests of the Karmada control plane.
    pub(super) karmada: &'a Path,
    /// Address of the switch that stops and starts backends.
    pub(super) switch: SocketAddr,
}

impl Instructions<'_> {
    pub(super) fn text(&self) -> String {
        let Self { admin, switch, .. } = self;
        let shop = format!("http://{VIP}:{SHOP_PORT}/");
        let (web, fleet, east) =
            (self.manifests.join("web.yaml"), self.karmada.join("shop.yaml"), self.karmada.join("east.yaml"));
        let (web, fleet, east) = (web.display(), fleet.display(), east.display());
        format!(
            "Served on {VIP}; in another terminal, try:
PAGE    http://{admin}/
TCP     curl http://{VIP}:{WEB_PORT}/
UDP     bash -c 'exec 3<>/dev/udp/{VIP}/{ECHO_PORT}; echo hi >&3; head -n 1 <&3'
STATUS  {status}
EXPLAIN {explain}
TOP     {top}
WATCH   {watch}
Edits count at once (sheave diff tells what they change): try ready: false in
{web}

demo/shop sends three of four connections to cluster east, by its weights in
{fleet}
FLEET   for i in $(seq 100); do curl -s {shop}; done | sort | uniq -c
DRAIN   sed -i 's/drain: \"false\"/drain: \"true\"/' {east}
RETURN  sed -i 's/drain: \"true\"/drain: \"false\"/' {east}
STOP    curl http://{switch}/east/stop
START   curl http://{switch}/east/start
No connection fails meanwhile. East has its share again within half a minute.
Ctrl-C ends the demo.
",
            status = self.command("status"),
            explain = self.command("explain demo/web"),
            top = self.command("top"),
            watch = self.command("watch"),
        )
    }

    fn command(&self, words: &str) -> String {
        let Self { program, admin, .. } = self;
        if self.admin_is_default {
            format!("{program} {words}")
        } else {
            format!("{program} {words} --admin http://{admin}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_fits_a_terminal_and_begins_with_the_page() {
        let mut instructions = Instructions {
            program: "target/release/sheave",
            admin: "127.0.0.1:9841".parse().unwrap(),
            admin_is_default: true,
            manifests: Path::new("/tmp/sheave-demo-PY2G1r/manifests"),
            karmada: Path::new("/tmp/sheave-demo-PY2G1r/karmada"),
            switch: "127.0.0.30:41559".parse().unwrap(),
        };
        let text = instructions.text();
        let lines: usize = text.lines().map(|line| line.len().div_ceil(80).max(1)).sum();
        // One line more, for the prompt or the cursor.
        assert!(lines < 24, "{lines} lines of 80 columns:\n{text}");
        assert!(text.lines().nth(1).unwrap().starts_with("PAGE"));
        assert!(!text.contains("--admin"));
        instructions.admin_is_default = false;
        assert_eq!(instructions.text().matches(" --admin http://127.0.0.1:9841\n").count(), 4);
    }
}
