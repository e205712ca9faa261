//! Words for a file that is no usable certificate or key: what is wrong, and what to type.
//!
//! Knows as much of DER as it takes to tell kinds of keys apart. Nothing of a key is printed.

use std::path::Path;

use memchr::memmem;

/// A hint for a key that is not taken.
const NEW_KEY: &str = "`openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out new.key` makes one that every client \
                       knows; the certificate has to be made for it: `openssl req -new -key new.key` is the request for it";
/// Below it no client of today trusts a signature.
const FEWEST_BITS: usize = 2048;

const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const RSA_PSS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0a];
const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const DSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x38, 0x04, 0x01];
/// Curves and kinds of keys that people have and browsers don't know.
const OTHERS: &[(&[u8], &str)] = &[
    (&[0x2b, 0x81, 0x04, 0x00, 0x0a], "secp256k1"),
    (&[0x2b, 0x81, 0x04, 0x00, 0x21], "secp224r1"),
    (
        &[0x2b, 0x24, 0x03, 0x03, 0x02, 0x08, 0x01, 0x01, 0x07],
        "brainpoolP256r1",
    ),
    (
        &[0x2b, 0x24, 0x03, 0x03, 0x02, 0x08, 0x01, 0x01, 0x0b],
        "brainpoolP384r1",
    ),
    (
        &[0x2b, 0x24, 0x03, 0x03, 0x02, 0x08, 0x01, 0x01, 0x0d],
        "brainpoolP512r1",
    ),
];
const CURVES: &[&[u8]] = &[
    &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07],
    &[0x2b, 0x81, 0x04, 0x00, 0x22],
    &[0x2b, 0x81, 0x04, 0x00, 0x23],
];

const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const OBJECT: u8 = 0x06;
const SEQUENCE: u8 = 0x30;

/// The use of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Certificate,
    Key,
    RevocationList,
}

impl Wanted {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Certificate => "certificate",
            Self::Key => "private key",
            Self::RevocationList => "list of revoked certificates",
        }
    }
}

/// Judges a file in which there is not what was wanted: what it is instead, and the hint.
pub(super) fn of_file(path: &Path, text: &[u8], wanted: Wanted) -> (String, String) {
    let path = path.display();
    let has = |words: &str| memmem::find(text, words.as_bytes()).is_some();
    let in_pem = |what: &str| format!("it is wanted in PEM, with `-----BEGIN {what}-----`");
    let (block, command, nothing) = match wanted {
        Wanted::Certificate => ("CERTIFICATE", "x509", "-nokeys"),
        Wanted::Key => ("PRIVATE KEY", "pkey", "-nocerts -nodes"),
        Wanted::RevocationList => ("X509 CRL", "crl", ""),
    };
    if text.trim_ascii().is_empty() {
        return ("the file is empty".into(), in_pem(block));
    }
    if let Some((SEQUENCE, inside, _)) = element(text) {
        let is_archive = matches!(element(inside), Some((INTEGER, [3], _)));
        if is_archive && !nothing.is_empty() {
            return (
                "it is an archive (PKCS#12)".into(),
                format!("`openssl pkcs12 -in {path} {nothing} -out new.pem` takes it out of that"),
            );
        }
        return (
            "it is in DER".into(),
            format!("`openssl {command} -inform DER -in {path} -out new.pem` writes it in PEM"),
        );
    }
    let exchanged = "are `cert` and `key` exchanged?";
    match wanted {
        Wanted::Certificate if has("-----BEGIN PKCS7-----") => (
            "it is an archive (PKCS#7)".into(),
            format!("`openssl pkcs7 -print_certs -in {path} -out new.pem` takes them out of that"),
        ),
        Wanted::Certificate if has("CERTIFICATE REQUEST-----") => (
            "it is the request for one".into(),
            "an authority makes the certificate of it".into(),
        ),
        Wanted::Certificate if has("PRIVATE KEY-----") => {
            ("it holds a private key".into(), exchanged.into())
        }
        Wanted::Key if has("-----BEGIN PUBLIC KEY-----") => (
            "it holds a public key".into(),
            "the private one was made before it, by `openssl genpkey` for instance".into(),
        ),
        Wanted::Key if has("OPENSSH PRIVATE KEY-----") => {
            ("it is one for SSH".into(), NEW_KEY.into())
        }
        Wanted::Key if has("-----BEGIN CERTIFICATE-----") => {
            ("it holds a certificate".into(), exchanged.into())
        }
        _ if has("-----BEGIN") => (
            "what begins there does not end, or is no base64".into(),
            "copy it anew, from `-----BEGIN` to the end of its last line".into(),
        ),
        _ => ("it is something else".into(), in_pem(block)),
    }
}

