//! Calls of SQS: its protocol with JSON, each one signed.

use std::time::Duration;

use bytes::Bytes;
use chrono::Utc;
use pronghorn_client::Method;
use pronghorn_client::header::HeaderName;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::credentials::{self, Source};
use super::signature::{self, Request, authorization};
use crate::broker::BrokerError;
use crate::broker::http::{Client, HttpRequest};
use crate::sqs::settings::SqsServer;

/// An answer may take so long, beside what the call waits for by itself.
const PATIENCE: Duration = Duration::from_secs(30);
const JSON: &str = "application/x-amz-json-1.0";

pub(super) struct Api {
    client: Client,
    region: String,
    credentials: Source,
}

/// The reason why a call failed.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Wrong {
    #[serde(rename = "__type")]
    kind: String,
    message: String,
    /// Some say it so, and some in both ways.
    #[serde(rename = "Message")]
    message_too: String,
}

/// The URL of a server, for people as well.
pub(super) fn endpoint(server: &SqsServer) -> Result<(String, String), BrokerError> {
    // A server of somebody else does not ask where it is.
    let fallback = server.endpoint.as_ref().map(|_| "us-east-1".to_owned());
    let region = credentials::region(server).or(fallback).ok_or_else(|| {
        let why = "neither `sqs.region` nor AWS_REGION says in which region it is";
        BrokerError::Refused(why.to_owned())
    })?;
    let url = server.endpoint.clone().unwrap_or_else(|| {
        let china = if region.starts_with("cn-") { ".cn" } else { "" };
        format!("https://sqs.{region}.amazonaws.com{china}")
    });
    Ok((url, region))
}

impl Api {
    pub(super) fn new(server: &SqsServer, longest_wait: Duration) -> Result<Self, BrokerError> {
        let (url, region) = endpoint(server)?;
        Ok(Self {
            client: Client::new(&url, PATIENCE + longest_wait)?,
            region,
            credentials: Source::new(server),
        })
    }

    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        action: &str,
        argument: &Value,
    ) -> Result<T, BrokerError> {
        let body = Bytes::from(argument.to_string());
        let credentials = self.credentials.get().await?;
        let now = Utc::now();
        let mut fields = vec![
            ("content-type", JSON.to_owned()),
            ("host", self.client.authority().to_owned()),
            ("x-amz-date", signature::moment(now)),
        ];
        if let Some(token) = &credentials.session_token {
            fields.push(("x-amz-security-token", token.clone()));
        }
        fields.push(("x-amz-target", format!("AmazonSQS.{action}")));
        let request = Request {
            region: &self.region,
            fields: &fields,
            body: &body,
            now,
        };
        let signed = authorization(&request, &credentials);
        fields.push(("authorization", signed));
        let answer = self
            .client
            .ask(HttpRequest {
                method: Method::POST,
                path: "/",
                fields: (fields.into_iter())
                    .map(|(name, value)| (HeaderName::from_static(name), value))
                    .collect(),
                body,
            })
            .await?;
        if !answer.status.is_success() {
            return Err(refused(answer.status.as_u16(), &answer.body));
        }
        let json = if answer.body.is_empty() {
            b"{}"
        } else {
            &answer.body[..]
        };
        serde_json::from_slice(json)
            .map_err(|error| BrokerError::Lost(format!("it is no SQS: {action}: {error}")))
    }
}

fn refused(status: u16, body: &[u8]) -> BrokerError {
    let wrong: Wrong = serde_json::from_slice(body).unwrap_or_default();
    let kind = wrong.kind.rsplit(['#', '.']).next().unwrap_or_default();
    match kind {
        "ReceiptHandleIsInvalid" | "MessageNotInflight" => BrokerError::NotReserved,
        "" => BrokerError::Lost(format!("it answered {status}")),
        kind => {
            let message = if wrong.message.is_empty() {
                wrong.message_too
            } else {
                wrong.message
            };
            BrokerError::Refused(format!("{kind}: {message}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_read() {
        let json = br#"{"__type":"com.amazonaws.sqs#ReceiptHandleIsInvalid","message":"x"}"#;
        assert_eq!(refused(400, json), BrokerError::NotReserved);
        let json = br#"{"__type":"com.amazonaws.sqs#OverLimit","message":"too many"}"#;
        let why = "OverLimit: too many".to_owned();
        assert_eq!(refused(400, json), BrokerError::Refused(why));
        let json = br#"{"__type":"QueueDoesNotExist","message":"a","Message":"b"}"#;
        let why = "QueueDoesNotExist: a".to_owned();
        assert_eq!(refused(400, json), BrokerError::Refused(why));
        let why = "it answered 502".to_owned();
        assert_eq!(refused(502, b"<html>"), BrokerError::Lost(why));
    }

    #[test]
    fn the_place_follows_from_the_region() {
        let mut server = SqsServer {
            region: Some("eu-west-1".to_owned()),
            ..SqsServer::default()
        };
        let (url, _) = endpoint(&server).unwrap();
        assert_eq!(url, "https://sqs.eu-west-1.amazonaws.com");
        server.endpoint = Some("http://127.0.0.1:1".to_owned());
        assert_eq!(endpoint(&server).unwrap().0, "http://127.0.0.1:1");
    }
}
