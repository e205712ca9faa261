//! Answers of workers: as RoadRunner's package writes it, and as ours does.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use bytes::Bytes;
use pronghorn_grpc_wire::{
    Code, Ending, Metadata, Reply, ReplyBody, Status, decode_binary, percent_decode,
};
use pronghorn_pool::{CallError, Refused, Unencodable};
use pronghorn_wire::native::Thrown;
use prost::Message;
use serde_json::{Map, Value};

use crate::call::BINARY;

/// `google.rpc.Status`, without its details.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RpcStatus {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
}

/// As `pronghorn/worker` says it at the end of a stream.
const OUT_OF_MEMORY: &str = "the method ran out of memory";
/// The line that tells the exception of a stream that has begun; `pronghorn/worker` writes it.
const THROWN: &str = "grpc-thrown-bin";
/// Between the parts of an error of old packages.
const SEPARATOR: &str = "|:|";

/// Reads the reply of an official package.
pub(crate) fn foreign(context: &Bytes, body: Bytes) -> Reply {
    match read_context(context) {
        Ok(Context {
            headers,
            trailers,
            status,
        }) => {
            let ending = Ending {
                status: status.clone().unwrap_or(Status::OK),
                trailers,
            };
            let body = match status {
                Some(status) if status.code != Code::Ok => ReplyBody::Empty(ending),
                // RoadRunner answers so as well.
                Some(_) => ReplyBody::One(Bytes::new(), Status::OK.into()),
                None => ReplyBody::One(body, ending),
            };
            Reply { headers, body }
        }
        Err(why) => Reply::ended(Status::new(Code::Unknown, why)),
    }
}

#[derive(Debug, Default)]
struct Context {
    headers: Metadata,
    trailers: Metadata,
    status: Option<Status>,
}

fn read_context(context: &[u8]) -> Result<Context, String> {
    let mut read = Context::default();
    if context.is_empty() {
        return Ok(read);
    }
    let map: Map<String, Value> = serde_json::from_slice(context)
        .map_err(|error| format!("the worker's context is no JSON object: {error}"))?;
    let is_nested = map.contains_key("headers") || map.contains_key("trailers");
    for (name, value) in &map {
        let Value::String(text) = value else {
            let what = "is no text, as values of the worker's context are";
            return Err(format!("`{name}` {what}"));
        };
        match &**name {
            "error" => read.status = Some(error(text)?),
            "headers" if is_nested => read.headers = inner(name, text)?,
            "trailers" if is_nested => read.trailers = inner(name, text)?,
            _ if is_nested => {}
            name => read.headers.push(name, text.as_bytes()),
        }
    }
    Ok(read)
}

/// A map within a text. A value that is no text is left out, as in RoadRunner.
fn inner(name: &str, text: &str) -> Result<Metadata, String> {
    let map: Map<String, Value> = serde_json::from_str(text)
        .map_err(|error| format!("`{name}` of the worker's context is no JSON object: {error}"))?;
    let binary = map.get(BINARY).and_then(Value::as_str).unwrap_or_default();
    let is_binary = |name: &str| {
        binary
            .split(',')
            .any(|it| it.trim().eq_ignore_ascii_case(name))
    };
    let mut metadata = Metadata::new();
    for (name, value) in &map {
        let value = match value {
            Value::String(text) => text,
            Value::Number(_) | Value::Bool(_) | Value::Null => continue,
            Value::Array(_) | Value::Object(_) => continue,
        };
        if name == BINARY {
            continue;
        }
        match decode_binary(value.as_bytes()).filter(|_| is_binary(name)) {
            Some(bytes) => metadata.push(name, &bytes),
            None => metadata.push(name, value.as_bytes()),
        }
    }
    Ok(metadata)
}

/// A serialized `google.rpc.Status` in base64.
fn error(text: &str) -> Result<Status, String> {
    let bytes = STANDARD
        .decode(text)
        .or_else(|_| STANDARD_NO_PAD.decode(text));
    let bytes = bytes.map_err(|error| format!("`error` of the worker's context: {error}"))?;
    let read = RpcStatus::decode(&bytes[..]);
    let read = read.map_err(|error| format!("`error` of the worker's context: {error}"))?;
    Ok(Status {
        code: Code::of(read.code.into()),
        message: read.message,
        details: Some(bytes.into()),
    })
}

