//! Centrifugo's API: a message of bytes there, one back, by gRPC.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use pronghorn_base::with_causes;
use pronghorn_client::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, TE};
use pronghorn_client::{
    Client, ClientError, Limits, Method, Options, Origin, Protocol, Reply, Request, Tls,
};
use pronghorn_grpc_wire::{
    Code, Decoder, PREFIX, RawMessage, compress, decompress, frame, percent_decode,
};
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::settings::ApiSettings;

/// The service that is called.
const SERVICE: &str = "centrifugal.centrifugo.api.CentrifugoApi";
/// Bytes of a reply. RoadRunner takes 4 MB, which a long history may exceed.
const LONGEST: usize = 16 << 20;
const LIMITS: Limits = Limits {
    head: 64 << 10,
    body: LONGEST + PREFIX,
};
/// Calls at a time. Others wait, each within its time.
const AT_ONCE: usize = 32;
/// The length of a peer's words.
const LONGEST_WORD: usize = 1000;

const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// The API, by one configuration.
#[derive(Debug)]
pub(crate) struct Api {
    settings: ApiSettings,
    client: Client,
    places: Semaphore,
}

/// Why the API gave no message. The texts begin as Go's do, which programs look for.
#[derive(Debug, Error)]
pub(crate) enum ApiError {
    /// Centrifugo is not there, or is no server of gRPC.
    #[error(
        "rpc error: code = Unavailable desc = Centrifugo's API at {address}: {why} (hint: {hint})"
    )]
    Away {
        address: String,
        why: String,
        hint: &'static str,
    },
    #[error(
        "rpc error: code = DeadlineExceeded desc = Centrifugo's API at {address} did not answer \
         within {} s (hint: `centrifuge.grpc_api_timeout`)", .limit.as_secs_f64()
    )]
    Late { address: String, limit: Duration },
    /// Centrifugo has said so.
    #[error("rpc error: code = {code} desc = {text}{hint}")]
    Status {
        code: Code,
        text: String,
        hint: &'static str,
    },
    #[error("rpc error: code = Internal desc = the answer of Centrifugo's API at {address}: {why}")]
    Malformed { address: String, why: String },
}

impl Api {
    /// Connects to nobody yet. Relative paths begin in `directory`.
    ///
    /// # Errors
    ///
    /// When TLS can't be used with the files.
    pub(crate) fn new(settings: ApiSettings, directory: &Path) -> Result<Self, ClientError> {
        let tls = settings.tls.clone().unwrap_or_default();
        let options = Options {
            protocol: Protocol::Http2,
            tls: Tls {
                root_ca: tls.root_ca.map(|path| directory.join(path)),
                identity: tls
                    .identity
                    .map(|(cert, key)| (directory.join(cert), directory.join(key))),
            },
            timeout: settings.timeout,
            limits: LIMITS,
            kept: AT_ONCE,
            // A message could be published twice.
            repeats: false,
        };
        let origin = Origin::new(settings.tls.is_some(), &settings.host, settings.port);
        Ok(Self {
            client: Client::new(origin, options)?,
            settings,
            places: Semaphore::new(AT_ONCE),
        })
    }

    pub(crate) const fn settings(&self) -> &ApiSettings {
        &self.settings
    }

    /// Asks a method, and gives its reply.
    pub(crate) async fn ask(&self, method: &str, message: Bytes) -> Result<Bytes, ApiError> {
        let deadline = Instant::now() + self.settings.timeout;
        let asked = timeout_at(deadline, self.exchange(method, message, deadline));
        asked.await.unwrap_or_else(|_| Err(self.late()))
    }

