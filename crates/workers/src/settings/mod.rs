//! What is configured for the workers of all services.

mod pool;
mod server;
mod watching;

pub use pool::{
    CgiSettings, ClassicSettings, ClientGone, CodecChoice, CommonSettings, FastCgiPeer,
    FastCgiSettings, HttpPoolSettings, KeptSettings, LONGEST, Leaks, MAX_WORKERS, Mode,
    PoolSettings, RequestBody, ResolveRoot, Retry, Runner, SHORTEST, SiteSettings, SpawnChoice,
    Symlinks, WorkerSettings,
};
pub use server::{OnInit, RelayAddress, ServerSettings};