/// The status of a call that got no reply.
pub(crate) fn status_of(error: &CallError) -> Status {
    let code = match error {
        CallError::Refused(Refused::QueueFull) => Code::ResourceExhausted,
        CallError::Refused(Refused::WaitedTooLong | Refused::NoWorker | Refused::Stopping) => {
            Code::Unavailable
        }
        CallError::NotBegun | CallError::Worker(_) => Code::Unavailable,
        CallError::Unencodable(Unencodable::Request(_)) => Code::Unimplemented,
        CallError::Unencodable(Unencodable::Pool(_)) => Code::Internal,
        CallError::Poisoned => Code::Internal,
        CallError::Deadline => Code::DeadlineExceeded,
        CallError::Thrown(thrown) if is_out_of_memory(thrown) => {
            return Status::new(Code::ResourceExhausted, OUT_OF_MEMORY);
        }
        CallError::Thrown(_) => return Status::new(Code::Internal, "the method failed"),
        CallError::Reported(text) => return reported(text),
    };
    Status::new(code, error.to_string())
}

/// Whether PHP has ended the worker because of `memory_limit`.
fn is_out_of_memory(thrown: &Thrown) -> bool {
    thrown.class == "ErrorException" && thrown.message.starts_with("Allowed memory size of ")
}

/// The text of an ERROR frame: a code and a message of old packages, or what was thrown.
fn reported(text: &str) -> Status {
    let mut parts = text.split(SEPARATOR);
    let code = parts
        .next()
        .and_then(|code| code.trim().parse::<i64>().ok());
    match (code, parts.next()) {
        (Some(code), Some(message)) => Status::new(Code::of(code), message),
        _ => Status::new(Code::Internal, text),
    }
}

/// Lines of metadata from one of our workers.
#[derive(Debug)]
pub(crate) enum Lines {
    /// They come before the first message.
    Headers(Metadata),
    /// The second part is for the record, and not for the client.
    End(Ending, Option<Thrown>),
}

/// Reads lines of metadata: those with a status are the end.
pub(crate) fn lines(bytes: &[u8]) -> Lines {
    let mut metadata = Metadata::new();
    let (mut code, mut message, mut details) = (None, String::new(), None);
    let mut thrown = None;
    for line in bytes.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            continue;
        };
        let (name, value) = line.split_at(colon);
        let Ok(name) = std::str::from_utf8(name) else {
            continue;
        };
        let value = value[1..].trim_ascii();
        match name {
            "grpc-status" => {
                let number = std::str::from_utf8(value)
                    .ok()
                    .and_then(|it| it.parse().ok());
                code = Some(number.map_or(Code::Unknown, Code::of));
            }
            "grpc-message" => message = percent_decode(value),
            "grpc-status-details-bin" => details = decode_binary(value).map(Bytes::from),
            THROWN => {
                let bytes = decode_binary(value).unwrap_or_default();
                // A record that is cut says nothing.
                thrown = Thrown::decode(&bytes).ok();
            }
            name if name.to_ascii_lowercase().ends_with("-bin") => match decode_binary(value) {
                Some(bytes) => metadata.push(name, &bytes),
                None => metadata.push(name, value),
            },
            name => metadata.push(name, value),
        }
    }
    match code {
        None => Lines::Headers(metadata),
        Some(code) => {
            let status = Status {
                code,
                message,
                details,
            };
            let trailers = metadata;
            Lines::End(Ending { status, trailers }, thrown)
        }
    }
}

#[cfg(test)]
mod tests {
    use pronghorn_grpc_wire::Value as MetadataValue;
    use proptest::prelude::*;

    use super::*;

    fn read(context: &'static str) -> Reply {
        foreign(
            &Bytes::from_static(context.as_bytes()),
            Bytes::from_static(b"body"),
        )
    }

    fn all(metadata: &Metadata) -> Vec<(String, Vec<u8>)> {
        let all = metadata.iter();
        all.map(|(name, value)| (name.to_owned(), value.bytes().to_vec()))
            .collect()
    }