    async fn exchange(
        &self,
        method: &str,
        message: Bytes,
        deadline: Instant,
    ) -> Result<Bytes, ApiError> {
        let _place = self.places.acquire().await.ok(); // it is never closed
        let shorter = if self.settings.gzip {
            compress(message.clone()).await
        } else {
            None
        };
        let body = match &shorter {
            Some(shorter) => frame(true, shorter),
            None => frame(false, &message),
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let request = self.request(method, body, left)?;
        let reply = self.client.ask(request).await;
        let reply = reply.map_err(|error| self.failure(&error))?;
        self.message(reply).await
    }

    fn request(
        &self,
        method: &str,
        body: Bytes,
        left: Duration,
    ) -> Result<Request<Bytes>, ApiError> {
        let forbidden = || self.failure(&ClientError::Forbidden);
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        let path = format!("/{SERVICE}/{method}");
        *request.uri_mut() = path.parse().map_err(|_| forbidden())?;
        let headers = request.headers_mut();
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(GRPC_ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        if self.settings.gzip {
            headers.insert(GRPC_ENCODING, HeaderValue::from_static("gzip"));
        }
        // Up to five minutes, in at most eight digits.
        let left = format!("{}m", left.as_millis().max(1));
        headers.insert(GRPC_TIMEOUT, left.parse().map_err(|_| forbidden())?);
        if let Some(key) = &self.settings.key {
            let mut key: HeaderValue = format!("apikey {key}").parse().map_err(|_| forbidden())?;
            key.set_sensitive(true);
            headers.insert(AUTHORIZATION, key);
        }
        Ok(request)
    }

    /// The one message of a reply whose status is success.
    async fn message(&self, reply: Reply) -> Result<Bytes, ApiError> {
        let field = |name| reply.trailers.get(name).or_else(|| reply.headers.get(name));
        let Some(status) = field("grpc-status") else {
            return Err(self.no_grpc(&reply));
        };
        let status = status.to_str().ok().and_then(|text| text.parse().ok());
        let code = status.map_or(Code::Unknown, Code::of);
        if code != Code::Ok {
            let text = field("grpc-message").map(|text| percent_decode(text.as_bytes()));
            return Err(ApiError::Status {
                code,
                text: word(&text.unwrap_or_default()),
                hint: match code {
                    Code::Unauthenticated | Code::PermissionDenied => {
                        " (hint: `centrifuge.grpc_api_key` has to be Centrifugo's `grpc_api.key`)"
                    }
                    Code::Unimplemented => " (hint: this release of Centrifugo lacks the method)",
                    _ => "",
                },
            });
        }
        let mut decoder = Decoder::new(LONGEST);
        decoder.add(&reply.body);
        let message = match decoder.take() {
            Ok(Some(message)) if !message.trailers => message,
            Ok(_) => return Err(self.malformed("it has no whole message")),
            Err(_) => return Err(self.malformed("it is none of messages, or too long")),
        };
        if decoder.held() > 0 {
            return Err(self.malformed("it has more than one message"));
        }
        let RawMessage {
            compressed, bytes, ..
        } = message;
        if !compressed {
            return Ok(bytes);
        }
        let plain = decompress(bytes, LONGEST).await;
        plain.map_err(|status| self.malformed(&status.message))
    }

    fn address(&self) -> String {
        self.client.origin().authority().to_owned()
    }

    fn late(&self) -> ApiError {
        ApiError::Late {
            address: self.address(),
            limit: self.settings.timeout,
        }
    }

    fn malformed(&self, why: &str) -> ApiError {
        ApiError::Malformed {
            address: self.address(),
            why: why.to_owned(),
        }
    }

    fn no_grpc(&self, reply: &Reply) -> ApiError {
        ApiError::Away {
            address: self.address(),
            why: format!("it answered {} without a status of gRPC", reply.status),
            hint: "`centrifuge.grpc_api_address` has to be Centrifugo's `grpc_api.port`, not that \
                   of HTTP",
        }
    }

    fn failure(&self, error: &ClientError) -> ApiError {
        let hint = match error {
            ClientError::Timeout => return self.late(),
            ClientError::Answer(why) => return self.malformed(&word(&why.to_string())),
            ClientError::Tls(_) => {
                "`centrifuge.tls` has to fit Centrifugo's `grpc_api.tls`; `root_ca` names an \
                 authority of your own"
            }
            ClientError::Http(_) if self.settings.tls.is_none() => {
                "`centrifuge.grpc_api_address` has to be Centrifugo's `grpc_api.port`; with \
                 `grpc_api.tls` there, `centrifuge.tls` is needed"
            }
            _ => {
                "start Centrifugo with `grpc_api.enabled: true`, or correct \
                 `centrifuge.grpc_api_address`"
            }
        };
        ApiError::Away {
            address: self.address(),
            why: with_causes(error),
            hint,
        }
    }
}

/// A line of what a peer says.
fn word(text: &str) -> String {
    let line = text.chars().take(LONGEST_WORD);
    line.map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests;
