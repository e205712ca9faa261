//! What a server has kept, for who asks without it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use pronghorn_config::{Input, Section, Table, load};
use pronghorn_store::{Surroundings, state_folder};

use crate::renewal::environment;
use crate::reports::{Reports, folder_in};
use crate::settings::state_dir;
use crate::state;

/// Of a configuration, the one key that says where reports are: a mistake elsewhere keeps nobody
/// from them.
struct StateAlone(Option<PathBuf>);

impl Section for StateAlone {
    fn read(t: &mut Table<'_>) -> Self {
        Self(state_dir(t))
    }
}

/// The reports below a state directory.
pub fn reports_in(state: &Path) -> Reports {
    Reports::new(folder_in(state))
}

/// The state directory of the server of a configuration, whether or not it runs or is there.
/// Relative paths begin in `base`.
///
/// # Errors
///
/// The configuration can't be read; the text says why.
pub fn state_folder_of(input: &Input, base: &Path) -> Result<PathBuf, String> {
    let said = Said::by(input)?;
    Ok(state::folder(said.state_dir, base, &said.environment))
}

/// The state directory that a service of systemd should have for a configuration in this folder:
/// where root's commands look when the server does not run.
pub fn state_folder_of_service(configuration: &Path) -> PathBuf {
    state_folder(Surroundings {
        xdg_state_home: None,
        is_root: true,
        configuration,
    })
}

/// The one of [`state_folder_of`] where the configuration or systemd names it.
///
/// # Errors
///
/// As above.
pub fn named_state_folder_of(input: &Input, base: &Path) -> Result<Option<PathBuf>, String> {
    let said = Said::by(input)?;
    Ok(state::named(said.state_dir, base, &said.environment))
}

/// What a configuration and its environment say of the state directory.
struct Said {
    state_dir: Option<PathBuf>,
    environment: Vec<(OsString, OsString)>,
}

impl Said {
    fn by(input: &Input) -> Result<Self, String> {
        let loaded = load(input);
        let environment = environment(&loaded);
        let settings = loaded.resolve_part::<StateAlone>().into_settings();
        let StateAlone(state_dir) = settings.map_err(|_| {
            "the configuration has mistakes\nhint: `pronghorn check` names them".to_owned()
        })?;
        Ok(Self {
            state_dir,
            environment,
        })
    }
}
