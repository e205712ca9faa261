//! The key of an account, and requests signed by it (RFC 7515, ES256).

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use aws_lc_rs::{error::Unspecified, hmac};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use serde_json::{Value, json};

/// The key by which an authority knows this server. Nothing prints it.
pub(crate) struct AccountKey {
    pair: EcdsaKeyPair,
    pkcs8: Vec<u8>,
}

impl std::fmt::Debug for AccountKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccountKey").finish_non_exhaustive()
    }
}

/// Who signs a request.
#[derive(Clone, Copy)]
pub(crate) enum Signer<'a> {
    /// Before there is an account.
    Key(&'a AccountKey),
    /// With the account's address.
    Account(&'a AccountKey, &'a str),
}

impl AccountKey {
    pub(crate) fn generate() -> Result<Self, Unspecified> {
        let document =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())?;
        Self::from_pkcs8(document.as_ref())
    }

    pub(crate) fn from_pkcs8(pkcs8: &[u8]) -> Result<Self, Unspecified> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8);
        Ok(Self {
            pair: pair.map_err(|_| Unspecified)?,
            pkcs8: pkcs8.to_vec(),
        })
    }

    pub(crate) fn pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }

    /// The two coordinates of the public key, of 32 bytes each.
    fn coordinates(&self) -> (String, String) {
        let point = self.pair.public_key().as_ref();
        let (x, y) = point
            .get(1..)
            .and_then(|both| both.split_at_checked(32))
            .expect("a point of P-256 has 65 bytes");
        (BASE64.encode(x), BASE64.encode(y))
    }

    fn public(&self) -> Value {
        let (x, y) = self.coordinates();
        json!({"kty": "EC", "crv": "P-256", "x": x, "y": y})
    }

    /// The name of the public key (RFC 7638), which goes into answers to challenges.
    pub(crate) fn thumbprint(&self) -> String {
        let (x, y) = self.coordinates();
        let canonical = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
        BASE64.encode(sha256(canonical.as_bytes()))
    }

    /// The name of an existing account at the authority, signed by its secret: RFC 8555, section
    /// 7.3.4.
    pub(crate) fn bind(&self, id: &str, secret: &[u8], url: &str) -> Value {
        let header = encode(&json!({"alg": "HS256", "kid": id, "url": url}));
        let payload = encode(&self.public());
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let signature = hmac::sign(&key, format!("{header}.{payload}").as_bytes());
        let signature = BASE64.encode(signature);
        json!({"protected": header, "payload": payload, "signature": signature})
    }
}

impl Signer<'_> {
    /// The body of a request to this address. Without a payload it only reads.
    pub(crate) fn sign(
        self,
        url: &str,
        nonce: &str,
        payload: Option<&Value>,
    ) -> Result<Vec<u8>, Unspecified> {
        let mut header = json!({"alg": "ES256", "nonce": nonce, "url": url});
        let key = match self {
            Self::Key(key) => {
                header["jwk"] = key.public();
                key
            }
            Self::Account(key, account) => {
                header["kid"] = account.into();
                key
            }
        };
        let header = encode(&header);
        let payload = payload.map(encode).unwrap_or_default();
        let signed = format!("{header}.{payload}");
        let signature = key.pair.sign(&SystemRandom::new(), signed.as_bytes())?;
        let signature = BASE64.encode(signature);
        let body = json!({"protected": header, "payload": payload, "signature": signature});
        Ok(body.to_string().into_bytes())
    }
}

fn encode(value: &Value) -> String {
    BASE64.encode(value.to_string())
}

pub(crate) fn sha256(bytes: &[u8]) -> Vec<u8> {
    digest(&SHA256, bytes).as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

    use super::*;

    #[test]
    fn a_signed_request_is_verified_by_the_public_key_that_it_names() {
        let key = AccountKey::generate().unwrap();
        let again = AccountKey::from_pkcs8(key.pkcs8()).unwrap();
        assert_eq!(key.thumbprint(), again.thumbprint());
        let body = Signer::Key(&key)
            .sign("https://a.example/x", "nonce", Some(&json!({"a": 1})))
            .unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        let part = |name: &str| body[name].as_str().unwrap().to_owned();
        let signed = format!("{}.{}", part("protected"), part("payload"));
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.pair.public_key());
        let signature = BASE64.decode(part("signature")).unwrap();
        public.verify(signed.as_bytes(), &signature).unwrap();
        let header: Value =
            serde_json::from_slice(&BASE64.decode(part("protected")).unwrap()).unwrap();
        assert_eq!(header["nonce"], "nonce");
        assert_eq!(header["jwk"]["crv"], "P-256");
        assert!(header.get("kid").is_none());
        assert!(!format!("{key:?}").contains(&BASE64.encode(key.pkcs8())));
    }
}
