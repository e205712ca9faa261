//! A request of HTTP as the message that a method takes.

use percent_encoding::percent_decode;
use pronghorn_grpc_wire::Wanted;
use prost::Message as _;
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value};

use super::fields::field_path;
use super::memory::MOST_MESSAGES;
use super::place;
use super::rules::{BodyRule, Route};

/// Messages that one level of JSON may be: a `Value`, its `Struct`, and an entry of that.
const MESSAGES_OF_A_LEVEL: usize = 3;
/// Brackets within one another: the limit of `serde_json`, and how it tells it.
const MOST_BRACKETS: usize = 127;
const TOO_DEEP: &str = "recursion limit exceeded";
/// Parameters of a query.
const MOST_PARAMETERS: usize = 1000;

/// Makes the message of a request: first its body, then its query, then its path, which counts
/// most.
pub(super) fn message(
    route: &Route,
    variables: &[(&str, String)],
    query: Option<&[u8]>,
    body: &[u8],
    wanted: &Wanted,
) -> Result<Vec<u8>, String> {
    let input = route.method.input();
    let mut root = match &route.body {
        BodyRule::None => Value::Object(Map::new()),
        _ if body.trim_ascii().is_empty() => Value::Object(Map::new()),
        BodyRule::Whole => read(body)?,
        BodyRule::Field(field) => {
            let mut map = Map::new();
            map.insert(field.json_name().to_owned(), read(body)?);
            Value::Object(map)
        }
    };
    // With all of the message in the body, the query has no part in it.
    if !matches!(route.body, BodyRule::Whole) {
        let query = query.unwrap_or_default();
        let parameters = query.split(|byte| *byte == b'&');
        for (at, parameter) in parameters.filter(|it| !it.is_empty()).enumerate() {
            if at >= MOST_PARAMETERS {
                return Err(format!(
                    "the query has more than {MOST_PARAMETERS} parameters"
                ));
            }
            let equals = parameter.iter().position(|byte| *byte == b'=');
            let (name, value) = parameter.split_at(equals.unwrap_or(parameter.len()));
            let (name, value) = (form_text(name)?, form_text(value.get(1..).unwrap_or(b""))?);
            set(&mut root, &field_path(&input, &name)?, &value)?;
        }
    }
    for (field, value) in variables {
        set(&mut root, &field_path(&input, field)?, value)?;
    }
    let is_deep = is_deeper(&root, MOST_MESSAGES / MESSAGES_OF_A_LEVEL);
    let message = place::read(&input, root, wanted)?.encode_to_vec();
    if is_deep && is_too_deep(input, &message) {
        return Err(format!(
            "the message is nested deeper than {MOST_MESSAGES} messages"
        ));
    }
    Ok(message)
}

/// Whether values lie deeper in one another.
fn is_deeper(value: &Value, levels: usize) -> bool {
    let Some(levels) = levels.checked_sub(1) else {
        return true;
    };
    match value {
        Value::Array(values) => values.iter().any(|it| is_deeper(it, levels)),
        Value::Object(values) => values.values().any(|it| is_deeper(it, levels)),
        _ => false,
    }
}

/// Whether PHP would refuse it for its depth.
fn is_too_deep(input: MessageDescriptor, message: &[u8]) -> bool {
    DynamicMessage::decode(input, message).is_err()
}

fn read(body: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(body).map_err(|error| {
        let why = error.to_string();
        if why.starts_with(TOO_DEEP) {
            return format!("the body has more than {MOST_BRACKETS} brackets in one another");
        }
        format!("the body is no JSON: {why}")
    })
}

fn form_text(bytes: &[u8]) -> Result<String, String> {
    let spaced: Vec<u8> = bytes
        .iter()
        .map(|byte| if *byte == b'+' { b' ' } else { *byte })
        .collect();
    let text = percent_decode(&spaced).decode_utf8();
    let text = text.map_err(|_| "the query is no UTF-8".to_owned())?;
    Ok(text.into_owned())
}

/// Sets a field in the JSON of a message.
fn set(root: &mut Value, path: &[FieldDescriptor], text: &str) -> Result<(), String> {
    let Some((field, outer)) = path.split_last() else {
        return Ok(());
    };
    let mut within = root;
    for field in outer {
        within = of(within, field)?;
        if within.is_null() {
            *within = Value::Object(Map::new());
        }
    }
    let place = of(within, field)?;
    let value = value(field, text)?;
    if !field.is_list() {
        *place = value;
        return Ok(());
    }
    match place {
        Value::Array(all) => all.push(value),
        place => *place = Value::Array(vec![value]),
    }
    Ok(())
}

/// The place of a field, under its name in JSON.
fn of<'a>(within: &'a mut Value, field: &FieldDescriptor) -> Result<&'a mut Value, String> {
    let Value::Object(map) = within else {
        return Err(format!("`{}` is within what is no object", field.name()));
    };
    let (name, json_name) = (field.name(), field.json_name());
    if name != json_name
        && let Some(value) = map.remove(name)
    {
        map.insert(json_name.to_owned(), value);
    }
    Ok(map.entry(json_name.to_owned()).or_insert(Value::Null))
}

/// A text as the JSON of a field. What is wrong with it shows when the message is read.
fn value(field: &FieldDescriptor, text: &str) -> Result<Value, String> {
    let plain = || Value::String(text.to_owned());
    let bool = || match text {
        "true" | "1" => Value::Bool(true),
        "false" | "0" => Value::Bool(false),
        _ => plain(),
    };
    if field.is_map() {
        return Err(format!("`{}` is a map", field.name()));
    }
    Ok(match field.kind() {
        Kind::Bool => bool(),
        Kind::Enum(_) => text.parse::<i32>().map_or_else(|_| plain(), Value::from),
        Kind::Message(message) => match message.full_name() {
            "google.protobuf.BoolValue" => bool(),
            "google.protobuf.BytesValue"
            | "google.protobuf.DoubleValue"
            | "google.protobuf.Duration"
            | "google.protobuf.FieldMask"
            | "google.protobuf.FloatValue"
            | "google.protobuf.Int32Value"
            | "google.protobuf.Int64Value"
            | "google.protobuf.StringValue"
            | "google.protobuf.Timestamp"
            | "google.protobuf.UInt32Value"
            | "google.protobuf.UInt64Value" => plain(),
            other => return Err(format!("`{}` is a message, `{other}`", field.name())),
        },
        _ => plain(),
    })
}
