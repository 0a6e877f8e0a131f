//! Browser: Chromium controlled by chromedriver, with the parts of WebDriver (W3C) that the cases need.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::host::Host;
use crate::support::http;
use crate::support::patience::{eventually_within, patience};
use crate::support::process::Process;

/// Variable with the folder for screenshots.
const SCREENSHOTS: &str = "SHEAVE_TEST_SCREENSHOTS";

/// Program that chromedriver starts.
const CHROMIUM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/page/chromium");

/// Without a sandbox, which root cannot have, and without any background requests.
const ARGUMENTS: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
];

/// Keys in WebDriver's encoding (17.4.2, "Keyboard actions").
pub(crate) mod key {
    pub(crate) const TAB: &str = "\u{e004}";
    pub(crate) const ENTER: &str = "\u{e007}";
    pub(crate) const ESCAPE: &str = "\u{e00c}";
    pub(crate) const PAGE_DOWN: &str = "\u{e00f}";
    pub(crate) const END: &str = "\u{e010}";
    pub(crate) const LEFT: &str = "\u{e012}";
    pub(crate) const DOWN: &str = "\u{e015}";
}

/// Display settings of the page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) width: u32,
    pub(crate) dark: bool,
    pub(crate) javascript: bool,
}

impl Default for Look {
    fn default() -> Self {
        Self { width: 1280, dark: false, javascript: true }
    }
}

/// Browser with one page. Checks when dropped that the page caused no errors.
pub(crate) struct Browser<'h> {
    host: &'h Host,
    address: SocketAddr,
    session: String,
    look: Look,
    /// Kills the browser as well when dropped.
    driver: Process,
    profile: TempDir,
}

