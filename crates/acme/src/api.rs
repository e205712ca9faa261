//! An authority: its directory, and signed requests to it (RFC 8555).

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use pronghorn_base::lock;
use pronghorn_client::header::{CONTENT_TYPE, HeaderMap, USER_AGENT};
use pronghorn_client::{Client, Limits, Method, Options, Origin, Protocol, Reply, Request, Tls};
use serde_json::Value;

use crate::error::AcmeError;
use crate::jose::{AccountKey, Signer};

const AGENT: &str = concat!("pronghorn/", env!("CARGO_PKG_VERSION"));
/// For one request. An order has more time.
const ANSWER: Duration = Duration::from_secs(30);
/// Chains have some ten kilobytes.
const LONGEST: Limits = Limits {
    head: 16 << 10,
    body: 1 << 20,
};
/// An authority may refuse a nonce at any time; Pebble does so on purpose.
const NONCES: usize = 20;
/// More are not kept.
const KEPT_NONCES: usize = 16;
/// Hosts that one authority has.
const ORIGINS: usize = 8;
/// More of what an authority says is not repeated.
const LONGEST_DETAIL: usize = 500;
const HEAD: &str = "it names no address in `Location`";

/// An authority whose directory was read.
#[derive(Debug)]
pub(crate) struct Api {
    directory: Value,
    http: Http,
    nonces: Mutex<Vec<String>>,
}

/// An account of an authority.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) key: AccountKey,
    pub(crate) url: String,
}

/// The name of an existing account that the new one belongs to.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Binding {
    pub(crate) kid: String,
    pub(crate) hmac_key: Vec<u8>,
}

impl fmt::Debug for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Binding");
        shown.field("kid", &self.kid).finish_non_exhaustive()
    }
}

/// An answer of JSON, and its address.
pub(crate) struct Answer {
    pub(crate) value: Value,
    pub(crate) headers: HeaderMap,
}

impl Api {
    /// Reads a directory.
    ///
    /// # Errors
    ///
    /// When the authority does not answer, or something else does.
    pub(crate) async fn open(url: &str, tls: Tls) -> Result<Self, AcmeError> {
        let http = Http {
            tls,
            clients: Mutex::default(),
        };
        let reply = http.ask(Method::GET, url, Vec::new()).await?;
        let directory = read(url, &reply)?;
        if directory["newOrder"].as_str().is_none() {
            return Err(strange(url, "it is no directory: there is no `newOrder`"));
        }
        Ok(Self {
            directory,
            http,
            nonces: Mutex::default(),
        })
    }

    /// The address for this kind of request.
    pub(crate) fn url(&self, name: &str) -> Option<&str> {
        self.directory[name].as_str()
    }

    /// Whether an order can name this profile. An authority without profiles has one kind of
    /// certificate.
    ///
    /// # Errors
    ///
    /// When it has others.
    pub(crate) fn offers_profile(&self, name: &str) -> Result<bool, AcmeError> {
        let Some(profiles) = self.directory["meta"]["profiles"].as_object() else {
            return Ok(false);
        };
        if profiles.contains_key(name) {
            return Ok(true);
        }
        let names: Vec<_> = profiles.keys().map(String::as_str).collect();
        Err(AcmeError::NoProfile {
            profile: name.to_owned(),
            offered: shorten(&names.join("`, `")),
        })
    }

    /// The account of a key, which is made if there is none.
    ///
    /// # Errors
    ///
    /// As of any request.
    pub(crate) async fn register(
        &self,
        key: AccountKey,
        email: Option<&str>,
        binding: Option<&Binding>,
    ) -> Result<Account, AcmeError> {
        let url = self.url("newAccount").unwrap_or_default().to_owned();
        let mut payload = serde_json::json!({"termsOfServiceAgreed": true});
        if let Some(email) = email {
            payload["contact"] = vec![format!("mailto:{email}")].into();
        }
        let is_wanted = self.directory["meta"]["externalAccountRequired"] == true;
        if let Some(Binding { kid, hmac_key }) = binding.filter(|_| is_wanted) {
            payload["externalAccountBinding"] = key.bind(kid, hmac_key, &url);
        }
        let answer = self.post(Signer::Key(&key), &url, Some(&payload)).await?;
        let account = location(&url, &answer.headers)?;
        Ok(Account { key, url: account })
    }

    /// Sends a signed request, and reads JSON.
    pub(crate) async fn post(
        &self,
        signer: Signer<'_>,
        url: &str,
        payload: Option<&Value>,
    ) -> Result<Answer, AcmeError> {
        let reply = self.send(signer, url, payload).await?;
        let value = if reply.body.is_empty() {
            Value::Null
        } else {
            read(url, &reply)?
        };
        let headers = reply.headers;
        Ok(Answer { value, headers })
    }

