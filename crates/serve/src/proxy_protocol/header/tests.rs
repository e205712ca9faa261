use proptest::prelude::*;

use super::*;

const V4: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 2, 0x30, 0x39, 0x01, 0xbb];

fn v2(version: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let len = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [SIGNATURE, &[version, family], &len, rest].concat()
}

fn client(client: &str, server: &str) -> ProxyHeader {
    ProxyHeader::Client {
        client: client.parse().unwrap(),
        server: server.parse().unwrap(),
    }
}

fn both_v4() -> ProxyHeader {
    client("192.0.2.1:12345", "198.51.100.2:443")
}

#[test]
fn headers_as_proxies_send_them() {
    let v6 = [
        &[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1][..],
        &[0; 15],
        &[1, 0x30, 0x39, 0, 80],
    ]
    .concat();
    // An unknown one, one of a cloud, and one that claims to be longer than what is there.
    let extensions = [
        &V4[..],
        &[0xe0, 0, 1, 7],
        &[0xea, 0, 2, 1, 2],
        &[1, 255, 255],
    ]
    .concat();
    for (header, told) in [
        (
            &b"PROXY TCP4 192.0.2.1 198.51.100.2 12345 443\r\n"[..],
            both_v4(),
        ),
        (
            b"PROXY TCP6 2001:db8::1 ::1 12345 80\r\n",
            client("[2001:db8::1]:12345", "[::1]:80"),
        ),
        (
            b"PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff \
              ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
            client(
                "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
                "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
            ),
        ),
        (b"PROXY UNKNOWN\r\n", ProxyHeader::Nothing),
        (b"PROXY UNKNOWN whatever it is\r\n", ProxyHeader::Nothing),
        (&v2(0x21, 0x11, &V4), both_v4()),
        (&v2(0x21, 0x11, &extensions), both_v4()),
        (
            &v2(0x21, 0x21, &v6),
            client("[2001:db8::1]:12345", "[::1]:80"),
        ),
        (&v2(0x20, 0, &[]), ProxyHeader::Nothing),
        (&v2(0x20, 0x11, &V4), ProxyHeader::Nothing),
    ] {
        let shown = header.escape_ascii();
        let whole = Ok(Parsed::Whole(header.len(), told));
        assert_eq!(parse(header), whole, "{shown}");
        assert_eq!(parse(&[header, b"GET /"].concat()), whole, "{shown}");
        for len in 0..header.len() {
            assert_eq!(
                parse(&header[..len]),
                Ok(Parsed::Partial),
                "{len} of {shown}"
            );
        }
    }
}

#[test]
fn what_is_no_header() {
    let long_line = [b"PROXY UNKNOWN ".as_slice(), &[b'x'; 100]].concat();
    let too_long = v2(0x21, 0x11, &vec![0; LONGEST]);
    for (bytes, wrong) in [
        (&b"GET / HTTP/1.1\r\n"[..], Malformed::Other),
        (b"PROXYTCP4 ", Malformed::Other),
        (b"proxy TCP4 ", Malformed::Other),
        (b"\r\n\r\nGET", Malformed::Other),
        (b"\x16\x03\x01", Malformed::Other),
        (b"PROXY \r\n", Malformed::Line),
        (b"PROXY TCP4\r\n", Malformed::Line),
        (b"PROXY UNKNOWN\n", Malformed::Line),
        (b"PROXY UNKNOWN\rx", Malformed::Line),
        (
            b"PROXY  TCP4 192.0.2.1 198.51.100.2 1 2\r\n",
            Malformed::Line,
        ),
        (
            b"PROXY TCP4 192.0.2.1 198.51.100.2 1 2 \r\n",
            Malformed::Line,
        ),
        (
            b"PROXY TCP4 192.0.2.1 198.51.100.2 1 +2\r\n",
            Malformed::Line,
        ),
        (
            b"PROXY TCP4 192.0.2.1 198.51.100.2 1 02\r\n",
            Malformed::Line,
        ),
        (
            b"PROXY TCP4 192.0.2.1 198.51.100.2 1 65536\r\n",
            Malformed::Line,
        ),
        (
            b"PROXY TCP4 192.0.2.01 198.51.100.2 1 2\r\n",
            Malformed::Line,
        ),
        (b"PROXY TCP4 ::1 ::1 1 2\r\n", Malformed::Line),
        (
            b"PROXY TCP6 192.0.2.1 198.51.100.2 1 2\r\n",
            Malformed::Line,
        ),
        (b"PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n", Malformed::Line),
        (
            b"PROXY UDP4 192.0.2.1 198.51.100.2 1 2\r\n",
            Malformed::Line,
        ),
        (b"PROXY \xff\r\n", Malformed::Line),
        (&long_line, Malformed::LongLine),
        (&too_long, Malformed::Long(FIXED + LONGEST)),
        (&v2(0x11, 0x11, &V4), Malformed::Version(0x11)),
        (&v2(0x22, 0x11, &V4), Malformed::Version(0x22)),
        (&v2(0x21, 0x12, &V4), Malformed::Family(0x12)),
        (&v2(0x21, 0x31, &[0; 216]), Malformed::Family(0x31)),
        (&v2(0x21, 0, &[]), Malformed::Family(0)),
        (&v2(0x21, 0x11, &V4[..11]), Malformed::Short),
        (&v2(0x21, 0x21, &V4), Malformed::Short),
    ] {
        assert_eq!(parse(bytes), Err(wrong), "{}", bytes.escape_ascii());
        fuzz_proxy_header(bytes);
    }
}

