//! Tests of the specification's corner cases, for both versions.

use std::net::SocketAddr;

use proptest::prelude::*;

use super::*;

fn addresses(client: &str, destination: &str) -> Addresses {
    Addresses { client: client.parse().unwrap(), destination: destination.parse().unwrap() }
}

fn v4() -> Addresses {
    addresses("192.0.2.1:56324", "198.51.100.7:443")
}

fn v6() -> Addresses {
    addresses("[2001:db8::1]:56324", "[2001:db8::7]:443")
}

fn header(length: usize, addresses: Option<Addresses>) -> Parsed {
    Parsed::Header { length, addresses }
}

/// A binary header: command, family, announced length, and the bytes that actually follow.
fn binary(command: u8, family: u8, announced: u16, following: &[u8]) -> Vec<u8> {
    [b"\r\n\r\n\0\r\nQUIT\n", &[command, family][..], &announced.to_be_bytes(), following].concat()
}

const V4_BLOCK: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 7, 0xdc, 0x04, 0x01, 0xbb];

mod text {
    use super::*;

    #[test]
    fn the_example_of_the_specification_is_read_and_what_follows_is_left_alone() {
        let line = b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\nGET / HTTP/1.1\r\n\r\n";
        let expected = addresses("192.168.0.1:56324", "192.168.0.11:443");
        assert_eq!(parse(line), header(47, Some(expected)));
    }

    #[test]
    fn lines_are_written_as_specified() {
        assert_eq!(write_v1(&v4()), b"PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\n");
        assert_eq!(write_v1(&v6()), b"PROXY TCP6 2001:db8::1 2001:db8::7 56324 443\r\n");
    }

    #[test]
    fn ipv6_is_read_in_every_form() {
        for (text, ip) in [
            ("::", "::"),
            ("2001:DB8::1", "2001:db8::1"),
            ("2001:0db8:0000:0000:0000:0000:0000:0001", "2001:db8::1"),
            ("::ffff:192.0.2.9", "192.0.2.9"),
        ] {
            let line = format!("PROXY TCP6 {text} ::1 1 2\r\n");
            let expected = Addresses {
                client: SocketAddr::new(ip.parse().unwrap(), 1),
                destination: "[::1]:2".parse().unwrap(),
            };
            assert_eq!(parse(line.as_bytes()), header(line.len(), Some(expected)), "{text}");
        }
    }

    #[test]
    fn the_longest_lines_fit_and_one_more_byte_does_not() {
        let ip = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        let longest = format!("PROXY UNKNOWN {ip} {ip} 65535 65535\r\n");
        assert_eq!((longest.len(), parse(longest.as_bytes())), (107, header(107, None)));
        let longer = format!("PROXY UNKNOWN {ip} {ip} 65535 655355\r\n");
        assert_eq!(parse(longer.as_bytes()), Parsed::Invalid(ParseError::EndlessLine));
        assert_eq!(parse(&longer.as_bytes()[..106]), Parsed::Incomplete);
        assert_eq!(parse(&longer.as_bytes()[..107]), Parsed::Invalid(ParseError::EndlessLine));
        let known = format!("PROXY TCP6 {ip} {ip} 65535 65535\r\n");
        assert!(matches!(parse(known.as_bytes()), Parsed::Header { length: 104, addresses: Some(_) }));
    }

    #[test]
    fn unknown_may_be_followed_by_anything_but_a_second_header_end() {
        for line in [
            &b"PROXY UNKNOWN\r\n"[..],
            b"PROXY UNKNOWN \r\n",
            b"PROXY UNKNOWN a b c d e f g h\r\n",
            b"PROXY UNKNOWN \xff\xfe\0 \r \n\r\n",
            b"PROXY UNKNOWN 192.0.2.1 999 -1 TCP4\r\n",
        ] {
            assert_eq!(parse(line), header(line.len(), None), "{}", line.escape_ascii());
            let more = [line, b"\r\nmore"].concat();
            assert_eq!(parse(&more), header(line.len(), None), "{}", line.escape_ascii());
        }
    }

    #[test]
    fn what_strays_from_the_line_is_refused() {
        for line in [
            "PROXY\r\n",
            "PROXY \r\n",
            "PROXY TCP5 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY tcp4 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY UNKNOWNX\r\n",
            "PROXY  TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY TCP4  192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 \r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 \r\n",
            "PROXY TCP4\t192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n\r\n",
            "PROXY TCP4 192.0.2.1\r192.0.2.2 1 2\r\n",
            "PROXY TCP4 192.0.2.01 192.0.2.2 1 2\r\n",
            "PROXY TCP4 192.0.2.256 192.0.2.2 1 2\r\n",
            "PROXY TCP4 192.0.2 192.0.2.2 1 2\r\n",
            "PROXY TCP4 2001:db8::1 192.0.2.2 1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 00 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 -1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 65536 2\r\n",
            "PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY TCP6 ::1 192.0.2.2 1 2\r\n",
            "PROXY TCP6 ::1%lo ::2 1 2\r\n",
            "PROXY TCP6 [::1] ::2 1 2\r\n",
            "PROXY TCP6 1::2::3 ::2 1 2\r\n",
            "PROXY TCP6 00001::2 ::2 1 2\r\n",
        ] {
            let refused =
                matches!(parse(line.as_bytes()), Parsed::Invalid(ParseError::Line | ParseError::NoHeader));
            assert!(refused, "{} {:?}", line.escape_debug(), parse(line.as_bytes()));
        }
    }

