//! Tests of messages that real clients send, of broken and hostile ones, and of every way to cut them.

use proptest::prelude::*;

use super::*;
use ParsedClientHello::{Incomplete, Invalid, NoName};

/// The first bytes of real clients, with which the fuzzer begins as well.
const CLIENTS: [(&[u8], Option<&str>); 6] = [
    (include_bytes!("../../../../tests/fuzz/corpus/client_hello/chromium"), Some("www.shop.example")),
    (include_bytes!("../../../../tests/fuzz/corpus/client_hello/curl"), Some("shop.example")),
    (include_bytes!("../../../../tests/fuzz/corpus/client_hello/openssl"), Some("shop.example")),
    (include_bytes!("../../../../tests/fuzz/corpus/client_hello/openssl-tls12"), Some("shop.example")),
    (include_bytes!("../../../../tests/fuzz/corpus/client_hello/openssl-no-name"), None),
    (include_bytes!("../../../../tests/fuzz/corpus/client_hello/python"), Some("a-b_c.shop.example")),
];

/// Bytes with their length before them, in this many bytes.
fn vector(length: usize, bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[4 - length..], bytes].concat()
}

/// An extension with names of these types.
fn names(names: &[(u8, &[u8])]) -> (u16, Vec<u8>) {
    let list: Vec<u8> =
        names.iter().flat_map(|(kind, name)| [vec![*kind], vector(2, name)].concat()).collect();
    (0, vector(2, &list))
}

/// A message with these extensions.
fn message(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let extensions: Vec<u8> = extensions
        .iter()
        .flat_map(|(kind, data)| [&kind.to_be_bytes()[..], &vector(2, data)].concat())
        .collect();
    let body = [
        &[3, 3][..],
        &[7; 32],
        &vector(1, &[9; 32]),
        &vector(2, &[0x13, 1]),
        &[1, 0],
        &vector(2, &extensions),
    ];
    [&[1][..], &vector(3, &body.concat())].concat()
}

/// The message in records of at most this length.
fn records(message: &[u8], length: usize) -> Vec<u8> {
    message.chunks(length).flat_map(|part| [&[22, 3, 1][..], &vector(2, part)].concat()).collect()
}

fn hello(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    records(&message(extensions), LONGEST_RECORD)
}

/// First bytes of a client that asks for this server.
pub(in crate::tcp) fn hello_for(name: &str) -> Vec<u8> {
    hello(&[(10, vec![0, 2, 0, 29]), names(&[(0, name.as_bytes())]), (43, vec![2, 3, 4])])
}

fn parse(bytes: &[u8]) -> ParsedClientHello {
    ClientHelloParser::default().parse(bytes)
}

/// Parses segments that end at these places; returns the result and the number of bytes that it took.
fn parse_segments(bytes: &[u8], ends: impl IntoIterator<Item = usize>) -> (ParsedClientHello, usize) {
    let (mut parser, mut from) = (ClientHelloParser::default(), 0);
    for to in ends.into_iter().chain([bytes.len()]) {
        match parser.parse(&bytes[from..to]) {
            Incomplete => from = to,
            result => return (result, to),
        }
    }
    (Incomplete, from)
}

fn name(text: &str) -> ParsedClientHello {
    ParsedClientHello::Name(text.into())
}

#[test]
fn real_clients_are_understood_at_once_and_not_before_their_last_byte() {
    for (bytes, expected) in CLIENTS {
        let expected = expected.map_or(NoName, name);
        assert_eq!(parse(bytes), expected);
        assert_eq!(parse_segments(bytes, 0..bytes.len()), (expected.clone(), bytes.len()), "byte by byte");
        assert!((0..bytes.len()).all(|part| parse(&bytes[..part]) == Incomplete));
        assert_eq!(parse(&[bytes, b"early data"].concat()), expected);
    }
}

#[test]
fn a_message_may_come_in_many_records_of_any_version_and_share_the_last_one() {
    let whole = message(&[names(&[(0, b"shop.example")])]);
    for length in [1, 2, 3, 7, 50, whole.len() - 1] {
        let mut bytes = records(&whole, length);
        bytes[2] = 4;
        assert_eq!(parse(&bytes), name("shop.example"), "{length}");
    }
    assert_eq!(parse(&records(&[&whole[..], b"more"].concat(), LONGEST_RECORD)), name("shop.example"));
}

