//! Fuzz target: any bytes as the beginning of a connection to a frontend with server names.

use std::io::Cursor;

use sheave_dataplane::{ClientHelloParser, LONGEST_HELLO, ParsedClientHello, server_name};
use tokio_rustls::rustls::server::Acceptor;

/// Checks one input.
pub(crate) fn run(bytes: &[u8]) {
    let whole = ClientHelloParser::default().parse(bytes);
    let mut parser = ClientHelloParser::default();
    let results = bytes.iter().map(|byte| parser.parse(&[*byte]));
    let by_byte = results.into_iter().find(|result| *result != ParsedClientHello::Incomplete);
    assert_eq!(by_byte.unwrap_or(ParsedClientHello::Incomplete), whole);
    match &whole {
        ParsedClientHello::Incomplete => assert!(bytes.len() < LONGEST_HELLO),
        ParsedClientHello::Name(name) => assert_eq!(server_name(name.as_bytes()).as_ref(), Some(name)),
        ParsedClientHello::NoName | ParsedClientHello::Invalid(_) => {}
    }
    // What rustls would serve is understood in the same way. It refuses more, and knows fewer names: none with two dots in a row either.
    if let Some(expected) = by_rustls(bytes) {
        let expected = expected.map(|name| name.trim_end_matches('.').to_ascii_lowercase());
        match (whole, expected) {
            (ParsedClientHello::Name(name), Some(expected)) => assert_eq!(*name, *expected),
            (ParsedClientHello::Name(name), None) => panic!("rustls finds no name, but not {name}"),
            (ParsedClientHello::NoName, None) => {}
            (ParsedClientHello::NoName, Some(name)) => panic!("rustls finds {name}"),
            (result, _) => panic!("rustls accepts it: {result:?}"),
        }
    }
}

/// The server name that rustls finds; `None` if it does not accept the bytes as a ClientHello.
fn by_rustls(bytes: &[u8]) -> Option<Option<String>> {
    let mut acceptor = Acceptor::default();
    let mut rest = Cursor::new(bytes);
    while rest.position() < bytes.len() as u64 {
        acceptor.read_tls(&mut rest).ok().filter(|count| *count > 0)?;
        match acceptor.accept() {
            Ok(Some(accepted)) => return Some(accepted.client_hello().server_name().map(str::to_owned)),
            Ok(None) => {}
            Err(_) => return None,
        }
    }
    None
}
