//! How servers differ from what the runner sets up when nothing else is said: `pronghorn-bench
//! report` looks at one difference at a time.

use serde_json::Value;

/// The default changes nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Setup {
    /// Lines of `php.ini` behind the runner's, for all servers.
    pub(crate) ini: Vec<String>,
    /// Keys of our pool, over those of the mode.
    pub(crate) pool: Vec<(&'static str, Value)>,
    /// Children of php-fpm, where they are not as many as our workers.
    pub(crate) children: Option<u16>,
    /// Connections that wait for php-fpm before the system refuses them.
    pub(crate) backlog: Option<u16>,
    /// The most connections of any load: servers are told to take so many.
    pub(crate) connections: u32,
    /// nginx in front of ours, with a new connection for each request, as it comes.
    pub(crate) behind_nginx: bool,
    /// Our server prints a line per request to a terminal.
    pub(crate) terminal: bool,
    /// A file of the application's `public` that every second request is for; ours looks for files
    /// before it asks PHP.
    pub(crate) file: Option<&'static str>,
    /// Answers count whatever their status is, as in a load generator whose errors nobody reads.
    pub(crate) counts_errors: bool,
    /// The only processors of a server, as `taskset` takes them.
    pub(crate) processors: Option<&'static str>,
    /// Ours is asked for its metrics before and after.
    pub(crate) metrics: bool,
}