impl<'h> Browser<'h> {
    /// Opens a browser on the host.
    pub(crate) fn open(host: &'h Host, look: Look) -> Self {
        let port = host.run(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|it| it.local_addr()));
        let address = port.expect("a free port");
        let profile = tempfile::tempdir().expect("a temporary folder");
        // In a PID namespace, whose end kills the browser.
        let port = format!("--port={}", address.port());
        let command = ["--pid", "--fork", "--kill-child", "--mount-proc", "chromedriver", &port];
        let mut driver = host.start("unshare", &command);
        eventually_within(patience(20.0), "chromedriver listens", || {
            driver.expect_running();
            host.run(|| http::get(address, "/status")).map(drop)
        });
        let mut browser = Self { host, address, session: String::new(), look, driver, profile };
        browser.begin();
        browser
    }

    fn begin(&mut self) {
        let Look { width, dark, javascript } = self.look;
        let profile = format!("--user-data-dir={}", self.profile.path().display());
        let mut arguments = ARGUMENTS.map(str::to_owned).to_vec();
        arguments.extend([profile, format!("--window-size={width},900")]);
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": {"binary": CHROMIUM, "args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let session = self.send("POST", "/session", &wanted);
        self.session = format!("/session/{}", session["sessionId"].as_str().expect("a session"));
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", &size);
        let scheme = json!({"name": "prefers-color-scheme", "value": if dark { "dark" } else { "light" }});
        self.devtools("Emulation.setEmulatedMedia", &json!({"features": [scheme]}));
        self.devtools("Emulation.setScriptExecutionDisabled", &json!({"value": !javascript}));
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        let (host, body) = (self.address.to_string(), body.to_string());
        let headers = [("Host", host.as_str()), ("Content-Type", "application/json")];
        let path = format!("{}{path}", self.session);
        let response = self.host.run(|| http::send(self.address, method, &path, &headers, &body));
        let response = response.unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut answer: Value = serde_json::from_str(&response.body)
            .unwrap_or_else(|error| panic!("{path}: {error}: {}", response.body));
        assert_eq!(response.status, 200, "{path} {body}: {answer:#}");
        answer["value"].take()
    }

    /// Runs a script at the start of every page that is loaded from now on.
    pub(crate) fn run_first(&self, script: &str) {
        self.devtools("Page.addScriptToEvaluateOnNewDocument", &json!({"source": script}));
    }

    fn devtools(&self, command: &str, parameters: &Value) -> Value {
        self.send("POST", "/goog/cdp/execute", &json!({"cmd": command, "params": parameters}))
    }

    /// Loads an address.
    pub(crate) fn visit(&self, url: &str) {
        self.send("POST", "/url", &json!({"url": url}));
    }

    /// Runs the body of a function on the page, and returns its result.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.send("POST", "/execute/sync", &json!({"script": script, "args": []}))
    }

    /// Value of an expression on the page.
    pub(crate) fn value(&self, expression: &str) -> Value {
        self.run(&format!("return {expression}"))
    }

    /// Visible text of the first element that matches the selector; empty if there is none.
    pub(crate) fn text(&self, selector: &str) -> String {
        let text = self.value(&format!("document.querySelector({selector:?})?.innerText ?? ''"));
        text.as_str().expect("a text").to_owned()
    }

    /// Waits until an expression is true on the page. It may fail as long as parts of the page are not there.
    pub(crate) fn until(&self, expression: &str) {
        let tried = format!("try {{ return {expression} }} catch (error) {{ return String(error) }}");
        eventually_within(patience(90.0), expression, || match self.run(&tried) {
            Value::Bool(true) => Ok(()),
            other => Err(format!("{other}; the page says: {}", self.text("body"))),
        });
    }

    /// Waits until the page has drawn what it has scheduled: rows are put in their places in the next frame.
    pub(crate) fn until_drawn(&self) {
        self.run("return new Promise((drawn) => requestAnimationFrame(() => drawn(true)))");
    }

    /// Waits until the element contains this text.
    pub(crate) fn until_text(&self, selector: &str, part: &str) {
        self.until(&format!("(document.querySelector({selector:?})?.innerText ?? '').includes({part:?})"));
    }

    /// Clicks an element like a user, who scrolls first to where no bar of the page covers it.
    pub(crate) fn click(&self, selector: &str) {
        self.run(&format!("document.querySelector({selector:?}).scrollIntoView({{block: 'center'}})"));
        let found = self.send("POST", "/element", &json!({"using": "css selector", "value": selector}));
        let id = found.as_object().and_then(|it| it.values().next()).and_then(Value::as_str);
        self.send("POST", &format!("/element/{}/click", id.expect("an element")), &json!({}));
    }

    /// Presses keys one after the other.
    pub(crate) fn press(&self, keys: &str) {
        let press = |key: char| {
            let key = key.to_string();
            [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})]
        };
        let actions: Vec<Value> = keys.chars().flat_map(press).collect();
        let keyboard = json!({"actions": [{"type": "key", "id": "keyboard", "actions": actions}]});
        self.send("POST", "/actions", &keyboard);
    }

    /// Saves a screenshot of the whole page in the folder of the environment, if set.
    pub(crate) fn picture(&self, name: &str) {
        let Some(folder) = std::env::var_os(SCREENSHOTS).map(PathBuf::from) else { return };
        let height = self.value("document.documentElement.scrollHeight");
        let clip = json!({"x": 0, "y": 0, "width": self.look.width, "height": height, "scale": 1});
        let shot = json!({"format": "png", "captureBeyondViewport": true, "clip": clip});
        let data = self.devtools("Page.captureScreenshot", &shot)["data"].take();
        fs::create_dir_all(&folder).expect("a folder for pictures");
        let path = folder.join(format!("{name}.png"));
        fs::write(path, base64(data.as_str().expect("a picture"))).expect("a file is written");
    }

    /// Errors and warnings of the page, including violations of its policy.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let log = self.send("POST", "/se/log", &json!({"type": "browser"}));
        let lines = log.as_array().expect("a log").iter();
        let loud = lines.filter(|line| line["level"] != "INFO" && line["level"] != "DEBUG");
        loud.map(|line| line["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Fails if the page caused an error, a violation of its policy, a request to another origin, or content wider than the
    /// window.
    pub(crate) fn expect_well_behaved(&self) {
        assert_eq!(self.complaints(), Vec::<String>::new());
        let foreign = "performance.getEntriesByType('resource').map((it) => it.name).filter((it) => !it.startsWith(location.origin) && !it.startsWith('data:'))";
        assert_eq!(self.value(foreign), json!([]));
        assert_eq!(self.value("document.documentElement.scrollWidth - innerWidth"), json!(0));
    }
}

impl Drop for Browser<'_> {
    fn drop(&mut self) {
        // Ends the browser before its profile is removed. If the case has failed, the end of the namespace does that.
        if !std::thread::panicking() && !self.session.is_empty() {
            self.send("DELETE", "", &json!({}));
        }
        self.driver.signal(nix::sys::signal::Signal::SIGTERM);
    }
}

/// Decodes base64 (RFC 4648, section 4).
fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text.bytes().filter_map(|byte| ALPHABET.iter().position(|it| *it == byte));
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0_u32, 0);
    for digit in digits {
        (bits, held) = (bits << 6 | digit as u32, held + 6);
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    bytes
}
