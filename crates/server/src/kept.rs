//! What a server has kept, for who asks without it.

use std::path::{Path, PathBuf};

use pronghorn_config::{Input, Section, Table, load};

use crate::renewal::environment;
use crate::reports::{Reports, folder_in};
use crate::settings::state_dir;
use crate::state::folder;

/// Of a configuration, the one key that says where reports are: a mistake elsewhere keeps nobody
/// from them.
struct StateAlone(Option<PathBuf>);

impl Section for StateAlone {
    fn read(t: &mut Table<'_>) -> Self {
        Self(state_dir(t))
    }
}

/// The reports of the server of a configuration, whether or not it runs. Relative paths begin in
/// `folder`.
///
/// # Errors
///
/// The configuration can't be read; the text says why.
pub fn reports_of(input: &Input, base: &Path) -> Result<Reports, String> {
    Ok(Reports::new(folder_in(&state_folder_of(input, base)?)))
}

/// The state directory of the server of a configuration, whether or not it runs or is there.
/// Relative paths begin in `base`.
///
/// # Errors
///
/// The configuration can't be read; the text says why.
pub fn state_folder_of(input: &Input, base: &Path) -> Result<PathBuf, String> {
    let loaded = load(input);
    let environment = environment(&loaded);
    let settings = loaded.resolve_part::<StateAlone>().into_settings();
    let StateAlone(configured) = settings.map_err(|_| {
        "the configuration has mistakes\nhint: `pronghorn check` names them".to_owned()
    })?;
    Ok(folder(configured, base, &environment))
}
