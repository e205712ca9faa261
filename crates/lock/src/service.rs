//! The service `lock`.

use pronghorn_config::{Choice, Table};
use pronghorn_plugin_api::rpc::Failure;
use pronghorn_plugin_api::{BoxFuture, Context, Running, Service, StartError, Stopped};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::locks::Locks;
use crate::messages::{Request, Response};
use crate::table::{Limits, Mode};

/// Locks as a service. It stops behind those that have workers, and nobody waits for a lock then.
#[derive(Debug, Default)]
pub struct Lock;

struct AtWork {
    locks: Locks,
    _time: JoinSet<()>,
}

impl Lock {
    /// Reads the section of RoadRunner 3.
    pub fn read(t: &mut Table<'_>) -> Self {
        t.optional_section_with("lock", "Locks over RPC are always there.", |t| {
            let kept = t
                .key("driver", "Where locks are kept.")
                .default(Driver::Memory);
            if kept == Driver::Redis {
                t.section_not_yet("driver", "locks in Redis");
            }
            t.no_effect("config", "the server keeps locks in memory");
        });
        Self
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Driver {
    Memory,
    Redis,
}

impl Choice for Driver {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("memory", Self::Memory), ("redis", Self::Redis)];
}

impl Service for Lock {
    fn serves(&self) -> bool {
        false
    }

    fn start(
        self: Box<Self>,
        context: Context,
    ) -> BoxFuture<'static, Result<Box<dyn Running>, StartError>> {
        Box::pin(async move {
            let locks = Locks::new(Limits::default());
            let mut time = JoinSet::new();
            time.spawn(locks.keep_time());
            let methods = context.rpc.service("lock", locks.clone());
            methods.add_while_connected("Lock", async |locks, request| {
                acquire(locks, request, Mode::Write).await
            });
            methods.add_while_connected("LockRead", async |locks, request| {
                acquire(locks, request, Mode::Read).await
            });
            methods.add("Release", release);
            methods.add("ForceRelease", force_release);
            methods.add("Exists", exists);
            methods.add("UpdateTTL", update_ttl);
            context.readiness.answer_with(|| Ok(()));
            Ok(Box::new(AtWork { locks, _time: time }) as Box<dyn Running>)
        })
    }
}

impl Running for AtWork {
    fn stop(self: Box<Self>, _: Instant) -> BoxFuture<'static, Stopped> {
        Box::pin(async move {
            self.locks.stop();
            Stopped::Clean
        })
    }
}

async fn acquire(locks: Locks, request: Request, mode: Mode) -> Result<Response, Failure> {
    request.check()?;
    let (ttl, wait) = (request.lifetime()?, request.patience()?);
    let acquired = locks.acquire(&request.resource, &request.id, mode, ttl, wait);
    match acquired.await {
        Ok(ok) => Ok(Response { ok }),
        Err(full) => {
            tracing::warn!(target: "lock", resource = request.resource, "{full}");
            Err(Failure::new(full.to_string()))
        }
    }
}

async fn release(locks: Locks, request: Request) -> Result<Response, Failure> {
    request.check()?;
    let ok = locks.release(&request.resource, &request.id);
    Ok(Response { ok })
}

async fn force_release(locks: Locks, request: Request) -> Result<Response, Failure> {
    request.check_lengths()?;
    let ok = locks.release_all(&request.resource);
    Ok(Response { ok })
}

async fn exists(locks: Locks, request: Request) -> Result<Response, Failure> {
    request.check()?;
    let id = Some(request.id.as_str()).filter(|id| *id != "*");
    let ok = locks.is_held(&request.resource, id);
    Ok(Response { ok })
}

async fn update_ttl(locks: Locks, request: Request) -> Result<Response, Failure> {
    request.check()?;
    let ok = locks.prolong(&request.resource, &request.id, request.lifetime()?);
    Ok(Response { ok })
}
