//! The section `status`.

use std::time::Duration;

use pronghorn_config::{Address, Seconds, Section, Table};

/// Where RoadRunner's documentation has its health checks, this machine only.
const HOST: &str = "127.0.0.1";
const PORT: u16 = 2114;
/// The status of a health check that fails, as RoadRunner's.
pub(crate) const UNAVAILABLE: u16 = 503;
/// As RoadRunner's.
const CHECK_TIMEOUT: Duration = Duration::from_secs(60);

/// Health checks over HTTP.
#[derive(Clone, Debug)]
pub(super) struct StatusSettings {
    /// Where to listen.
    pub(super) address: Address,
    /// The answer's status when something is missing, from 400 to 599.
    pub(super) unavailable_status_code: u16,
    /// How long a client may take to send its request.
    pub(super) check_timeout: Duration,
    /// Between the moment at which readiness turns off and the one at which nothing new is
    /// accepted.
    pub(super) drain_delay: Duration,
}

impl Section for StatusSettings {
    fn read(t: &mut Table<'_>) -> Self {
        let address = Address {
            host: Some(HOST.to_owned()),
            port: PORT,
        };
        Self {
            address: t
                .key(
                    "address",
                    "The address for `/health`, `/livez`, `/ready`, `/readyz` and `/jobs`.",
                )
                .default(address),
            check_timeout: t
                .key::<Seconds>(
                    "check_timeout",
                    "Time limit for a client to send its request.",
                )
                .zero_is_default()
                .range(Seconds(Duration::from_secs(1))..=Seconds(Duration::from_hours(1)))
                .default(Seconds(CHECK_TIMEOUT))
                .0,
            unavailable_status_code: t
                .key(
                    "unavailable_status_code",
                    "The status of the answer if a check fails.",
                )
                .zero_is_default()
                .range(400..=599)
                .default(UNAVAILABLE),
            drain_delay: t
                .key(
                    "drain_delay",
                    "How long a stopping server still serves while `/ready` already answers 503. \
                     Set it to the time that a load balancer needs to notice.",
                )
                .ours()
                .default(Duration::ZERO),
        }
    }
}