    #[test]
    fn a_single_cr_or_lf_ends_no_line() {
        for line in ["PROXY TCP4 192.0.2.1 192.0.2.2 1 2\nGET /", "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\rGET /"]
        {
            assert_eq!(parse(line.as_bytes()), Parsed::Incomplete, "{}", line.escape_debug());
            let later = format!("{line}{}", "x".repeat(107));
            assert_eq!(parse(later.as_bytes()), Parsed::Invalid(ParseError::EndlessLine));
        }
    }

    #[test]
    fn ports_reach_from_0_to_65535() {
        let expected = addresses("192.0.2.1:0", "192.0.2.2:65535");
        assert_eq!(parse(b"PROXY TCP4 192.0.2.1 192.0.2.2 0 65535\r\n"), header(40, Some(expected)));
    }
}

mod either {
    use super::*;

    #[test]
    fn another_protocol_is_told_by_its_first_strange_byte() {
        for bytes in [
            &b"G"[..],
            b"\x16\x03\x01",
            b"PO",
            b"PROXYX",
            b"\r\n\r\n\r",
            b"\n",
            b"\0",
            b"SSH-2.0-",
            b" PROXY",
        ] {
            assert_eq!(parse(bytes), Parsed::Invalid(ParseError::NoHeader), "{}", bytes.escape_ascii());
        }
        assert_eq!(parse(b""), Parsed::Incomplete);
    }

    #[test]
    fn mixed_families_are_written_as_ipv6_and_mapped_ones_as_ipv4() {
        let mixed = addresses("192.0.2.1:1", "[2001:db8::7]:2");
        assert_eq!(write_v1(&mixed), b"PROXY TCP6 ::ffff:192.0.2.1 2001:db8::7 1 2\r\n");
        assert_eq!(write_v2(Transport::Stream, &mixed)[13], 0x21);
        let mapped = addresses("[::ffff:192.0.2.1]:1", "[::ffff:192.0.2.2]:2");
        assert_eq!(write_v1(&mapped), b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n");
        assert_eq!(write_v2(Transport::Stream, &mapped)[13], 0x11);
    }
}

mod binary_form {
    use super::*;

    #[test]
    fn addresses_are_written_as_specified() {
        assert_eq!(write_v2(Transport::Stream, &v4()), binary(0x21, 0x11, 12, &V4_BLOCK));
        assert_eq!(write_v2(Transport::Datagram, &v4()), binary(0x21, 0x12, 12, &V4_BLOCK));
        let written = write_v2(Transport::Stream, &v6());
        assert_eq!((written.len(), &written[12..16]), (16 + 36, &[0x21, 0x21, 0, 36][..]));
        assert_eq!(write_v2(Transport::Datagram, &v6())[13], 0x22);
    }

    #[test]
    fn local_is_taken_whatever_family_and_bytes_it_brings() {
        for family in 0..=255 {
            assert_eq!(parse(&binary(0x20, family, 0, b"")), header(16, None), "{family:#x}");
            assert_eq!(parse(&binary(0x20, family, 12, &V4_BLOCK)), header(28, None), "{family:#x}");
        }
    }

    #[test]
    fn what_has_no_internet_addresses_is_skipped_by_its_length() {
        for family in [0x00, 0x01, 0x02, 0x10, 0x20, 0x30] {
            assert_eq!(parse(&binary(0x21, family, 0, b"data")), header(16, None), "{family:#x}");
            assert_eq!(parse(&binary(0x21, family, 12, &V4_BLOCK)), header(28, None), "{family:#x}");
        }
        for family in [0x31, 0x32] {
            assert_eq!(parse(&binary(0x21, family, 216, &[7; 216])), header(232, None), "{family:#x}");
        }
    }

    #[test]
    fn unassigned_commands_versions_families_and_transports_are_refused() {
        for command in (0..=255).filter(|command| !matches!(command, 0x20 | 0x21)) {
            assert_eq!(parse(&binary(command, 0x11, 12, &V4_BLOCK)), Parsed::Invalid(ParseError::Command));
            assert_eq!(parse(&binary(command, 0, 0, b"")[..13]), Parsed::Invalid(ParseError::Command));
        }
        for family in (0..=255).filter(|family| family & 0x0f > 2 || family >> 4 > 3) {
            assert_eq!(parse(&binary(0x21, family, 216, &[7; 216])), Parsed::Invalid(ParseError::Family));
        }
    }

