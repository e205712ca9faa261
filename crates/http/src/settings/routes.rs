//! `http.pools` and `http.routes`.

use pronghorn_cgi::Answering;
use pronghorn_config::{Node, Section, Setting, Shown, Size, Table, Wrong, nearest};
use pronghorn_pool::Terms;
use pronghorn_proxy::UpstreamSettings;
use pronghorn_workers::DEFAULT_POOL;
use pronghorn_workers::settings::{HttpPoolSettings, LONGEST, Mode, RequestBody, SHORTEST};

use super::{BasicAuthSettings, HttpSettings, RateLimitSettings};
use crate::routes::{Conditions, Otherwise, Routes};

/// Each has one worker at least; a site that needs more wants a server each.
pub const MOST_POOLS: usize = 100;

/// A request is compared with one after the other; who has more wants a router of his own.
pub const MOST_ROUTES: usize = 1000;

/// What `reset` and its kind take for more than one pool, now or later.
const RESERVED: [&str; 8] = [
    "http",
    "jobs",
    "grpc",
    "tcp",
    "temporal",
    "centrifuge",
    "service",
    "all",
];

/// One of `http.routes`.
#[derive(Clone, Debug)]
pub struct RouteSettings {
    pub conditions: Conditions,
    /// A name of a pool, as that is written.
    pub pool: String,
    pub terms: Terms,
    pub rate_limit: Option<RateLimitSettings>,
    /// Who gets in at all; none is everybody.
    pub basic_auth: Option<BasicAuthSettings>,
    /// None is `http.max_request_size`.
    pub max_request_size: Option<Size>,
    /// None is that of the pool.
    pub request_body: Option<RequestBody>,
    /// Below which path the root of its pool lies; none is `/`.
    pub strip_prefix: Option<String>,
    /// Which scripts of that root answer.
    pub scripts: Answering,
    /// The status for all its requests, of which no pool gets one.
    pub refuse: Option<u16>,
    /// The name of the upstream that answers in place of a pool, as that is written.
    pub upstream: Option<String>,
    /// A condition could not be read, so nothing can be said about what it matches.
    broken: bool,
}

impl RouteSettings {
    /// What matches no route.
    fn otherwise() -> Self {
        Self {
            conditions: Conditions::default(),
            pool: DEFAULT_POOL.to_owned(),
            terms: Terms::default(),
            rate_limit: None,
            basic_auth: None,
            max_request_size: None,
            request_body: None,
            strip_prefix: None,
            scripts: Answering::All,
            refuse: None,
            upstream: None,
            broken: false,
        }
    }

    /// Nothing comes past it.
    fn takes_all(&self) -> bool {
        !self.broken && self.conditions.is_empty()
    }

    /// Whether it refuses some requests, and not all that other routes leave.
    pub fn refuses_some(&self) -> bool {
        let mut conditions = self.conditions.clone();
        conditions.paths.retain(|path| !path.is_everything());
        self.refuse.is_some() && !conditions.is_empty()
    }

    /// Whether it keeps clients from its paths: all of them, or those without a password.
    pub fn closes_paths(&self) -> bool {
        self.refuse.is_some() || self.basic_auth.is_some()
    }

    /// Whether a script that it names must not run for requests of later routes: it runs for none,
    /// or for those with a password.
    fn closes(&self) -> bool {
        self.closes_paths() || matches!(self.scripts, Answering::Front | Answering::Nothing)
    }

    /// Whether its requests go to this pool.
    pub fn leads_to(&self, pool: &str) -> bool {
        self.refuse.is_none() && self.upstream.is_none() && self.pool == pool
    }
}

impl HttpSettings {
    /// The pools that run, the default one first. It is missing when a route takes all requests
    /// before it.
    pub fn running_pools(&self) -> impl Iterator<Item = (&str, &HttpPoolSettings)> {
        let default = self
            .has_default_pool()
            .then_some((DEFAULT_POOL, &self.pool));
        let named = self.pools.iter().map(|(name, pool)| (name.as_str(), pool));
        default.into_iter().chain(named)
    }

    /// Whether the default pool runs: a request can come to it, or there is no other one, and a
    /// service needs one.
    pub fn has_default_pool(&self) -> bool {
        self.pools.is_empty()
            || !self.routes.iter().any(RouteSettings::takes_all)
            || self.routes.iter().any(|it| it.leads_to(DEFAULT_POOL))
    }

