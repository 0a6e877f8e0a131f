//! `sheave completions` and `sheave man`: shell completions and manual pages, generated from the command line
//! definition.

use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_mangen::Man;
use sheave_console::exit::Exit;
use sheave_console::stdout;

use crate::cli::Cli;

/// Prints the completion script of a shell.
pub(crate) fn completions(shell: Shell) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "sheave", &mut script);
    stdout::print(&String::from_utf8_lossy(&script))
}

/// Prints the manual page of `sheave`, or of one command.
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