#[test]
fn a_checksum_that_is_there_is_right() {
    assert_eq!(crc32c(b"123456789".iter().copied()), 0xe306_9283);
    let with = |sum: [u8; 4], more: &[u8]| {
        let extensions = [&[0xea, 0, 1, 9, 3, 0, 4][..], &sum, more].concat();
        v2(0x21, 0x11, &[&V4[..], &extensions].concat())
    };
    for more in [&b""[..], &[4, 0, 2, 0, 0]] {
        let sum = crc32c(with([0; 4], more).into_iter());
        let header = with(sum.to_be_bytes(), more);
        assert_eq!(parse(&header), Ok(Parsed::Whole(header.len(), both_v4())));
        for at in [FIXED, FIXED + 12 + 3, header.len() - 1] {
            let mut changed = header.clone();
            changed[at] ^= 1;
            assert_eq!(parse(&changed), Err(Malformed::Checksum), "{at}");
        }
    }
    for short in [&[3, 0, 3, 0, 0, 0][..], &[3, 0, 4, 0], &[3, 0, 0]] {
        let header = v2(0x21, 0x11, &[&V4[..], short].concat());
        assert_eq!(parse(&header), Err(Malformed::Checksum));
    }
}

#[test]
fn the_longest_line_is_taken_and_one_more_is_not() {
    let line = |len: usize| {
        let mut line = b"PROXY UNKNOWN ".to_vec();
        line.resize(len - 2, b'x');
        line.extend(b"\r\n");
        line
    };
    let longest = line(LONGEST_LINE);
    assert_eq!(
        parse(&longest),
        Ok(Parsed::Whole(LONGEST_LINE, ProxyHeader::Nothing))
    );
    assert_eq!(parse(&line(LONGEST_LINE + 1)), Err(Malformed::LongLine));
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        fuzz_proxy_header(&bytes);
    }

    #[test]
    fn any_bytes_behind_a_beginning(
        begin in prop::sample::select(vec![SIGNATURE, LINE, b"PROXY TCP4 ", b"PROXY UNKNOWN"]),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        fuzz_proxy_header(&[begin, &bytes].concat());
    }

    #[test]
    fn any_frame(version: u8, family: u8, rest in prop::collection::vec(any::<u8>(), 0..300)) {
        fuzz_proxy_header(&v2(version, family, &rest));
    }

    #[test]
    fn any_addresses(one: SocketAddr, other: SocketAddr) {
        let told = ProxyHeader::Client { client: one, server: other };
        let port = |address: SocketAddr| address.port().to_be_bytes();
        let (text, binary) = match (one.ip(), other.ip()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (
                "TCP4",
                v2(0x21, 0x11, &[&a.octets()[..], &b.octets(), &port(one), &port(other)].concat()),
            ),
            (IpAddr::V6(a), IpAddr::V6(b)) => (
                "TCP6",
                v2(0x21, 0x21, &[&a.octets()[..], &b.octets(), &port(one), &port(other)].concat()),
            ),
            _ => return Ok(()),
        };
        // A zone is no part of the protocol.
        let told = match told {
            ProxyHeader::Client { client, server } => ProxyHeader::Client {
                client: SocketAddr::new(client.ip(), client.port()),
                server: SocketAddr::new(server.ip(), server.port()),
            },
            nothing @ ProxyHeader::Nothing => nothing,
        };
        let line = format!(
            "PROXY {text} {} {} {} {}\r\n", one.ip(), other.ip(), one.port(), other.port()
        );
        prop_assert_eq!(parse(line.as_bytes()), Ok(Parsed::Whole(line.len(), told)));
        prop_assert_eq!(parse(&binary), Ok(Parsed::Whole(binary.len(), told)));
        fuzz_proxy_header(line.as_bytes());
        fuzz_proxy_header(&binary);
    }
}
