//! Encryption on the way to a broker, and who this server is there.

use std::path::PathBuf;

use pronghorn_config::Table;

/// What a connection is encrypted with, where its address asks for that. All files are PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BrokerTls {
    /// Whom to trust; the system's when not written.
    pub(crate) root_ca: Option<PathBuf>,
    /// The certificate of this server, with those between it and its root, and its key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
}

impl BrokerTls {
    pub(crate) fn read(t: &mut Table<'_>) -> Self {
        let sentence = "Encryption, with an address that asks for it.";
        t.section_with("tls", sentence, |t| {
            let root_ca = "A file with the certificates to trust, in PEM; those of the system when \
                           not written.";
            let root_ca = t.key("root_ca", root_ca).is_path().optional();
            let cert = "A file with the certificate by which the broker knows this server, in PEM.";
            let cert = t.key("cert", cert).is_path().optional();
            let key = "A file with the key of `cert`, in PEM.";
            let key = t.key("key", key).is_path().optional();
            if cert.is_some() != key.is_some() {
                let (there, missing) = if cert.is_some() {
                    ("cert", "key")
                } else {
                    ("key", "cert")
                };
                let message = format!("stands without `{missing}`");
                t.error(there, &message, &format!("add `{missing}`, a file in PEM"));
            }
            t.no_effect(
                "timeout",
                "a connection that is not there after ten seconds is given up",
            );
            t.no_effect(
                "client_auth_type",
                "the broker says whether it asks for a certificate",
            );
            Self {
                root_ca,
                identity: cert.zip(key),
            }
        })
    }
}