    /// The routes, compiled; `to` makes what stands behind one. `scripts` are the names of worker
    /// scripts.
    pub fn compile<T>(
        &self,
        scripts: &[&str],
        mut to: impl FnMut(&RouteSettings) -> T,
    ) -> Routes<T> {
        let end = self.routes.iter().position(RouteSettings::takes_all);
        let (routes, rest) = self.routes.split_at(end.unwrap_or(self.routes.len()));
        let otherwise = match rest {
            [takes_all, ..] => Otherwise::Route(to(takes_all)),
            [] => Otherwise::Default(to(&RouteSettings::otherwise())),
        };
        let routes = routes.iter().map(|route| {
            let conditions = Conditions {
                closes: route.closes(),
                ..route.conditions.clone()
            };
            (conditions, to(route))
        });
        let sites = self.running_pools();
        let sites = sites.filter_map(|(_, pool)| pool.workers.site());
        let fronts = sites.flat_map(|site| {
            let index = site
                .index
                .iter()
                .filter(|name| name.as_bytes().ends_with(b".php"));
            site.fallback.iter().chain(index).map(String::as_str)
        });
        // `$_SERVER['SCRIPT_NAME']` names the worker's script, so frameworks take `/worker.php/x`
        // for `/x`.
        let fronts = fronts.chain(scripts.iter().copied());
        Routes::new(routes.collect(), otherwise).with_fronts(fronts)
    }
}

pub(super) fn read_pools(t: &mut Table<'_>) -> Vec<(String, HttpPoolSettings)> {
    if t.is_written("pools") {
        t.differs(
            "pools",
            "used",
            "ignored",
            "RoadRunner has one pool for HTTP",
        );
    }
    t.sections_like(
        "pools",
        "More pools, by name.",
        "One pool. It accepts every key of `http.pool`, with the same defaults. It does not \
         inherit values from there.",
        MOST_POOLS,
        |t| {
            t.ours();
            check_name(t);
            HttpPoolSettings::read(t)
        },
    )
}

fn check_name(t: &mut Table<'_>) {
    if let Some((message, hint)) = wrong_name(t.name()) {
        t.error("", message, &hint);
    }
}

/// What is wrong with a pool's name, and what to do.
fn wrong_name(name: &str) -> Option<(&'static str, String)> {
    let is = |other: &&str| name.eq_ignore_ascii_case(other);
    let usable = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if is(&DEFAULT_POOL) {
        let message = "has the name of the pool that `http.pool` describes";
        return Some((message, "write its keys there".to_owned()));
    }
    if RESERVED.iter().any(is) {
        let message = "has a name that stands for more than one pool";
        return Some((message, format!("for example `{name}-pool`")));
    }
    let begins = |start: &str| {
        name.get(..start.len())
            .is_some_and(|it| it.eq_ignore_ascii_case(start))
    };
    if begins("jobs-") {
        let message = "has a name as pools of `jobs.pools` have it";
        return Some((message, "let it begin with another word".to_owned()));
    }
    let message = "has a name that can't be used";
    (!name.bytes().all(usable)).then(|| {
        (
            message,
            "letters, digits, `-` and `_` make a name".to_owned(),
        )
    })
}

pub(super) fn read_upstreams(t: &mut Table<'_>) -> Vec<(String, UpstreamSettings)> {
    if t.is_written("upstreams") {
        t.differs(
            "upstreams",
            "used",
            "ignored",
            "RoadRunner sends requests to its own workers only",
        );
    }
    t.sections_like(
        "upstreams",
        "Other HTTP servers, by name. A route with `upstream` sends its requests there.",
        "One upstream: servers that answer the same requests.",
        MOST_POOLS,
        |t| {
            t.ours();
            t.live();
            if let Some((message, hint)) = wrong_name(t.name()) {
                t.error("", message, &hint);
            }
            UpstreamSettings::read(t)
        },
    )
}

