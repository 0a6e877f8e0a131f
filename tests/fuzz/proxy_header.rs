//! Fuzz target: any bytes as the beginning of a connection that requires a PROXY header.

use sheave_dataplane::proxy_protocol::{LONGEST, Parsed, Transport, parse, write_v1, write_v2};

/// Checks one input.
pub(crate) fn run(bytes: &[u8]) {
    match parse(bytes) {
        Parsed::Incomplete => assert!(bytes.len() < LONGEST),
        Parsed::Invalid(_) => {}
        Parsed::Header { length, addresses } => {
            assert!(length <= bytes.len());
            // The header does not depend on what follows, and no prefix of it is a header.
            assert_eq!(parse(&bytes[..length]), Parsed::Header { length, addresses });
            assert!((0..length).all(|part| parse(&bytes[..part]) == Parsed::Incomplete));
            let Some(addresses) = addresses else { return };
            for written in [write_v1(&addresses), write_v2(Transport::Stream, &addresses)] {
                let again = Parsed::Header { length: written.len(), addresses: Some(addresses) };
                assert_eq!(parse(&written), again);
            }
        }
    }
}
