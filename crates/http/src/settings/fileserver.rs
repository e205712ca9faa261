//! `fileserver`.

use pronghorn_config::{Address, Section, Table};
use pronghorn_workers::{MAX_IO_THREADS, default_io_threads};

use super::files::{Kind, RootKeys, read_roots, read_tag};
use crate::files::Tag;

/// A server of files alone.
#[derive(Clone, Debug)]
pub struct FileServerSettings {
    pub address: Address,
    /// I/O threads.
    pub threads: usize,
    pub tag: Tag,
    /// In the order in which they are looked into.
    pub roots: Vec<RootKeys>,
}

impl Section for FileServerSettings {
    fn read(t: &mut Table<'_>) -> Self {
        let address: Option<Address> = t.key("address", "The address to listen on.").optional();
        if address.is_none() {
            t.error(
                "address",
                "is not set: no file could be requested",
                "for example `address: 127.0.0.1:8081`",
            );
        }
        let settings = Self {
            address: address.unwrap_or(Address {
                host: None,
                port: 0,
            }),
            threads: t
                .key(
                    "threads",
                    "Number of I/O threads, in addition to those of `http`.",
                )
                .ours()
                .range(1..=MAX_IO_THREADS)
                .default_as(
                    default_io_threads(),
                    "1 below four CPUs, else a quarter of them",
                ),
            tag: read_tag(t),
            roots: read_roots(t, Kind::Server),
        };
        t.no_effect("stream_request_body", "requests for files have no body");
        if settings.roots.is_empty() {
            t.error(
                "serve",
                "is not set: there is no folder to serve",
                "for example `serve: [{prefix: /, root: public}]`",
            );
        }
        settings
    }
}
