//! The service `rpc`: the server with its own two methods.

use std::fmt;
use std::sync::Arc;

use pronghorn_plugin_api::rpc::{Binary, Failure};
use pronghorn_plugin_api::{
    BoxFuture, Context, Handover, ROADRUNNER_VERSION, Running, Service, StartError, Stopped,
};
use tokio::time::Instant;

use crate::listener::Listener;
use crate::server::Server;

/// RPC as a service. It is the first to start and the last to stop: workers call from their first
/// line on, and those that finish what they have while the server stops still call.
#[derive(Debug)]
pub struct Rpc {
    listener: Listener,
    configuration: Configuration,
}

/// Gives the configuration in JSON at the time of the call.
#[derive(Clone)]
struct Configuration(Arc<dyn Fn() -> String + Send + Sync>);

impl Rpc {
    /// Will serve `listener`. `configuration` is asked with each call of `rpc.Config`; whoever can
    /// connect reads what it returns, so it must hold no secrets:
    /// [`Loaded::to_json`](pronghorn_config::Loaded::to_json).
    pub fn new(
        listener: Listener,
        configuration: impl Fn() -> String + Send + Sync + 'static,
    ) -> Self {
        Self {
            listener,
            configuration: Configuration(Arc::new(configuration)),
        }
    }
}

impl Service for Rpc {
    fn name(&self) -> &'static str {
        "rpc"
    }

    fn start(
        self: Box<Self>,
        context: Context,
    ) -> BoxFuture<'static, Result<Box<dyn Running>, StartError>> {
        Box::pin(async move {
            let own = context.rpc.service("rpc", self.configuration);
            own.add("Version", version);
            own.add("Config", config);
            let address = self.listener.endpoint().to_string();
            if self.listener.is_exposed() {
                tracing::warn!(
                    target: "rpc", address,
                    "other machines may connect, and there are no passwords: whoever can, may call every method; \
                     listen on 127.0.0.1 or a unix socket unless something else keeps others out"
                );
            }
            context.sockets.offer("rpc", self.listener.socket())?;
            let server = Server::start(self.listener, context.rpc)?;
            tracing::debug!(target: "rpc", address, "listening");
            context.readiness.answer_with(|| Ok(()));
            Ok(Box::new(server) as Box<dyn Running>)
        })
    }
}

impl Running for Server {
    fn open(&mut self) -> Result<(), StartError> {
        Self::open(self);
        Ok(())
    }

    fn hand_over(&mut self, step: Handover) {
        if step == Handover::Done {
            Self::hand_over(self);
        }
    }

    fn stop(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Stopped> {
        Box::pin(Self::stop(*self, deadline))
    }
}

async fn version(_: Configuration, _: bool) -> Result<String, Failure> {
    Ok(ROADRUNNER_VERSION.to_owned())
}

async fn config(configuration: Configuration, _: bool) -> Result<Binary, Failure> {
    Ok(Binary((configuration.0)().into()))
}

impl fmt::Debug for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Configuration")
    }
}
