//! Names, looks, options and addresses by which something is known to be secret: the one table
//! that all masks go by. A test holds each row, and what must stay readable.

/// Stands for what is not shown.
pub(super) const MASK: &str = "***";

/// Anywhere in a name.
pub(super) const INSIDE: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "secret",
    "token",
    "credential",
    "private",
    "authorization",
    "apikey",
    "appkey",
    "accesskey",
    "authkey",
    "masterkey",
    "encryptionkey",
    "signingkey",
    "sessid",
];
/// A word of a name.
pub(super) const WORDS: &[&str] = &[
    "key",
    "keys",
    "pass",
    "pwd",
    "pw",
    "otp",
    "totp",
    "salt",
    "pepper",
    "jwt",
    "stripe",
    "bearer",
    "hmac",
    "signing",
    "signature",
    "encryption",
    "webhook",
];
/// Parts of names that don't make what follows a colon in a text secret: `private: true`, `the key:
/// users.email`. Names of settings and variables they do.
pub(super) const NOT_IN_TEXTS: &[&str] = &[
    "private",
    "key",
    "keys",
    "salt",
    "pepper",
    "stripe",
    "bearer",
    "signing",
    "signature",
    "encryption",
    "webhook",
];
/// Anywhere in the name of a field or a parameter of a request.
pub(super) const OF_REQUESTS: &[&str] = &["auth", "cookie", "session"];
/// Whole names of parameters of a query. Elsewhere these words have other meanings.
pub(super) const OF_QUERIES: &[&str] = &[
    "sig",
    "sid",
    "pin",
    "ticket",
    "assertion",
    "samlresponse",
    "code",
    "device_code",
    "user_code",
    "code_verifier",
];
/// A `code` that is no longer is one of HTTP, of a country, of a currency.
pub(super) const SHORT_CODE: usize = 3;
/// Fields whose value is more than a word.
pub(super) const LINES: &[&str] = &["authorization", "cookie"];

/// Beginnings of keys and tokens of well-known services, and of those in PEM.
pub(super) const SHAPES: &[&str] = &[
    "-----BEGIN",
    "sk_live_",
    "sk_test_",
    "rk_live_",
    "rk_test_",
    "whsec_",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "xoxr-",
    "xapp-",
    "AKIA",
    "ASIA",
    "AIza",
    "SG.",
];
/// The same, of which words may begin, too: only before so much as a token has.
pub(super) const LONG_SHAPES: &[&str] = &["sk-", "npm_", "pypi-", "shpat_", "dop_v1_", "ya29."];
/// Characters of a token that follow one of these.
pub(super) const LONG: usize = 16;

/// Ends of schemes of URLs in which a user without a password is a key or a token.
pub(super) const KEY_SCHEMES: &[&str] = &["http", "https", "nats"];

/// Addresses that are secret from there on.
pub(super) const ADDRESSES: &[&str] = &[
    "hooks.slack.com/services/",
    "hooks.slack.com/workflows/",
    "hooks.slack.com/triggers/",
    "discord.com/api/webhooks/",
    "discordapp.com/api/webhooks/",
    "webhook.office.com/webhookb2/",
    "api.telegram.org/bot",
];

/// Options of a program whose names do not say what they take.
pub(super) struct Program {
    pub(super) names: &'static [&'static str],
    /// They take a password, in the same word or the next one.
    pub(super) secrets: &'static [&'static str],
    /// They take `user:password`.
    pub(super) logins: &'static [&'static str],
}

/// Without these rows, the options mean something harmless: `docker ps -a`, `grep -w`, `mkdir -p`.
pub(super) const PROGRAMS: &[Program] = &[
    Program {
        names: &[
            "mysql",
            "mysqladmin",
            "mysqlbinlog",
            "mysqlcheck",
            "mysqldump",
            "mysqlimport",
            "mysqlpump",
            "mysqlsh",
            "mysqlshow",
            "mysqlslap",
            "mydumper",
            "myloader",
            "mariadb",
            "mariadb-admin",
            "mariadb-backup",
            "mariadb-binlog",
            "mariadb-check",
            "mariadb-dump",
            "mariadb-import",
            "mariadb-show",
            "mariadb-slap",
            "mariabackup",
            "xtrabackup",
            "sshpass",
            "mongo",
            "mongosh",
            "mongodump",
            "mongoexport",
            "mongoimport",
            "mongorestore",
            "mongostat",
            "mongotop",
            "7z",
            "7za",
            "7zr",
            "rar",
            "unrar",
            "docker",
            "podman",
        ],
        secrets: &["-p"],
        logins: &[],
    },
    Program {
        names: &["redis-cli", "valkey-cli", "keydb-cli"],
        secrets: &["-a"],
        logins: &[],
    },
    Program {
        names: &[
            "ldapsearch",
            "ldapadd",
            "ldapmodify",
            "ldapdelete",
            "ldapcompare",
            "ldapmodrdn",
            "ldapwhoami",
        ],
        secrets: &["-w"],
        logins: &[],
    },
    Program {
        names: &["ldappasswd"],
        secrets: &["-w", "-a", "-s"],
        logins: &[],
    },
    Program {
        names: &["mosquitto_pub", "mosquitto_sub", "mosquitto_rr"],
        secrets: &["-P"],
        logins: &[],
    },
    Program {
        names: &["sqlcmd", "tsql", "bcp", "ipmitool", "zip", "unzip"],
        secrets: &["-P"],
        logins: &[],
    },
    Program {
        names: &["http", "https", "xh", "xhs"],
        secrets: &[],
        logins: &["-a", "--auth"],
    },
];

/// The program that a word of a command starts.
pub(super) fn program(word: &str) -> Option<&'static Program> {
    let name = word.trim_matches(['"', '\'']).rsplit('/').next()?;
    let is_it = |program: &&Program| program.names.contains(&name);
    PROGRAMS.iter().find(is_it)
}