#[test]
fn names_are_in_lower_case_without_a_dot_at_the_end_and_have_letters_digits_hyphens_and_underscores() {
    let long = |length: usize| format!("{}.example", "a".repeat(length - 8));
    for (asked, expected) in [
        ("Shop.EXAMPLE", Some("shop.example")),
        ("shop.example.", Some("shop.example")),
        ("_a-1.b_2", Some("_a-1.b_2")),
        ("localhost", Some("localhost")),
        (&long(255), Some(&*long(255))),
        (&(long(255) + "."), Some(&*long(255))),
        (&long(256), None),
        (&long(300), None),
        ("", None),
        (".", None),
        ("shop.example..", None),
        (".example", None),
        ("shop..example", None),
        ("192.0.2.1", None),
        ("192.0.2.1.", None),
        ("2001:db8::1", None),
        ("shop.example\0", None),
        ("sh\0p.example", None),
        ("*.example", None),
        ("shop example", None),
        ("shöp.example", None),
    ] {
        let expected = expected.map_or(NoName, name);
        assert_eq!(parse(&hello_for(asked)), expected, "{asked:?}");
    }
    assert_eq!(parse(&hello(&[names(&[(0, &[0xff, 0xfe])])])), NoName);
}

#[test]
fn exactly_one_host_name_counts() {
    let two = names(&[(0, b"shop.example"), (0, b"shop.example")]);
    let other_kinds = names(&[(7, b"\xff"), (0, b"shop.example"), (8, b"")]);
    assert_eq!(parse(&hello(&[two])), NoName);
    assert_eq!(parse(&hello(&[other_kinds])), name("shop.example"));
    assert_eq!(parse(&hello(&[names(&[(7, b"shop.example")])])), NoName);
    assert_eq!(parse(&hello(&[])), NoName);
    assert_eq!(parse(&hello(&[(0xfe0d, vec![0; 200]), (16, vec![])])), NoName);
    let extension = || names(&[(0, b"shop.example")]);
    let second = parse(&hello(&[extension(), (5, vec![]), extension()]));
    assert_eq!(second, Invalid(ClientHelloError::SecondExtension));
}

#[test]
fn a_message_without_extensions_ends_with_its_compression_methods() {
    let mut body = message(&[]);
    body.truncate(body.len() - 2);
    body[3] -= 2;
    assert_eq!(parse(&records(&body, LONGEST_RECORD)), NoName);
}

#[test]
fn a_hundred_extensions_are_walked() {
    let mut extensions: Vec<(u16, Vec<u8>)> = (1000..1100).map(|kind| (kind, vec![1; 40])).collect();
    extensions.push(names(&[(0, b"shop.example")]));
    assert_eq!(parse(&hello(&extensions)), name("shop.example"));
}

