//! `sheave trace`: asks a running gateway where a client's packet goes or stops, and saves captured packets.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::admin_client;
use crate::admin_server::AdminServer;
use crate::arguments::Trace;
use crate::exit::Exit;
use crate::http::trace::TRACE_PATH;
use crate::inspect::{NOT_FOUND, namespace_of_context, parsed_within, unanswered};
use crate::options::Options;
use crate::stdout::{complain, print, render};
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
    let server = match AdminServer::of_process(&command.running, config) {
        Ok(server) => server,
        Err(exit) => return exit,
    };
    let captured = command.capture.map(|time| format!("/{}", time.as_secs())).unwrap_or_default();
    let path = question.path(&format!("{TRACE_PATH}{captured}"));
    let patience = admin_client::PATIENCE + command.capture.unwrap_or_default();
    let (status, mut view) = match parsed_within::<TraceView>(patience, &server.authority, &path) {
        Ok(answer) => answer,
        Err(error) => return unanswered(&server.authority, &error),
    };
    let saved = save(&mut view, command.pcap.as_deref(), &server.authority);
    match print(&render(&view, || view.to_text(), command.output)) {
        Exit::Ok if status == NOT_FOUND => Exit::Data,
        Exit::Ok if saved == Exit::Ok && view.verdict.state != StepState::Ok => Exit::Degraded,
        Exit::Ok => saved,
        failed => failed,
    }
}

/// Saves the captured packets, if there are any.
fn save(view: &mut TraceView, file: Option<&Path>, authority: &str) -> Exit {
    let Some(capture) = &mut view.capture else { return Exit::Ok };
    let time = Timestamp::now().strftime("%Y%m%d-%H%M%S");
    let named = || PathBuf::from(format!("{}-{time}.pcap", view.service.replace('/', "-")));
    let file = file.map_or_else(named, Path::to_owned);
    let packets = match admin_client::download(authority, &capture.path) {
        Ok(packets) => packets,
        Err(error) => return unanswered(authority, &error),
    };
    // Packets may have what only this user should read.
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file);
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
