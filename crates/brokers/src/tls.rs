//! Encryption on the way to a broker, and who this server is there.

use pronghorn_config::Table;

/// The TLS of a connection, if its address asks for it.
pub(crate) use pronghorn_client::Tls as BrokerTls;

pub(crate) fn read(t: &mut Table<'_>) -> BrokerTls {
    let sentence = "TLS, for an address that requires it.";
    t.section_with("tls", sentence, |t| {
        let root_ca = "A PEM file with the certificates to trust. By default, those of the system.";
        let root_ca = t.key("root_ca", root_ca).is_path().optional();
        let cert = "A PEM file with the certificate that this server presents to the broker.";
        let cert = t.key("cert", cert).is_path().optional();
        let key = "A PEM file with the private key of `cert`.";
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
            "connecting has a fixed time limit of ten seconds",
        );
        t.no_effect(
            "client_auth_type",
            "the broker decides whether it asks for a certificate",
        );
        BrokerTls {
            root_ca,
            identity: cert.zip(key),
        }
    })
}
