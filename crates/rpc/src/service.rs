//! The service `rpc`: the server with its own two methods.

use std::path::Path;

use pronghorn_config::{Address, Endpoint, Listen, Section, Table};
use pronghorn_plugin_api::rpc::{Binary, Failure};
use pronghorn_plugin_api::{
    BoxFuture, Configuration, Context, Handover, Running, Service, StartError, Stopped,
};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::listener::Listener;
use crate::server::Server;

/// RPC as a service. It is the first to start and the last to stop: workers call from their first
/// line on, and those that finish what they have while the server stops still call.
#[derive(Debug)]
pub struct Rpc {
    /// Where to listen.
    pub listen: Endpoint,
    /// The release of RoadRunner that is answered for.
    pub version: &'static str,
}

/// What its own methods tell.
#[derive(Clone, Debug)]
struct Own {
    version: &'static str,
    configuration: Configuration,
}

/// RoadRunner's, this machine only.
const HOST: &str = "127.0.0.1";
const PORT: u16 = 6001;

impl Section for Rpc {
    fn read(t: &mut Table<'_>) -> Self {
        let default = Endpoint::Tcp(Address {
            host: Some(HOST.to_owned()),
            port: PORT,
        });
        Self {
            listen: t
                .key(
                    "listen",
                    "The address to listen on. Workers get it in `RR_RPC`.",
                )
                .default(default),
            version: t.era().version(),
        }
    }
}

/// RPC at work.
#[derive(Debug)]
struct Serving {
    server: Server,
    endpoint: Endpoint,
    for_workers: Endpoint,
}

impl Service for Rpc {
    fn listens(&self) -> Vec<Listen> {
        vec![self.listen.clone().into()]
    }

    fn start(
        self: Box<Self>,
        context: Context,
    ) -> BoxFuture<'static, Result<Box<dyn Running>, StartError>> {
        Box::pin(async move {
            let own = context.rpc.service(
                "rpc",
                Own {
                    version: self.version,
                    configuration: context.configuration,
                },
            );
            own.add("Version", version);
            own.add("Config", config);
            let listen = match self.listen {
                Endpoint::Unix(path) => Endpoint::Unix(context.folder.join(path)),
                tcp @ Endpoint::Tcp(_) => tcp,
            };
            let users = context.users.all();
            let inherited = context.sockets.take("rpc");
            let is_systemds = |path: &Path| context.sockets.is_systemds(path);
            let listener = Listener::open(&listen, &users, is_systemds, inherited)?;
            let endpoint = listener.endpoint().clone();
            let address = endpoint.to_string();
            if listener.is_exposed() {
                tracing::warn!(
                    target: "rpc", address,
                    "other machines may connect, and there are no passwords: whoever can, may call every method; \
                     listen on 127.0.0.1 or a unix socket unless something else keeps others out"
                );
            }
            context.sockets.offer("rpc", listener.socket())?;
            let for_workers = listener.endpoint_for_workers();
            let server = {
                let _on_its_thread = context.rpc_runtime.as_ref().map(Handle::enter);
                Server::start(listener, context.rpc)?
            };
            server.tell_connections(&context.metrics.named("rpc"));
            if !context.sockets.has_predecessor() {
                server.open(); // workers call from their first line on
            }
            tracing::debug!(target: "rpc", address, "listening");
            context.readiness.answer_with(|| Ok(()));
            Ok(Box::new(Serving {
                server,
                endpoint,
                for_workers,
            }) as Box<dyn Running>)
        })
    }
}

impl Running for Serving {
    fn open(&mut self) -> Result<(), StartError> {
        self.server.open();
        Ok(())
    }

    fn addresses(&self) -> Vec<String> {
        vec![self.endpoint.to_string()]
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        vec![("RR_RPC", self.for_workers.to_string())]
    }

    fn hand_over(&mut self, step: Handover) {
        if step == Handover::Done {
            self.server.hand_over();
        }
    }

    fn stop(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Stopped> {
        Box::pin(self.server.stop(deadline))
    }
}

async fn version(own: Own, _: bool) -> Result<String, Failure> {
    Ok(own.version.to_owned())
}

async fn config(own: Own, _: bool) -> Result<Binary, Failure> {
    Ok(Binary(own.configuration.json().into()))
}
