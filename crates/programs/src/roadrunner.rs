//! RoadRunner's program as one of ours: the configuration that each process gets, whether it is
//! well, and what its records say.

use std::fmt;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pronghorn_config::{Map, Node, Value};
use pronghorn_launch::Program;
use pronghorn_process::Credentials;
use serde_json::{Map as Object, Value as Json, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::channel::{Channel, record};
use crate::environment::set;
use crate::notify::fresh;

/// Begins the names of directories; the number of their server follows.
const NAME: &str = "pronghorn-temporal-";
/// Begins the names of variables that hold what RoadRunner would expand.
const VARIABLE: &str = "PRONGHORN_TEMPORAL_";
/// The address for calls to this server: `RR_RPC` is that of RoadRunner there.
const OWN_RPC: &str = "PRONGHORN_RPC";
/// Tells a server that it was started in place of RoadRunner.
const INSIDE: &str = "PRONGHORN_TEMPORAL";
/// The time that RoadRunner gives itself to stop.
const GRACE: &str = "25s";

/// The parts of a RoadRunner's configuration that come from ours.
#[derive(Clone, PartialEq)]
pub(crate) struct RoadRunnerFile {
    /// The section `temporal`.
    section: Json,
    /// Texts with a `$` in them, which the file refers to.
    variables: Vec<(String, String)>,
    /// The command of its workers.
    command: Vec<String>,
}

/// It can hold secrets.
impl fmt::Debug for RoadRunnerFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoadRunnerFile").finish_non_exhaustive()
    }
}

impl RoadRunnerFile {
    /// `section` is what it reads of Temporal, `command` that of its workers.
    pub(crate) fn new(section: &Map, command: Vec<String>) -> Self {
        let mut variables = Vec::new();
        Self {
            section: Json::Object(object(section, &mut variables)),
            variables,
            command,
        }
    }

    fn text(&self, rpc: &str, status: SocketAddr) -> String {
        let file = json!({
            "version": "3",
            "server": {"command": self.command},
            "rpc": {"listen": rpc},
            "status": {"address": status.to_string()},
            "logs": {"mode": "production", "level": "info", "encoding": "json", "output": ["stderr"]},
            "endure": {"grace_period": GRACE},
            "temporal": self.section,
        });
        // JSON is YAML, too.
        file.to_string()
    }
}

fn object(map: &Map, variables: &mut Vec<(String, String)>) -> Object<String, Json> {
    let entries = map.entries.iter();
    entries
        .filter(|entry| entry.node.value != Value::Null)
        .map(|entry| (entry.name.clone(), value(&entry.node, variables)))
        .collect()
}

fn value(node: &Node, variables: &mut Vec<(String, String)>) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Map(map) => Json::Object(object(map, variables)),
        Value::List(items) => items.iter().map(|item| value(item, variables)).collect(),
        // Variables were put in here: RoadRunner is not to look for others in their values.
        Value::Text(text) if text.text.contains('$') => {
            let name = format!("{VARIABLE}{}", variables.len());
            let reference = format!("${{{name}}}");
            variables.push((name, text.text.clone()));
            reference.into()
        }
        Value::Text(text) if text.quoted => text.text.clone().into(),
        Value::Text(text) => match text.text.as_str() {
            "true" => true.into(),
            "false" => false.into(),
            number => match number.parse::<i64>() {
                Ok(number) => number.into(),
                Err(_) => text.text.clone().into(),
            },
        },
    }
}

/// The directory and the port of one process of RoadRunner. Dropped, its directory is gone.
#[derive(Debug)]
pub(crate) struct RoadRunner {
    directory: PathBuf,
    status: SocketAddr,
}

impl RoadRunner {
    /// Writes its file, and says to `program` where it is.
    ///
    /// Its directory is the server's, and none but its user can read the file. Its socket is in
    /// another one there, which is its user's.
    pub(crate) fn prepare(
        file: &RoadRunnerFile,
        user: Option<&Credentials>,
        program: &mut Program,
    ) -> io::Result<Self> {
        let user = user.filter(|user| !user.is_current());
        let (server, random) = (std::process::id(), fresh());
        let directory = std::env::temp_dir().join(format!("{NAME}{server}-{random:016x}"));
        // First: where it fails, nothing is left.
        let status = free_port()?;
        DirBuilder::new().mode(0o700).create(&directory)?;
        let prepared = Self { directory, status };
        let sockets = prepared.directory.join("rpc");
        DirBuilder::new().mode(0o700).create(&sockets)?;
        let rpc = format!("unix://{}", sockets.join("rr.sock").display());
        let path = prepared.directory.join("rr.yaml");
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let text = file.text(&rpc, prepared.status);
        options.open(&path)?.write_all(text.as_bytes())?;
        if let Some(user) = user {
            chown(&path, Some(user.uid()), None)?;
            chown(&sockets, Some(user.uid()), Some(user.gid()))?;
            fs::set_permissions(&prepared.directory, Permissions::from_mode(0o711))?;
        }
        // Without a directory of its own, it works in that of its file.
        let directory = program.directory.clone().into_os_string();
        let arguments = ["serve".into(), "-w".into(), directory, "-c".into()];
        program.arguments.extend(arguments);
        program.arguments.push(path.into());
        set(&mut program.environment, INSIDE, "1".into());
        for (name, value) in &file.variables {
            set(&mut program.environment, name, value.into());
        }
        let own = program
            .environment
            .iter()
            .rfind(|(name, _)| name == "RR_RPC");
        if let Some((_, own)) = own.cloned() {
            set(&mut program.environment, OWN_RPC, own);
        }
        Ok(prepared)
    }