pub(super) fn read_routes(
    t: &mut Table<'_>,
    default: &HttpPoolSettings,
    pools: &[(String, HttpPoolSettings)],
    upstreams: &[(String, UpstreamSettings)],
) -> Vec<RouteSettings> {
    if t.is_written("routes") {
        t.differs(
            "routes",
            "used",
            "ignored",
            "RoadRunner has one pool for HTTP",
        );
    }
    let mut routes: Vec<RouteSettings> = Vec::new();
    t.section_list_with(
        "routes",
        "Which requests go to which pool, and with which limits. The first route that matches \
         applies. Requests without a route go to the pool `default`.",
        "One route. It matches a request that meets all of its conditions: `path`, `host`, \
         `method`, `not_method`, `header`, `address` and `not_address`.",
        MOST_ROUTES,
        |t| {
            t.ours();
            t.live();
            t.strict();
            let route = read_route(t, default, pools, upstreams);
            let covers = |earlier: &RouteSettings| {
                !earlier.broken && !route.broken && earlier.conditions.cover(&route.conditions)
            };
            if let Some(at) = routes.iter().position(covers) {
                let message =
                    format!("can never match: `http.routes[{at}]` takes all of its requests");
                t.error("", &message, "put it before that one, or remove it");
            }
            routes.push(route);
        },
    );
    routes
}

fn read_route(
    t: &mut Table<'_>,
    default: &HttpPoolSettings,
    pools: &[(String, HttpPoolSettings)],
    upstreams: &[(String, UpstreamSettings)],
) -> RouteSettings {
    let conditions = read_conditions(t);
    let broken = refuse_empty(t, &conditions);
    let pool = read_pool(t, pools);
    let runner = pools.iter().find(|(name, _)| *name == pool);
    let runner = runner.map_or(default, |(_, pool)| pool);
    let refuse = read_refuse(t);
    let upstream = read_upstream(t, upstreams);
    let mode = runner.workers.mode();
    RouteSettings {
        conditions,
        strip_prefix: read_prefix(t, mode, upstream.is_some()),
        scripts: read_scripts(t, mode),
        refuse,
        upstream,
        pool,
        terms: read_terms(t),
        rate_limit: t
            .optional_section_with(
                "rate_limit",
                "Limit for the requests of each client on this route. It also applies to requests \
                 that a rule of `http.rewrite` moves from this route to another one.",
                RateLimitSettings::read,
            )
            .flatten(),
        basic_auth: t
            .optional_section_with(
                "basic_auth",
                "A name and a password that all requests of this route need, including those for \
                 files of `http.static` (RFC 7617). Scripts get the name in `REMOTE_USER`, \
                 handlers in the attribute `remote_user`. A client that has sent ten wrong \
                 passwords is answered 429 for a while.",
                BasicAuthSettings::read,
            )
            .flatten(),
        max_request_size: t
            .key(
                "max_request_size",
                "The largest request body, instead of `http.max_request_size`. A request with a \
                 larger one is answered 413.",
            )
            .zero_is_default()
            .optional(),
        request_body: t
            .key(
                "request_body",
                "When a worker gets the body of a request, instead of the pool's `request_body`.",
            )
            .optional(),
        broken,
    }
}

fn read_conditions(t: &mut Table<'_>) -> Conditions {
    Conditions {
        closes: false, // the route says so, when it is compiled
        paths: t
            .key(
                "path",
                "Paths, in any encoding that a client uses. `/admin/*` matches `/admin` and \
                 everything below it. `~ \\.bak$` matches all paths in which the regular \
                 expression is found; `!~ ^/open/` matches all others. Regular expressions are \
                 case-sensitive.",
            )
            .optional()
            .unwrap_or_default(),
        hosts: t
            .key(
                "host",
                "Hosts, compared without port and case. `*.example.com` matches all hosts below \
                 `example.com`.",
            )
            .optional()
            .unwrap_or_default(),
        methods: t
            .key("method", "Methods. `GET` also matches `HEAD`.")
            .optional()
            .unwrap_or_default(),
        not_methods: t
            .key(
                "not_method",
                "Methods that the route does not match, written as clients send them. `GET` does \
                 not include `HEAD` here.",
            )
            .optional()
            .unwrap_or_default(),
        headers: t
            .key(
                "header",
                "Header fields, each with a regular expression that may match any part of the \
                 value. All must match. A missing field counts as empty.",
            )
            .optional()
            .unwrap_or_default(),
        addresses: t
            .key(
                "address",
                "Addresses and networks of clients. Behind proxies, `http.trusted_subnets` lists \
                 the proxies that may name the client. A client of a unix socket has no address.",
            )
            .optional()
            .unwrap_or_default(),
        not_addresses: t
            .key(
                "not_address",
                "Addresses of clients that the route does not match. A client of a unix socket has \
                 no address, so the route matches it.",
            )
            .optional()
            .unwrap_or_default(),
    }
}

