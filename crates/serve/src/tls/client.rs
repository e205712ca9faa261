//! Certificates of clients: who must show one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};

use super::certificate::{CertificateError, ReadState, Stamp, certificates};

/// Which certificates clients show.
#[derive(Debug, Clone)]
pub enum ClientCertificates {
    /// Any: it proves no more than that the client has its key.
    Any { required: bool },
    /// Certificates of these authorities and of no others.
    Of {
        authorities: Authorities,
        required: bool,
    },
}

/// Certificates of authorities, from one file in PEM.
#[derive(Debug, Clone)]
pub struct Authorities {
    pub(super) file: PathBuf,
    pub(super) roots: Vec<CertificateDer<'static>>,
    pub(super) read: ReadState,
}

impl Authorities {
    /// Reads them.
    ///
    /// # Errors
    ///
    /// When the file can't be read, has none, or has one that can't be used.
    pub fn read(file: &Path) -> Result<Self, CertificateError> {
        let stamp = Self::stamp(file);
        let authorities = Self {
            roots: certificates(file)?,
            file: file.to_owned(),
            read: ReadState::new(stamp),
        };
        let broken = |cause| {
            let path = file.to_owned();
            CertificateError::Broken { path, cause }
        };
        authorities.store().map_err(broken)?;
        Ok(authorities)
    }

    pub(super) fn stamp(file: &Path) -> Stamp {
        Stamp::of(&[file])
    }

    fn store(&self) -> Result<RootCertStore, rustls::Error> {
        let mut store = RootCertStore::empty();
        for root in &self.roots {
            store.add(root.clone())?;
        }
        Ok(store)
    }
}

impl ClientCertificates {
    pub(super) fn verifier(
        self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, rustls::Error> {
        let (roots, required) = match self {
            Self::Any { required } => {
                let provider = provider.clone();
                return Ok(Arc::new(AnyClient { required, provider }));
            }
            Self::Of {
                authorities,
                required,
            } => (authorities.store()?, required),
        };
        let builder =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let builder = if required {
            builder
        } else {
            builder.allow_unauthenticated()
        };
        let built = builder.build();
        built.map_err(|error| rustls::Error::General(error.to_string()))
    }
}

/// Takes every certificate whose key the client has.
#[derive(Debug)]
struct AnyClient {
    required: bool,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        self.required
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
