//! Replies and failures as JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use pronghorn_grpc_wire::{Code, Ending, Status};
use pronghorn_serve::{Body, Charge, Response};
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};
use serde_json::{Map, Value, json};

use super::memory::{MOST_MESSAGES, of_message};
use super::rules::Output;

/// How `prost` says it: its errors have no other form.
const TOO_DEEP: &str = "recursion limit reached";

/// The details of a `google.rpc.Status`.
#[derive(Clone, PartialEq, Eq, Message)]
struct Details {
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    url: String,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

/// A message of a reply.
pub(super) fn success(output: &Output, message: &[u8]) -> Result<Vec<u8>, Status> {
    let broken = |why: String| {
        let text = format!("the worker's message can't be written as JSON: {why}");
        Status::new(Code::Internal, text)
    };
    let message = DynamicMessage::decode(output.message.clone(), message);
    let message = message.map_err(|error| {
        let why = error.to_string();
        broken(if why.contains(TOO_DEEP) {
            format!("it is nested deeper than {MOST_MESSAGES} messages")
        } else {
            why
        })
    })?;
    let Some(field) = &output.part else {
        let mut out = Vec::new();
        let mut serializer = serde_json::Serializer::new(&mut out);
        let written = message.serialize_with_options(&mut serializer, &SerializeOptions::new());
        return match written {
            Ok(()) => Ok(out),
            Err(error) => Err(broken(error.to_string())),
        };
    };
    // A field that has its default is sent as well.
    let all = SerializeOptions::new().skip_default_fields(false);
    let value = message.serialize_with_options(serde_json::value::Serializer, &all);
    let mut value = value.map_err(|error| broken(error.to_string()))?;
    let part = value.get_mut(field.json_name()).map(Value::take);
    Ok(part.unwrap_or_default().to_string().into_bytes())
}

/// A `google.rpc.Status`.
pub(super) fn status_json(pool: &DescriptorPool, status: &Status) -> Value {
    let details = status.details.clone().unwrap_or_default();
    let details = Details::decode(details).unwrap_or_default().details;
    let details: Vec<_> = details.iter().map(|any| detail(pool, any)).collect();
    json!({ "code": status.code.number(), "message": status.message, "details": details })
}

/// The response to a call that failed: a `google.rpc.Status`.
pub(super) fn failure(pool: &DescriptorPool, ending: &Ending) -> Response {
    let body = status_json(pool, &ending.status);
    let mut response = Response::new(http_status(ending.status.code), Body::Empty);
    put(&mut response, body.to_string().into_bytes());
    ending
        .trailers
        .write(|name, value| response.fields.push(name, value));
    response
}

/// Gives a response its JSON.
pub(super) fn put(response: &mut Response, body: Vec<u8>) {
    response.body = Body::Whole(body.into());
    response.fields.push("Content-Type", "application/json");
}

/// A detail as JSON has it; one of a type that no file has, as its bytes.
fn detail(pool: &DescriptorPool, any: &Any) -> Value {
    let name = any.url.rsplit('/').next().unwrap_or_default();
    let known = pool.get_message_by_name(name).and_then(|message| {
        let message = DynamicMessage::decode(message, any.value.clone()).ok()?;
        serde_json::to_value(&message).ok()
    });
    let mut map = Map::new();
    map.insert("@type".to_owned(), Value::String(any.url.clone()));
    match known {
        Some(Value::Object(fields)) => map.extend(fields),
        Some(value) => _ = map.insert("value".to_owned(), value),
        None => _ = map.insert("value".to_owned(), STANDARD.encode(&any.value).into()),
    }
    Value::Object(map)
}

/// As `google.rpc.Code` maps them.
const fn http_status(code: Code) -> u16 {
    match code {
        Code::Ok => 200,
        Code::Cancelled => 499,
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => 400,
        Code::DeadlineExceeded => 504,
        Code::NotFound => 404,
        Code::AlreadyExists | Code::Aborted => 409,
        Code::PermissionDenied => 403,
        Code::ResourceExhausted => 429,
        Code::Unimplemented => 501,
        Code::Unavailable => 503,
        Code::Unauthenticated => 401,
        Code::Unknown | Code::Internal | Code::DataLoss => 500,
    }
}

/// A message of a reply, which is counted before it is read.
pub(super) fn counted_json(
    output: &Output,
    message: &[u8],
    charge: &mut Charge,
) -> Result<Vec<u8>, Status> {
    let most = of_message(&output.message, message, output.part.is_some());
    charge.try_set(message.len() + most).map_err(too_dear)?;
    success(output, message)
}

pub(super) fn too_dear(key: &str) -> Status {
    let text = format!("the values of the message take more memory than `{key}` has left");
    Status::new(Code::ResourceExhausted, text)
}
