//! Output of commands on stdout and errors on stderr. Unlike `println!`, it does not panic when the reader has gone.

use std::io::{self, Write};

use crate::arguments::TextFormat;
use crate::exit::Exit;
use crate::views::{View, escape};

/// Renders a view in the requested format. Text goes to terminals, so control characters in it are made visible.
pub fn render<V: View>(view: &V, text: impl FnOnce() -> String, format: TextFormat) -> String {
    match format {
        TextFormat::Text => escape::lines(&text()).into_owned(),
        TextFormat::Json => view.to_json(),
        TextFormat::Yaml => view.to_yaml(),
    }
}

/// Prints an error on stderr, as one line with control characters made visible.
pub fn complain(why: &str) {
    eprint!("{}", escape::line(&format!("sheave: {why}")));
}

/// Writes to stdout. A reader that has gone away (`| head`) is not an error; any other failure is reported on stderr.
pub fn print(text: &str) -> Exit {
    print_to(&mut io::stdout().lock(), text)
}

fn print_to(out: &mut impl Write, text: &str) -> Exit {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("sheave: cannot write: {error}");
            Exit::Software
        }
        _ => Exit::Ok,
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    /// Writer that fails with this error.
    struct Closed(ErrorKind);

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    #[test]
    fn everything_is_written() {
        let mut out = Vec::new();
        assert_eq!(print_to(&mut out, "a\nb"), Exit::Ok);
        assert_eq!(out, b"a\nb");
    }

    #[test]
    fn a_reader_that_has_gone_away_is_no_mistake_and_a_full_disk_is() {
        assert_eq!(print_to(&mut Closed(ErrorKind::BrokenPipe), "a\n"), Exit::Ok);
        assert_eq!(print_to(&mut Closed(ErrorKind::StorageFull), "a\n"), Exit::Software);
    }
}