/// Whether a condition is written and empty: an unset variable must not turn one host's route into
/// one for all requests.
fn refuse_empty(t: &mut Table<'_>, conditions: &Conditions) -> bool {
    let mut broken = false;
    for (name, none) in [
        ("path", conditions.paths.is_empty()),
        ("host", conditions.hosts.is_empty()),
        ("method", conditions.methods.is_empty()),
        ("not_method", conditions.not_methods.is_empty()),
        ("header", conditions.headers.0.is_empty()),
        ("address", conditions.addresses.is_empty()),
        ("not_address", conditions.not_addresses.is_empty()),
    ] {
        broken |= none && t.is_written(name);
        if t.is_empty(name) {
            let hint = "give it a value; without the key it matches any";
            t.error(name, "is empty: what it matches can't be told", hint);
        }
    }
    broken
}

/// The place of its calls in the queue, and their time.
fn read_terms(t: &mut Table<'_>) -> Terms {
    Terms {
        priority: t
            .key(
                "priority",
                "Among calls that wait for the same pool, the one with the lowest number starts \
                 first.",
            )
            .range(0..=u8::MAX)
            .default(Terms::default().priority),
        deadline: t
            .key(
                "deadline",
                "The time limit of a call, instead of the pool's `supervisor.exec_ttl`.",
            )
            .range(SHORTEST..=LONGEST)
            .optional(),
        slow: t
            .key(
                "slow",
                "Requests that take longer than this get a log record, instead of the pool's \
                 `slow`.",
            )
            .range(SHORTEST..=LONGEST)
            .optional(),
        affinity: None,
    }
}

/// Keys of a route that say something of calls.
const OF_CALLS: [&str; 9] = [
    "basic_auth",
    "strip_prefix",
    "scripts",
    "priority",
    "deadline",
    "slow",
    "rate_limit",
    "max_request_size",
    "request_body",
];

fn read_refuse(t: &mut Table<'_>) -> Option<u16> {
    let refuse: Option<u16> = t
        .key(
            "refuse",
            "The status, 400 to 499, of the answer to all requests of this route. They reach no \
             pool, and no file is sent. If the route has no conditions, or only `/*`, files of \
             `http.static` are still sent.",
        )
        .range(400..=499)
        .optional();
    if refuse.is_some()
        && let Some(other) = OF_CALLS.iter().find(|key| t.is_written(key))
    {
        let message = "is of no use beside `refuse`: no pool gets a request of this route";
        t.error(other, message, "remove one of the two");
    }
    refuse
}

fn read_scripts(t: &mut Table<'_>, mode: Mode) -> Answering {
    let scripts: AnsweringKey = t
        .key(
            "scripts",
            "Which scripts of the pool's `root` may run. `all`: all of them. `named`: those that \
             the path names, and the index of a directory, but not the `fallback`. `front`: only \
             the `fallback`. `none`: no script; files are sent, and all other requests are \
             answered 404.",
        )
        .default(AnsweringKey(Answering::All));
    if scripts.0 != Answering::All && mode == Mode::Worker {
        let message = "is of pools with a `root`, and this one runs a worker script";
        t.error("scripts", message, "remove it, or write `refuse: 404`");
    }
    scripts.0
}

/// `scripts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AnsweringKey(Answering);

impl AnsweringKey {
    const ALL: [(&str, Answering); 4] = [
        ("all", Answering::All),
        ("named", Answering::Named),
        ("front", Answering::Front),
        ("none", Answering::Nothing),
    ];
}

impl Setting for AnsweringKey {
    fn example() -> String {
        "none".to_owned()
    }

    fn accepts() -> String {
        "`all`, `named`, `front` or `none`".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let text = node.text().map(str::trim).unwrap_or_default();
        let known = Self::ALL.iter().find(|(name, _)| *name == text);
        known
            .map(|(_, it)| Self(*it))
            .ok_or_else(|| Wrong::value(node))
    }

    fn show(&self) -> Shown {
        let known = Self::ALL.iter().find(|(_, it)| *it == self.0);
        Shown::One(known.map_or("", |(name, _)| name).to_owned())
    }
}

/// Keys of a route that say something of workers.
const OF_WORKERS: [&str; 7] = [
    "pool",
    "refuse",
    "scripts",
    "priority",
    "deadline",
    "slow",
    "request_body",
];

