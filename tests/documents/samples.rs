//! Console samples of the documents: every `$ sheave ...` in a `console` block is run in the repository's folder, and must print what
//! the document shows. `[..]` stands for any text in a line, a line `...` for any lines.
//!
//! Commands that query a gateway get one that forwards `deploy/examples/manifests`.

use snapbox::Data;
use snapbox::filter::NormalizeToExpected;

use crate::document::{DOCUMENTS, expect};
use crate::program::{Server, sheave};

/// Default address of a gateway's admin server.
const ADMIN: &str = "127.0.0.1:9841";
/// Minimum number of samples; with fewer, they are not found.
const FEWEST: usize = 6;

#[test]
fn console_samples_show_what_the_program_prints() {
    let gateway = Server::gateway();
    let mut samples = 0;
    for path in DOCUMENTS {
        expect(path, |text| {
            let (fresh, count) = rerun(text, &gateway);
            samples += count;
            fresh
        });
    }
    assert!(samples >= FEWEST, "{samples} samples");
}

/// The document with the current output of its samples, and their number.
fn rerun(text: &str, gateway: &Server) -> (String, usize) {
    let (mut fresh, mut samples) = (String::new(), 0);
    let mut lines = text.lines().peekable();
    let (mut in_console, mut code) = (false, 0);
    while let Some(line) = lines.next() {
        fresh.push_str(line);
        fresh.push('\n');
        in_console = line == "```console" || in_console && line != "```";
        if line == "$ echo $?" && in_console {
            lines.next_if(|line| *line != "```");
            fresh.push_str(&format!("{code}\n"));
        }
        let Some(command) = line.strip_prefix("$ sheave ").filter(|_| in_console) else { continue };
        let mut shown = String::new();
        while let Some(line) = lines.next_if(|line| *line != "```" && !line.starts_with("$ ")) {
            shown.push_str(line);
            shown.push('\n');
        }
        let printed;
        (printed, code) = run(command, &shown, gateway);
        fresh.push_str(&printed);
        samples += 1;
    }
    (fresh, samples)
}

/// Output of the command, and its exit code. Omissions in the document are kept.
fn run(command: &str, shown: &str, gateway: &Server) -> (String, i32) {
    let mut process = sheave();
    process.args(command.split_whitespace());
    let asks_gateway = ["routes", "explain", "status", "top"].iter().any(|name| command.starts_with(name));
    if asks_gateway && !command.contains("--manifests") {
        process.args(["--admin", &format!("http://{}", gateway.admin)]);
    }
    let output = process.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap().replace(&gateway.admin.to_string(), ADMIN);
    // Tables pad their last column, but documents have no trailing blanks.
    let text: String = text.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    let text =
        NormalizeToExpected::new().redact().normalize(Data::text(text), &Data::text(shown)).to_string();
    (text, output.status.code().unwrap())
}
