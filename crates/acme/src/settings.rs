//! The section `http.ssl.acme`.

use std::path::PathBuf;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use pronghorn_config::{Node, Section, Setting, Shown, Table, Wrong};

use crate::api::Binding;
use crate::challenge::Challenge;

const ZERO_SSL: &str = "https://acme.zerossl.com/v2/DV90";
/// The longest name in DNS, and its longest part.
const LONGEST_NAME: usize = 253;
const LONGEST_LABEL: usize = 63;
/// Each has an order of its own.
const MOST_DOMAINS: usize = 1000;

/// `http.ssl.acme`.
#[derive(Clone, Debug)]
pub struct AcmeSettings {
    pub domains: Vec<Domain>,
    pub email: Option<String>,
    /// The first one is asked; the others if it fails.
    pub directories: Vec<Directory>,
    /// None: both kinds that need no DNS.
    pub challenge: Option<Challenge>,
    pub root_ca: Option<PathBuf>,
    /// The kind of certificate, by the authority's name for it.
    pub profile: Option<String>,
    pub(crate) binding: Option<Binding>,
    /// RoadRunner's certificates, which are taken over.
    pub cache: Option<PathBuf>,
}

impl AcmeSettings {
    /// The challenges that are tried, one after the other.
    pub(crate) fn challenges(&self) -> Vec<Challenge> {
        match self.challenge {
            Some(challenge) => vec![challenge],
            None => vec![Challenge::Http, Challenge::TlsAlpn],
        }
    }
}

impl Section for AcmeSettings {
    fn read(t: &mut Table<'_>) -> Self {
        let is_production = t
            .key(
                "use_production_endpoint",
                "Whether Let's Encrypt gives certificates that clients trust. `false` asks its \
                 staging authority. `directory` overrides this key.",
            )
            .roadrunner(
                "false",
                "certificates of the staging authority are trusted by no client",
            )
            .default(true);
        let default = if is_production {
            Directory::LetsEncrypt
        } else {
            Directory::LetsEncryptStaging
        };
        let directories = t
            .key(
                "directory",
                "The certificate authority: `letsencrypt`, `letsencrypt-staging`, `zerossl`, or \
                 the address of its ACME directory. Of several, the next one is asked if one can't \
                 be reached, takes no orders now, or has failed with each challenge.",
            )
            .ours()
            .default_as(vec![default], "`letsencrypt`");
        let domains: Vec<Domain> = t
            .key(
                "domains",
                "The host names that the server fetches certificates for, one certificate each.",
            )
            .default(Vec::new());
        let settings = Self {
            email: t
                .key("email", "An address at which the authority can reach you.")
                .optional(),
            challenge: t
                .key(
                    "challenge_type",
                    "How the server shows that a name is its own. By default it tries `http-01` \
                     and `tls-alpn-01` in turn. `dns-persist-01` is a record in DNS that you make \
                     once; the log says which.",
                )
                .roadrunner(
                    "http-01",
                    "a site whose port 80 is closed gets its certificate by the other one",
                )
                .optional(),
            root_ca: t
                .key(
                    "root_ca",
                    "A PEM file with the certificates to trust at `directory`, for an authority \
                     of your own. By default those of the system.",
                )
                .ours()
                .optional(),
            profile: t
                .key(
                    "profile",
                    "The authority's name for a kind of certificate. Let's Encrypt has `shortlived` \
                     for certificates of six days.",
                )
                .ours()
                .optional(),
            binding: t
                .optional_section_with(
                    "eab",
                    "The account at an authority that gives certificates only to accounts which \
                     were made on its website (External Account Binding), as ZeroSSL does. An \
                     authority that does not ask for it gets none.",
                    read_binding,
                )
                .flatten(),
            cache: t
                .key(
                    "cache_dir",
                    "RoadRunner's directory of certificates. Those that are not in `state_dir` yet \
                     are copied from there at the start. Nothing is written to it.",
                )
                .differs(
                    "certificates are kept there",
                    "the state directory has all that outlives the server",
                )
                .is_path()
                .optional(),
            directories,
            domains,
        };
        for (name, why) in [
            (
                "alt_http_port",
                "the server answers at each address without TLS",
            ),
            (
                "alt_tlsalpn_port",
                "the server answers at each address with TLS",
            ),
        ] {
            t.no_effect(name, why);
        }
        settings.check(t);
        settings
    }
}

impl AcmeSettings {
    fn check(&self, t: &mut Table<'_>) {
        if self.domains.is_empty() && !t.is_written("domains") {
            let hint = "for example `domains: [example.com, www.example.com]`";
            t.error("domains", "is missing", hint);
        } else if self.domains.len() > MOST_DOMAINS {
            let message = format!("has more than {MOST_DOMAINS} names");
            let hint = "each name has a certificate of its own: leave some to another server";
            t.error("domains", &message, hint);
        }
        let mut seen = std::collections::HashSet::new();
        for domain in &self.domains {
            if !seen.insert(domain) {
                let message = format!("has `{}` twice", domain.0);
                t.error("domains", &message, "once is enough");
            }
        }
        let is_dns = self.challenge == Some(Challenge::DnsPersist);
        if let Some(all) = self.domains.iter().find(|domain| domain.is_wildcard())
            && !is_dns
        {
            let message = format!(
                "has `{}`, and authorities verify such a name in DNS alone",
                all.as_str()
            );
            let hint = "write `challenge_type: dns-persist-01`, or name each host";
            t.error("domains", &message, hint);
        }
        if self.directories.is_empty() {
            t.error(
                "directory",
                "is empty",
                "for example `directory: letsencrypt`",
            );
        }
        if self.directories.contains(&Directory::ZeroSsl) && !t.is_written("eab") {
            let hint = "ZeroSSL shows both on its page for developers: \
                        `eab: {kid: …, hmac_key: …}`";
            t.error("directory", "has `zerossl`, which needs `eab`", hint);
        }
        if t.is_written("directory") && t.is_written("use_production_endpoint") {
            t.warn(
                "use_production_endpoint",
                "has no effect beside `directory`",
                "remove one of the two",
            );
        }
    }
}

