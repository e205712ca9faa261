//! `app`: records that an application makes over RPC, as RoadRunner's app-logger has it.

use pronghorn_plugin_api::rpc::{
    Argument, Methods, Outcome, Reader, ServiceMethods, Writer, read_message, write_message,
};
use serde::{Deserialize, Serialize};

/// `applogger.v1.LogEntry`.
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
struct LogEntry {
    #[prost(string, tag = "1")]
    message: String,
    #[prost(message, repeated, tag = "2")]
    log_attrs: Vec<LogAttribute>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
struct LogAttribute {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

/// Nothing.
#[derive(Clone, PartialEq, prost::Message, Serialize)]
struct Response {}

impl Argument for LogEntry {
    const PROTOBUF: Option<Reader<Self>> = Some(read_message);
}

impl Outcome for Response {
    const PROTOBUF: Option<Writer<Self>> = Some(write_message);
}

impl LogEntry {
    /// As a JSON object, if there are any. A key that is there twice has its last value.
    fn context(&self) -> Option<String> {
        if self.log_attrs.is_empty() {
            return None;
        }
        let attributes = self.log_attrs.iter();
        let context: serde_json::Map<_, _> = attributes
            .map(|attribute| (attribute.key.clone(), attribute.value.clone().into()))
            .collect();
        serde_json::to_string(&context).ok()
    }
}

/// Both forms of a level: with a text alone, and with attributes.
macro_rules! level {
    ($methods:expr, $plain:literal, $with_context:literal, $level:ident) => {
        $methods.add($plain, async |(), message: String| {
            tracing::$level!(target: "app", "{message}");
            // RoadRunner's word for done.
            Ok(false)
        });
        $methods.add($with_context, async |(), entry: LogEntry| {
            tracing::$level!(target: "app", context = entry.context(), "{}", entry.message);
            Ok(Response {})
        });
    };
}

pub(super) fn add(methods: &Methods) {
    let app: ServiceMethods<()> = methods.service("app", ());
    level!(app, "Error", "ErrorWithContext", error);
    level!(app, "Warning", "WarningWithContext", warn);
    level!(app, "Info", "InfoWithContext", info);
    level!(app, "Debug", "DebugWithContext", debug);
    // Without a level; RoadRunner writes these to its standard error.
    app.add("Log", async |(), message: String| {
        tracing::info!(target: "app", "{message}");
        Ok(false)
    });
    app.add("LogWithContext", async |(), entry: LogEntry| {
        tracing::info!(target: "app", context = entry.context(), "{}", entry.message);
        Ok(Response {})
    });
}
