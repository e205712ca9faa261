//! Facts of a certificate that the schedule goes by, read from its DER (RFC 5280).

/// Facts of one certificate. Times are in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) not_before: u64,
    pub(crate) not_after: u64,
    /// As it stands in the certificate, with a leading zero where it has one.
    pub(crate) serial: Vec<u8>,
    /// The identifier of the authority's key.
    pub(crate) authority_key: Option<Vec<u8>>,
}

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BOOLEAN: u8 = 0x01;
const OCTETS: u8 = 0x04;
const OBJECT: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// In the value of the extension.
const KEY_IDENTIFIER: u8 = 0x80;
/// 2.5.29.35.
const AUTHORITY_KEY_IDENTIFIER: &[u8] = &[0x55, 0x1d, 0x23];

impl Facts {
    /// None where it is no certificate.
    pub(crate) fn of(der: &[u8]) -> Option<Self> {
        let mut all = Reader(der);
        let mut certificate = Reader(all.expect(SEQUENCE)?);
        let mut fields = Reader(certificate.expect(SEQUENCE)?);
        fields.skip_if(VERSION);
        let serial = fields.expect(INTEGER)?.to_vec();
        fields.expect(SEQUENCE)?; // the signature's algorithm
        fields.expect(SEQUENCE)?; // the issuer
        let mut validity = Reader(fields.expect(SEQUENCE)?);
        let not_before = time(validity.next()?)?;
        let not_after = time(validity.next()?)?;
        let mut authority_key = None;
        while let Some((tag, value)) = fields.next() {
            if tag == EXTENSIONS {
                authority_key = authority_key_of(value);
            }
        }
        Some(Self {
            not_before,
            not_after,
            serial,
            authority_key,
        })
    }
}

fn authority_key_of(extensions: &[u8]) -> Option<Vec<u8>> {
    let mut extensions = Reader(Reader(extensions).expect(SEQUENCE)?);
    while let Some((SEQUENCE, extension)) = extensions.next() {
        let mut extension = Reader(extension);
        if extension.expect(OBJECT)? != AUTHORITY_KEY_IDENTIFIER {
            continue;
        }
        extension.skip_if(BOOLEAN);
        let mut value = Reader(Reader(extension.expect(OCTETS)?).expect(SEQUENCE)?);
        return value.expect(KEY_IDENTIFIER).map(<[u8]>::to_vec);
    }
    None
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// The tag and the content of the next value.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        let len = if first < 0x80 {
            usize::from(first)
        } else {
            let (bytes, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
            // Longer than any certificate that is read.
            if bytes.is_empty() || bytes.len() > 3 {
                return None;
            }
            rest = after;
            let digits = bytes.iter();
            digits.fold(0, |len, &byte| len << 8 | usize::from(byte))
        };
        let (value, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((tag, value))
    }

    fn expect(&mut self, wanted: u8) -> Option<&'a [u8]> {
        let (tag, value) = self.next()?;
        (tag == wanted).then_some(value)
    }

    fn skip_if(&mut self, tag: u8) {
        if self.0.first() == Some(&tag) {
            _ = self.next(); // what follows is judged by the next read
        }
    }
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
fn time((tag, text): (u8, &[u8])) -> Option<u64> {
    let text = text.strip_suffix(b"Z")?;
    if !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |from: usize, len: usize| {
        let digits = text.get(from..from + len)?.iter();
        Some(digits.fold(0, |number, digit| number * 10 + i64::from(digit - b'0')))
    };
    let (year, rest) = match tag {
        UTC_TIME => {
            let year = number(0, 2)?;
            (year + if year < 50 { 2000 } else { 1900 }, 2)
        }
        GENERALIZED_TIME => (number(0, 4)?, 4),
        _ => return None,
    };
    let (month, day) = (number(rest, 2)?, number(rest + 2, 2)?);
    let clock = number(rest + 4, 2)? * 3600 + number(rest + 6, 2)? * 60 + number(rest + 8, 2)?;
    if text.len() != rest + 10 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    u64::try_from(days_since_1970(year, month, day) * 86_400 + clock).ok()
}

/// Days of the Gregorian calendar, whose years are counted from March here.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + of_year - 719_468
}

/// A moment as RFC 3339 has it in answers of authorities: `2026-01-02T03:04:05Z`, perhaps with
/// parts of a second or an offset. In seconds since 1970.
pub(crate) fn rfc_3339(text: &str) -> Option<u64> {
    let (date, clock) = text.split_once(['T', 't'])?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let zone = clock.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = clock.split_at_checked(zone)?;
    let clock = clock.split('.').next()?;
    let of_clock = |text: &str| {
        let parts = text.splitn(3, ':').map(|part| part.parse::<i64>().ok());
        parts
            .zip([3600, 60, 1])
            .try_fold(0, |sum, (part, unit)| Some(sum + part? * unit))
    };
    let offset = match zone.split_at_checked(1)? {
        ("+", offset) => of_clock(offset)?,
        ("-", offset) => -of_clock(offset)?,
        _ => 0,
    };
    if !(0..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let seconds = days_since_1970(year, month, day) * 86_400 + of_clock(clock)? - offset;
    u64::try_from(seconds).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair, SerialNumber, date_time_ymd};

    use super::*;

    fn made() -> Vec<u8> {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(["a.example".to_owned()]).unwrap();
        parameters.not_before = date_time_ymd(2026, 2, 28);
        parameters.not_after = date_time_ymd(2051, 3, 1);
        parameters.serial_number = Some(SerialNumber::from_slice(&[0, 0x81, 7]));
        parameters.use_authority_key_identifier_extension = true;
        parameters.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn a_certificate_says_how_long_it_holds_and_who_signed_it() {
        let facts = Facts::of(&made()).unwrap();
        assert_eq!(facts.not_before, 1_772_236_800); // date -u -d 2026-02-28 +%s
        assert_eq!(facts.not_after, 2_561_241_600); // date -u -d 2051-03-01 +%s
        assert_eq!(facts.serial, [0, 0x81, 7]);
        assert_eq!(facts.authority_key.map(|id| id.len()), Some(20));
    }

    #[test]
    fn moments_of_authorities_are_read() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2026-02-28T00:00:01.5Z", Some(1_772_236_801)),
            ("2026-02-28T02:00:00+02:00", Some(1_772_236_800)),
            ("2026-02-27T23:30:00-00:30", Some(1_772_236_800)),
            ("2026-13-01T00:00:00Z", None),
            ("2026-02-28", None),
            ("", None),
        ] {
            assert_eq!(rfc_3339(text), seconds, "{text}");
        }
    }

    proptest! {
        #[test]
        fn nothing_that_is_broken_stops_the_server(at in 0_usize..400, byte: u8, text in ".{0,40}") {
            let mut der = made();
            let at = at % der.len();
            der[at] = byte;
            _ = Facts::of(&der);
            _ = Facts::of(&der[..at]);
            _ = rfc_3339(&text);
        }
    }
}
