//! Man pages, from the definition that `--help` has:
//! `cargo run -p pronghorn-cli --example man -- DIR`

use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let folder = env::args_os().nth(1).map(PathBuf::from);
    let folder = folder.ok_or_else(|| io::Error::other("which directory?"))?;
    fs::create_dir_all(&folder)?;
    clap_mangen::generate_to(pronghorn_cli::definition(), folder)
}
