//! The official packages of RoadRunner behind this server, unmodified: `make compat DIR=…`.

mod bytes;
#[path = "../e2e/foreign/serving.rs"]
mod serving;
