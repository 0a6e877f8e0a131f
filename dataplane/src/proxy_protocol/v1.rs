//! Version 1: one line of text (2.1 of the specification).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::{Addresses, Pair, ParseError, Parsed, read};

const BEGIN: &[u8] = b"PROXY ";
const END: &[u8] = b"\r\n";
/// Maximum length of a line, including its end.
const LONGEST: usize = 107;

pub(super) fn parse(bytes: &[u8]) -> Parsed {
    let shared = BEGIN.len().min(bytes.len());
    if bytes[..shared] != BEGIN[..shared] {
        return Parsed::Invalid(ParseError::NoHeader);
    }
    // Decode only a complete line: a port may be cut in half.
    let window = &bytes[..LONGEST.min(bytes.len())];
    let Some(end) = window.windows(END.len()).position(|pair| pair == END) else {
        return if window.len() < LONGEST {
            Parsed::Incomplete
        } else {
            Parsed::Invalid(ParseError::EndlessLine)
        };
    };
    match line(&window[BEGIN.len()..end]) {
        Some(addresses) => Parsed::Header { length: end + END.len(), addresses },
        None => Parsed::Invalid(ParseError::Line),
    }
}

/// Parses the part between `PROXY` and the line's end; `None` if it is malformed.
fn line(bytes: &[u8]) -> Option<Option<Addresses>> {
    // The rest of the line after UNKNOWN is ignored, so it need not be text.
    if bytes == b"UNKNOWN" || bytes.starts_with(b"UNKNOWN ") {
        return Some(None);
    }
    let (family, rest) = str::from_utf8(bytes).ok()?.split_once(' ')?;
    match family {
        "TCP4" => addresses::<Ipv4Addr>(rest).map(Some),
        "TCP6" => addresses::<Ipv6Addr>(rest).map(Some),
        _ => None,
    }
}

fn addresses<A: FromStr + Into<IpAddr>>(text: &str) -> Option<Addresses> {
    let mut words = text.split(' ');
    let (client, destination) = (words.next()?.parse::<A>().ok()?, words.next()?.parse::<A>().ok()?);
    let (client_port, destination_port) = (port(words.next()?)?, port(words.next()?)?);
    let all = words.next().is_none();
    all.then(|| read((client.into(), client_port), (destination.into(), destination_port)))
}

/// Parses a port: only digits, without a leading zero.
fn port(text: &str) -> Option<u16> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

/// A header of version 1, for TCP.
#[must_use]
pub fn write(addresses: &Addresses) -> Vec<u8> {
    let (client_port, destination_port) = (addresses.client.port(), addresses.destination.port());
    let line = match Pair::of(addresses) {
        Pair::V4(client, destination) => {
            format!("PROXY TCP4 {client} {destination} {client_port} {destination_port}\r\n")
        }
        Pair::V6(client, destination) => {
            format!("PROXY TCP6 {client} {destination} {client_port} {destination_port}\r\n")
        }
    };
    line.into_bytes()
}
