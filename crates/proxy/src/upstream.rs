//! An upstream: its servers, and which one gets a request.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use pronghorn_client::Tls;
use pronghorn_metrics::Registry;
use tokio::task::JoinSet;

use crate::server::Server;
use crate::settings::{Balance, UpstreamSettings};
use crate::watch::watch;

/// Servers that answer the same requests.
#[derive(Debug)]
pub struct Upstream {
    pub(crate) name: String,
    pub(crate) settings: UpstreamSettings,
    pub(crate) servers: Vec<Arc<Server>>,
    pub(crate) tls: Tls,
    /// Where the search for the least loaded server begins.
    turn: AtomicUsize,
    _checks: JoinSet<()>,
}

impl Upstream {
    /// Connects to nobody yet, but begins with health checks, if there are any: on the runtime that
    /// it is made on.
    pub fn new(name: &str, settings: &UpstreamSettings, metrics: Option<&Registry>) -> Arc<Self> {
        let metrics = metrics.map(|it| it.labelled("upstream", name));
        let servers: Vec<_> = settings
            .servers
            .iter()
            .map(|address| Server::new(address.clone(), metrics.as_ref()))
            .collect();
        let tls = Tls {
            root_ca: settings.root_ca.clone(),
            identity: None,
        };
        let mut checks = JoinSet::new();
        if let Some(health) = &settings.health {
            for server in &servers {
                let host = settings.host.clone();
                let ask = watch(
                    name.to_owned(),
                    server.clone(),
                    tls.clone(),
                    host,
                    health.clone(),
                );
                checks.spawn(ask);
            }
        }
        Arc::new(Self {
            name: name.to_owned(),
            settings: settings.clone(),
            servers,
            tls,
            turn: AtomicUsize::new(0),
            _checks: checks,
        })
    }

    /// The keys that it was made of.
    pub const fn settings(&self) -> &UpstreamSettings {
        &self.settings
    }

    /// The server for a request of this client, beside those that were tried. Of servers that have
    /// failed, the one whose time is up first. None where none passes its health checks.
    pub(crate) fn choose(
        &self,
        client: Option<IpAddr>,
        tried: &[Arc<Server>],
    ) -> Option<&Arc<Server>> {
        let is_new = |server: &Arc<Server>| !tried.iter().any(|other| Arc::ptr_eq(other, server));
        let possible = || {
            self.servers
                .iter()
                .filter(|it| is_new(it) && it.is_healthy())
        };
        let working = || possible().filter(|server| !server.is_away());
        let chosen = match (self.settings.balance, client) {
            (Balance::ClientAddress, Some(client)) => {
                // Each client has an order of its own in which it prefers servers: where one is
                // gone, the clients of others stay where they are.
                working().max_by_key(|server| preference(client, server))
            }
            _ => {
                let turn = self.turn.fetch_add(1, Relaxed);
                let count = self.servers.len().max(1);
                let from_turn = |(at, server): &(usize, &Arc<Server>)| {
                    (server.load(), (at + count - turn % count) % count)
                };
                let indexed = self.servers.iter().enumerate();
                let working =
                    indexed.filter(|(_, it)| is_new(it) && it.is_healthy() && !it.is_away());
                working.min_by_key(from_turn).map(|(_, server)| server)
            }
        };
        chosen.or_else(|| possible().min_by_key(|server| server.away_until()))
    }
}

