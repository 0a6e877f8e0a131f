//! The controller's bearer token for gateways. It is read for each use, because the kubelet renews projected tokens in place.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::HeaderValue;

/// File with a bearer token.
#[derive(Debug)]
pub(super) struct TokenFile {
    path: Arc<Path>,
    /// Whether the last read failed, which was logged.
    failing: bool,
}

impl TokenFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path: path.into(), failing: false }
    }

    /// Sets the path of `file`. If it is unchanged, the state is kept.
    pub(super) fn follow(file: &mut Option<Self>, path: Option<PathBuf>) {
        if file.as_ref().map(|file| &*file.path) != path.as_deref() {
            *file = path.map(Self::new);
        }
    }

    /// The value of `Authorization`, if the file has a token. Gateways that require none answer without it.
    pub(super) async fn read(&mut self) -> Option<HeaderValue> {
        let path = Arc::clone(&self.path);
        let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(path)).await;
        let value = read.unwrap_or_else(|error| Err(io::Error::other(error))).and_then(|text| header(&text));
        match value {
            Ok(value) => {
                self.failing = false;
                Some(value)
            }
            Err(error) => {
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(
                        file = %self.path.display(), %error,
                        "gateways.tokenFile cannot be read: gateways that want a token do not report"
                    );
                }
                None
            }
        }
    }
}

fn header(text: &str) -> io::Result<HeaderValue> {
    let mut value = HeaderValue::try_from(format!("Bearer {}", text.trim()))
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_that_stays_the_same_is_complained_about_once() {
        let mut file = None;
        let none = Path::new("/nonexistent/token").to_owned();
        TokenFile::follow(&mut file, Some(none.clone()));
        assert_eq!(file.as_mut().unwrap().read().await, None);
        TokenFile::follow(&mut file, Some(none));
        assert!(file.as_ref().unwrap().failing, "it was logged");
        TokenFile::follow(&mut file, Some("/nonexistent/other".into()));
        assert!(!file.as_ref().unwrap().failing);
        TokenFile::follow(&mut file, None);
        assert!(file.is_none());
    }
}
