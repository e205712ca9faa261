//! The same for PHP, over RPC.

use pronghorn_plugin_api::rpc::{
    Argument, Failure, Methods, Outcome, Reader, Writer, read_message, write_message,
};
use pronghorn_plugin_api::{Health, NotReady, Question};
use serde::{Deserialize, Serialize};

/// `status.v1.Request`.
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
struct Request {
    #[prost(string, tag = "1")]
    plugin: String,
}

/// `status.v1.Response`.
#[derive(Clone, PartialEq, prost::Message, Serialize)]
struct Response {
    #[prost(int64, tag = "1")]
    code: i64,
    /// What is missing.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
}

impl Argument for Request {
    const PROTOBUF: Option<Reader<Self>> = Some(read_message);
}

impl Outcome for Response {
    const PROTOBUF: Option<Writer<Self>> = Some(write_message);
}

#[derive(Clone)]
struct Asked {
    health: Health,
    unavailable: u16,
}

pub(super) fn add(methods: &Methods, health: &Health, unavailable: u16) {
    let asked = Asked {
        health: health.clone(),
        unavailable,
    };
    let status = methods.service("status", asked);
    status.add("Status", async |asked: Asked, request: Request| {
        asked.answer(Question::Alive, &request.plugin)
    });
    status.add("Ready", async |asked: Asked, request: Request| {
        asked.answer(Question::Ready, &request.plugin)
    });
}

impl Asked {
    fn answer(&self, question: Question, plugin: &str) -> Result<Response, Failure> {
        let Some(answer) = self.health.ask(question, plugin) else {
            let method = match question {
                Question::Alive => "status",
                Question::Ready => "ready",
            };
            return Err(Failure::new(format!(
                "checker_rpc_{method}:\n\tchecker_plugin_{method}: no such plugin: {plugin}"
            )));
        };
        let (code, message) = match answer {
            Ok(()) => (200, String::new()),
            Err(NotReady(why)) => (self.unavailable, why.into_owned()),
        };
        let code = code.into();
        Ok(Response { code, message })
    }
}
