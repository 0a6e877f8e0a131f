//! Version 2: 16 fixed bytes, the addresses, and optional additions of the sender (2.2 of the specification).

use std::net::IpAddr;

use super::{Addresses, Pair, ParseError, Parsed, Transport, read};

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Length of signature, command, family and length.
const FIXED: usize = 16;
const PORT: usize = 2;

/// Command bytes, with version 2 in the upper half.
const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;

const INET: u8 = 0x10;
const INET6: u8 = 0x20;
const UNIX: u8 = 0x30;
const STREAM: u8 = 0x01;
const DGRAM: u8 = 0x02;

/// Maximum length of a header in bytes: the length field has 16 bits.
pub const LONGEST: usize = FIXED + u16::MAX as usize;

/// The form of a header's addresses.
#[derive(Clone, Copy)]
enum Form {
    /// No addresses, or of no internet family; at least this many bytes.
    Ignored(usize),
    V4,
    V6,
}

impl Form {
    /// The form that the bytes of command and family specify.
    fn of(command: u8, family: u8) -> Result<Self, ParseError> {
        let (family, transport) = (family & 0xf0, family & 0x0f);
        match (command, family, transport) {
            // LOCAL is a proxy's own health check, whose family "is ignored". The addresses of an unspecified family or
            // transport are ignored, too.
            (LOCAL, _, _) | (PROXY, 0 | INET | INET6 | UNIX, 0) | (PROXY, 0, STREAM | DGRAM) => {
                Ok(Self::Ignored(0))
            }
            (PROXY, INET, STREAM | DGRAM) => Ok(Self::V4),
            (PROXY, INET6, STREAM | DGRAM) => Ok(Self::V6),
            (PROXY, UNIX, STREAM | DGRAM) => Ok(Self::Ignored(2 * 108)),
            (PROXY, _, _) => Err(ParseError::Family),
            _ => Err(ParseError::Command),
        }
    }

    fn length(self) -> usize {
        match self {
            Self::Ignored(least) => least,
            Self::V4 => 2 * (4 + PORT),
            Self::V6 => 2 * (16 + PORT),
        }
    }

    /// Reads the addresses from the bytes after the fixed part; `None` if they are ignored or there are too few bytes.
    fn read(self, bytes: &[u8]) -> Option<Addresses> {
        match self {
            Self::Ignored(_) => None,
            Self::V4 => addresses::<4>(bytes),
            Self::V6 => addresses::<16>(bytes),
        }
    }
}

pub(super) fn parse(bytes: &[u8]) -> Parsed {
    let shared = SIGNATURE.len().min(bytes.len());
    if bytes[..shared] != SIGNATURE[..shared] {
        return Parsed::Invalid(ParseError::NoHeader);
    }
    let [command, family, high, low] = match bytes[shared..] {
        [command, family, high, low, ..] => [command, family, high, low],
        // Reject a wrong command as early as possible.
        [command, ..] if !matches!(command, LOCAL | PROXY) => return Parsed::Invalid(ParseError::Command),
        _ => return Parsed::Incomplete,
    };
    let form = match Form::of(command, family) {
        Ok(form) => form,
        Err(error) => return Parsed::Invalid(error),
    };
    let following = usize::from(u16::from_be_bytes([high, low]));
    if following < form.length() {
        return Parsed::Invalid(ParseError::Short);
    }
    let length = FIXED + following;
    match bytes.get(FIXED..length) {
        // TLVs after the addresses are skipped.
        Some(following) => Parsed::Header { length, addresses: form.read(following) },
        None => Parsed::Incomplete,
    }
}

fn addresses<const N: usize>(bytes: &[u8]) -> Option<Addresses>
where
    IpAddr: From<[u8; N]>,
{
    let (client, bytes) = bytes.split_first_chunk::<N>()?;
    let (destination, bytes) = bytes.split_first_chunk::<N>()?;
    let (client_port, bytes) = bytes.split_first_chunk::<PORT>()?;
    let (destination_port, _) = bytes.split_first_chunk::<PORT>()?;
    let socket = |ip: &[u8; N], port: &[u8; PORT]| (IpAddr::from(*ip), u16::from_be_bytes(*port));
    Some(read(socket(client, client_port), socket(destination, destination_port)))
}

/// A header of version 2.
#[must_use]
pub fn write(transport: Transport, addresses: &Addresses) -> Vec<u8> {
    let transport = match transport {
        Transport::Stream => STREAM,
        Transport::Datagram => DGRAM,
    };
    match Pair::of(addresses) {
        Pair::V4(client, destination) => {
            assemble(INET | transport, &client.octets(), &destination.octets(), addresses)
        }
        Pair::V6(client, destination) => {
            assemble(INET6 | transport, &client.octets(), &destination.octets(), addresses)
        }
    }
}

fn assemble<const N: usize>(
    family: u8,
    client: &[u8; N],
    destination: &[u8; N],
    addresses: &Addresses,
) -> Vec<u8> {
    let following = 2 * (N + PORT) as u16;
    let ports = [addresses.client.port().to_be_bytes(), addresses.destination.port().to_be_bytes()];
    [SIGNATURE, &[PROXY, family][..], &following.to_be_bytes(), client, destination, ports.as_flattened()]
        .concat()
}
