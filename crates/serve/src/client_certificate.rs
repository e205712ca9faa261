//! A client's certificate, and who it names.

use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;

/// Names of one kind that are told; a certificate may have thousands.
const MOST_NAMES: usize = 20;

/// The certificate of a client, as an authority has signed it.
#[derive(Debug, Clone)]
pub struct ClientCertificate {
    der: Arc<[u8]>,
    variables: Arc<OnceLock<Vec<(String, String)>>>,
}

impl ClientCertificate {
    pub(crate) fn new(der: &[u8]) -> Self {
        Self {
            der: der.into(),
            variables: Arc::default(),
        }
    }

    /// The name of who it is for: `CN=billing,O=Example`, the most specific part first. Empty where
    /// it has none.
    pub fn subject(&self) -> String {
        let parts = CertificateParts::of(&self.der);
        parts.and_then(|it| name(it.subject)).unwrap_or_default()
    }

    /// Names of hosts and URIs that it is for, such as those of SPIFFE.
    pub fn names(&self) -> Vec<String> {
        let (mut hosts, uris) = self.alternatives();
        hosts.extend(uris);
        hosts
    }

    fn alternatives(&self) -> (Vec<String>, Vec<String>) {
        let der = CertificateDer::from(&self.der[..]);
        let Ok(parsed) = webpki::EndEntityCert::try_from(&der) else {
            return (Vec::new(), Vec::new());
        };
        let hosts = parsed.valid_dns_names().map(str::to_owned).collect();
        let uris = parsed.valid_uri_names().map(str::to_owned).collect();
        (hosts, uris)
    }

    /// The variables by which scripts know it, with the names of Apache's `mod_ssl`. They are made
    /// once for a connection.
    pub fn variables(&self) -> &[(String, String)] {
        self.variables.get_or_init(|| self.make_variables())
    }

    fn make_variables(&self) -> Vec<(String, String)> {
        let mut all = Vec::new();
        let mut put = |key: &str, value| all.push((format!("SSL_CLIENT_{key}"), value));
        put("VERIFY", "SUCCESS".to_owned());
        if let Some(parts) = CertificateParts::of(&self.der) {
            put("S_DN", name(parts.subject).unwrap_or_default());
            put("I_DN", name(parts.issuer).unwrap_or_default());
            put("M_SERIAL", serial(parts.serial));
        }
        let (hosts, uris) = self.alternatives();
        for (kind, names) in [("DNS", hosts), ("URI", uris)] {
            for (at, name) in names.into_iter().take(MOST_NAMES).enumerate() {
                put(&format!("SAN_{kind}_{at}"), name);
            }
        }
        put("CERT", self.pem());
        all
    }

    fn pem(&self) -> String {
        const WIDTH: usize = 64;
        let text = STANDARD.encode(&self.der);
        let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
        for (at, sign) in text.chars().enumerate() {
            pem.push(sign);
            if (at + 1).is_multiple_of(WIDTH) {
                pem.push('\n');
            }
        }
        if !pem.ends_with('\n') {
            pem.push('\n');
        }
        pem.push_str("-----END CERTIFICATE-----\n");
        pem
    }

    /// The value of the field `Client-Cert` (RFC 9440).
    pub fn field(&self) -> String {
        format!(":{}:", STANDARD.encode(&self.der))
    }
}

/// In hexadecimal digits, as Apache and openssl show it.
fn serial(bytes: &[u8]) -> String {
    let mut digits = String::new();
    let significant = bytes.iter().skip_while(|byte| **byte == 0);
    for byte in significant {
        _ = write!(digits, "{byte:02X}"); // a String takes all
    }
    if digits.is_empty() {
        digits.push_str("00");
    }
    digits
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT: u8 = 0x06;
const EXPLICIT_VERSION: u8 = 0xa0;
/// A text in UTF-16, which old authorities write.
const BMP_STRING: u8 = 0x1e;

/// Parts of a certificate, in DER.
struct CertificateParts<'a> {
    serial: &'a [u8],
    /// The content of a name, as the subject.
    issuer: &'a [u8],
    subject: &'a [u8],
}

impl<'a> CertificateParts<'a> {
    fn of(der: &'a [u8]) -> Option<Self> {
        let (_, certificate, _) = element(der)?;
        let (_, mut signed, _) = element(certificate)?;
        let (tag, _, rest) = element(signed)?;
        if tag == EXPLICIT_VERSION {
            signed = rest;
        }
        let (_, serial, rest) = element(signed)?;
        let (_, _algorithm, rest) = element(rest)?;
        let (SEQUENCE, issuer, rest) = element(rest)? else {
            return None;
        };
        let (_, _validity, rest) = element(rest)?;
        let (SEQUENCE, subject, _) = element(rest)? else {
            return None;
        };
        Some(Self {
            serial,
            issuer,
            subject,
        })
    }
}

