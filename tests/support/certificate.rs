//! Certificates of their own issuer, for servers of tests.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::host::Host;

/// A certificate and its key, which can be replaced in place.
pub struct Certificate {
    folder: TempDir,
    /// `subjectAltName`, such as `IP:10.0.0.1` or `DNS:*.example`.
    names: String,
}

impl Certificate {
    /// Issues one with openssl on `host`, for two days.
    pub fn issue(host: &Host, names: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let certificate = Self { folder, names: names.to_owned() };
        certificate.renew(host);
        certificate
    }

    /// Replaces it by another one.
    pub fn renew(&self, host: &Host) {
        let [certificate, key] = [self.certificate(), self.key()].map(|path| path.display().to_string());
        let line = format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test -addext subjectAltName={} \
             -keyout {key} -out {certificate}",
            self.names
        );
        host.finish("openssl", &line.split(' ').collect::<Vec<_>>()).expect_success();
    }

    /// The folder of both files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// File of the certificate.
    pub fn certificate(&self) -> PathBuf {
        self.folder().join("tls.crt")
    }

    /// File of the key.
    pub fn key(&self) -> PathBuf {
        self.folder().join("tls.key")
    }
}