fn preference(client: IpAddr, server: &Server) -> u64 {
    let mut hasher = DefaultHasher::new();
    client.hash(&mut hasher);
    server.address.to_string().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pronghorn_config::{Input, Section, Severity, Table, load};
    use tokio::time::advance;

    use super::*;

    struct Read(UpstreamSettings);

    impl Section for Read {
        fn read(t: &mut Table<'_>) -> Self {
            Self(UpstreamSettings::read(t))
        }
    }

    fn upstream(text: &str) -> Arc<Upstream> {
        let loaded = load(&Input::from_text("u.yaml", text));
        let settings = loaded.resolve::<Read>(Severity::Error).into_settings();
        Upstream::new("u", &settings.unwrap().0, None)
    }

    fn names(upstream: &Upstream, client: Option<IpAddr>, times: usize) -> Vec<String> {
        let mut chosen: Vec<_> = (0..times)
            .filter_map(|_| upstream.choose(client, &[]))
            .map(|server| server.address.to_string())
            .collect();
        chosen.sort();
        chosen.dedup();
        chosen
    }

    const THREE: &str = "servers: [\"http://a\", \"http://b\", \"http://c\"]\n";

    #[tokio::test(start_paused = true)]
    async fn idle_servers_take_turns_and_a_busy_one_gets_nothing() {
        let upstream = upstream(THREE);
        assert_eq!(
            names(&upstream, None, 3),
            ["http://a", "http://b", "http://c"]
        );
        let _busy = upstream.servers[1].begin();
        assert_eq!(names(&upstream, None, 9), ["http://a", "http://c"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_failed_is_left_out_for_a_while() {
        let upstream = upstream(THREE);
        assert!(upstream.servers[0].failed());
        assert!(!upstream.servers[0].failed(), "it is told once");
        assert_eq!(names(&upstream, None, 9), ["http://b", "http://c"]);
        advance(Duration::from_secs(3)).await;
        assert_eq!(
            names(&upstream, None, 9),
            ["http://a", "http://b", "http://c"]
        );
        for server in &upstream.servers {
            server.failed();
        }
        // All of them are away: the first whose time is up.
        assert_eq!(names(&upstream, None, 9), ["http://b"]);
        assert!(upstream.servers[0].worked());
        assert!(!upstream.servers[0].worked());
        assert_eq!(names(&upstream, None, 9), ["http://a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_stays_with_its_server_and_the_others_with_theirs() {
        let upstream = upstream(&format!("{THREE}balance: client_address\n"));
        let clients: Vec<IpAddr> = (0..60).map(|it| IpAddr::from([10, 0, 0, it])).collect();
        let chosen = |client: &IpAddr| names(&upstream, Some(*client), 5).concat();
        let before: Vec<_> = clients.iter().map(chosen).collect();
        let mut used = before.clone();
        used.sort();
        used.dedup();
        assert_eq!(used, ["http://a", "http://b", "http://c"]);
        upstream.servers[2].failed();
        for (client, before) in clients.iter().zip(before) {
            let now = chosen(client);
            assert!(
                now == before || before == "http://c",
                "{client}: {before} {now}"
            );
            assert_ne!(now, "http://c");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_ill_server_gets_nothing() {
        let upstream = upstream(THREE);
        for server in &upstream.servers {
            assert_eq!(server.checked(false), None);
            assert_eq!(server.checked(false), Some(false));
            assert_eq!(server.checked(false), None);
        }
        assert_eq!(names(&upstream, None, 3), [""; 0]);
        assert_eq!(upstream.servers[1].checked(true), Some(true));
        assert_eq!(names(&upstream, None, 9), ["http://b"]);
    }

    #[test]
    fn wrong_keys_are_told() {
        for (text, told) in [
            (
                "balance: least_loaded",
                "`servers` is missing: there is nobody to answer",
            ),
            ("servers: []", "`servers` is missing"),
            (
                "servers: [\"http://a\", \"http://a\"]",
                "has `http://a` twice",
            ),
            (
                "servers: [\"a:80\"]",
                "write the scheme as well: `http://a:80`",
            ),
            (
                "servers: [\"http://a\"]\nhost: \"a/b\"",
                "`host` is no host",
            ),
            (
                "servers: [\"h2c://a\"]\nproxy_protocol: true",
                "can't be used with `h2c`",
            ),
            ("servers: [\"http://a\"]\nhealth: {path: up}", "is no path"),
            (
                "servers: [\"http://a\"]\nbalance: ip_hash",
                "client_address",
            ),
        ] {
            let loaded = load(&Input::from_text("u.yaml", text));
            let resolved = loaded.resolve::<Read>(Severity::Error);
            let report = resolved.into_settings().err().expect(text).to_string();
            assert!(report.contains(told), "{text}: {report}");
        }
    }
}
