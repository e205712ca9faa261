//! Temporary: the thin thread.
use pronghorn_http::{IoThreads, Limits, Listener, PoolHandler, Service};
use pronghorn_pool::{CommandLauncher, Options, Pool, Spool, Supervised, settings::Fence};
use pronghorn_process::Spawner;
use std::sync::Arc;
use std::time::Duration;

#[global_allocator]
static ALLOC: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .init();
    let args: Vec<String> = std::env::args().collect();
    let script = args[1].clone();
    let workers: usize = args.get(2).map_or(2, |n| n.parse().unwrap());
    let io = IoThreads::start(1).unwrap();
    let control = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    control.block_on(async {
        let handler: Arc<dyn pronghorn_http::Handler> = if script == "native" {
            Arc::new(Native)
        } else {
            let spool = Arc::new(Spool::open(std::env::temp_dir(), None).unwrap());
            let pool = Pool::new(
                Options {
                    name: "default".into(),
                    slots: workers,
                    queue_limit: 1024,
                    queue_timeout: Duration::from_secs(30),
                    exec_ttl: Some(Duration::from_secs(300)),
                },
                &io.threads()[0].runtime,
            );
            let mut env: Vec<_> = std::env::vars_os().collect();
            env.push(("PRONGHORN_PIPES".into(), "3,4".into()));
            env.push(("RR_MODE".into(), "http".into()));
            env.push(("RR_RELAY".into(), "pipes".into()));
            let launcher = CommandLauncher {
                pool: "default".into(),
                spawner: Spawner::start().unwrap(),
                command: format!("php {script}"),
                argv: vec![
                    "php".into(),
                    "-dopcache.enable_cli=1".into(),
                    script.clone().into(),
                ],
                env,
                cwd: std::env::current_dir().unwrap(),
                user: None,
                boot_timeout: Duration::from_secs(10),
                listener: None,
                foreign_codec: pronghorn_wire::Codec::Json,
                fence: Fence::Auto,
                stream_timeout: Duration::from_secs(60),
                spool,
                homes: io.runtimes(),
            };
            match Supervised::start(pool.clone(), launcher, workers, 4).await {
                Ok(s) => {
                    Box::leak(Box::new(s));
                }
                Err(e) => {
                    eprintln!("error: {}", e.report());
                    std::process::exit(1);
                }
            }
            Arc::new(PoolHandler {
                pool,
                internal_error_code: 500,
            })
        };
        let service = Service::new(handler, Limits::default());
        let accepting = Listener::bind("127.0.0.1:8080".parse().unwrap(), 1)
            .unwrap()
            .serve(io.threads(), &service)
            .unwrap();
        eprintln!("listening on {}", accepting.address());
        tokio::signal::ctrl_c().await.unwrap();
    });
}

struct Native;
impl pronghorn_http::Handler for Native {
    fn handle<'a>(
        &'a self,
        _: pronghorn_http::Request,
        _: &'a mut dyn pronghorn_http::Exchange,
    ) -> pronghorn_http::Handled<'a> {
        Box::pin(async { pronghorn_http::Response::plain(200, "Hello World\n") })
    }
}
