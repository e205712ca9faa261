//! Choosing a route.

use divan::{AllocProfiler, Bencher, black_box};
use pronghorn_http::routes::{Asked, Conditions, HostPattern, Otherwise, PathPattern, Routes};
use pronghorn_wire::Fields;

/// Allocations are counted beside the time: a plain path takes none.
#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

const PLAIN: &str = "/articles/2026/how-fast-is-a-pronghorn";
/// The same path.
const DISGUISED: &str = "/x/..//articles/%32026/how-fast-is-a-pronghor%6e";

/// That many routes, of which the last one matches.
const ROUTES: [usize; 3] = [1, 5, 50];

fn routes(count: usize) -> Routes<usize> {
    let conditions = |number| Conditions {
        paths: vec![PathPattern::parse(&format!("/section-{number}/*")).expect("a path")],
        ..Conditions::default()
    };
    let mut routes: Vec<_> = (1..count)
        .map(|number| (conditions(number), number))
        .collect();
    let last = Conditions {
        paths: vec![PathPattern::parse("/articles/*").expect("a path")],
        hosts: vec![HostPattern::parse("*.example.org").expect("a host")],
        ..Conditions::default()
    };
    routes.push((last, count));
    Routes::new(routes, Otherwise::Default(0))
}

fn pick(bencher: Bencher<'_, '_>, count: usize, path: &str) {
    let (routes, fields) = (routes(count), Fields::new());
    let asked = Asked {
        method: "GET",
        authority: "www.example.org:8080",
        path: path.as_bytes(),
        fields: &fields,
        address: None,
    };
    assert_eq!(routes.pick(&asked), Ok(&count));
    bencher.bench_local(|| routes.pick(black_box(&asked)).copied());
}

#[divan::bench(args = ROUTES)]
fn a_plain_path(bencher: Bencher<'_, '_>, count: usize) {
    pick(bencher, count, PLAIN);
}

#[divan::bench(args = ROUTES)]
fn a_disguised_path(bencher: Bencher<'_, '_>, count: usize) {
    pick(bencher, count, DISGUISED);
}
