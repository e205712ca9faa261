//! Settings of PHP as lines of a file, in a folder that only this server writes.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::settings::{Ini, IniSetting, Preset, in_php_ini, wants_jit};
use super::{About, Program};

/// A folder of one file that goes with its owner.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Readable for all: workers may have a user of their own.
    pub(super) fn make(path: PathBuf, lines: &[String]) -> io::Result<Self> {
        let folder = Self(std::path::absolute(path)?);
        std::fs::DirBuilder::new().mode(0o755).create(&folder.0)?;
        std::fs::write(folder.0.join("pronghorn.ini"), lines.concat())?;
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What can't be removed is in a folder for temporary files.
        _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(super) fn extension(path: &Path) -> String {
    format!(
        "extension={}\n",
        in_php_ini(&path.display().to_string(), true)
    )
}

/// The pool's settings: what is written, and the preset where it is meant for such workers.
pub(super) fn of_pool(ini: &Ini, about: &About, program: &Program, pool: &str) -> Vec<String> {
    let preset = match ini.preset {
        Preset::On => true,
        Preset::Off => false,
        Preset::Auto => program.uses_package(),
    };
    let added = ini.added.iter().filter(|_| preset);
    let settings = added.chain(&ini.written).map(IniSetting::pair);
    let mut settings: Vec<(&str, &str)> = settings.collect();
    let mut lines = Vec::new();
    if preset && about.could_have_opcache {
        lines.push("zend_extension=opcache\n".to_owned());
    }
    if settings.iter().any(wants_jit) && !about.against_jit.is_empty() {
        tracing::warn!(
            target: "server", pool,
            "`ini.opcache.jit` is not used: PHP switches the JIT off where these extensions are: \
             {}", about.against_jit
        );
        settings.retain(|setting| !wants_jit(setting));
        settings.push(("opcache.jit", "disable"));
    }
    if drops_jit(&settings, ini, about, program) {
        let mode = &about.jit;
        tracing::info!(
            target: "server", pool,
            "php.ini switches OPcache's JIT on, but these workers run without it (`ini: \
             {{opcache.jit: {mode}}}` switches it on, `ini: {{opcache.jit: disable}}` turns this \
             warning off)"
        );
    }
    lines.extend(settings.iter().map(|(name, value)| {
        let mut written = ini.written.iter();
        let quoted = written.any(|it| it.name == *name && it.quoted);
        format!("{name}={}\n", in_php_ini(value, quoted))
    }));
    lines
}

/// Whether the preset, and nothing that was written, takes away a JIT that PHP would have.
fn drops_jit(settings: &[(&str, &str)], ini: &Ini, about: &About, program: &Program) -> bool {
    let names = |(name, _): &(&str, &str)| *name == "opcache.jit";
    // An option of the command goes before all files.
    let is_option = |option: &OsString| option.to_string_lossy().contains("opcache.jit");
    settings.iter().any(names)
        && !ini.written.iter().any(|it| names(&it.pair()))
        && wants_jit(&("opcache.jit", &about.jit))
        && !program.options.iter().any(is_option)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_goes_with_its_owner() {
        let folder = {
            let path =
                std::env::temp_dir().join(format!("pronghorn-ini-test-{}", std::process::id()));
            Folder::make(path, &["a='b'\n".into(), "c=d\n".into()]).unwrap()
        };
        let path = folder.path().to_owned();
        let text = std::fs::read_to_string(path.join("pronghorn.ini")).unwrap();
        assert_eq!(text, "a='b'\nc=d\n");
        drop(folder);
        assert!(!path.exists());
    }
}
