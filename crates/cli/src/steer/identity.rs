//! Whose server answers at the RPC address of a configuration.

use std::path::Path;
use std::time::Duration;

use pronghorn_config::Endpoint;
use pronghorn_rpc::{CallError, Client};
use serde::Deserialize;

use super::text::line;

/// Longer than a server that starts has until its methods are complete.
const ASKING: Duration = Duration::from_secs(20);

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Identity {
    pid: u32,
    /// Empty for a server without a configuration.
    config: String,
    directory: String,
}

/// Asks whether the server is that of the configuration `own`, or the one of a directory without a
/// configuration. Several applications may have the same address in their files, as all that keep
/// the default do. A server that can't say whose it is, `RoadRunner`'s, is taken as `rr` takes it:
/// for the one of the address.
///
/// # Errors
///
/// When it is the server of another configuration.
pub(super) async fn expect(
    directory: &Path,
    own: &Path,
    client: &mut Client,
    endpoint: &Endpoint,
) -> Result<(), String> {
    let asked = client.call("pronghorn.Server", "true", ASKING).await;
    let told = match asked {
        Ok(told) => told,
        Err(CallError::Failed(why)) if why.contains("can't find") => return Ok(()),
        Err(error) => return Err(format!("{endpoint}: {error}")),
    };
    let found: Identity = serde_json::from_slice(&told)
        .map_err(|error| format!("{endpoint}: pronghorn.Server answered oddly: {error}"))?;
    if found.is_of(own, directory) {
        return Ok(());
    }
    Err(found.refusal(own, endpoint))
}

impl Identity {
    fn is_of(&self, config: &Path, directory: &Path) -> bool {
        match &*self.config {
            "" => is_same(Path::new(&self.directory), directory),
            found => is_same(Path::new(found), config),
        }
    }

    fn refusal(&self, own: &Path, endpoint: &Endpoint) -> String {
        let (whose, flag) = match &*self.config {
            "" => {
                let directory = line(&self.directory);
                let whose = format!("that of the directory {directory}, without a configuration");
                (whose, format!("-w {directory}"))
            }
            config => (
                format!("that of {}", line(config)),
                format!("-c {}", line(config)),
            ),
        };
        format!(
            "no server of {} is running: at its `rpc.listen`, {endpoint}, another one answers, \
             {whose} (pid {})\n\
             hint: `{flag}` names that server, `-o rpc.listen={endpoint}` whichever listens there; \
             to run both at a time, give one another `rpc.listen`",
            own.display(),
            self.pid
        )
    }
}

/// By name, or by what is behind links.
fn is_same(one: &Path, other: &Path) -> bool {
    if one == other {
        return true;
    }
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_known_by_its_configuration_else_by_its_directory() {
        let directory = pronghorn_testkit::Directory::new();
        std::fs::write(directory.join("a.yaml"), "").unwrap();
        std::fs::write(directory.join("b.yaml"), "").unwrap();
        std::os::unix::fs::symlink(&*directory, directory.join("current")).unwrap();
        let identity = |config: &str| Identity {
            pid: 7,
            config: match config {
                "" => String::new(),
                name => directory.join(name).display().to_string(),
            },
            directory: directory.display().to_string(),
        };
        let own = directory.join("a.yaml");
        for (config, is_own) in [
            ("a.yaml", true),
            ("current/a.yaml", true),
            ("b.yaml", false),
            ("", true),
        ] {
            assert_eq!(identity(config).is_of(&own, &directory), is_own, "{config}");
        }
        assert!(!identity("").is_of(&own, Path::new("/")));
    }
}
