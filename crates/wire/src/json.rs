//! RoadRunner's JSON codec: the layout of releases up to 2023.3, which every release of the
//! official packages reads.
//!
//! JSON can't carry bytes that are not UTF-8. They are replaced by U+FFFD, as RoadRunner did;
//! [`encode_request`] says how many values that befell, so that it can be counted and the operator
//! told of `pool.codec: proto`.

use std::fmt;

use bytes::Bytes;
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::foreign::{Form, cookies, grouped_headers};
use crate::{DecodeError, Fields, ReplyHead, Request};

/// Appends the context of a request. Returns how many names and values had bytes that are not
/// UTF-8.
pub fn encode_request(out: &mut Vec<u8>, request: &Request<'_>, form: Form<'_>) -> usize {
    let mut writer = Writer { out, replaced: 0 };
    writer.raw(b"{\"remoteAddr\":");
    writer.text(request.remote.as_bytes());
    writer.raw(b",\"protocol\":");
    writer.text(request.protocol.name().as_bytes());
    writer.raw(b",\"method\":");
    writer.text(request.method.as_bytes());
    writer.raw(b",\"uri\":");
    writer.text(request.uri().as_bytes());
    writer.raw(b",\"headers\":");
    writer.map(grouped_headers(request), |writer, group| {
        writer.text(group.name.as_bytes());
        writer.raw(b":[");
        for (index, value) in group.values.iter().enumerate() {
            writer.raw(if index == 0 { b"" } else { b"," });
            writer.text(value);
        }
        writer.raw(b"]");
    });
    writer.raw(b",\"cookies\":");
    writer.map(cookies(request), |writer, (name, value)| {
        writer.text(name);
        writer.raw(b":");
        writer.text(&value);
    });
    writer.raw(b",\"rawQuery\":");
    writer.text(request.query.unwrap_or_default());
    writer.raw(b",\"parsed\":");
    writer.raw(if form.parsed { b"true" } else { b"false" });
    writer.raw(b",\"uploads\":");
    writer.raw(form.uploads.unwrap_or(b"null"));
    writer.raw(b",\"attributes\":");
    writer.map(request.attributes.iter(), |writer, (name, value)| {
        writer.text(name);
        writer.raw(b":");
        writer.text(value);
    });
    writer.raw(b"}");
    writer.replaced
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
    replaced: usize,
}

impl Writer<'_> {
    fn raw(&mut self, text: &[u8]) {
        self.out.extend_from_slice(text);
    }

    fn text(&mut self, text: &[u8]) {
        let valid = String::from_utf8_lossy(text);
        self.replaced = self
            .replaced
            .saturating_add(usize::from(matches!(valid, std::borrow::Cow::Owned(_))));
        serde_json::to_writer(&mut *self.out, &*valid).expect("a Vec takes every byte");
    }

    fn map<T>(&mut self, items: impl IntoIterator<Item = T>, mut item: impl FnMut(&mut Self, T)) {
        self.raw(b"{");
        for (index, it) in items.into_iter().enumerate() {
            self.raw(if index == 0 { b"" } else { b"," });
            item(self, it);
        }
        self.raw(b"}");
    }
}

/// Reads the context of a reply: `{"status":200,"headers":{"Name":["value"]}}`.
///
/// An empty context means status 200 without headers. Where the official packages are loose so are
/// we: a value may stand without its list and a number without quotes, keys that are not known are
/// passed over.
///
/// # Errors
///
/// When it is not JSON of this shape.
pub fn decode_reply(context: &Bytes) -> Result<ReplyHead, DecodeError> {
    let mut head = ReplyHead {
        status: 200,
        headers: Fields::new(),
    };
    if context.is_empty() {
        return Ok(head);
    }
    let mut input = serde_json::Deserializer::from_slice(context);
    (&mut input)
        .deserialize_map(Head(&mut head))
        .map_err(DecodeError::Json)?;
    input.end().map_err(DecodeError::Json)?;
    Ok(head)
}

struct Head<'a>(&'a mut ReplyHead);

impl<'de> Visitor<'de> for Head<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `status` and `headers`")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "status" => {
                    // Whatever doesn't fit is 0, which `ReplyHead::check` refuses with a better
                    // sentence.
                    let status = map.next_value::<serde_json::Value>()?;
                    let status = status.as_u64().or_else(|| status.as_str()?.parse().ok());
                    self.0.status = status
                        .and_then(|status| u16::try_from(status).ok())
                        .unwrap_or(0);
                }
                "headers" => map.next_value_seed(HeaderMap(&mut self.0.headers))?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

struct HeaderMap<'a>(&'a mut Fields);

