//! Who this server is at Google: by the key of a service account, or by the account of the machine.

use std::path::Path;
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use pronghorn_base::now_ms;
use pronghorn_client::Method;
use pronghorn_client::header::HeaderName;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Mutex;

use crate::broker::BrokerError;
use crate::broker::http::{Client, HttpRequest};

const FILE: &str = "GOOGLE_APPLICATION_CREDENTIALS";
/// The audience of a token.
const AUDIENCE: &str = "https://pubsub.googleapis.com/";
/// As Google has them, in seconds.
const GOOD_FOR: u64 = 3600;
/// New ones are made before the old ones are over.
const EARLY: u64 = 300;
const MACHINE: &str = "http://metadata.google.internal";
const OF_MACHINE: &str = "/computeMetadata/v1/instance/service-accounts/default/token";
/// It answers at once, or is not there.
const PATIENCE: Duration = Duration::from_secs(2);

/// A file of Google's.
#[derive(Deserialize)]
struct Account {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    client_email: String,
    #[serde(default)]
    private_key: String,
    #[serde(default)]
    private_key_id: String,
}

#[derive(Deserialize)]
struct Told {
    access_token: String,
    expires_in: u64,
}

/// Tokens that are good now.
#[derive(Default)]
pub(super) struct Source {
    /// And until when, in seconds since 1970.
    token: Mutex<Option<(String, u64)>>,
}

impl Source {
    pub(super) async fn get(&self) -> Result<String, BrokerError> {
        let now = now_ms() / 1000;
        let mut known = self.token.lock().await;
        if let Some((token, until)) = known.as_ref()
            && *until > now + EARLY
        {
            return Ok(token.clone());
        }
        let new = match std::env::var_os(FILE).filter(|path| !path.is_empty()) {
            Some(path) => {
                let json = std::fs::read(&path).map_err(|error| {
                    let path = Path::new(&path).display();
                    BrokerError::Refused(format!("`{path}` can't be read: {error}"))
                })?;
                (sign(&json, now)?, now + GOOD_FOR)
            }
            None => of_machine(now).await?,
        };
        *known = Some(new.clone());
        Ok(new.0)
    }
}

/// A token that the key of an account vouches for; nobody has to be asked for it.
fn sign(json: &[u8], now: u64) -> Result<String, BrokerError> {
    let unusable = |why: &str| BrokerError::Refused(format!("the file in {FILE} {why}"));
    let account: Account =
        serde_json::from_slice(json).map_err(|_| unusable("is no JSON of Google's"))?;
    if account.kind != "service_account" {
        return Err(unusable("is of no service account"));
    }
    let key = PrivatePkcs8KeyDer::from_pem_slice(account.private_key.as_bytes());
    let key = key.map_err(|_| unusable("has no key in PEM"))?;
    let key = RsaKeyPair::from_pkcs8(key.secret_pkcs8_der());
    let key = key.map_err(|_| unusable("has a key that can't be used"))?;
    let head = json!({"alg": "RS256", "typ": "JWT", "kid": account.private_key_id});
    let claims = json!({
        "iss": account.client_email,
        "sub": account.client_email,
        "aud": AUDIENCE,
        "iat": now,
        "exp": now + GOOD_FOR,
    });
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let (head, claims) = (head.to_string(), claims.to_string());
    let signed = format!("{}.{}", encode(head.as_bytes()), encode(claims.as_bytes()));
    let mut signature = vec![0; key.public_modulus_len()];
    let random = SystemRandom::new();
    let made = key.sign(
        &RSA_PKCS1_SHA256,
        &random,
        signed.as_bytes(),
        &mut signature,
    );
    made.map_err(|_| unusable("has a key that can't sign"))?;
    Ok(format!("{signed}.{}", encode(&signature)))
}

async fn of_machine(now: u64) -> Result<(String, u64), BrokerError> {
    let unknown = |why: &dyn std::fmt::Display| {
        BrokerError::Refused(format!(
            "there are no credentials: {FILE} is not set, and the machine's account is not told \
             ({why})"
        ))
    };
    let client = Client::new(MACHINE, PATIENCE)?;
    let flavor = HeaderName::from_static("metadata-flavor");
    let asked = HttpRequest {
        method: Method::GET,
        path: OF_MACHINE,
        fields: vec![(flavor, "Google".to_owned())],
        body: Bytes::new(),
    };
    let answer = client.ask(asked).await;
    let answer = answer.map_err(|error| unknown(&format!("{error:?}")))?;
    let told: Told = serde_json::from_slice(&answer.body).map_err(|error| unknown(&error))?;
    Ok((told.access_token, now + told.expires_in))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_token_is_signed_by_the_key_of_the_account() {
        let key = Command::new("openssl")
            .args(["genpkey", "-quiet", "-algorithm", "RSA"])
            .args(["-pkeyopt", "rsa_keygen_bits:2048"])
            .output()
            .expect("openssl is there");
        let key = String::from_utf8(key.stdout).expect("PEM is text");
        let account = json!({
            "type": "service_account",
            "client_email": "a@b",
            "private_key": key,
            "private_key_id": "1",
        });
        let Ok(token) = sign(account.to_string().as_bytes(), 1000) else {
            panic!("the key is good");
        };
        let parts: Vec<_> = token.split('.').collect();
        let claims = URL_SAFE_NO_PAD.decode(parts[1]).expect("it is base64");
        let claims: serde_json::Value = serde_json::from_slice(&claims).expect("it is JSON");
        assert_eq!((parts.len(), &claims["exp"]), (3, &4600.into()));
        assert_eq!(claims["iss"], "a@b");
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said() {
        let of_user = r#"{"type":"authorized_user"}"#;
        let no_key = r#"{"type":"service_account","private_key":"x"}"#;
        for (json, why) in [
            ("x", "is no JSON of Google's"),
            (of_user, "is of no service account"),
            (no_key, "has no key in PEM"),
        ] {
            let why = format!("the file in {FILE} {why}");
            assert_eq!(sign(json.as_bytes(), 0), Err(BrokerError::Refused(why)));
        }
    }
}
