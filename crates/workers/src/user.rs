//! Who workers are.

use std::sync::Arc;

use pronghorn_process::{Credentials, LookupError};
use thiserror::Error;

use crate::settings::{PoolSettings, ServerSettings};

/// The user that workers run as, by the name in the configuration.
pub type WorkerUser = (String, Credentials);

/// Why workers can't run as the configuration says. The operator's.
#[derive(Debug, Error)]
#[error("`{key}` {what}\nhint: {hint}")]
pub struct UserError {
    /// The key's path.
    pub key: String,
    /// What is wrong with it.
    pub what: String,
    /// What to do.
    pub hint: String,
    /// Whether another user might start it so.
    pub is_about_us: bool,
}

impl UserError {
    fn new(section: &str, key: &str, what: String, hint: &str) -> Self {
        Self {
            key: format!("{section}.{key}"),
            what,
            hint: hint.to_owned(),
            is_about_us: false,
        }
    }

    fn unknown(section: &str, error: &LookupError) -> Self {
        let (key, hint) = match error {
            LookupError::NoSuchGroup(_) => ("group", "groupadd --system"),
            LookupError::NoSuchUser(_) | LookupError::Database { .. } => {
                ("user", "useradd --system --no-create-home")
            }
        };
        let hint = format!("name another one, or add it: `{hint} NAME`");
        Self::new(section, key, format!("names nobody: {error}"), &hint)
    }

    fn group_alone(section: &str) -> Self {
        let what = "is written, and no `user`: it has no effect alone".to_owned();
        Self::new(section, "group", what, "write `user` beside it")
    }

    fn root(section: &str) -> Self {
        let what = "is root, and whoever breaks into the application becomes root".to_owned();
        let hint = "write another user, `www-data` for instance; `server: {allow_root: true}` \
                    allows it";
        Self::new(section, "user", what, hint)
    }

    fn not_root(section: &str, name: &str) -> Self {
        let what = format!("is `{name}`, and only root may start processes of another user");
        let hint = format!("start the server as {name} and remove the key, or start it as root");
        Self {
            is_about_us: true,
            ..Self::new(section, "user", what, &hint)
        }
    }
}

/// Who the workers of a server are, pool by pool, as it was at the start: a reload changes nobody.
#[derive(Clone, Debug, Default)]
pub struct WorkerUsers {
    server: Option<WorkerUser>,
    /// Of pools with a user of their own, by their names.
    pools: Arc<[(String, Option<WorkerUser>)]>,
    are_several: bool,
}

impl WorkerUsers {
    /// `pools` are sections, names and settings.
    ///
    /// # Errors
    ///
    /// When there is no such user or group, or this process may not become it.
    pub fn look_up<'a>(
        server: &ServerSettings,
        pools: impl Iterator<Item = (String, &'a str, &'a PoolSettings)>,
    ) -> Result<Self, UserError> {
        let of_server = match server.user.as_deref() {
            // RoadRunner ignores a group as well.
            None => None,
            Some(user) => look_up("server", user, server.group.as_deref(), server.allow_root)?,
        };
        let mut own = Vec::new();
        let mut users = Vec::new();
        for (section, name, settings) in pools {
            let user = match of_pool(&section, settings, server) {
                Some(found) => {
                    let user = found?;
                    own.push((name.to_owned(), user.clone()));
                    user
                }
                None => of_server.clone(),
            };
            let user = user.map(|(_, user)| user.uid());
            // Those at addresses are somebody else's, and call nothing.
            if settings.addresses().is_empty() && !users.contains(&user) {
                users.push(user);
            }
        }
        Ok(Self {
            server: of_server,
            pools: own.into(),
            are_several: users.len() > 1,
        })
    }

    /// As `server.user` says; None where that is the server's own user.
    #[must_use]
    pub fn of_server(&self) -> Option<&WorkerUser> {
        self.server.as_ref()
    }

    /// Of a pool; None where that is the server's own user.
    #[must_use]
    pub fn of_pool(&self, name: &str) -> Option<&WorkerUser> {
        let mut own = self.pools.iter();
        match own.find(|(known, _)| known == name) {
            Some((_, user)) => user.as_ref(),
            None => self.server.as_ref(),
        }
    }

    /// Whether two pools have different users.
    #[must_use]
    pub fn differ(&self) -> bool {
        self.are_several
    }

    /// All of them, each once, the one that `server.user` names first; None is the server's own
    /// user.
    #[must_use]
    pub fn all(&self) -> Vec<Option<Credentials>> {
        let own = self.pools.iter().map(|(_, user)| user);
        let mut all: Vec<Option<Credentials>> = Vec::new();
        for user in std::iter::once(&self.server).chain(own) {
            let user = user.as_ref().map(|(_, user)| user.clone());
            if !all.contains(&user) {
                all.push(user);
            }
        }
        all
    }
}

