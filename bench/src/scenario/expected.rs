//! The answer that counts.

/// What a server has to answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expected {
    pub(crate) status: u16,
    /// The body comes compressed.
    pub(crate) gzip: bool,
    /// Without its coding.
    pub(crate) body: Body,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Body {
    Exactly(Vec<u8>),
    Contains(String),
    /// So many bytes, and their CRC-32 where it is given.
    Length {
        bytes: usize,
        crc32: Option<u32>,
    },
}

/// So much of a wrong body is shown.
const SHOWN: usize = 200;

impl Expected {
    /// What is wrong with an answer.
    pub(crate) fn check(&self, status: u16, gzip: bool, body: &[u8]) -> Result<(), String> {
        if status != self.status {
            return Err(format!(
                "status {status} instead of {}: {}",
                self.status,
                start(body)
            ));
        }
        if gzip != self.gzip {
            let not = if gzip { "" } else { "not " };
            return Err(format!("{not}compressed"));
        }
        match &self.body {
            Body::Exactly(expected) if body != expected => {
                Err(format!("{} instead of {}", start(body), start(expected)))
            }
            Body::Contains(text) if !contains(body, text.as_bytes()) => {
                Err(format!("{} without {text:?}", start(body)))
            }
            Body::Length { bytes, .. } if body.len() != *bytes => Err(format!(
                "{} bytes instead of {bytes}: {}",
                body.len(),
                start(body)
            )),
            Body::Length {
                crc32: Some(crc32), ..
            } if crc32fast::hash(body) != *crc32 => Err(format!(
                "CRC-32 {:08x} instead of {crc32:08x}: {}",
                crc32fast::hash(body),
                start(body)
            )),
            _ => Ok(()),
        }
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn start(body: &[u8]) -> String {
    let shown = &body[..body.len().min(SHOWN)];
    let more = if body.len() > SHOWN { "…" } else { "" };
    format!("{:?}{more}", String::from_utf8_lossy(shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_with_its_status_and_its_whole_body() {
        let exactly = Body::Exactly(b"Hello World!".to_vec());
        let crc32 = Some(crc32fast::hash(b"Hello World!"));
        let cases: [(&Body, u16, &[u8], Option<&str>); 10] = [
            (&exactly, 200, b"Hello World!", None),
            (
                &exactly,
                502,
                b"Hello World!",
                Some("status 502 instead of 200: \"Hello World!\""),
            ),
            (
                &exactly,
                200,
                b"Hello Worl",
                Some("\"Hello Worl\" instead of \"Hello World!\""),
            ),
            (&exactly, 200, b"", Some("\"\" instead of \"Hello World!\"")),
            (
                &Body::Contains("lo W".to_owned()),
                200,
                b"Hello World!",
                None,
            ),
            (
                &Body::Contains("lo w".to_owned()),
                200,
                b"Hello World!",
                Some("\"Hello World!\" without \"lo w\""),
            ),
            (
                &Body::Length {
                    bytes: 12,
                    crc32: None,
                },
                200,
                b"hello world?",
                None,
            ),
            (
                &Body::Length {
                    bytes: 12,
                    crc32: None,
                },
                200,
                b"x",
                Some("1 bytes instead of 12: \"x\""),
            ),
            (
                &Body::Length { bytes: 12, crc32 },
                200,
                b"Hello World!",
                None,
            ),
            (
                &Body::Length { bytes: 12, crc32 },
                200,
                b"hello world?",
                Some("CRC-32 f9bbff0e instead of 1c291ca3: \"hello world?\""),
            ),
        ];
        for (body, status, answer, wrong) in cases {
            let expected = Expected {
                status: 200,
                gzip: false,
                body: body.clone(),
            };
            assert_eq!(
                expected.check(status, false, answer).err().as_deref(),
                wrong,
                "{body:?}"
            );
        }
    }

    #[test]
    fn of_a_long_body_the_start_is_shown() {
        let expected = Expected {
            status: 200,
            gzip: false,
            body: Body::Length {
                bytes: 1,
                crc32: None,
            },
        };
        let wrong = expected.check(500, false, &[b'x'; 1000]).unwrap_err();
        assert!(wrong.len() < 250 && wrong.ends_with('…'), "{wrong}");
        assert_eq!(expected.check(200, true, b"x").unwrap_err(), "compressed");
    }
}
