//! `http.sendfile`.

use std::path::PathBuf;

use pronghorn_config::{Era, Section, Table};

/// More than anybody keeps an overview of.
const MOST_LOCATIONS: usize = 64;

/// Files that PHP names for the server to send.
#[derive(Clone, Debug, Default)]
pub struct SendfileSettings {
    /// Where files of `X-Sendfile` may lie; empty is anywhere.
    pub roots: Vec<PathBuf>,
    /// For `X-Accel-Redirect`: what a target begins with, and the folder that this stands for.
    pub locations: Vec<(String, PathBuf)>,
    /// Whatever `X-Sendfile` names is `application/octet-stream`, as in RoadRunner 3.
    pub untyped: bool,
}

impl Section for SendfileSettings {
    fn read(t: &mut Table<'_>) -> Self {
        t.ours();
        t.live();
        Self {
            untyped: t.era() == Era::V3,
            roots: t
                .key(
                    "roots",
                    "Directories that may contain the files named by `X-Sendfile`. An empty list \
                     allows any file that the workers' user may read.",
                )
                .default(Vec::new()),
            locations: t.section_list_with(
                "locations",
                "Targets for `X-Accel-Redirect`, like nginx's internal locations. The pool's user \
                 must be allowed to read the file.",
                "One target.",
                MOST_LOCATIONS,
                |t| {
                    let prefix: String = t
                        .key("prefix", "The prefix of the target.")
                        .default("/".to_owned());
                    if !prefix.starts_with('/') {
                        t.error(
                            "prefix",
                            "does not begin with a slash",
                            &format!("write `/{prefix}`"),
                        );
                    }
                    let root: Option<PathBuf> = t
                        .key(
                            "root",
                            "The directory that contains the files of this target.",
                        )
                        .optional();
                    if root.is_none() {
                        t.error(
                            "root",
                            "is not set: the location has no folder",
                            "for example `root: storage`",
                        );
                    }
                    (prefix, root.unwrap_or_default())
                },
            ),
        }
    }
}
