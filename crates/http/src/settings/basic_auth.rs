//! `basic_auth` of a route.

use std::path::PathBuf;

use pronghorn_config::Table;

/// The users of a route, by name and password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasicAuthSettings {
    /// Names with hashes, as `htpasswd` writes them.
    pub user_file: PathBuf,
    /// The only names of it that may come in; empty is all.
    pub users: Vec<String>,
    /// The text that browsers show.
    pub realm: String,
}

impl BasicAuthSettings {
    /// None, and an error, without a file.
    pub(super) fn read(t: &mut Table<'_>) -> Option<Self> {
        t.ours();
        t.live();
        let was_written = t.is_written("user_file");
        let user_file: Option<PathBuf> = t
            .key(
                "user_file",
                "A file with one user per line: a name, a colon and a hash of the password, as \
                 `htpasswd -B` writes it. Accepted hashes are bcrypt, Argon2, SHA-crypt (`$5$`, \
                 `$6$`), `$apr1$`, `{SHA}` and `{SSHA}`. The server checks the file for changes \
                 once a second.",
            )
            .optional();
        if !was_written {
            let hint =
                "make one with `htpasswd -cB .htpasswd NAME`, and write `user_file: .htpasswd`";
            t.error("user_file", "is missing", hint);
        }
        let users: Vec<String> = t
            .key(
                "users",
                "The names of the file that are allowed. By default, all of them are.",
            )
            .optional()
            .unwrap_or_default();
        if users.is_empty() && t.is_written("users") {
            let hint = "give it names; without the key all names of the file may come in";
            t.error("users", "is empty: nobody could come in", hint);
        }
        let realm: String = t
            .key(
                "realm",
                "The name of the protected area. Some browsers show it when they ask for the \
                 password.",
            )
            .default("Restricted".to_owned());
        if realm.chars().any(char::is_control) {
            t.error("realm", "has control characters", "write a few words");
        }
        user_file.map(|user_file| Self {
            user_file,
            users,
            realm,
        })
    }
}
