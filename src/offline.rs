//! Commands that answer and end: `routes` and `validate`. They read what a gateway would read and project it as it
//! would, or ask one that runs. Nothing is forwarded here.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::path::Path;
use std::time::Duration;

use sheave_control::projection::{Projection, Projector};
use sheave_control::source::files::{self, Loaded};
use sheave_control::store::Store;

use crate::app::projection_options;
use crate::cli::{Output, Routes};
use crate::config::{Config, ConfigMistake};
use crate::exit::Exit;
use crate::output::print;
use crate::routes::{ProblemView, RoutesView};

/// How long a running gateway may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Prints the routing table that manifests give, or that a running gateway has.
pub(crate) fn routes(command: &Routes, config: &Config) -> Exit {
    let view = match &command.manifests {
        Some(manifests) => {
            let loaded = files::load(manifests);
            if !loaded.listed {
                loaded.problems.iter().for_each(|problem| eprintln!("sheave: {problem}"));
                return Exit::Data;
            }
            project(&loaded, config)
        }
        None => {
            let authority = command.admin.as_ref().map(|admin| admin.authority.clone());
            let authority = authority.unwrap_or_else(|| config.admin_listen.to_string());
            match ask(&authority) {
                Ok(view) => view,
                Err(error) => {
                    eprintln!("sheave: the gateway at http://{authority} does not answer: {error}");
                    return Exit::Unavailable;
                }
            }
        }
    };
    print(&match command.output {
        Output::Json => view.to_json(),
        Output::Table => view.to_text(),
    })
}

/// Tells every mistake in the configuration and the manifests: one line each, on stdout.
pub(crate) fn validate(manifests: Option<&Path>, config: Result<Config, Vec<ConfigMistake>>) -> Exit {
    let (config, mistakes) = match config {
        Ok(config) => (config, Vec::new()),
        // The manifests are judged by the defaults then.
        Err(mistakes) => (Config::fallback(), mistakes),
    };
    let problems = manifests.map(|path| project(&files::load(path), &config).problems).unwrap_or_default();
    let mut report: String = mistakes.iter().map(|mistake| format!("config: {mistake}\n")).collect();
    report.extend(problems.iter().map(|problem| format!("{problem}\n")));
    report += &match mistakes.len() + problems.len() {
        0 => "no problems\n".to_owned(),
        1 => "1 problem\n".to_owned(),
        count => format!("{count} problems\n"),
    };
    match (print(&report), problems.is_empty(), mistakes.is_empty()) {
        (Exit::Ok, true, true) => Exit::Ok,
        (Exit::Ok, true, false) => Exit::Config,
        (Exit::Ok, false, _) => Exit::Data,
        (failed, ..) => failed,
    }
}

/// Tells the mistakes of a configuration that a command cannot work with.
pub(crate) fn tell_mistakes(mistakes: &[ConfigMistake]) -> Exit {
    for mistake in mistakes {
        eprintln!("config: {mistake}");
    }
    Exit::Config
}

/// What a gateway with this configuration would make of these manifests.
fn project(loaded: &Loaded, config: &Config) -> RoutesView {
    let mut store = Store::default();
    store.replace(loaded.objects.clone());
    let dirty = store.take_dirty();
    let mut projector = Projector::new(projection_options(config));
    let projection = projector.project(store.objects(), &dirty);
    RoutesView::new(&projection.table, &config.node, problems(loaded, &projection)).publishing(
        projector.statuses(),
        &projection.health_checks,
        |_| false,
    )
}

/// The Problems of source and projection, each with the document that it is in.
pub(crate) fn problems(loaded: &Loaded, projection: &Projection) -> Vec<ProblemView> {
    let of_files = loaded.problems.iter().map(ProblemView::from);
    let of_objects = projection
        .problems
        .iter()
        .map(|problem| ProblemView::new(problem, loaded.origins.of(&problem.object)));
    of_files.chain(of_objects).collect()
}

/// Asks a running gateway for its table. One request on one connection: HTTP/1.0 ends the answer by closing.
fn ask(authority: &str) -> Result<RoutesView, String> {
    let answer = request(authority).map_err(|error| match error.kind() {
        // The kernel calls a receive timeout `EAGAIN` (socket(7), SO_RCVTIMEO).
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("timed out after {} s", PATIENCE.as_secs())
        }
        _ => error.to_string(),
    })?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("this is no HTTP")?;
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(format!("{status}: {}", body.trim_end()));
    }
    serde_json::from_str(body).map_err(|error| format!("this is not a routing table: {error}"))
}

fn request(authority: &str) -> io::Result<String> {
    let mut stream = connect(authority)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET /api/routes HTTP/1.0\r\nHost: {authority}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The first of a name's addresses that answers.
#[expect(clippy::disallowed_methods, reason = "a command that asks once and ends may wait for a name")]
fn connect(authority: &str) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for addr in authority.to_socket_addrs()? {
        match TcpStream::connect_timeout(&addr, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}
