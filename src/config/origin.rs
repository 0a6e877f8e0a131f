//! Origin of a configuration, from which it can be reloaded.

use std::path::{Path, PathBuf};

use sheave_console::views::validation::ConfigMistake;

use super::{Config, Overrides, node, unreadable, values};

/// The file, and the flags that override it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConfigOrigin {
    /// `None` = the defaults.
    pub(crate) file: Option<PathBuf>,
    pub(crate) overrides: Overrides,
}

impl ConfigOrigin {
    /// Reads the file again. A file without any key, which is valid at the start, is an error here: it may be a file that is being
    /// written.
    ///
    /// # Errors
    /// All mistakes.
    pub(crate) fn read_again(&self, file: &Path) -> Result<Config, Vec<ConfigMistake>> {
        let text = std::fs::read_to_string(file).map_err(|error| vec![unreadable(file, &error)])?;
        if values::document(&text).is_ok_and(|value| value.is_null()) {
            let message = format!("{} has no key, as if it were being written", file.display());
            let hint = Some("write {} if the defaults are meant".to_owned());
            return Err(vec![ConfigMistake { path: String::new(), message, hint }]);
        }
        Config::parse(&text, &self.overrides, &node::Environment::of_process())
    }
}