/// None for a pool whose workers are as `server.user` says.
fn of_pool(
    section: &str,
    settings: &PoolSettings,
    server: &ServerSettings,
) -> Option<Result<Option<WorkerUser>, UserError>> {
    let own = (
        settings.common.user.as_deref(),
        settings.common.group.as_deref(),
    );
    let (user, group) = match own {
        (None, None) => return None,
        (Some(user), group) => (user, group),
        (None, group) => match server.user.as_deref() {
            Some(user) => (user, group),
            None => return Some(Err(UserError::group_alone(section))),
        },
    };
    Some(look_up(section, user, group, server.allow_root))
}

/// None where workers run as the server itself does.
fn look_up(
    section: &str,
    user: &str,
    group: Option<&str>,
    allow_root: bool,
) -> Result<Option<WorkerUser>, UserError> {
    let found = Credentials::look_up(user, group);
    let credentials = found.map_err(|error| UserError::unknown(section, &error))?;
    let may_change = Credentials::may_change();
    if credentials.is_root() && may_change && !allow_root {
        return Err(UserError::root(section));
    }
    if credentials.is_current() {
        return Ok(None);
    }
    if !may_change {
        return Err(UserError::not_root(section, user));
    }
    Ok(Some((user.to_owned(), credentials)))
}

#[cfg(test)]
mod tests {
    use pronghorn_config::{Input, Section, Severity, load};

    use super::*;

    fn read<S: Section>(text: &str) -> S {
        let loaded = load(&Input::from_text("a.yaml", text));
        let settings = loaded.resolve::<S>(Severity::Error).into_settings();
        settings.expect("what the test writes is right")
    }

    fn look(server: &str, pool: &str) -> Result<WorkerUsers, String> {
        let (server, pool): (ServerSettings, PoolSettings) = (read(server), read(pool));
        let pools = [("http.pools.a".to_owned(), "a", &pool)];
        WorkerUsers::look_up(&server, pools.into_iter()).map_err(|error| error.to_string())
    }

    fn names(users: &WorkerUsers) -> [Option<&str>; 2] {
        [users.of_server(), users.of_pool("a")].map(|user| user.map(|(name, _)| &**name))
    }

    #[test]
    fn a_pool_has_its_own_user_or_the_servers() {
        if !Credentials::may_change() {
            return;
        }
        for (server, pool, expected) in [
            ("{}", "{}", [None, None]),
            ("{user: nobody}", "{}", [Some("nobody"), Some("nobody")]),
            ("{}", "{user: nobody}", [None, Some("nobody")]),
            (
                "{user: nobody}",
                "{user: daemon}",
                [Some("nobody"), Some("daemon")],
            ),
            (
                "{user: nobody}",
                "{group: daemon}",
                [Some("nobody"), Some("nobody")],
            ),
            (
                "{user: nobody, allow_root: true}",
                "{user: root}",
                [Some("nobody"), None],
            ),
        ] {
            let users = look(server, pool).unwrap();
            assert_eq!(names(&users), expected, "{server} {pool}");
        }
        let users = look("{user: nobody}", "{group: daemon}").unwrap();
        let daemon = pronghorn_process::group_id("daemon").unwrap();
        assert_eq!(users.of_pool("a").unwrap().1.gid(), daemon);
        assert_eq!(users.all().len(), 2);
    }

    #[test]
    fn root_is_allowed_in_words_only() {
        if !Credentials::may_change() {
            return;
        }
        for (server, pool, section) in [
            ("{user: root}", "{}", "server"),
            ("{user: '0'}", "{}", "server"),
            (
                "{user: nobody}",
                "{user: root, group: nogroup}",
                "http.pools.a",
            ),
        ] {
            let why = look(server, pool).unwrap_err();
            assert!(
                why.starts_with(&format!("`{section}.user` is root")),
                "{why}"
            );
            assert!(why.contains("allow_root: true"), "{why}");
        }
    }

    #[test]
    fn who_is_nobody_here_is_told_with_the_key() {
        for (server, pool, expected) in [
            (
                "{user: no-such-user}",
                "{}",
                "`server.user` names nobody: no user",
            ),
            (
                "{}",
                "{user: no-such-user}",
                "`http.pools.a.user` names nobody: no user",
            ),
            (
                "{}",
                "{user: nobody, group: no-such-group}",
                "`http.pools.a.group` names nobody: no group",
            ),
            (
                "{}",
                "{group: nogroup}",
                "`http.pools.a.group` is written, and no `user`",
            ),
        ] {
            let why = look(server, pool).unwrap_err();
            assert!(why.contains(expected), "{why}");
        }
    }
}
