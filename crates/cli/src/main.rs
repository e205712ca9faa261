//! The binary.

mod allocator;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

fn main() -> ExitCode {
    allocator::give_back_soon();
    pronghorn_cli::run()
}
