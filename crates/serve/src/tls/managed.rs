//! A certificate that was fetched or made by the server itself.

use std::sync::Arc;

use rustls::InconsistentKeys;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::certificate::{Certificate, names};

/// A certificate with its key, from one text.
#[derive(Debug, Clone)]
pub struct Managed(pub(super) Arc<Certificate>);

impl Managed {
    /// Reads a key and its certificates in PEM.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn from_pem(pem: &[u8]) -> Result<Self, rustls::Error> {
        Self::read(pem, names)
    }

    /// The same of an answer to a challenge for this name: it has an extension that says it is no
    /// certificate of a site.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn for_challenge(pem: &[u8], name: &str) -> Result<Self, rustls::Error> {
        Self::read(pem, |_| Ok(vec![name.to_owned()]))
    }

    fn read(
        pem: &[u8],
        names: impl Fn(&CertificateDer<'_>) -> Result<Vec<String>, rustls::Error>,
    ) -> Result<Self, rustls::Error> {
        let broken = |what: &str| rustls::Error::General(what.to_owned());
        let key = PrivateKeyDer::from_pem_slice(pem).map_err(|_| broken("there is no key"))?;
        let chain: Vec<_> = CertificateDer::pem_slice_iter(pem)
            .collect::<Result<_, _>>()
            .map_err(|_| broken("a certificate is broken"))?;
        let first = chain
            .first()
            .ok_or_else(|| broken("there is no certificate"))?;
        let names = names(first)?;
        let key = aws_lc_rs::sign::any_supported_type(&key)?;
        let key = CertifiedKey::new(chain, key);
        // Keys of some kinds can't be compared.
        if let Err(error) = key.keys_match()
            && matches!(
                error,
                rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)
            )
        {
            return Err(error);
        }
        Ok(Self(Arc::new(Certificate {
            key: Arc::new(key),
            names,
        })))
    }

    /// The names that it is for, in lower case; may begin with `*.`.
    pub fn names(&self) -> &[String] {
        &self.0.names
    }

    /// The certificate alone, in DER.
    pub fn der(&self) -> &[u8] {
        self.0.key.cert.first().map_or(&[], |first| first)
    }
}