fn read_binding(t: &mut Table<'_>) -> Option<Binding> {
    t.ours();
    let kid: Option<String> = t.key("kid", "The account's name.").optional();
    let key: Option<String> = t
        .key("hmac_key", "The account's key, in base64.")
        .secret()
        .optional();
    for name in ["kid", "hmac_key"] {
        if !t.is_written(name) {
            t.error(
                name,
                "is missing",
                "the authority shows `kid` and `hmac_key` together",
            );
        }
    }
    // Authorities show it with and without padding.
    let decode = |key: String| {
        let key = key.trim().trim_end_matches('=');
        let key = key.replace('+', "-").replace('/', "_");
        BASE64.decode(key).ok().filter(|key| !key.is_empty())
    };
    let is_given = key.is_some();
    let hmac_key = key.and_then(decode);
    if is_given && hmac_key.is_none() {
        let hint = "copy the whole key that the authority shows";
        t.error("hmac_key", "is not base64", hint);
    }
    let (kid, hmac_key) = (kid?, hmac_key?);
    Some(Binding { kid, hmac_key })
}

/// A host's name, in lower case.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Domain(String);

impl Domain {
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let name = text.trim().trim_end_matches('.').to_ascii_lowercase();
        if !name.is_ascii() {
            return Err("write it as DNS has it, beginning with `xn--`");
        }
        let base = name.strip_prefix("*.").unwrap_or(&name);
        let is_label = |label: &str| {
            let sign = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            (1..=LONGEST_LABEL).contains(&label.len())
                && label.bytes().all(sign)
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        let is_address = name
            .rsplit('.')
            .next()
            .is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
        if is_address || name.contains(':') {
            return Err("an address is no name: certificates are for host names");
        }
        if name.len() > LONGEST_NAME || !base.split('.').all(is_label) {
            return Err("");
        }
        Ok(Self(name))
    }

    /// Whether it stands for all names of a domain.
    pub fn is_wildcard(&self) -> bool {
        self.0.starts_with('*')
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Setting for Domain {
    fn example() -> String {
        "example.com".to_owned()
    }

    fn accepts() -> String {
        "a host name, or `*.` and a host name".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let Some(text) = node.text() else {
            return Err(Wrong::value(node));
        };
        Self::parse(text).map_err(|why| Wrong::hinted(node, why))
    }

    fn show(&self) -> Shown {
        Shown::One(self.0.clone())
    }
}

/// An authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Directory {
    LetsEncrypt,
    LetsEncryptStaging,
    ZeroSsl,
    /// Its address.
    Url(String),
}

impl Directory {
    /// Let's Encrypt, for certificates that clients trust.
    pub(crate) const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";
    pub(crate) const LETS_ENCRYPT_STAGING: &str =
        "https://acme-staging-v02.api.letsencrypt.org/directory";
    const NAMES: [(&'static str, Self); 3] = [
        ("letsencrypt", Self::LetsEncrypt),
        ("letsencrypt-staging", Self::LetsEncryptStaging),
        ("zerossl", Self::ZeroSsl),
    ];

    pub(crate) fn url(&self) -> &str {
        match self {
            Self::LetsEncrypt => Self::LETS_ENCRYPT,
            Self::LetsEncryptStaging => Self::LETS_ENCRYPT_STAGING,
            Self::ZeroSsl => ZERO_SSL,
            Self::Url(url) => url,
        }
    }
}

impl Setting for Directory {
    fn example() -> String {
        "letsencrypt".to_owned()
    }

    fn accepts() -> String {
        "`letsencrypt`, `letsencrypt-staging`, `zerossl`, or an address that begins with `https://`"
            .to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let Some(text) = node.text() else {
            return Err(Wrong::value(node));
        };
        let text = text.trim();
        let mut names = Self::NAMES.into_iter();
        if let Some((_, known)) = names.find(|(name, _)| *name == text) {
            return Ok(known);
        }
        let host = text.strip_prefix("https://");
        let has_host = host.is_some_and(|host| !host.is_empty() && !host.starts_with('/'));
        let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
        if !has_host || !is_plain {
            return Err(Wrong::value(node));
        }
        Ok(Self::Url(text.to_owned()))
    }

    fn show(&self) -> Shown {
        let mut names = Self::NAMES.into_iter();
        let name = names.find(|(_, known)| known == self).map(|(name, _)| name);
        Shown::One(name.unwrap_or_else(|| self.url()).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_hosts_are_taken_and_nothing_that_leads_out_of_a_directory() {
        for (text, name) in [
            ("Example.COM.", Some("example.com")),
            ("xn--bcher-kva.example", Some("xn--bcher-kva.example")),
            ("a-b.c", Some("a-b.c")),
            ("", None),
            ("..", None),
            ("a/b", None),
            ("a..b", None),
            ("-a.b", None),
            ("bücher.example", None),
            ("127.0.0.1", None),
            ("[::1]", None),
            ("*.example.com", Some("*.example.com")),
            ("*", None),
            ("a.*.example.com", None),
            ("*.*.example.com", None),
            ("*.", None),
        ] {
            let parsed = Domain::parse(text).ok();
            assert_eq!(parsed.as_ref().map(Domain::as_str), name, "{text}");
        }
    }
}