    /// Asks it, by its plugin `status`.
    pub(crate) fn is_well(&self, within: Duration) -> impl Future<Output = bool> + use<> {
        let status = self.status;
        async move { matches!(timeout(within, ask(status)).await, Ok(Ok(true))) }
    }
}

impl Drop for RoadRunner {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.directory); // somebody has tidied up
    }
}

async fn ask(at: SocketAddr) -> io::Result<bool> {
    const WELL: &[u8] = b"HTTP/1.1 200";
    let mut stream = TcpStream::connect(at).await?;
    let question =
        format!("GET /health?plugin=temporal HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
    stream.write_all(question.as_bytes()).await?;
    let mut answer = [0; WELL.len()];
    stream.read_exact(&mut answer).await?;
    Ok(answer == WELL)
}

/// Another process may take it before RoadRunner does, which then ends, and gets another one.
fn free_port() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// Whether this server was started in place of a RoadRunner, by another one.
pub(crate) fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Removes the directories of servers that were killed.
pub(crate) fn tidy() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let server = name.to_str().and_then(|name| name.strip_prefix(NAME));
        let server = server.and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        let is_over = server.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
        if is_over && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            _ = fs::remove_dir_all(entry.path()); // another user's, who removes it
        }
    }
}

/// A line of RoadRunner's log.
#[derive(Debug, PartialEq)]
pub(crate) struct LogLine<'a> {
    level: tracing::Level,
    logger: Option<String>,
    message: std::borrow::Cow<'a, str>,
    /// Its other fields, as JSON.
    context: Option<String>,
}

impl<'a> LogLine<'a> {
    /// Another line is its own message, at the level `info`.
    pub(crate) fn of(line: &'a str) -> Self {
        Self::parse(line).unwrap_or_else(|| Self {
            level: tracing::Level::INFO,
            logger: None,
            message: line.into(),
            context: None,
        })
    }

    fn parse(line: &str) -> Option<Self> {
        if !line.starts_with('{') {
            return None;
        }
        let Ok(Json::Object(mut fields)) = serde_json::from_str(line) else {
            return None;
        };
        let mut text = |name: &str| match fields.remove(name) {
            Some(Json::String(text)) => Some(text),
            _ => None,
        };
        let message = text("msg")?;
        let level = text("level").unwrap_or_default().to_ascii_lowercase();
        let logger = text("logger");
        for name in ["ts", "time"] {
            fields.remove(name); // the record has its own
        }
        let context = (!fields.is_empty()).then(|| Json::Object(fields).to_string());
        Some(Self {
            level: match level.as_str() {
                "debug" => tracing::Level::DEBUG,
                "warn" | "warning" => tracing::Level::WARN,
                "error" | "panic" | "dpanic" | "fatal" => tracing::Level::ERROR,
                _ => tracing::Level::INFO,
            },
            logger,
            message: message.trim_end().to_owned().into(),
            context,
        })
    }

    pub(crate) fn record(&self, index: u32, pid: u32, stream: &str) {
        let Self {
            level,
            logger,
            message,
            context,
        } = self;
        macro_rules! tell {
            ($level:ident) => {
                record!(
                    Channel::Temporal,
                    $level,
                    index,
                    pid,
                    stream,
                    logger,
                    context,
                    "{message}"
                )
            };
        }
        match *level {
            tracing::Level::ERROR => tell!(error),
            tracing::Level::WARN => tell!(warn),
            tracing::Level::INFO => tell!(info),
            tracing::Level::DEBUG | tracing::Level::TRACE => tell!(debug),
        }
    }
}

#[cfg(test)]
mod tests {
    use pronghorn_config::{Input, load};

    use super::*;

    fn file(yaml: &str) -> RoadRunnerFile {
        let mut input = Input::from_text("pronghorn.yaml", format!("temporal: {yaml}\n"));
        input.environment = [("KEY".to_owned(), "a$b".to_owned())].into();
        let loaded = load(&input);
        let Some(Node {
            value: Value::Map(map),
            ..
        }) = loaded.root().get("temporal")
        else {
            panic!("it is a section");
        };
        RoadRunnerFile::new(map, vec!["php".to_owned(), "a b.php".to_owned()])
    }

