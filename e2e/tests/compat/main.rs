//! The official packages of RoadRunner behind this server, unmodified: `make compat DIR=…`.

mod bytes;
mod kv;
#[path = "../e2e/foreign/serving.rs"]
mod serving;
