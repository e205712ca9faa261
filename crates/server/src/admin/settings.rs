//! The section `admin`.

use pronghorn_config::{Address, Listen, Section, Table};

/// Beside those of health checks and metrics, this machine only.
const HOST: &str = "127.0.0.1";
const PORT: u16 = 2115;
/// As many letters as nobody guesses.
const SHORTEST_TOKEN: usize = 16;

/// What a server shows of itself.
#[derive(Clone, Debug)]
pub(super) struct AdminSettings {
    pub(super) listen: Listen,
    /// What clients send as `Authorization: Bearer TOKEN`.
    pub(super) token: Option<String>,
}

impl Section for AdminSettings {
    fn read(t: &mut Table<'_>) -> Self {
        t.ours();
        let listen = t
            .key(
                "listen",
                "The address to listen on, or a unix socket (`unix:///run/app/admin.sock`), which \
                 only the server's user may use.",
            )
            .default(Listen::Tcp(Address {
                host: Some(HOST.to_owned()),
                port: PORT,
            }));
        let token: Option<String> = t
            .key(
                "token",
                "The token that clients send as `Authorization: Bearer TOKEN`, with at least 16 \
                 characters. Health checks do not need it. It is required if other machines can \
                 reach the address.",
            )
            .guards()
            .optional();
        if let Some(token) = &token
            && (token.len() < SHORTEST_TOKEN || !token.bytes().all(|byte| byte.is_ascii_graphic()))
        {
            let hint =
                "16 or more printable characters without spaces: `openssl rand -hex 16` makes some";
            t.error("token", "is no token", hint);
        }
        if token.is_none() && listen.is_public() {
            let hint = "set `admin.token`, or listen on `127.0.0.1` or a unix socket";
            t.error(
                "listen",
                "is reached by other machines, and there is no `token`",
                hint,
            );
        }
        Self { listen, token }
    }
}
