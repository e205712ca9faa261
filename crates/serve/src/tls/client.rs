//! Certificates of clients: who must show one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};

use super::certificate::{CertificateError, ReadState, Stamp, certificates, revocation_lists};

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

/// Certificates of authorities, from one file in PEM, and the certificates that they have revoked.
#[derive(Debug, Clone)]
pub struct Authorities {
    pub(super) file: PathBuf,
    /// The file with lists of revoked certificates, if there is one.
    crl: Option<PathBuf>,
    roots: Vec<CertificateDer<'static>>,
    revoked: Vec<CertificateRevocationListDer<'static>>,
    pub(super) read: ReadState,
}

impl Authorities {
    /// Reads them.
    ///
    /// # Errors
    ///
    /// When a file can't be read, has none, or has one that can't be used.
    pub fn read(file: &Path, crl: Option<&Path>) -> Result<Self, CertificateError> {
        let stamp = stamp(file, crl);
        let authorities = Self {
            roots: certificates(file)?,
            revoked: crl.map_or_else(|| Ok(Vec::new()), revocation_lists)?,
            file: file.to_owned(),
            crl: crl.map(Path::to_owned),
            read: ReadState::new(stamp),
        };
        let broken = |path: &Path| {
            let path = path.to_owned();
            move |cause| CertificateError::Broken { path, cause }
        };
        authorities.store().map_err(broken(file))?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let built = authorities.build(&provider, true);
        built.map_err(broken(crl.unwrap_or(file)))?;
        Ok(authorities)
    }

    /// Reads the same files again.
    pub(super) fn read_again(&self) -> Result<Self, CertificateError> {
        Self::read(&self.file, self.crl.as_deref())
    }

    /// The state of the files at this moment.
    pub(super) fn stamp(&self) -> Stamp {
        stamp(&self.file, self.crl.as_deref())
    }

    /// Whether both let the same clients in.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.roots == other.roots && self.revoked == other.revoked
    }

    /// Takes what was read.
    pub(super) fn take(&mut self, new: Self) {
        self.roots = new.roots;
        self.revoked = new.revoked;
    }

    fn build(
        &self,
        provider: &Arc<CryptoProvider>,
        required: bool,
    ) -> Result<Arc<dyn ClientCertVerifier>, rustls::Error> {
        let roots = Arc::new(self.store()?);
        let builder = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
        // With lists, each certificate must be on none of its authority's, which must be there.
        let builder = builder.with_crls(self.revoked.iter().cloned());
        let builder = if required {
            builder
        } else {
            builder.allow_unauthenticated()
        };
        let built = builder.build();
        built.map_err(|error| rustls::Error::General(error.to_string()))
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
        match self {
            Self::Any { required } => {
                let provider = provider.clone();
                Ok(Arc::new(AnyClient { required, provider }))
            }
            Self::Of {
                authorities,
                required,
            } => authorities.build(provider, required),
        }
    }
}

fn stamp(file: &Path, crl: Option<&Path>) -> Stamp {
    let files: Vec<&Path> = [file].into_iter().chain(crl).collect();
    Stamp::of(&files)
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