    #[test]
    fn every_shape_of_the_official_package_is_read() {
        let one = |reply: &Reply| match &reply.body {
            ReplyBody::One(body, ending) => (body.clone(), ending.clone()),
            other => panic!("{other:?}"),
        };
        for context in ["", "{}"] {
            let reply = read(context);
            assert_eq!(one(&reply).0, "body");
            assert!(reply.headers.is_empty());
        }
        let reply = read(r#"{"x-a":"1","X-B":"2"}"#);
        let expected = [
            ("x-a".to_owned(), b"1".to_vec()),
            ("x-b".to_owned(), b"2".to_vec()),
        ];
        let mut headers = all(&reply.headers);
        headers.sort();
        assert_eq!(headers, expected);
        let reply = read(
            r#"{"headers":"{\"a\":\"1\",\"n\":5}","trailers":"{\"b\":\"2\",\"c-bin\":\"q6ur\",\":binary\":\"c-bin\"}"}"#,
        );
        assert_eq!(all(&reply.headers), [("a".to_owned(), b"1".to_vec())]);
        let (_, ending) = one(&reply);
        assert_eq!(
            ending.trailers.get("b").unwrap().bytes(),
            &Bytes::from_static(b"2")
        );
        let binary = MetadataValue::Binary(Bytes::from_static(b"\xab\xab\xab"));
        assert_eq!(ending.trailers.get("c-bin"), Some(&binary));
    }

    #[test]
    fn a_status_comes_with_its_details() {
        // code 5, message `no`
        let reply = read(r#"{"error":"CAUSAm5v","trailers":"{\"b\":\"2\"}"}"#);
        let ReplyBody::Empty(Ending { status, trailers }) = reply.body else {
            panic!("{:?}", reply.body);
        };
        assert_eq!((status.code, &*status.message), (Code::NotFound, "no"));
        assert_eq!(status.details.as_deref(), Some(&b"\x08\x05\x12\x02no"[..]));
        assert!(!trailers.is_empty());
        let flat = read(r#"{"error":"CAUSAm5v"}"#);
        assert!(flat.headers.is_empty());
        assert!(matches!(flat.body, ReplyBody::Empty(_)));
        let success = read(r#"{"error":""}"#);
        assert!(matches!(success.body, ReplyBody::One(body, _) if body.is_empty()));
    }

    #[test]
    fn mistakes_are_a_status() {
        for context in [
            "[]",
            "{\"a\":1}",
            "{\"headers\":\"[]\"}",
            "x",
            r#"{"error":"!"}"#,
        ] {
            let ReplyBody::Empty(ending) = read(context).body else {
                panic!("{context}");
            };
            assert_eq!(ending.status.code, Code::Unknown, "{context}");
        }
    }

    fn failed() -> Thrown {
        Thrown {
            class: "RuntimeException".to_owned(),
            message: "Allowed memory size of a secret".to_owned(),
            file: "a.php".to_owned(),
            line: 1,
            trace: String::new(),
        }
    }

    #[test]
    fn errors_as_text_may_have_a_code() {
        let status = reported("5|:|not there|:|more");
        assert_eq!(
            (status.code, &*status.message),
            (Code::NotFound, "not there")
        );
        assert_eq!(reported("boom").code, Code::Internal);
        assert_eq!(status_of(&CallError::Deadline).code, Code::DeadlineExceeded);
        let hungry = Thrown {
            class: "ErrorException".to_owned(),
            message: "Allowed memory size of 1024 bytes exhausted (tried to allocate 5 bytes)"
                .to_owned(),
            ..failed()
        };
        for (thrown, code) in [
            (hungry, Code::ResourceExhausted),
            (failed(), Code::Internal),
        ] {
            assert_eq!(status_of(&CallError::Thrown(Box::new(thrown))).code, code);
        }
        let full = CallError::Refused(Refused::QueueFull);
        assert_eq!(status_of(&full).code, Code::ResourceExhausted);
    }

    #[test]
    fn lines_are_headers_or_the_end() {
        let Lines::Headers(headers) = lines(b"a: 1\r\nb-bin: q6ur\r\n") else {
            panic!("they have no status");
        };
        assert_eq!(
            headers.get("b-bin").unwrap().bytes(),
            &Bytes::from_static(b"\xab\xab\xab")
        );
        let end = b"grpc-status: 5\r\ngrpc-message: a%20b\r\nx: y\r\n";
        let Lines::End(ending, None) = lines(end) else {
            panic!("they have a status");
        };
        assert_eq!(
            (ending.status.code, &*ending.status.message),
            (Code::NotFound, "a b")
        );
    }

    #[test]
    fn the_end_of_a_stream_says_what_was_thrown() {
        let lengths = [7_u32, 1, 1, 1, 2];
        let thrown = [&lengths.map(u32::to_le_bytes).concat()[..], b"Emft1"].concat();
        let with = |thrown: &[u8]| {
            let thrown = STANDARD.encode(thrown);
            format!("grpc-status: 13\r\n{THROWN}: {thrown}\r\n")
        };
        let Lines::End(ending, Some(told)) = lines(with(&thrown).as_bytes()) else {
            panic!("it was thrown");
        };
        assert!(ending.trailers.is_empty(), "the client does not see it");
        assert_eq!((&*told.class, &*told.message), ("E", "m"));
        assert_eq!((&*told.file, told.line, &*told.trace), ("f", 7, "t1"));
        for cut in 0..thrown.len() {
            let cut = with(&thrown[..cut]);
            assert!(matches!(lines(cut.as_bytes()), Lines::End(_, None)));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            lines(&bytes);
            foreign(&Bytes::from(bytes), Bytes::new());
        }

        #[test]
        fn no_text_makes_it_panic(name in "headers|trailers|error|:binary", value in any::<String>()) {
            let context = serde_json::json!({ name: value }).to_string();
            foreign(&Bytes::from(context), Bytes::new());
        }
    }
}
