//! Fuzz target: any bytes as the beginning of a connection to a frontend with server names.

use std::io::Cursor;
use std::net::Ipv4Addr;

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
    // It reads nothing behind a name of another type than a host name, though RFC 6066, section 3, gives the length of all types.
    if let Some(expected) = by_rustls(bytes).filter(|_| has_host_names_alone(bytes)) {
        let expected = expected.map(|name| name.trim_end_matches('.').to_ascii_lowercase());
        let expected = expected.filter(|name| name.parse::<Ipv4Addr>().is_err());
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

/// Whether no name of a message that rustls accepts has another type than a host name.
fn has_host_names_alone(bytes: &[u8]) -> bool {
    let mut message = Vec::new();
    let mut rest = bytes;
    while let [_, _, _, high, low, behind @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (record, behind) = behind.split_at(length.min(behind.len()));
        message.extend_from_slice(record);
        rest = behind;
    }
    find_other_name(&message) == Some(false)
}

/// Whether a ClientHello has a server name that is no host name; `None` if something before the first such name is cut off.
fn find_other_name(message: &[u8]) -> Option<bool> {
    const BEFORE_SESSION_ID: usize = 4 + 34;
    let mut rest = message.get(BEFORE_SESSION_ID..)?;
    for size_of_length in [1, 2, 1] {
        vector(&mut rest, size_of_length)?;
    }
    let mut extensions = if rest.is_empty() { rest } else { vector(&mut rest, 2)? };
    while let Some((kind, behind)) = extensions.split_first_chunk::<2>() {
        extensions = behind;
        let mut content = vector(&mut extensions, 2)?;
        let mut names = if *kind == [0, 0] { vector(&mut content, 2)? } else { &[] };
        while let Some((kind, behind)) = names.split_first() {
            if *kind != 0 {
                return Some(true);
            }
            names = behind;
            vector(&mut names, 2)?;
        }
    }
    Some(false)
}

/// The contents of a vector at the beginning of `rest`, behind its length; `rest` becomes what follows.
fn vector<'a>(rest: &mut &'a [u8], size_of_length: usize) -> Option<&'a [u8]> {
    let (length, behind) = rest.split_at_checked(size_of_length)?;
    let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
    let (content, behind) = behind.split_at_checked(length)?;
    *rest = behind;
    Some(content)
}
