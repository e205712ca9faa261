//! The page of the admin listener that this service brings: requests and their time by route.

use pronghorn_metrics::{Reading, Registry};
use pronghorn_plugin_api::Pages;
use serde_json::{Value, json};

const SCHEMA: &str = include_str!("routes.json");
/// The metric that counts requests by route.
const ROUTES: &str = "pronghorn_http_route_duration_seconds";

/// `metrics` is the registry of the whole server.
pub(super) fn add(pages: &Pages, metrics: Registry) {
    pages.add("routes", SCHEMA, move || {
        std::future::ready(Ok(routes(&metrics).to_string()))
    });
}

fn routes(metrics: &Registry) -> Value {
    let families = metrics.families();
    let family = families.into_iter().find(|family| family.name == ROUTES);
    let series = family.map(|family| family.series).unwrap_or_default();
    let routes = series.into_iter().filter_map(|series| {
        let Reading::Histogram { counts, sum, .. } = series.reading else {
            return None;
        };
        let label = |name: &str| {
            let mut labels = series.labels.iter();
            labels
                .find(|(known, _)| *known == name)
                .map(|(_, value)| value.clone())
        };
        let requests: u64 = counts.iter().sum();
        let (pool, route) = (label("pool")?, label("route")?);
        (requests > 0)
            .then(|| json!({"pool": pool, "route": route, "requests": requests, "seconds": sum}))
    });
    routes.collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::route_names::RouteNames;

    #[test]
    fn the_schema_is_that_of_its_page() {
        let schema: Value = serde_json::from_str(SCHEMA).expect("JSON");
        assert!(schema["/api/v1/routes"]["get"]["responses"]["200"].is_object());
    }

    /// The registry is scoped as the server, this service and a pool scope it.
    #[test]
    fn a_route_is_shown_with_what_is_counted_by_its_name() {
        let metrics = Registry::default();
        let of_http = metrics.named("pronghorn").named("http");
        let names = RouteNames::new(&of_http.labelled("pool", "default"));
        let route = names.find(None, b"/user/7", true);
        for _ in 0..2 {
            route.duration.observe(Duration::from_millis(500));
        }
        let shown =
            json!([{"pool": "default", "route": "/user/{id}", "requests": 2, "seconds": 1.0}]);
        assert_eq!(routes(&metrics), shown);
    }

    #[test]
    fn without_a_request_there_is_no_route() {
        assert_eq!(routes(&Registry::default()), json!([]));
    }
}
