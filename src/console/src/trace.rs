//! `sheave trace`: asks a running gateway, or a controller and through it all gateways, where a client's packet goes or stops, and saves captured
//! packets.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use sheave_control::api::gateway_report::TRACE_PATH;

use crate::admin_client;
use crate::admin_server::AdminServer;
use crate::arguments::Trace;
use crate::exit::Exit;
use crate::http::all_gateways::ALL_TRACE_PATH;
use crate::http::trace::with_capture;
use crate::inspect::{NOT_FOUND, namespace_of_context, of_all, parsed_within, unanswered};
use crate::options::Options;
use crate::stdout::{complain, print, render};
use crate::views::all_gateways::TracesView;
use crate::views::explain::Question;
use crate::views::trace::{StepState, TraceView};

/// Prints where the packet goes or stops.
pub fn run(command: &Trace, config: &Options) -> Exit {
    let question = match command.asked.question(|| namespace_of_context(config)) {
        Ok(question) => question,
        Err(why) => {
            complain(&why);
            return Exit::Usage;
        }
    };
    let traced =
        if command.fleet { by_all(command, &question, config) } else { by_one(command, &question, config) };
    traced.unwrap_or_else(|exit| exit)
}

/// Traces through one gateway.
fn by_one(command: &Trace, question: &Question, config: &Options) -> Result<Exit, Exit> {
    let server = AdminServer::of_process(&command.running, config)?;
    let path = command.path(question, TRACE_PATH);
    let (status, mut view) = parsed_within::<TraceView>(command.patience(), &server.authority, &path)
        .map_err(|error| unanswered(&server.authority, &error))?;
    let saved = save(&mut view, &command.file(question), &server.authority);
    let shown = print(&render(&view, || view.to_text(), command.output));
    Ok(exit(shown, status, view.verdict.state, saved))
}

/// Traces through all gateways, as collected by a controller. What one of them captured is saved even if others do not answer.
fn by_all(command: &Trace, question: &Question, config: &Options) -> Result<Exit, Exit> {
    let path = command.path(question, ALL_TRACE_PATH);
    let (server, status, mut view) =
        of_all::<TracesView>(&command.running, config, command.patience(), &path)?;
    let mut saved = if view.gateways.is_empty() { Exit::Unavailable } else { Exit::Ok };
    let file = command.file(question);
    for gateway in &mut view.gateways {
        let file = named_after(&file, &gateway.trace.node);
        match save(&mut gateway.trace, &file, &server.authority) {
            Exit::Ok => {}
            failed => saved = failed,
        }
    }
    let shown = print(&render(&view, || view.to_text(), command.output));
    Ok(exit(shown, status, view.verdict.state, saved))
}

fn exit(shown: Exit, status: u16, verdict: StepState, saved: Exit) -> Exit {
    match shown {
        Exit::Ok if status == NOT_FOUND => Exit::Data,
        Exit::Ok if saved == Exit::Ok && verdict != StepState::Ok => Exit::Degraded,
        Exit::Ok => saved,
        failed => failed,
    }
}

impl Trace {
    /// Path of the question.
    fn path(&self, question: &Question, path: &str) -> String {
        question.path(&with_capture(path, self.capture))
    }

    fn patience(&self) -> Duration {
        admin_client::PATIENCE + self.capture.unwrap_or_default()
    }

    /// File for captured packets.
    fn file(&self, question: &Question) -> PathBuf {
        let named = || {
            let service = question.service.to_string().replace('/', "-");
            PathBuf::from(format!("{service}-{}.pcap", Timestamp::now().strftime("%Y%m%d-%H%M%S")))
        };
        self.pcap.clone().unwrap_or_else(named)
    }
}

/// The file of one gateway: its node stands before the extension. A node may be named by an IPv6 address, or by whoever writes
/// EndpointSlices.
fn named_after(file: &Path, node: &str) -> PathBuf {
    let safe = |char: char| if char.is_ascii_alphanumeric() || "-.".contains(char) { char } else { '_' };
    let mut name = file.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{}", node.chars().map(safe).collect::<String>()));
    if let Some(extension) = file.extension() {
        name.push(".");
        name.push(extension);
    }
    file.with_file_name(name)
}

/// Saves the captured packets, if there are any.
fn save(view: &mut TraceView, file: &Path, authority: &str) -> Exit {
    let Some(capture) = &mut view.capture else { return Exit::Ok };
    let packets = match admin_client::download(authority, &capture.path) {
        Ok(packets) => packets,
        Err(error) => {
            complain(&format!("what gateway {} captured is not to be had: {error}", view.node));
            return Exit::Unavailable;
        }
    };
    // Packets may have what only this user should read.
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    match opened.and_then(|mut file| file.write_all(&packets)) {
        Ok(()) => {
            capture.file = Some(file.display().to_string());
            Exit::Ok
        }
        Err(error) => {
            complain(&format!("{}: {error}", file.display()));
            Exit::Software
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gateway_has_a_file_that_stays_in_its_folder() {
        for (node, expected) in [
            ("gw-1.example.org", "/tmp/web-gw-1.example.org.pcap"),
            ("2001:db8::1", "/tmp/web-2001_db8__1.pcap"),
            ("../../etc/x", "/tmp/web-.._.._etc_x.pcap"),
        ] {
            assert_eq!(named_after(Path::new("/tmp/web.pcap"), node), Path::new(expected));
        }
        assert_eq!(named_after(Path::new("web"), "gw-1"), Path::new("web-gw-1"));
    }
}
