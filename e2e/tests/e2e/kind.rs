//! The same application in both kinds of pool: a handler of our package, and a script below a root.

use pronghorn_testkit::Site;

use crate::ring::extension;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Worker,
    Classic,
    /// The same without a zygote, where it differs.
    ClassicByExec,
}

pub(crate) const KINDS: [Kind; 2] = [Kind::Worker, Kind::Classic];
pub(crate) const ALL_KINDS: [Kind; 3] = [Kind::Worker, Kind::Classic, Kind::ClassicByExec];

impl Kind {
    /// The file with the application.
    pub(crate) fn file(self) -> &'static str {
        match self {
            Self::Worker => "worker.php",
            Self::Classic | Self::ClassicByExec => "public/index.php",
        }
    }

    /// What stands in it for a handler with this body, to which `$request` has `path`,
    /// `query()` and `header()`.
    pub(crate) fn code(self, handler: &str) -> String {
        match self {
            Self::Worker => Site::sdk_worker(handler),
            Self::Classic | Self::ClassicByExec => format!(
                "<?php
                chdir(dirname(__DIR__));
                $request = new class {{
                    public string $path;
                    public function query(): array {{ return $_GET; }}
                    public function header(string $name): ?string {{
                        $name = strtr(strtoupper($name), '-', '_');
                        return $_SERVER['HTTP_' . $name] ?? null;
                    }}
                }};
                $request->path = strtok($_SERVER['REQUEST_URI'], '?');
                echo (static function (object $request): string {{
                    {handler}
                }})($request);"
            ),
        }
    }

    /// Keys of the section `server`.
    pub(crate) fn server(self) -> &'static str {
        match self {
            Self::Worker => "command: php worker.php",
            Self::Classic | Self::ClassicByExec => "",
        }
    }

    /// Keys of the pool.
    pub(crate) fn pool(self) -> String {
        match self {
            Self::Worker => "mode: worker".to_owned(),
            Self::Classic => {
                let extension = extension().display().to_string();
                format!("mode: classic, root: public, php: 'php -d extension={extension}'")
            }
            Self::ClassicByExec => format!("{}, spawn: exec", Self::Classic.pool()),
        }
    }
}
