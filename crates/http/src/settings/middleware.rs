//! Which middleware there is, by the names that `http.middleware` lists. Settings lie in the
//! section of `http` that has its name, if it has any.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Middleware {
    Compress,
    Gzip,
    Zstd,
    ProxyIpParser,
    Headers,
    Sendfile,
    Static,
    RateLimit,
    RateLimiter,
    Rewrite,
    ErrorPages,
    HttpMetrics,
    Otel,
}

const KNOWN: &[(&str, Middleware)] = &[
    ("compress", Middleware::Compress),
    ("gzip", Middleware::Gzip),
    ("zstd", Middleware::Zstd),
    ("proxy_ip_parser", Middleware::ProxyIpParser),
    ("headers", Middleware::Headers),
    ("sendfile", Middleware::Sendfile),
    ("static", Middleware::Static),
    ("rate_limit", Middleware::RateLimit),
    ("rate_limiter", Middleware::RateLimiter),
    ("rewrite", Middleware::Rewrite),
    ("error_pages", Middleware::ErrorPages),
    ("http_metrics", Middleware::HttpMetrics),
    ("otel", Middleware::Otel),
];

/// RoadRunner's that are not there yet.
pub(super) const LATER: &[&str] = &["new_relic", "cache"];

/// The names that `http.middleware` can list.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    KNOWN.iter().map(|(name, _)| *name)
}

impl Middleware {
    pub(crate) fn by_name(listed: &str) -> Option<Self> {
        let is = |(name, _): &&(&str, Self)| name.eq_ignore_ascii_case(listed);
        KNOWN.iter().find(is).map(|(_, middleware)| *middleware)
    }
}