/// A name in the way of RFC 4514, which begins with the last part.
fn name(mut name: &[u8]) -> Option<String> {
    let mut parts = Vec::new();
    while !name.is_empty() {
        let (tag, mut set, rest) = element(name)?;
        if tag != SET {
            return None;
        }
        name = rest;
        while !set.is_empty() {
            let (_, pair, rest) = element(set)?;
            set = rest;
            let (tag, kind, value) = element(pair)?;
            if tag != OBJECT {
                return None;
            }
            let (tag, value, _) = element(value)?;
            parts.push(format!(
                "{}={}",
                attribute(kind),
                escaped(&text(tag, value))
            ));
        }
    }
    parts.reverse();
    Some(parts.join(","))
}

/// The tag and the content of the first element, and what follows it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = der.split_first_chunk::<2>()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (
                length
                    .iter()
                    .fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
                rest,
            )
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

fn text(tag: u8, value: &[u8]) -> String {
    if tag == BMP_STRING {
        let units = value
            .chunks_exact(2)
            .map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
        return char::decode_utf16(units)
            .map(|it| it.unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect();
    }
    String::from_utf8_lossy(value).into_owned()
}

/// The word for a kind of attribute; else its bytes.
fn attribute(kind: &[u8]) -> String {
    let word = match kind {
        b"\x55\x04\x03" => "CN",
        b"\x55\x04\x05" => "SERIALNUMBER",
        b"\x55\x04\x06" => "C",
        b"\x55\x04\x07" => "L",
        b"\x55\x04\x08" => "ST",
        b"\x55\x04\x09" => "STREET",
        b"\x55\x04\x0a" => "O",
        b"\x55\x04\x0b" => "OU",
        b"\x09\x92\x26\x89\x93\xf2\x2c\x64\x01\x01" => "UID",
        b"\x09\x92\x26\x89\x93\xf2\x2c\x64\x01\x19" => "DC",
        b"\x2a\x86\x48\x86\xf7\x0d\x01\x09\x01" => "EMAILADDRESS",
        other => {
            let mut shown = "#".to_owned();
            for byte in other {
                _ = write!(shown, "{byte:02x}"); // a String takes all
            }
            return shown;
        }
    };
    word.to_owned()
}

/// Signs that separate parts stand behind a backslash, and no control character is shown: the name
/// of one certificate must not look like that of another.
fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for sign in value.chars() {
        match sign {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' | '=' => {
                out.push('\\');
                out.push(sign);
            }
            sign if sign.is_control() => out.extend(sign.escape_default()),
            sign => out.push(sign),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).unwrap();
        if length < 0x80 {
            return [&[tag, length], content].concat();
        }
        [&[tag, 0x81, length], content].concat()
    }

    fn made_name(parts: &[(&[u8], &[u8])]) -> Vec<u8> {
        let sets = parts.iter().map(|(kind, value)| {
            let pair = [tlv(OBJECT, kind), tlv(0x0c, value)].concat();
            tlv(SET, &tlv(SEQUENCE, &pair))
        });
        tlv(SEQUENCE, &sets.collect::<Vec<_>>().concat())
    }

    fn certificate(subject: &[u8]) -> Vec<u8> {
        let signed = [
            tlv(EXPLICIT_VERSION, &tlv(2, &[2])),
            tlv(2, &[1]),
            tlv(SEQUENCE, &[]),
            made_name(&[(b"\x55\x04\x03", b"authority")]),
            tlv(SEQUENCE, &[]),
            subject.to_vec(),
        ];
        tlv(SEQUENCE, &tlv(SEQUENCE, &signed.concat()))
    }

    #[test]
    fn the_subject_is_read_and_cannot_look_like_another_one() {
        let plain = made_name(&[(b"\x55\x04\x0a", b"Example"), (b"\x55\x04\x03", b"billing")]);
        let found = ClientCertificate::new(&certificate(&plain)).subject();
        assert_eq!(found, "CN=billing,O=Example");
        let sly = made_name(&[(b"\x55\x04\x03", b"x,CN=admin\n"), (b"\x01\x02", b"y")]);
        let found = ClientCertificate::new(&certificate(&sly)).subject();
        assert_eq!(found, "#0102=y,CN=x\\,CN\\=admin\\n");
        assert!(ClientCertificate::new(b"x").subject().is_empty());
    }

    #[test]
    fn variables_are_those_of_apache() {
        let plain = made_name(&[(b"\x55\x04\x03", b"billing")]);
        let certificate = ClientCertificate::new(&certificate(&plain));
        let variables = certificate.variables();
        let shown: Vec<_> = variables
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        assert_eq!(
            shown[..4],
            [
                "SSL_CLIENT_VERIFY=SUCCESS",
                "SSL_CLIENT_S_DN=CN=billing",
                "SSL_CLIENT_I_DN=CN=authority",
                "SSL_CLIENT_M_SERIAL=01",
            ]
        );
        let pem = &variables.last().unwrap().1;
        let lines: Vec<_> = pem.lines().collect();
        assert_eq!(lines[0], "-----BEGIN CERTIFICATE-----");
        assert!(lines.iter().all(|line| line.len() <= 64), "{pem}");
        let inside = lines[1..lines.len() - 1].concat();
        assert_eq!(certificate.field(), format!(":{inside}:"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let certificate = ClientCertificate::new(&bytes);
            certificate.subject();
            certificate.names();
            certificate.variables();
        }
    }
}