    /// The same for any kind of answer.
    pub(crate) async fn send(
        &self,
        signer: Signer<'_>,
        url: &str,
        payload: Option<&Value>,
    ) -> Result<Reply, AcmeError> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let nonce = self.nonce().await?;
            let body = signer.sign(url, &nonce, payload);
            let body = body.map_err(|error| AcmeError::Key(error.to_string()))?;
            let reply = self.http.ask(Method::POST, url, body).await?;
            self.keep_nonce(&reply.headers);
            match refusal(url, &reply) {
                None => return Ok(reply),
                Some(AcmeError::Refused { kind, .. })
                    if kind == "badNonce" && attempts < NONCES => {}
                Some(error) => return Err(error),
            }
        }
    }

    /// Reads what needs no signature.
    pub(crate) async fn get(&self, url: &str) -> Result<Answer, AcmeError> {
        let reply = self.http.ask(Method::GET, url, Vec::new()).await?;
        let value = read(url, &reply)?;
        let headers = reply.headers;
        Ok(Answer { value, headers })
    }

    async fn nonce(&self) -> Result<String, AcmeError> {
        if let Some(kept) = lock(&self.nonces).pop() {
            return Ok(kept);
        }
        let url = self.url("newNonce").unwrap_or_default();
        let reply = self.http.ask(Method::HEAD, url, Vec::new()).await?;
        let nonce = text(&reply.headers, "replay-nonce");
        nonce.ok_or_else(|| strange(url, "it gives no nonce"))
    }

    fn keep_nonce(&self, headers: &HeaderMap) {
        let mut nonces = lock(&self.nonces);
        if nonces.len() < KEPT_NONCES {
            nonces.extend(text(headers, "replay-nonce"));
        }
    }
}

/// Clients of the hosts that an authority has.
#[derive(Debug)]
struct Http {
    tls: Tls,
    clients: Mutex<HashMap<String, Arc<Client>>>,
}

impl Http {
    async fn ask(&self, method: Method, url: &str, body: Vec<u8>) -> Result<Reply, AcmeError> {
        let unreached = |source| AcmeError::Unreached {
            url: url.to_owned(),
            source,
        };
        let (client, path) = self.client(url)?;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(USER_AGENT, AGENT);
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/jose+json");
        }
        let request = request.body(Bytes::from(body));
        let request = request.map_err(|_| AcmeError::Address(url.to_owned()))?;
        client.ask(request).await.map_err(unreached)
    }

    /// Takes the rest after the host for the path.
    fn client(&self, url: &str) -> Result<(Arc<Client>, String), AcmeError> {
        let bad = || AcmeError::Address(url.to_owned());
        let origin = Origin::parse(url).filter(Origin::is_tls).ok_or_else(bad)?;
        let after = url.split_once("://").map_or("", |(_, rest)| rest);
        let path = after.find('/').and_then(|at| after.get(at..));
        let path = path.unwrap_or("/").to_owned();
        let mut clients = lock(&self.clients);
        if let Some(client) = clients.get(origin.authority()) {
            return Ok((client.clone(), path));
        }
        if clients.len() >= ORIGINS {
            clients.clear();
        }
        let name = origin.authority().to_owned();
        let options = Options {
            protocol: Protocol::Http1,
            tls: self.tls.clone(),
            timeout: ANSWER,
            limits: LONGEST,
            kept: 2,
            // A nonce that came twice is refused, and the request sent with another one.
            repeats: true,
        };
        let client = Client::new(origin, options).map_err(|source| AcmeError::Unreached {
            url: url.to_owned(),
            source,
        })?;
        let client = Arc::new(client);
        clients.insert(name, client.clone());
        Ok((client, path))
    }
}

pub(crate) fn strange(url: &str, what: &'static str) -> AcmeError {
    AcmeError::Strange {
        url: url.to_owned(),
        what,
    }
}

pub(crate) fn location(url: &str, headers: &HeaderMap) -> Result<String, AcmeError> {
    text(headers, "location").ok_or_else(|| strange(url, HEAD))
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    let value = headers.get(name)?.to_str().ok()?;
    Some(value.to_owned())
}

/// Only seconds: authorities send no dates here.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = text(headers, "retry-after")?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

fn read(url: &str, reply: &Reply) -> Result<Value, AcmeError> {
    if let Some(error) = refusal(url, reply) {
        return Err(error);
    }
    serde_json::from_slice(&reply.body).map_err(|_| strange(url, "it is no JSON"))
}

/// The problem that an answer tells of (RFC 7807), if it does.
fn refusal(url: &str, reply: &Reply) -> Option<AcmeError> {
    if reply.status.is_success() {
        return None;
    }
    let problem: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    let kind = problem["type"].as_str().unwrap_or_default();
    let kind = kind.rsplit(':').next().unwrap_or_default();
    Some(AcmeError::Refused {
        url: url.to_owned(),
        status: reply.status.as_u16(),
        kind: kind.to_owned(),
        detail: detail(&problem),
        retry_after: retry_after(&reply.headers),
    })
}

/// The text of a problem, in one line for a record.
pub(crate) fn detail(problem: &Value) -> String {
    let kind = problem["type"].as_str().unwrap_or("no reason is given");
    let said = problem["detail"].as_str().unwrap_or(kind);
    shorten(said)
}

pub(crate) fn shorten(said: &str) -> String {
    let line = said
        .chars()
        .map(|sign| if sign.is_control() { ' ' } else { sign });
    line.take(LONGEST_DETAIL).collect()
}
