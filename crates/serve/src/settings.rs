//! Keys that the listeners of several services have.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pronghorn_config::{Choice, Subnet, Table};

use crate::proxy_protocol::ProxyProtocol;
use crate::tls::{Authorities, CertificateError, ClientCertificates, Pair};

/// As RoadRunner's: a header is the first that a load balancer sends.
const HEADER_TIME: Duration = Duration::from_secs(5);
const HEADER_TIMES: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_mins(5);

/// The files of `cert` and `key`, which belong together. None where neither is there, or one is
/// wrong, which is told.
pub fn read_pair(
    t: &mut Table<'_>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
) -> Option<Pair> {
    if key
        .as_ref()
        .is_some_and(|key| key.as_os_str().as_encoded_bytes().starts_with(b"-----"))
    {
        let hint = "write it into a file that only the server can read, and its path here";
        t.error("key", "is a key and not the path of one", hint);
        return None;
    }
    match (certificate, key) {
        (Some(certificate), Some(key)) => Some(Pair { certificate, key }),
        (Some(_), None) => {
            t.error("cert", "has no key", "add `key: privkey.pem`");
            None
        }
        (None, Some(_)) => {
            t.error("key", "has no certificate", "add `cert: fullchain.pem`");
            None
        }
        (None, None) => None,
    }
}

/// `client_auth_type`, by Go's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAuth {
    #[default]
    None,
    Request,
    RequireAny,
    VerifyIfGiven,
    RequireAndVerify,
}

impl Choice for ClientAuth {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("no_client_cert", Self::None),
        ("no_client_certs", Self::None), // RoadRunner's pages
        ("request_client_cert", Self::Request),
        ("require_any_client_cert", Self::RequireAny),
        ("verify_client_cert_if_given", Self::VerifyIfGiven),
        ("require_and_verify_client_cert", Self::RequireAndVerify),
    ];
}

/// Which clients of a listener have to show a certificate, and of whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertifiedClients {
    /// The only authorities whose certificates of clients count.
    pub root_ca: Option<PathBuf>,
    /// Certificates that these authorities have revoked.
    pub crl: Option<PathBuf>,
    pub auth: ClientAuth,
}

impl CertifiedClients {
    /// The keys of a section of TLS, which may be one of RoadRunner's.
    pub fn read(t: &mut Table<'_>, is_roadrunners: bool) -> Self {
        let key = t.key(
            "root_ca",
            "A PEM file with the authorities whose client certificates are accepted. Other \
             authorities do not count.",
        );
        let key = if is_roadrunners {
            key.differs(
                "the system's authorities count as well",
                "any of those could certify a stranger",
            )
        } else {
            key
        };
        let root_ca: Option<PathBuf> = key.optional();
        let crl: Option<PathBuf> = t
            .key(
                "crl",
                "A PEM file with the lists of revoked certificates (CRLs) of the authorities in \
                 `root_ca`. With it, each of them needs a list here, also those between an \
                 authority and a client. A changed file takes effect within five seconds.",
            )
            .ours()
            .is_path()
            .optional();
        let auth = t
            .key(
                "client_auth_type",
                "Whether clients must show a certificate.",
            )
            .default(ClientAuth::None);
        if auth != ClientAuth::None && root_ca.is_none() && !t.is_written("root_ca") {
            let message = "needs `root_ca`, the authorities of clients";
            t.error("client_auth_type", message, "add `root_ca`, a file in PEM");
        }
        if root_ca.is_some() && auth == ClientAuth::None {
            let hint = "`client_auth_type: require_and_verify_client_cert` lets only certified \
                        clients in";
            t.warn(
                "root_ca",
                "has no effect: no client is asked for a certificate",
                hint,
            );
        }
        let verifies = matches!(
            auth,
            ClientAuth::VerifyIfGiven | ClientAuth::RequireAndVerify
        );
        if crl.is_some() && !verifies {
            let hint = "`client_auth_type: require_and_verify_client_cert` checks certificates";
            t.error("crl", "has no effect: no certificate is checked", hint);
        }
        Self { root_ca, crl, auth }
    }

    /// Reads the file of authorities. None where no client is asked for a certificate.
    ///
    /// # Errors
    ///
    /// When the file can't be read, or has none.
    pub fn load(&self, directory: &Path) -> Result<Option<ClientCertificates>, CertificateError> {
        // Without one, settings are not read so far.
        let file = directory.join(self.root_ca.as_deref().unwrap_or_else(|| "".as_ref()));
        let crl = self.crl.as_ref().map(|crl| directory.join(crl));
        let of = |required| {
            Ok(ClientCertificates::Of {
                authorities: Authorities::read(&file, crl.as_deref())?,
                required,
            })
        };
        Ok(Some(match self.auth {
            ClientAuth::None => return Ok(None),
            ClientAuth::Request => ClientCertificates::Any { required: false },
            ClientAuth::RequireAny => ClientCertificates::Any { required: true },
            ClientAuth::VerifyIfGiven => of(false)?,
            ClientAuth::RequireAndVerify => of(true)?,
        }))
    }
}

/// The section `proxy_protocol` of a listener.
pub fn read_proxies(t: &mut Table<'_>, is_unix: bool) -> Option<ProxyProtocol> {
    t.optional_section_with(
        "proxy_protocol",
        "The PROXY protocol. Each connection must begin with a PROXY header, version 1 or 2, in \
         which a load balancer names the client. Without this section, the server reads no such \
         header.",
        |t| {
            let trusted: Option<Vec<Subnet>> = t
                .key(
                    "trusted_proxies",
                    "The addresses of the load balancers. Connections from other addresses are \
                     refused. A unix socket does not need this key, because its mode says who may \
                     connect.",
                )
                .optional();
            let is_missing = match &trusted {
                Some(trusted) => trusted.is_empty(),
                None => !t.is_written("trusted_proxies"), // else it is wrong, which is said
            };
            let trusted = trusted.unwrap_or_default();
            if is_missing && !is_unix {
                t.error(
                    "trusted_proxies",
                    "is empty: nobody may connect",
                    "name the load balancers, for example `trusted_proxies: [10.0.0.0/8]`",
                );
            }
            if !trusted.is_empty() && is_unix {
                t.warn(
                    "trusted_proxies",
                    "has no effect for a unix socket, whose clients have no address",
                    "the socket's mode says who may connect",
                );
            }
            ProxyProtocol {
                trusted,
                timeout: t
                    .key("read_header_timeout", "Time limit for the PROXY header.")
                    .zero_is_default()
                    .range(HEADER_TIMES)
                    .default(HEADER_TIME),
            }
        },
    )
}
