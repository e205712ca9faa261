//! Builds the extension for a PHP and puts it where servers look.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use pronghorn_process::{Spawner, which};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use thiserror::Error;

pub use crate::run::StepError;
use crate::run::run;
use crate::{Build, SOURCES, Toolchain, file_name};

/// A build has 1.2 MB, with its symbols for debuggers.
const ROOM: u64 = 2 << 20;

/// Why there is no new build.
#[derive(Debug, Error)]
pub enum BuildError {
    /// The operator's: no permission, a read-only or full disk.
    #[error("`{}` can't be written to", .0.display())]
    Folder(PathBuf, #[source] io::Error),
    /// The same of the folder for temporary files.
    #[error("cannot build in `{}`", .0.display())]
    Work(PathBuf, #[source] io::Error),
    #[error(transparent)]
    Step(#[from] StepError),
    /// PHP does not load what was built.
    #[error("`{php}` does not load what was built: {said}")]
    NotLoaded { php: String, said: String },
}

/// Builds in a folder of its own, which goes at the end. Takes some ten seconds. The result is in
/// its place in one step, so that a server that starts meanwhile takes the old one or the new one.
pub async fn build(
    spawner: &Spawner,
    php: &Path,
    toolchain: &Toolchain,
    into: &Path,
) -> Result<PathBuf, BuildError> {
    let target = into.join(file_name(toolchain.identity()));
    // Before the work is done, and not after.
    let place =
        Place::reserve(into, &target).map_err(|error| BuildError::Folder(into.into(), error))?;
    let work = Work::new().map_err(|error| BuildError::Work(std::env::temp_dir(), error))?;
    let path = std::env::var_os("PATH");
    let program = |name: &str| {
        which(name, path.as_ref(), Path::new("/")).unwrap_or_else(|| PathBuf::from(name))
    };
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let config = joined("--with-php-config=", &toolchain.config);
    let steps: [(&Path, Vec<OsString>); 3] = [
        (&toolchain.phpize, Vec::new()),
        // By the shell: the folder for temporary files may be mounted without execution.
        (&program("sh"), vec!["configure".into(), config]),
        (&program("make"), vec![format!("-j{jobs}").into()]),
    ];
    for (program, args) in steps {
        run(
            spawner,
            &work.0,
            program,
            &args,
            &[("CFLAGS", "-O2 -g")],
            Vec::new(),
        )
        .await?;
    }
    let built = work.0.join("modules/pronghorn.so");
    let said = release_at(spawner, php, &built, Vec::new()).await?;
    if said != env!("CARGO_PKG_VERSION") {
        let php = php.display().to_string();
        return Err(BuildError::NotLoaded { php, said });
    }
    place
        .fill(&built)
        .map_err(|error| BuildError::Folder(into.into(), error))?;
    Ok(target)
}

fn joined(option: &str, path: &Path) -> OsString {
    let mut argument = OsString::from(option);
    argument.push(path);
    argument
}

impl Build {
    /// What it says of itself when this PHP loads it, and no other extension: its release. What PHP
    /// says instead, when it does not.
    ///
    /// # Errors
    ///
    /// When PHP does not run.
    pub async fn release(&self, spawner: &Spawner, php: &Path) -> Result<String, StepError> {
        let file = self.descriptor();
        let file = file.map_err(|error| StepError::Output(php.display().to_string(), error))?;
        release_at(spawner, php, Path::new("/proc/self/fd/3"), vec![file]).await
    }
}

async fn release_at(
    spawner: &Spawner,
    php: &Path,
    build: &Path,
    passed: Vec<OwnedFd>,
) -> Result<String, StepError> {
    const QUESTION: &str = "echo phpversion('pronghorn');";
    let extension = joined("extension=", build);
    let args = [
        "-n".into(),
        "-d".into(),
        extension,
        "-r".into(),
        QUESTION.into(),
    ];
    let said = run(spawner, Path::new("/"), php, &args, &[], passed).await?;
    // Before it may stand what PHP warns of.
    Ok(said.trim().lines().last().unwrap_or_default().to_owned())
}

/// The file that becomes the build, in the folder where that will be.
struct Place {
    draft: PathBuf,
    target: PathBuf,
}

impl Place {
    fn reserve(folder: &Path, target: &Path) -> io::Result<Self> {
        make_readable(folder)?;
        let place = Self {
            draft: folder.join(format!(".pronghorn-{}.new", std::process::id())),
            target: target.to_owned(),
        };
        _ = std::fs::remove_file(&place.draft); // of a process of this number that was killed
        let file = File::create_new(&place.draft)?;
        match fallocate(&file, FallocateFlags::empty(), 0, ROOM) {
            // Where that is not possible, a full disk shows at the end.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(place),
            Err(error) => Err(error.into()),
        }
    }

    fn fill(&self, built: &Path) -> io::Result<()> {
        std::fs::copy(built, &self.draft)?;
        // Workers may have another user.
        std::fs::set_permissions(&self.draft, PermissionsExt::from_mode(0o644))?;
        std::fs::rename(&self.draft, &self.target)
    }
}

/// Makes a folder and those above it. Root's are for servers of all users, whatever its umask says.
fn make_readable(folder: &Path) -> io::Result<()> {
    let missing: Vec<_> = folder
        .ancestors()
        .take_while(|above| !above.exists())
        .collect();
    std::fs::create_dir_all(folder)?;
    if rustix::process::geteuid().is_root() {
        for made in missing {
            std::fs::set_permissions(made, PermissionsExt::from_mode(0o755))?;
        }
    }
    Ok(())
}

impl Drop for Place {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.draft); // after `fill` it has another name
    }
}

/// A folder with the sources, for this user alone.
struct Work(PathBuf);

impl Work {
    fn new() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("pronghorn-{:x}", fastrand::u64(..)));
        // Fails where somebody else has made one.
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        let work = Self(path);
        for (name, content) in SOURCES {
            std::fs::write(work.0.join(name), content)?;
        }
        Ok(work)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0); // it is in a folder for temporary files
    }
}