/// Judges a key that is one, in PKCS#8, PKCS#1 or SEC 1, and that can't be used.
pub(super) fn of_key(key: &[u8]) -> Option<(String, &'static str)> {
    let (SEQUENCE, inside, _) = element(key)? else {
        return None;
    };
    let (INTEGER, _, rest) = element(inside)? else {
        return None;
    };
    let what = match element(rest)? {
        (SEQUENCE, algorithm, rest) => of_algorithm(algorithm, rest)?,
        (INTEGER, modulus, _) => of_rsa(modulus)?,
        // SEC 1: the curve stands behind the number.
        (OCTETS, _, rest) => of_curve(
            OTHERS
                .iter()
                .find_map(|(id, name)| memmem::find(rest, id).map(|_| *name)),
        ),
        _ => return None,
    };
    Some((what, NEW_KEY))
}

fn of_algorithm(algorithm: &[u8], rest: &[u8]) -> Option<String> {
    let (OBJECT, id, parameters) = element(algorithm)? else {
        return None;
    };
    match id {
        RSA => {
            let (OCTETS, key, _) = element(rest)? else {
                return None;
            };
            let (SEQUENCE, inside, _) = element(key)? else {
                return None;
            };
            let (INTEGER, _, numbers) = element(inside)? else {
                return None;
            };
            let (INTEGER, modulus, _) = element(numbers)? else {
                return None;
            };
            of_rsa(modulus)
        }
        EC => match element(parameters)? {
            (OBJECT, curve, _) if CURVES.contains(&curve) => None,
            (OBJECT, curve, _) => {
                let known = OTHERS.iter().find(|(id, _)| *id == curve);
                Some(of_curve(known.map(|(_, name)| *name)))
            }
            _ => Some(of_curve(None)),
        },
        RSA_PSS => Some("is a key for RSASSA-PSS alone, which browsers don't take".into()),
        DSA => Some("is a DSA key, and no client of today takes one".into()),
        _ => Some("is of a kind that browsers don't know; they know RSA, the curves P-256, P-384 and P-521, and Ed25519".into()),
    }
}

fn of_rsa(modulus: &[u8]) -> Option<String> {
    let first = modulus.iter().position(|byte| *byte != 0)?;
    let significant = modulus.get(first..)?;
    let bits = significant.len() * 8 - significant.first()?.leading_zeros() as usize;
    (bits < FEWEST_BITS).then(|| {
        format!("is an RSA key of {bits} bits, and keys of less than {FEWEST_BITS} are not taken")
    })
}

fn of_curve(name: Option<&str>) -> String {
    let name = name.unwrap_or("another curve");
    format!("is a key on {name}, and browsers know P-256, P-384 and P-521 alone")
}

/// The first element of DER: its tag, what is in it, and what comes behind it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, length], rest) = bytes.split_first_chunk()?;
    let (length, rest) = if length < 0x80 {
        (usize::from(length), rest)
    } else {
        // No file is longer than four bytes can say.
        let count = usize::from(length & 0x7f);
        let (digits, rest) = rest
            .split_at_checked(count)
            .filter(|_| (1..=4).contains(&count))?;
        let length = digits
            .iter()
            .fold(0, |length, digit| length << 8 | usize::from(*digit));
        (length, rest)
    };
    let (inside, behind) = rest.split_at_checked(length)?;
    Some((tag, inside, behind))
}
