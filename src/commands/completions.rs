//! `sheave completions` and `sheave man`: shell completions and manual pages, from the definition of the command line.

use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_mangen::Man;

use super::stdout;
use crate::cli::Cli;
use crate::exit::Exit;

/// Prints a script that completes `sheave` in a shell.
pub(crate) fn completions(shell: Shell) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "sheave", &mut script);
    stdout::print(&String::from_utf8_lossy(&script))
}

/// Prints the manual page of `sheave`, or of one of its commands.
pub(crate) fn man(command: Option<&str>) -> Exit {
    let mut sheave = Cli::command();
    sheave.build();
    let page = match command {
        None => sheave,
        Some(name) => match sheave.find_subcommand(name) {
            Some(found) => found.clone(),
            None => return Exit::Usage,
        },
    };
    let mut text = Vec::new();
    match Man::new(page).render(&mut text) {
        Ok(()) => stdout::print(&String::from_utf8_lossy(&text)),
        Err(error) => {
            eprintln!("sheave: the manual page cannot be written: {error}");
            Exit::Software
        }
    }
}
