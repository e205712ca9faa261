//! The service `lock`.

use pronghorn_base::LogThrottle;
use pronghorn_config::{Choice, Table};
use pronghorn_plugin_api::rpc::Failure;
use pronghorn_plugin_api::{
    BoxFuture, Context, NotReady, Reload, Running, Service, StartError, Stopped,
};
use pronghorn_redis::RedisSettings;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::driver::Driver;
use crate::locks::Locks;
use crate::messages::{Request, Response, Token};
use crate::redis::RedisLocks;
use crate::table::{Limits, Mode};
use crate::wanted::{LockError, Wanted};

/// Locks as a service. It stops behind those that have workers, and nobody waits for a lock then.
#[derive(Debug, Default)]
pub struct Lock {
    /// Where they are, if not in memory.
    redis: Option<RedisSettings>,
}

struct AtWork {
    locks: Driver,
    redis: Option<RedisSettings>,
    _tasks: JoinSet<()>,
}

impl Lock {
    /// Reads the section of RoadRunner 3.
    pub fn read(t: &mut Table<'_>) -> Self {
        let redis =
            t.optional_section_with("lock", "Locks over RPC. They are always available.", |t| {
                let choice = t
                    .key(
                        "driver",
                        "Where locks are stored. Use `redis` if several servers share them.",
                    )
                    .default(DriverChoice::Memory);
                t.section_with("config", "Settings of the driver.", |t| {
                    let message = "is of `driver: redis`";
                    let is_redis = choice == DriverChoice::Redis;
                    t.keys_where(is_redis, message, "remove it", RedisSettings::read)
                })
            });
        Self {
            redis: redis.flatten(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DriverChoice {
    Memory,
    Redis,
}

impl Choice for DriverChoice {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("memory", Self::Memory), ("redis", Self::Redis)];
}

impl Service for Lock {
    fn serves(&self) -> bool {
        false
    }

    /// Locks in memory are always there.
    fn is_watched(&self) -> bool {
        self.redis.is_some()
    }

    fn start(
        self: Box<Self>,
        context: Context,
    ) -> BoxFuture<'static, Result<Box<dyn Running>, StartError>> {
        Box::pin(async move {
            let redis = self.redis.clone();
            let (locks, tasks) = open(self.redis, &context);
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
            methods.add("Token", token);
            Ok(Box::new(AtWork {
                locks,
                redis,
                _tasks: tasks,
            }) as Box<dyn Running>)
        })
    }
}

fn open(redis: Option<RedisSettings>, context: &Context) -> (Driver, JoinSet<()>) {
    let Some(redis) = redis else {
        let locks = Locks::new(Limits::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(locks.keep_time());
        context.readiness.answer_with(|| Ok(()));
        return (Driver::Memory(locks), tasks);
    };
    let (locks, tasks) = RedisLocks::new(redis);
    let watched = locks.clone();
    let ready = move || watched.health().map_err(|why| NotReady(why.into()));
    // A server whose locks are away is not to be restarted for it.
    context.readiness.answer_apart(ready, || Ok(()));
    (Driver::Redis(locks), tasks)
}

impl Running for AtWork {
    fn reload(&mut self, to: Box<dyn Service>) -> BoxFuture<'_, Reload> {
        let same = to
            .downcast::<Lock>()
            .is_some_and(|to| to.redis == self.redis);
        let reload = if same {
            Reload::Applied
        } else {
            Reload::NeedsRestart
        };
        Box::pin(std::future::ready(reload))
    }

    fn stop(self: Box<Self>, _: Instant) -> BoxFuture<'static, Stopped> {
        Box::pin(async move {
            self.locks.stop();
            Stopped::Clean
        })
    }
}

fn failed(error: &LockError) -> Failure {
    Failure::new(error.to_string())
}

async fn acquire(locks: Driver, request: Request, mode: Mode) -> Result<Response, Failure> {
    request.check()?;
    let wanted = Wanted {
        resource: &request.resource,
        id: &request.id,
        mode,
        ttl: request.lifetime()?,
        wait: request.patience()?,
    };
    match locks.acquire(wanted).await {
        Ok(ok) => Ok(Response { ok }),
        Err(error) => {
            static FULL: LogThrottle = LogThrottle::new();
            if matches!(error, LockError::Full(_))
                && let Some(calls) = FULL.should_log()
            {
                tracing::warn!(target: "lock", resource = request.resource, calls, "{error}");
            }
            Err(failed(&error))
        }
    }
}

fn answer(done: Result<bool, LockError>) -> Result<Response, Failure> {
    done.map(|ok| Response { ok })
        .map_err(|error| failed(&error))
}

async fn release(locks: Driver, request: Request) -> Result<Response, Failure> {
    request.check()?;
    answer(locks.release(&request.resource, &request.id).await)
}

async fn force_release(locks: Driver, request: Request) -> Result<Response, Failure> {
    request.check_lengths()?;
    answer(locks.release_all(&request.resource).await)
}

async fn exists(locks: Driver, request: Request) -> Result<Response, Failure> {
    request.check()?;
    let id = Some(request.id.as_str()).filter(|id| *id != "*");
    answer(locks.is_held(&request.resource, id).await)
}

async fn update_ttl(locks: Driver, request: Request) -> Result<Response, Failure> {
    request.check()?;
    let ttl = request.lifetime()?;
    answer(locks.prolong(&request.resource, &request.id, ttl).await)
}

async fn token(locks: Driver, request: Request) -> Result<Token, Failure> {
    request.check()?;
    let token = locks.token(&request.resource, &request.id).await;
    let token = token.map_err(|error| failed(&error))?;
    Ok(Token {
        ok: token.is_some(),
        token: token.unwrap_or(0),
    })
}