/// The shortest part of the bytes that is invalid, and why.
fn verdict(bytes: &[u8]) -> (usize, ClientHelloError) {
    match parse_segments(bytes, 0..bytes.len()) {
        (Invalid(error), at) => (at, error),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_no_client_hello_is_refused_with_the_first_byte_that_shows_it() {
    use ClientHelloError::{NoClientHello, NoRecord, RecordLength};
    for (bytes, expected) in [
        (&b"GET / HTTP/1.1\r\n"[..], (1, NoRecord)),
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", (1, NoRecord)),
        (b"SSH-2.0-OpenSSH_9.2\r\n", (1, NoRecord)),
        // SSLv2, as clients sent it for compatibility: RFC 5246, appendix E.2.
        (b"\x80\x2e\x01\x03\x01\0\x15\0\0\0\x10", (1, NoRecord)),
        // An alert, application data, and a handshake of version 2.
        (b"\x15\x03\x01\0\x02\x02\x28", (1, NoRecord)),
        (b"\x17\x03\x03\0\x02\x02\x28", (1, NoRecord)),
        (b"\x16\x02\0\0\x02\x01\x28", (2, NoRecord)),
        (b"\x16\x03\x01\0\0\x16\x03\x01\0\0", (5, RecordLength)),
        (b"\x16\x03\x01\x40\x01\x01", (5, RecordLength)),
        // A ServerHello, and a HelloRequest.
        (b"\x16\x03\x03\0\x7a\x02\0\0\x76", (6, NoClientHello)),
        (b"\x16\x03\x03\0\x04\0\0\0\0", (6, NoClientHello)),
        // An alert between the records of the message.
        (b"\x16\x03\x03\0\x02\x01\0\x15\x03\x03\0\x02\x02\x28", (8, NoRecord)),
    ] {
        assert_eq!(verdict(bytes), expected, "{}", bytes.escape_ascii());
    }
}

#[test]
fn fields_that_do_not_fit_are_refused_where_they_begin() {
    use ClientHelloError::{FieldLength, Overrun, TooLong};
    let whole = hello_for("shop.example");
    // Offsets of the lengths: record header, type, length, version and random come first.
    let (session_id, ciphers) = (5 + 4 + 34, 5 + 4 + 34 + 33);
    let (compressions, extensions) = (ciphers + 4, ciphers + 4 + 2);
    let (first, names) = (extensions + 4, extensions + 2 + 8);
    for (at, changed, expected) in [
        (6, &[0, 0, 37][..], (44, Overrun)),
        (6, &[0, 0, 20], (9, Overrun)),
        (6, &[0, 0xff, 0xf8], (9, TooLong)),
        (6, &[0xff, 0xff, 0xff], (9, TooLong)),
        (session_id, &[33], (session_id + 1, FieldLength)),
        (ciphers, &[0, 0], (ciphers + 2, FieldLength)),
        (ciphers, &[0, 3], (ciphers + 2, FieldLength)),
        (ciphers, &[1, 0], (ciphers + 2, Overrun)),
        (compressions, &[0], (compressions + 1, FieldLength)),
        (compressions, &[255], (compressions + 1, Overrun)),
        (extensions, &[0, 0], (extensions + 2, Overrun)),
        (extensions, &[1, 0], (extensions + 2, Overrun)),
        (first, &[1, 0], (first + 2, Overrun)),
        (first, &[0, 5], (first + 2 + 2 + 7, Overrun)),
        // The extension's length, then that of the list, then that of the name.
        (names + 2, &[0, 0], (names + 4, Overrun)),
        (names + 2, &[1, 0], (names + 4, Overrun)),
        (names + 4, &[0, 14], (names + 6, Overrun)),
        (names + 4, &[0, 16], (names + 6, Overrun)),
        (names + 7, &[0, 13], (names + 9, Overrun)),
        (names + 7, &[0, 11], (names + 9 + 11, Overrun)),
        (names + 7, &[0, 10], (names + 9 + 10, Overrun)),
        // The last extension, which ends with the message.
        (whole.len() - 5, &[0, 4], (whole.len() - 3, Overrun)),
    ] {
        let mut bytes = whole.clone();
        bytes[at..at + changed.len()].copy_from_slice(changed);
        assert_eq!(verdict(&bytes), expected, "{changed:?} at {at}");
    }
}

#[test]
fn a_message_ends_within_64_kib() {
    // A message of this length in one-byte records takes six bytes for each of its own.
    let longest = LONGEST_HELLO / 6;
    let padded = |length: usize| {
        let rest = message(&[names(&[(0, b"shop.example")]), (21, vec![])]).len();
        message(&[names(&[(0, b"shop.example")]), (21, vec![0; length - rest])])
    };
    let bytes = records(&padded(longest), 1);
    assert_eq!(parse(&bytes), name("shop.example"));
    let bytes = records(&padded(longest + 1), 1);
    assert_eq!(verdict(&bytes), (LONGEST_HELLO, ClientHelloError::TooLong));
    assert_eq!(parse(&bytes), Invalid(ClientHelloError::TooLong));
    let whole = padded(LONGEST_HELLO - 5 * 4);
    assert_eq!(parse(&records(&whole, LONGEST_RECORD)), name("shop.example"));
}

#[test]
fn the_longest_message_costs_as_much_byte_by_byte_as_at_once() {
    let bytes = records(&message(&[(21, vec![0; 10_000])]), 1);
    assert!(bytes.len() > LONGEST_HELLO - 6000);
    let started = std::time::Instant::now();
    for _ in 0..20 {
        assert_eq!(parse_segments(&bytes, 0..bytes.len()).0, NoName);
    }
    // A parser that began again with each byte would take minutes.
    assert!(started.elapsed() < std::time::Duration::from_secs(5), "{:?}", started.elapsed());
}

/// Messages that are mostly right, with some bytes replaced.
fn nearly_right() -> impl Strategy<Value = Vec<u8>> {
    let change = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (0..CLIENTS.len(), 1..600usize, change).prop_map(|(client, length, changes)| {
        let mut bytes = records(&CLIENTS[client].0[5..], length);
        changes.into_iter().for_each(|(at, byte)| *at.get_mut(&mut bytes) = byte);
        bytes
    })
}

proptest! {
    #[test]
    fn any_segments_give_the_same_result(
        bytes in prop_oneof![nearly_right(), prop::collection::vec(any::<u8>(), 0..200)],
        mut ends in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let mut ends: Vec<usize> = ends.drain(..).map(|end| end.index(bytes.len() + 1)).collect();
        ends.sort_unstable();
        let whole = parse(&bytes);
        prop_assert_eq!(&parse_segments(&bytes, ends).0, &whole);
        let (byte_by_byte, taken) = parse_segments(&bytes, 0..bytes.len());
        prop_assert_eq!(&byte_by_byte, &whole);
        // What follows the bytes that decide does not matter.
        let result = parse(&[&bytes[..taken], &[0xff; 100]].concat());
        prop_assert!(whole == Incomplete || result == whole);
    }

    #[test]
    fn a_name_is_one_that_the_table_can_have(host in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Some(name) = server_name(&host) {
            prop_assert!(!name.is_empty() && name.len() <= 255 && !name.ends_with('.'));
            prop_assert_eq!(server_name(name.as_bytes()), Some(name.clone()));
            prop_assert_eq!(server_name(name.to_uppercase().as_bytes()), Some(name));
        }
    }
}