impl<'de> serde::de::DeserializeSeed<'de> for HeaderMap<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for HeaderMap<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of header names and lists of values")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        while let Some(name) = map.next_key::<String>()? {
            map.next_value_seed(Values {
                name: &name,
                fields: self.0,
            })?;
        }
        Ok(())
    }

    // PHP writes an empty array as `[]`, whatever its keys would have been.
    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<(), S::Error> {
        match list.next_element::<IgnoredAny>()? {
            None => Ok(()),
            Some(_) => Err(serde::de::Error::invalid_type(
                serde::de::Unexpected::Seq,
                &self,
            )),
        }
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

struct Values<'a> {
    name: &'a str,
    fields: &'a mut Fields,
}

impl<'de> serde::de::DeserializeSeed<'de> for Values<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Values<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the values of header `{}`: text, or a list of texts",
            self.name
        )
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        self.fields.push(self.name, value);
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.fields.push(self.name, value.to_string());
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.fields.push(self.name, value.to_string());
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.fields.push(self.name, value.to_string());
        Ok(())
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<(), S::Error> {
        while let Some(()) = list.next_element_seed(Values {
            name: self.name,
            fields: self.fields,
        })? {}
        Ok(())
    }
}

/// Fuzz entry.
#[doc(hidden)]
pub fn fuzz_decode_reply(data: &[u8]) {
    crate::foreign::fuzz_reply(data, decode_reply);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foreign::tests::request;

    #[test]
    fn a_request_has_all_keys_of_the_old_layout() {
        let headers: Fields = [
            ("accept", "*/*"),
            ("accept", "b"),
            ("cookie", "a=1"),
            ("host", "h"),
        ]
        .into_iter()
        .collect();
        let attributes: Fields = [("ipAddress", "10.0.0.1")].into_iter().collect();
        let mut out = Vec::new();
        assert_eq!(
            encode_request(&mut out, &request(&headers, &attributes), Form::default()),
            0
        );
        assert_eq!(
            String::from_utf8(out).unwrap(),
            concat!(
                r#"{"remoteAddr":"127.0.0.1","protocol":"HTTP/1.1","method":"GET","#,
                r#""uri":"http://example.org:8080/a%20b?x=1","#,
                r#""headers":{"Accept":["*/*","b"],"Cookie":["a=1"]},"cookies":{"a":"1"},"#,
                r#""rawQuery":"x=1","parsed":false,"uploads":null,"attributes":{"ipAddress":"10.0.0.1"}}"#
            )
        );
    }

    #[test]
    fn bytes_that_json_cannot_carry_are_replaced_and_counted() {
        let headers: Fields = [("x-name", &b"caf\xe9"[..]), ("x-quote", b"\"\\\x01")]
            .into_iter()
            .collect();
        let none = Fields::new();
        let mut out = Vec::new();
        assert_eq!(
            encode_request(&mut out, &request(&headers, &none), Form::default()),
            1
        );
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.contains(r#""X-Name":["caf�"],"X-Quote":["\"\\\u0001"]"#),
            "{text}"
        );
    }

    #[test]
    fn replies_as_the_packages_write_them() {
        let head = |context: &'static str| decode_reply(&Bytes::from_static(context.as_bytes()));
        let fields = |fields: &[(&str, &str)]| fields.iter().copied().collect::<Fields>();
        for (context, status, headers) in [
            ("", 200, fields(&[])),
            (r#"{"status":404,"headers":{}}"#, 404, fields(&[])),
            (r#"{"status":200,"headers":[]}"#, 200, fields(&[])),
            (r#"{"headers":null}"#, 200, fields(&[])),
            (r#"{"status":"201"}"#, 201, fields(&[])),
            (r#"{"status":-1}"#, 0, fields(&[])),
            (
                r#"{"status":200,"headers":{"X":["1","2"],"Y":["a"]}}"#,
                200,
                fields(&[("X", "1"), ("X", "2"), ("Y", "a")]),
            ),
            (
                r#"{"headers":{"X":"1","L":[5]},"other":[{}]}"#,
                200,
                fields(&[("X", "1"), ("L", "5")]),
            ),
        ] {
            assert_eq!(
                head(context).unwrap(),
                ReplyHead { status, headers },
                "{context}"
            );
        }
        for context in [
            "{",
            "[]",
            "1",
            r#"{"headers":[1]}"#,
            r#"{"headers":{"X":{}}}"#,
            "{} x",
            "{}{}",
        ] {
            assert!(
                matches!(head(context), Err(DecodeError::Json(_))),
                "{context}"
            );
        }
    }
}
