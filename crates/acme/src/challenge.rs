//! Answers to the challenges of an authority (RFC 8555, section 8; RFC 8737).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use pronghorn_base::lock;
use pronghorn_config::Choice;
use pronghorn_serve::{
    Body, Exchange, Handled, Handler, Managed, OnSent, Refusal, Request, Response, Store, Unhandled,
};
use rcgen::{CertificateParams, CustomExtension, KeyPair};

use crate::error::AcmeError;
use crate::jose::sha256;

/// Where an authority asks for an answer.
const PATH: &[u8] = b"/.well-known/acme-challenge/";
/// Authorities take some forty characters.
const LONGEST_TOKEN: usize = 256;

/// A way to show whose a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Challenge {
    Http,
    TlsAlpn,
    /// By a record in DNS that stands there for good.
    DnsPersist,
}

impl Challenge {
    /// By its name in ACME.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Http => "http-01",
            Self::TlsAlpn => "tls-alpn-01",
            Self::DnsPersist => "dns-persist-01",
        }
    }
}

impl Choice for Challenge {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("http-01", Self::Http),
        ("tls-alpn-01", Self::TlsAlpn),
        ("tlsalpn-01", Self::TlsAlpn), // RoadRunner's
        ("dns-persist-01", Self::DnsPersist),
    ];
}

/// The proof that is to be shown for a name.
#[derive(Clone, Debug)]
pub(crate) struct Proof<'a> {
    name: &'a str,
    token: &'a str,
    /// The token with the name of the account's key.
    authorization: String,
}

impl<'a> Proof<'a> {
    /// None where the token is none: it becomes part of a path.
    pub(crate) fn new(name: &'a str, token: &'a str, thumbprint: &str) -> Option<Self> {
        let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let is_token = (1..=LONGEST_TOKEN).contains(&token.len()) && token.bytes().all(is_base64);
        is_token.then(|| Self {
            name,
            token,
            authorization: format!("{token}.{thumbprint}"),
        })
    }
}

/// Where answers are shown.
#[derive(Clone, Debug)]
pub(crate) struct Answers {
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) store: Arc<Store>,
}

/// An answer that is shown until this is dropped.
#[derive(Debug)]
pub(crate) enum Shown<'a> {
    Token(&'a Tokens, String),
    Certificate(&'a Store, String),
}

impl Answers {
    /// Shows an answer; None where the answer is not this server's to show.
    pub(crate) fn show(
        &self,
        challenge: Challenge,
        proof: &Proof<'_>,
    ) -> Result<Option<Shown<'_>>, AcmeError> {
        match challenge {
            Challenge::Http => {
                let token = proof.token.to_owned();
                let authorization = proof.authorization.clone();
                lock(&self.tokens.0).insert(token.clone(), authorization);
                Ok(Some(Shown::Token(&self.tokens, token)))
            }
            Challenge::TlsAlpn => {
                let name = proof.name.to_owned();
                let certificate = certificate(proof)?;
                self.store.add_challenge(&name, &certificate);
                Ok(Some(Shown::Certificate(&self.store, name)))
            }
            Challenge::DnsPersist => Ok(None),
        }
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        match self {
            Self::Token(tokens, token) => _ = lock(&tokens.0).remove(token),
            Self::Certificate(store, name) => store.remove_challenge(name),
        }
    }
}

/// The only one that holds for a challenge: self-signed, with the hash of the answer.
fn certificate(proof: &Proof<'_>) -> Result<Managed, AcmeError> {
    let hash = sha256(proof.authorization.as_bytes());
    let extension = CustomExtension::new_acme_identifier(&hash);
    self_signed(proof.name, vec![extension])
}

/// A certificate that no client trusts.
pub(crate) fn self_signed(
    name: &str,
    extensions: Vec<CustomExtension>,
) -> Result<Managed, AcmeError> {
    let failed = |error: rcgen::Error| AcmeError::Key(error.to_string());
    let key = KeyPair::generate().map_err(failed)?;
    let mut parameters = CertificateParams::new([name.to_owned()]).map_err(failed)?;
    parameters.custom_extensions = extensions;
    let certificate = parameters.self_signed(&key).map_err(failed)?;
    let pem = format!("{}{}", key.serialize_pem(), certificate.pem());
    Managed::for_challenge(pem.as_bytes(), name).map_err(AcmeError::Unusable)
}

/// Answers by their tokens. There are as many as orders under way.
#[derive(Debug, Default)]
pub(crate) struct Tokens(Mutex<HashMap<String, String>>);

/// Answers authorities, and hands all else on: also such paths with a token of somebody else.
pub(crate) struct Answering {
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) next: Arc<dyn Handler>,
}

impl Answering {
    fn answer(&self, request: &Request) -> Option<Response> {
        let token = request.head.path().strip_prefix(PATH)?;
        let token = std::str::from_utf8(token).ok()?;
        let answer = lock(&self.tokens.0).get(token)?.clone();
        let mut response = Response::new(200, Body::Whole(Bytes::from(answer)));
        let octets = "application/octet-stream"; // RFC 8555, section 8.3
        response.fields.push("Content-Type", octets);
        Some(response)
    }
}

impl Handler for Answering {
    fn handle<'a>(&'a self, request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        match self.answer(&request) {
            Some(response) => Box::pin(std::future::ready(response)),
            None => self.next.handle(request, exchange),
        }
    }

    fn unhandled(&self, request: &Unhandled<'_>) -> Option<Arc<dyn OnSent>> {
        self.next.unhandled(request)
    }

    fn refused(&self, content: Option<&[u8]>, refusal: Refusal) -> Option<Response> {
        self.next.refused(content, refusal)
    }

    fn without_tls(&self, request: &Request) -> Option<Response> {
        self.next.without_tls(request)
    }
}
