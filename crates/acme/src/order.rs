//! One order, from its names to a certificate.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::api::{Account, Answer, Api, detail, location, retry_after, shorten, strange};
use crate::challenge::{Answers, Challenge, Proof};
use crate::error::AcmeError;
use crate::jose::Signer;

/// For a whole order, with all waiting for the authority.
const ORDER: Duration = Duration::from_secs(300);
/// Between two looks at what the authority does.
const SHORTEST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// The order that is to be placed.
#[derive(Clone, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) name: &'a str,
    pub(crate) challenge: Challenge,
    /// The certificate that it renews (RFC 9773): such orders count less at limits of the
    /// authority.
    pub(crate) replaces: Option<String>,
    pub(crate) profile: Option<&'a str>,
}

/// A key and its certificates, in PEM.
pub(crate) struct Issued {
    pub(crate) key: String,
    pub(crate) chain: String,
}

/// Orders a certificate. What answers challenges is gone when this ends or is dropped.
///
/// # Errors
///
/// Why there is none.
pub(crate) async fn issue(
    api: &Api,
    account: &Account,
    wanted: &Wanted<'_>,
    answers: &Answers,
) -> Result<Issued, AcmeError> {
    let order = PlacedOrder {
        api,
        signer: Signer::Account(&account.key, &account.url),
        thumbprint: account.key.thumbprint(),
        wanted,
        answers,
    };
    match timeout(ORDER, order.fulfil()).await {
        Ok(issued) => issued,
        Err(_) => Err(AcmeError::Slow(ORDER)),
    }
}

struct PlacedOrder<'a> {
    api: &'a Api,
    signer: Signer<'a>,
    thumbprint: String,
    wanted: &'a Wanted<'a>,
    answers: &'a Answers,
}

impl PlacedOrder<'_> {
    async fn fulfil(&self) -> Result<Issued, AcmeError> {
        let url = self.api.url("newOrder").unwrap_or_default();
        let identifier = json!({"type": "dns", "value": self.wanted.name});
        let mut payload = json!({"identifiers": [identifier]});
        if let Some(replaces) = &self.wanted.replaces {
            payload["replaces"] = replaces.as_str().into();
        }
        if let Some(profile) = self.wanted.profile
            && self.api.offers_profile(profile)?
        {
            payload["profile"] = profile.into();
        }
        let made = self.api.post(self.signer, url, Some(&payload)).await?;
        let order = location(url, &made.headers)?;
        let authorizations = made.value["authorizations"].as_array();
        for authorization in authorizations.into_iter().flatten() {
            self.prove(authorization.as_str().unwrap_or_default())
                .await?;
        }
        let ready = self.watch(&order, &["pending"]).await?;
        let finalize = ready["finalize"].as_str();
        let finalize = finalize.ok_or_else(|| strange(&order, "there is no `finalize`"))?;
        let (key, request) = signing_request(self.wanted.name)?;
        let payload = json!({"csr": BASE64.encode(request)});
        self.api.post(self.signer, finalize, Some(&payload)).await?;
        let done = self.watch(&order, &["ready", "processing"]).await?;
        let certificate = done["certificate"].as_str();
        let certificate =
            certificate.ok_or_else(|| strange(&order, "there is no `certificate`"))?;
        let reply = self.api.send(self.signer, certificate, None).await?;
        let chain = String::from_utf8(reply.body.to_vec());
        let chain = chain.map_err(|_| strange(certificate, "it is no PEM"))?;
        Ok(Issued { key, chain })
    }

    /// Looks at an order until it leaves these states.
    async fn watch(&self, order: &str, waiting: &[&str]) -> Result<Value, AcmeError> {
        loop {
            let Answer { value, headers } = self.api.post(self.signer, order, None).await?;
            let status = value["status"].as_str().unwrap_or_default();
            if status == "invalid" {
                return Err(AcmeError::Unfulfilled(detail(&value["error"])));
            }
            if !waiting.contains(&status) {
                return Ok(value);
            }
            sleep(pause(retry_after(&headers))).await;
        }
    }

    /// Shows that the name is that of this server.
    async fn prove(&self, url: &str) -> Result<(), AcmeError> {
        let Wanted {
            name, challenge, ..
        } = *self.wanted;
        let found = self.api.post(self.signer, url, None).await?.value;
        if found["status"].as_str() == Some("valid") {
            return Ok(());
        }
        let offered = found["challenges"].as_array();
        let offered = offered.into_iter().flatten();
        let mut offered = offered.filter(|it| it["type"].as_str() == Some(challenge.name()));
        let challenge_name = challenge.name();
        let chosen = offered.next().ok_or_else(|| AcmeError::NoChallenge {
            name: name.to_owned(),
            challenge: challenge_name,
        })?;
        let answer_at = chosen["url"].as_str().unwrap_or_default();
        let mut record = None;
        let _shown = if challenge == Challenge::DnsPersist {
            record = self.record(chosen);
            None
        } else {
            let token = chosen["token"].as_str().unwrap_or_default();
            let proof = Proof::new(name, token, &self.thumbprint);
            let proof = proof.ok_or_else(|| strange(url, "the token is none"))?;
            self.answers.show(challenge, &proof)?
        };
        self.api
            .post(self.signer, answer_at, Some(&json!({})))
            .await?;
        loop {
            let Answer { value, headers } = self.api.post(self.signer, url, None).await?;
            match value["status"].as_str() {
                Some("valid") => return Ok(()),
                Some("pending" | "processing") => sleep(pause(retry_after(&headers))).await,
                _ => {
                    let tried = value["challenges"].as_array();
                    let mut tried = tried.into_iter().flatten();
                    let why = tried.find_map(|it| it.get("error"));
                    let detail = detail(why.unwrap_or(&Value::Null));
                    let name = name.to_owned();
                    return Err(match record {
                        Some(record) => AcmeError::NoRecord {
                            name,
                            record,
                            detail,
                        },
                        None => AcmeError::Unverified {
                            name,
                            challenge: challenge_name,
                            detail,
                        },
                    });
                }
            }
        }
    }

    /// The record of DNS that shows for good that this account may have certificates for a name.
    fn record(&self, challenge: &Value) -> Option<String> {
        let issuer = challenge["issuer-domain-names"].get(0)?.as_str()?;
        let Signer::Account(_, account) = self.signer else {
            return None;
        };
        let base = self.wanted.name.strip_prefix("*.");
        let name = base.unwrap_or(self.wanted.name);
        let policy = if base.is_some() {
            "; policy=wildcard"
        } else {
            ""
        };
        Some(shorten(&format!(
            "_validation-persist.{name}. IN TXT \"{issuer}; accounturi={account}{policy}\""
        )))
    }
}

fn pause(asked: Option<Duration>) -> Duration {
    asked
        .unwrap_or(SHORTEST_WAIT)
        .clamp(SHORTEST_WAIT, LONGEST_WAIT)
}

/// A new key, in PEM, and the request for its certificate.
fn signing_request(name: &str) -> Result<(String, Vec<u8>), AcmeError> {
    let failed = |error: rcgen::Error| AcmeError::Key(error.to_string());
    let key = KeyPair::generate().map_err(failed)?;
    let mut parameters = CertificateParams::new([name.to_owned()]).map_err(failed)?;
    parameters.distinguished_name = DistinguishedName::new();
    let request = parameters.serialize_request(&key).map_err(failed)?;
    Ok((key.serialize_pem(), request.der().to_vec()))
}
