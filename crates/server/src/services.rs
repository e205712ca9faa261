//! The services that a server can have.

use std::sync::Arc;

use pronghorn_centrifugo::CentrifugoService;
use pronghorn_grpc::{Door, GrpcService};
use pronghorn_http::{Around, FileService, HttpService};
use pronghorn_jobs::JobsService;
use pronghorn_kv::KvService;
use pronghorn_lock::Lock;
use pronghorn_metrics::Registry;
use pronghorn_metrics_endpoint::{Collectors, MetricsService};
use pronghorn_otel::{Counting, OtelService};
use pronghorn_plugin_api::ServiceKind;
use pronghorn_programs::{AllPrograms, ProgramsService, TemporalService};
use pronghorn_rpc::Rpc;
use pronghorn_tcp::TcpService;

use crate::admin::AdminService;
use crate::status::StatusService;

/// The table of services. The configuration has a section for each, in this order, and the server
/// starts those without workers in this order, and then those with workers.
#[derive(Clone, Debug)]
pub struct Services(Vec<ServiceKind>);

impl Services {
    /// All that this release has. `around` stands between HTTP's middleware and its routes.
    pub fn new(around: Around) -> Self {
        // Shown by all who show metrics.
        let collectors = Collectors::default();
        // Calls that come to HTTP's listeners.
        let door = Door::default();
        let of_grpc = door.clone();
        let programs = AllPrograms::default();
        let of_service = programs.clone();
        let of_admin = collectors.clone();
        let of_otel = collectors.clone();
        let counting = Counting(Arc::new(move |metrics: &Registry| {
            of_otel.count_for(metrics)
        }));
        Self(vec![
            ServiceKind::optional(
                "http",
                "The HTTP server. Without this section, the server does not offer HTTP.",
                move |settings| {
                    let (door, around) = (door.clone(), around.clone());
                    HttpService {
                        settings,
                        around,
                        beside_pools: Around::new(move |next| door.before(next)),
                    }
                },
            ),
            ServiceKind::optional(
                "rpc",
                "Remote procedure calls (RPC) from PHP to the server. Without this section, there \
                 is no RPC.",
                |rpc: Rpc| rpc,
            ),
            ServiceKind::optional(
                "fileserver",
                "A file server with its own address. Without this section, there is none.",
                |settings| FileService { settings },
            ),
            ServiceKind::always("status", StatusService::read),
            ServiceKind::always("lock", Lock::read),
            ServiceKind::always("kv", KvService::read),
            ServiceKind::optional(
                "metrics",
                "Metrics for Prometheus. Without this section, they are not available.",
                move |settings| MetricsService {
                    settings,
                    collectors: collectors.clone(),
                },
            ),
            ServiceKind::optional(
                "admin",
                "A read-only HTTP interface to the server's own state: metrics, health and, as \
                 JSON, status, workers, queues, routes, reports and configuration.",
                move |keys| AdminService::new(keys, of_admin.clone()),
            ),
            ServiceKind::optional_with("jobs", JobsService::read),
            ServiceKind::optional(
                "otel",
                "Traces for OpenTelemetry. Without this section, the server does not trace.",
                move |settings| OtelService {
                    settings,
                    counting: counting.clone(),
                },
            ),
            ServiceKind::optional_with("service", move |t| {
                ProgramsService::read(t, of_service.clone())
            }),
            ServiceKind::optional_with("grpc", move |t| GrpcService::read(t, of_grpc.clone())),
            ServiceKind::optional(
                "tcp",
                "TCP servers whose messages workers answer. Without this section, there are none.",
                |settings| TcpService { settings },
            ),
            ServiceKind::optional(
                "centrifuge",
                "Workers answer Centrifugo's calls, and PHP can call Centrifugo's API over RPC. \
                 Without this section, neither works.",
                |settings| CentrifugoService { settings },
            ),
            ServiceKind::optional_with("temporal", move |t| {
                TemporalService::read(t, programs.clone())
            }),
        ])
    }

    /// One more, or another one of the same name.
    #[must_use]
    pub fn with(mut self, kind: ServiceKind) -> Self {
        let known = self.0.iter().position(|known| known.name() == kind.name());
        match known {
            Some(at) => self.0[at] = kind,
            None => self.0.push(kind),
        }
        self
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ServiceKind> {
        self.0.iter()
    }
}

impl Default for Services {
    fn default() -> Self {
        Self::new(Around::default())
    }
}
