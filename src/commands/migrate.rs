//! `sheave migrate`: translates objects of other load balancers.

use std::io::{self, Read as _};
use std::path::Path;

use sheave_console::exit::Exit;
use sheave_console::stdout::{complain, print};
use sheave_console::views::escape::{line, visible, visible_yaml};
use sheave_console::views::problem::ProblemView;
use sheave_control::migration::{self, Migration, MigrationOptions, ServiceTarget};
use sheave_control::sources::manifests::{FileProblem, RawManifests};

use crate::cli::{Migrate, MigrateTo};
use crate::config::Config;

/// Path that stands for standard input.
const STDIN: &str = "-";

/// Prints AddressPools, Services and Gateways on stdout, and parts without an equivalent on stderr.
pub(crate) fn run(command: &Migrate, config: &Config) -> Exit {
    let path = command.manifests.as_path();
    let read = match read(path) {
        Ok(read) => read,
        Err(error) => {
            complain(&format!("{}: {error}", path.display()));
            return Exit::Data;
        }
    };
    let options = MigrationOptions {
        load_balancer_class: &config.load_balancer_class,
        gateway_controller: &config.gateway_api.controller_name,
        services: match command.to {
            MigrateTo::Services => ServiceTarget::Services,
            MigrateTo::GatewayApi => ServiceTarget::GatewayApi,
        },
    };
    let migration = migration::migrate(&read.objects, &options);
    let text = text(&migration);
    let left = migration.objects.iter().flat_map(|object| &object.left).chain(&migration.left);
    let left: Vec<&FileProblem> = left.collect();
    for problem in read.problems.iter().chain(left.iter().copied()) {
        let view = ProblemView::from(problem);
        let view = if path == Path::new(STDIN) { view } else { view.within(path) };
        eprint!("{}", line(&view.to_string()));
    }
    match (print(&text), read.problems.is_empty(), left.is_empty()) {
        (Exit::Ok, true, true) => Exit::Ok,
        (Exit::Ok, true, false) => Exit::Untranslated,
        (Exit::Ok, false, _) => Exit::Data,
        (failed, ..) => failed,
    }
}

fn read(path: &Path) -> io::Result<RawManifests> {
    if path != Path::new(STDIN) {
        return RawManifests::load(path);
    }
    let mut text = String::new();
    io::stdin().lock().read_to_string(&mut text)?;
    Ok(RawManifests::parse("stdin", &text))
}

/// Contents of stdout: comments and objects.
fn text(migration: &Migration) -> String {
    let mut text = comment(
        "Made by sheave migrate. Read the comments first; sheave validate --manifests FILE checks it.",
    );
    for (number, step) in (1..).zip(&migration.steps) {
        text += &comment(&format!("{number}. {step}"));
    }
    if !migration.frr.is_empty() {
        text += &comment(
            "For frr.conf of deploy/examples/bgp-frr: remove its neighbors with addresses, and the lines `remote-as` of ROUTERS4 and ROUTERS6, and add:",
        );
        text.extend(migration.frr.iter().map(|line| comment(&format!("  {line}"))));
    }
    if migration.unchanged > 0 {
        text += &comment(&format!("Load balancers that need no change: {}.", migration.unchanged));
    }
    if migration.objects.is_empty() {
        text += &comment("There is nothing to apply.");
    }
    text.extend(migration.left.iter().map(|left| comment(&left.problem.to_string())));
    for object in &migration.objects {
        text += "---\n";
        text.extend(object.comments.iter().map(|line| comment(line)));
        for left in &object.left {
            let problem = &left.problem;
            text += &comment(&format!("{}: {}: {}", problem.reason, problem.field, problem.message));
        }
        text += &visible_yaml(&object.manifest);
    }
    text
}

/// Formats one line of comment. Characters that would end the line, or hide others, are written as their code.
fn comment(line: &str) -> String {
    format!("# {}", visible(line)).trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_is_one_line_whatever_it_says() {
        let line = comment("a\nkind: Secret\u{2028}b\u{1b}\u{202e}");
        assert_eq!(line, "# a\\u{a}kind: Secret\\u{2028}b\\u{1b}\\u{202e}\n");
    }
}
