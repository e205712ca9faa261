//! The binary.

#![forbid(unsafe_code)]

use std::process::ExitCode;

/// A request makes a handful of small allocations; this allocator takes a third of the time of glibc's for them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    pronghorn_cli::run()
}