fn read_upstream(t: &mut Table<'_>, upstreams: &[(String, UpstreamSettings)]) -> Option<String> {
    let written: Option<String> = t
        .key(
            "upstream",
            "The name of an upstream of `http.upstreams` that answers instead of a pool.",
        )
        .optional();
    let written = written?;
    if let Some(other) = OF_WORKERS.iter().find(|key| t.is_written(key)) {
        let message = "is of no use beside `upstream`: no worker gets a request of this route";
        t.error(other, message, "remove one of the two");
    }
    let names = || upstreams.iter().map(|(name, _)| name.as_str());
    if names().any(|name| name == written) {
        return Some(written);
    }
    let hint = match nearest(&written, names()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!(
            "for example `upstreams: {{{}: {{servers: [\"http://127.0.0.1:3000\"]}}}}` in `http`",
            if written.is_empty() { "node" } else { &written }
        ),
    };
    let message = format!(
        "is `{}`, and there is no such upstream",
        written.escape_debug()
    );
    t.error("upstream", &message, &hint);
    None
}

fn read_prefix(t: &mut Table<'_>, mode: Mode, is_proxied: bool) -> Option<String> {
    let prefix: Option<String> = t
        .key(
            "strip_prefix",
            "A prefix that is removed from the path before the pool's `root` is searched, or \
             before the request goes to an upstream. With `/cgi-bin`, a request for \
             `/cgi-bin/a.sh` runs `a.sh` in the root. Only for upstreams and pools with a `root`.",
        )
        .optional();
    let prefix = prefix?;
    if mode == Mode::Worker && !is_proxied {
        let message = "is of pools with a `root`, and this one runs a worker script";
        t.error(
            "strip_prefix",
            message,
            "remove it: workers get the whole path",
        );
        return None;
    }
    let plain = |segment: &str| {
        !matches!(segment, "" | "." | "..") && !segment.contains(['%', '\\', '*', '?', '#'])
    };
    let segments = prefix
        .strip_prefix('/')
        .map(|rest| rest.trim_end_matches('/').split('/'));
    if !segments.is_some_and(|mut segments| segments.all(plain)) {
        let message = format!("is `{}`, which is no path", prefix.escape_debug());
        t.error(
            "strip_prefix",
            &message,
            "for example `strip_prefix: /cgi-bin`",
        );
        return None;
    }
    Some(prefix.trim_end_matches('/').to_owned())
}

fn read_pool(t: &mut Table<'_>, pools: &[(String, HttpPoolSettings)]) -> String {
    let written = t
        .key("pool", "The name of the pool.")
        .default(DEFAULT_POOL.to_owned());
    let names = || std::iter::once(DEFAULT_POOL).chain(pools.iter().map(|(name, _)| name.as_str()));
    if let Some(name) = names().find(|name| name.eq_ignore_ascii_case(&written)) {
        return name.to_owned();
    }
    let hint = match nearest(&written, names()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => {
            let known: Vec<String> = names().map(|name| format!("`{name}`")).collect();
            format!("known: {}", known.join(", "))
        }
    };
    let message = format!("is `{written}`, and there is no such pool");
    t.error("pool", &message, &hint);
    DEFAULT_POOL.to_owned()
}

/// What runs, or is written, for nothing.
pub(super) fn check_use(t: &mut Table<'_>, settings: &HttpSettings) {
    let HttpSettings {
        pools,
        routes,
        upstreams,
        ..
    } = settings;
    for (name, _) in upstreams {
        if pools
            .iter()
            .any(|(pool, _)| pool.eq_ignore_ascii_case(name))
        {
            let message = format!("has `{name}`, which is also the name of a pool");
            t.error(
                "upstreams",
                &message,
                "give one of them another name: log records have it",
            );
        }
        let leads = |route: &RouteSettings| route.upstream.as_ref() == Some(name);
        if wrong_name(name).is_none() && !routes.iter().any(leads) {
            let message = format!("has `{name}`, to which no route leads");
            let hint =
                format!("for example `- {{path: /{name}/*, upstream: {name}}}` in `http.routes`");
            t.warn("upstreams", &message, &hint);
        }
    }
    for (name, _) in pools {
        if wrong_name(name).is_none() && !routes.iter().any(|route| route.pool == *name) {
            let message = format!("has `{name}`, to which no route leads");
            let hint =
                format!("for example `- {{path: /{name}/*, pool: {name}}}` in `http.routes`");
            t.warn("pools", &message, &hint);
        }
    }
    if t.is_written("pool") && !settings.has_default_pool() {
        let hint = "without that route, what matches none goes to this pool";
        t.warn(
            "pool",
            "is not used: a route without conditions takes all other requests",
            hint,
        );
    }
}
