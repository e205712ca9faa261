//! The binary.

use std::process::ExitCode;

use pronghorn_allocator::Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    pronghorn_allocator::give_back_soon();
    pronghorn_cli::run()
}
