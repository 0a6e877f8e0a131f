//! Tests of certificates that appear, change and break, as a client sees them.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use axum::Router;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::super::{Connections, Server};
use super::*;

/// A self-signed certificate for `localhost` with its key.
fn issue() -> Pem {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("c"), folder.path().join("k"));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ])
        .args(["-subj", "/CN=sheave", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output()
        .expect("openssl is installed");
    assert!(made.status.success(), "{made:?}");
    (fs::read(certificate).unwrap(), fs::read(key).unwrap())
}

/// Certificate files of a server.
struct Place {
    _folder: TempDir,
    files: TlsFiles,
}

impl Place {
    fn empty() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let files =
            TlsFiles { certificate: folder.path().join("tls.crt"), key: folder.path().join("tls.key") };
        Self { _folder: folder, files }
    }

    fn put(&self, certificate: &[u8], key: &[u8]) {
        fs::write(&self.files.certificate, certificate).unwrap();
        fs::write(&self.files.key, key).unwrap();
    }
}

async fn serve(tls: Tls) -> (Server, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let router = Router::new().fallback(async || "well");
    (Server::start_over(listener, router, Connections::of_admin(4), Some(tls)), addr)
}

/// Response to a client that trusts only this certificate.
async fn ask(addr: SocketAddr, trusted: &[u8]) -> io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusted).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(addr).await?;
    let name = "localhost".try_into().unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text.rsplit("\r\n\r\n").next().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn the_next_client_meets_the_certificate_of_the_moment() {
    let place = Place::empty();
    let (_server, addr) = serve(Tls::load(&place.files)).await;
    let (first, second) = (issue(), issue());
    ask(addr, &first.0).await.expect_err("there is no certificate yet");
    place.put(&first.0, &first.1);
    assert_eq!(ask(addr, &first.0).await.unwrap(), "well");
    ask(addr, &second.0).await.expect_err("it is not the trusted one");
    place.put(&second.0, &second.1);
    assert_eq!(ask(addr, &second.0).await.unwrap(), "well");
    ask(addr, &first.0).await.expect_err("it is another one now");
}

/// Clients that only start a handshake cost the control loop nothing.
#[tokio::test]
async fn connections_are_answered_on_a_thread_of_their_own() {
    let place = Place::empty();
    let (certificate, key) = issue();
    place.put(&certificate, &key);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let name = async || std::thread::current().name().unwrap_or_default().to_owned();
    let tls = Some(Tls::load(&place.files));
    let _server = Server::start_over(listener, Router::new().fallback(name), Connections::of_admin(4), tls);
    assert_eq!(ask(addr, &certificate).await.unwrap(), "tls");
}

#[tokio::test]
async fn a_broken_certificate_leaves_the_last_good_one() {
    let place = Place::empty();
    let (good, other) = (issue(), issue());
    place.put(&good.0, &good.1);
    let (_server, addr) = serve(Tls::load(&place.files)).await;
    let broken = [
        (&b""[..], &good.1[..]),
        (&good.0, b"-----BEGIN PRIVATE KEY-----\nnot base64\n-----END PRIVATE KEY-----\n"),
        (&good.0[..100], &good.1),
        // Key of another certificate.
        (&good.0, &other.1),
    ];
    for (certificate, key) in broken {
        place.put(certificate, key);
        assert_eq!(ask(addr, &good.0).await.unwrap(), "well");
    }
    fs::remove_file(&place.files.key).unwrap();
    assert_eq!(ask(addr, &good.0).await.unwrap(), "well");
    place.put(&other.0, &other.1);
    assert_eq!(ask(addr, &other.0).await.unwrap(), "well");
}

#[tokio::test]
async fn who_speaks_without_tls_learns_nothing() {
    let place = Place::empty();
    let (certificate, key) = issue();
    place.put(&certificate, &key);
    let (_server, addr) = serve(Tls::load(&place.files)).await;
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut got = Vec::new();
    // The connection may end with a reset, since the request was not read.
    drop(stream.read_to_end(&mut got).await);
    assert!(!String::from_utf8_lossy(&got).contains("well"), "{got:?}");
}