    #[test]
    fn values_keep_their_kind_and_are_expanded_once() {
        let file = file(
            "{address: 'h:1', cache_size: 5, tls: {key: $KEY}, interceptors: [a, $KEY], \
             disable_activity_workers: true, namespace: '7', activities: {max_jobs: 0, debug: }}",
        );
        assert_eq!(
            file.section,
            json!({
                "address": "h:1",
                "cache_size": 5,
                "tls": {"key": "${PRONGHORN_TEMPORAL_0}"},
                "interceptors": ["a", "${PRONGHORN_TEMPORAL_1}"],
                "disable_activity_workers": true,
                "namespace": "7",
                "activities": {"max_jobs": 0},
            })
        );
        let names = ["PRONGHORN_TEMPORAL_0", "PRONGHORN_TEMPORAL_1"];
        let variables = names.map(|name| (name.to_owned(), "a$b".to_owned()));
        assert_eq!(file.variables, variables);
        assert!(!format!("{file:?}").contains("a$b"), "{file:?}");
    }

    #[test]
    fn a_process_has_a_directory_that_nobody_else_can_read() {
        let mut program = Program {
            path: "rr".into(),
            arguments: Vec::new(),
            environment: vec![("RR_RPC".into(), "tcp://127.0.0.1:1".into())],
            directory: "/srv".into(),
            user: None,
            limit: Duration::ZERO,
            leftovers: pronghorn_launch::Leftovers::End,
        };
        let file = file("{address: $KEY}");
        let prepared = RoadRunner::prepare(&file, None, &mut program).expect("it is written");
        let directory = prepared.directory.clone();
        let mode = |path: &Path| {
            fs::metadata(path)
                .expect("it is there")
                .permissions()
                .mode()
        };
        assert_eq!(mode(&directory) & 0o777, 0o700);
        let path = directory.join("rr.yaml");
        assert_eq!(mode(&path) & 0o777, 0o600);
        let written = fs::read_to_string(&path).expect("it is a file");
        let written: Json = serde_json::from_str(&written).expect("it is JSON");
        assert_eq!(written["server"]["command"], json!(["php", "a b.php"]));
        assert_eq!(written["status"]["address"], prepared.status.to_string());
        assert_eq!(written["version"], "3");
        let path = path.into_os_string();
        let arguments: [&std::ffi::OsStr; 5] = [
            "serve".as_ref(),
            "-w".as_ref(),
            "/srv".as_ref(),
            "-c".as_ref(),
            &path,
        ];
        assert_eq!(program.arguments, arguments);
        for variable in [
            ("PRONGHORN_RPC", "tcp://127.0.0.1:1"),
            ("PRONGHORN_TEMPORAL_0", "a$b"),
        ] {
            let variable = (variable.0.into(), variable.1.into());
            assert!(program.environment.contains(&variable), "{variable:?}");
        }
        drop(prepared);
        assert!(!directory.exists());
    }

    #[test]
    fn lines_of_its_log_become_records() {
        let said = LogLine::of(
            r#"{"level":"error","ts":1690000000,"logger":"temporal","msg":"no way\n","pid":4}"#,
        );
        assert_eq!(
            said,
            LogLine {
                level: tracing::Level::ERROR,
                logger: Some("temporal".to_owned()),
                message: "no way".into(),
                context: Some(r#"{"pid":4}"#.to_owned()),
            }
        );
        let said = LogLine::of(r#"{"time":"now","level":"WARN","msg":"slow"}"#);
        assert_eq!((said.level, said.context), (tracing::Level::WARN, None));
        for line in ["handle_serve_command: no", "{\"msg\": 1}", "{", "[]", ""] {
            assert_eq!(LogLine::of(line).message, line);
        }
    }

    #[tokio::test]
    async fn it_is_well_when_its_plugin_says_so() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let asked = RoadRunner {
            directory: "/nowhere/at/all".into(),
            status: listener.local_addr().unwrap(),
        };
        for (answer, well) in [
            ("HTTP/1.1 200 OK\r\n\r\n", true),
            ("HTTP/1.1 503 Service Unavailable\r\n\r\n", false),
            ("", false),
        ] {
            let answering = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut question = [0; 512];
                assert!(stream.read(&mut question).await.unwrap() > 0);
                stream.write_all(answer.as_bytes()).await.unwrap();
            };
            let within = Duration::from_secs(60);
            let (found, ()) = tokio::join!(asked.is_well(within), answering);
            assert_eq!(found, well, "{answer}");
        }
        let within = Duration::from_millis(50);
        assert!(!asked.is_well(within).await, "nobody answers");
        drop(listener);
        assert!(!asked.is_well(Duration::from_secs(60)).await);
    }
}