    #[test]
    fn a_length_that_does_not_hold_the_addresses_is_refused_before_they_come() {
        for (family, least) in [(0x11, 12), (0x12, 12), (0x21, 36), (0x22, 36), (0x31, 216), (0x32, 216)] {
            let short = binary(0x21, family, least - 1, &[0; 300]);
            assert_eq!(parse(&short), Parsed::Invalid(ParseError::Short), "{family:#x}");
            assert_eq!(parse(&short[..16]), Parsed::Invalid(ParseError::Short), "{family:#x}");
        }
    }

    #[test]
    fn additions_are_skipped_even_if_they_lie_about_their_lengths() {
        let lies = [&V4_BLOCK[..], &[0x04, 0xff, 0xff, 0x03]].concat();
        let bytes = [binary(0x21, 0x11, 16, &lies), b"GET /".to_vec()].concat();
        assert_eq!(parse(&bytes), header(32, Some(v4())));
    }

    #[test]
    fn the_longest_header_is_taken_whole() {
        let filler = vec![0xaa; usize::from(u16::MAX) - V4_BLOCK.len()];
        let bytes = binary(0x21, 0x11, u16::MAX, &[&V4_BLOCK[..], &filler].concat());
        assert_eq!(bytes.len(), LONGEST);
        assert_eq!(parse(&bytes), header(LONGEST, Some(v4())));
        assert_eq!(parse(&bytes[..LONGEST - 1]), Parsed::Incomplete);
    }
}

mod properties {
    use super::*;

    fn any_addresses() -> impl Strategy<Value = Addresses> {
        // Mapped addresses are parsed as IPv4, so only canonical ones survive a round trip.
        let socket = (any::<IpAddr>(), any::<u16>());
        let socket = socket.prop_map(|(ip, port)| SocketAddr::new(ip.to_canonical(), port));
        (socket.clone(), socket).prop_map(|(client, destination)| Addresses { client, destination })
    }

    fn any_header() -> impl Strategy<Value = (Vec<u8>, Option<Addresses>)> {
        let unknown = "PROXY UNKNOWN( [ -~]{0,91})?\r\n".prop_map(|line| (line.into_bytes(), None));
        let local = proptest::collection::vec(any::<u8>(), 0..400).prop_map(|following| {
            (binary(0x20, 0, u16::try_from(following.len()).unwrap(), &following), None)
        });
        prop_oneof![
            any_addresses().prop_map(|addresses| (write_v1(&addresses), Some(addresses))),
            any_addresses().prop_map(|addresses| (write_v2(Transport::Stream, &addresses), Some(addresses))),
            any_addresses()
                .prop_map(|addresses| (write_v2(Transport::Datagram, &addresses), Some(addresses))),
            unknown,
            local,
        ]
    }

    /// Bytes that match the signatures more often than by chance.
    fn nearly_a_header() -> impl Strategy<Value = Vec<u8>> {
        let tail = proptest::collection::vec(any::<u8>(), 0..300);
        let begin = prop_oneof![
            Just(Vec::new()),
            "PROXY (TCP4|TCP6|UNKNOWN)?[ 0-9.:a-f]{0,120}\r?\n?".prop_map(String::into_bytes),
            (0x1f..0x23_u8, any::<u8>(), 0..400_u16)
                .prop_map(|(command, family, length)| binary(command, family, length, b"")),
        ];
        (begin, tail).prop_map(|(begin, tail)| [begin, tail].concat())
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back_and_no_byte_more(
            (bytes, addresses) in any_header(),
            behind in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let stream = [&bytes[..], &behind].concat();
            prop_assert_eq!(parse(&stream), header(bytes.len(), addresses));
        }

        #[test]
        fn every_beginning_of_a_header_is_incomplete((bytes, _) in any_header()) {
            for length in 0..bytes.len() {
                prop_assert_eq!(parse(&bytes[..length]), Parsed::Incomplete, "{} bytes", length);
            }
        }

        #[test]
        fn an_answer_other_than_incomplete_stands_whatever_follows(bytes in nearly_a_header()) {
            let answer = parse(&bytes);
            match answer {
                Parsed::Header { length, .. } => prop_assert!(length <= bytes.len()),
                Parsed::Incomplete => prop_assert!(bytes.len() < LONGEST),
                Parsed::Invalid(_) => {}
            }
            let first = (0..=bytes.len()).map(|length| parse(&bytes[..length]));
            let settled = first.into_iter().find(|parsed| *parsed != Parsed::Incomplete);
            prop_assert_eq!(settled.unwrap_or(Parsed::Incomplete), answer);
        }
    }
}
