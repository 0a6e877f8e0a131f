//! Mapping of the configuration. Each key is read once, and keys that are never read are mistakes.

use serde_json::{Map, Value};
use sheave_console::views::validation::ConfigMistake;
use sheave_control::text;

use super::values::{self, ValueError};

/// A mapping that is being read.
pub(super) struct Section<'a> {
    /// Path of the mapping, which ends in a dot unless it is the root.
    prefix: String,
    fields: Option<&'a Map<String, Value>>,
    known: Vec<&'static str>,
    /// Keys that are names of entries, and so are known.
    named: Vec<&'a str>,
    mistakes: &'a mut Vec<ConfigMistake>,
}

impl<'a> Section<'a> {
    /// The whole file as a section.
    pub(super) fn root(value: &'a Value, mistakes: &'a mut Vec<ConfigMistake>) -> Self {
        Self::new(String::new(), value, mistakes)
    }

    fn new(prefix: String, value: &'a Value, mistakes: &'a mut Vec<ConfigMistake>) -> Self {
        if !matches!(value, Value::Object(_) | Value::Null) {
            let path = prefix.trim_end_matches('.').to_owned();
            let ValueError { message, hint } = ValueError::expected("a mapping of keys to values", value);
            mistakes.push(ConfigMistake { path, message, hint });
        }
        Self { prefix, fields: value.as_object(), known: Vec::new(), named: Vec::new(), mistakes }
    }

    /// Reads `key`. A missing or empty value is the default.
    pub(super) fn get<T>(
        &mut self,
        key: &'static str,
        default: T,
        read: impl FnOnce(&Value) -> Result<T, ValueError>,
    ) -> T {
        let Some(value) = self.take(key) else { return default };
        read(value).unwrap_or_else(|wrong| {
            self.report(key, wrong);
            default
        })
    }

    /// Reads `key`, which must be present.
    pub(super) fn required<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&Value) -> Result<T, ValueError>,
    ) -> Option<T> {
        let Some(value) = self.take(key) else {
            self.report(key, "is missing");
            return None;
        };
        read(value).map_err(|wrong| self.report(key, wrong)).ok()
    }

    /// Reads the list at `key`. Each invalid element is a separate mistake.
    pub(super) fn list<T>(
        &mut self,
        key: &'static str,
        read: impl Fn(&Value) -> Result<T, ValueError>,
    ) -> Vec<T> {
        let elements = match self.take(key) {
            None => return Vec::new(),
            Some(Value::Array(elements)) => elements,
            Some(value) => {
                self.report(
                    key,
                    ValueError::expected("a list", value).hint(format!("write {key}: [{value}]")),
                );
                return Vec::new();
            }
        };
        let mut list = Vec::with_capacity(elements.len());
        for (index, element) in elements.iter().enumerate() {
            match read(element) {
                Ok(value) => list.push(value),
                Err(wrong) => self.report(&format!("{key}[{index}]"), wrong),
            }
        }
        list
    }

    /// Reads the list at `key`. `default` replaces a missing or empty value, but not an empty list.
    pub(super) fn list_or<T>(
        &mut self,
        key: &'static str,
        default: impl FnOnce() -> Vec<T>,
        read: impl Fn(&Value) -> Result<T, ValueError>,
    ) -> Vec<T> {
        let given = self.given(key).is_some();
        let list = self.list(key, read);
        if given { list } else { default() }
    }

    /// The value of `key`, which is not read by this; `None` if it is empty.
    pub(super) fn given(&self, key: &str) -> Option<&Value> {
        self.fields?.get(key).filter(|value| !value.is_null())
    }

    /// Reads the mapping at `key`, even if it is missing, since its keys have defaults.
    pub(super) fn nested<T>(&mut self, key: &'static str, read: impl FnOnce(&mut Section<'_>) -> T) -> T {
        let value = self.take(key).unwrap_or(&Value::Null);
        let mut section = Section::new(format!("{}{key}.", self.prefix), value, self.mistakes);
        let result = read(&mut section);
        section.finish();
        result
    }

    /// Reads a mapping whose keys are names, with at most `most` entries. An invalid name is a mistake and is
    /// skipped.
    pub(super) fn entries<T>(
        &mut self,
        most: usize,
        read: impl Fn(&mut Section<'_>) -> T,
    ) -> Vec<(String, T)> {
        let mut entries = Vec::new();
        for (name, value) in self.fields.into_iter().flatten() {
            self.named.push(name);
            match values::name(&Value::from(name.as_str())) {
                Err(wrong) => self.report(name, wrong),
                Ok(_) if entries.len() == most => {
                    self.report(name, format!("is more than {most} of them"));
                }
                Ok(name) => {
                    let mut section = Section::new(format!("{}{name}.", self.prefix), value, self.mistakes);
                    let result = read(&mut section);
                    section.finish();
                    entries.push((name, result));
                }
            }
        }
        entries
    }

    /// Reports a mistake at `key`.
    pub(super) fn report(&mut self, key: &str, wrong: impl Into<ValueError>) {
        let ValueError { message, hint } = wrong.into();
        self.mistakes.push(ConfigMistake { path: format!("{}{key}", self.prefix), message, hint });
    }

    /// Reports every key that was not read as unknown.
    pub(super) fn finish(mut self) {
        for key in self.fields.into_iter().flat_map(Map::keys) {
            if self.known.contains(&key.as_str()) || self.named.contains(&key.as_str()) {
                continue;
            }
            let hint = match text::closest(key, self.known.iter().copied()) {
                Some(known) => format!("did you mean {known}?"),
                None => format!("known keys are {}", self.known.join(", ")),
            };
            self.report(key, ValueError::from("unknown key").hint(hint));
        }
    }

    fn take(&mut self, key: &'static str) -> Option<&'a Value> {
        self.known.push(key);
        self.fields?.get(key).filter(|value| !value.is_null())
    }
}
