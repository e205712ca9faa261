//! From a command line to the server that it means.
//!
//! The control socket of the configuration comes first. `-o rpc.listen=…` names a server, too: then
//! the one behind the control socket must be the one that listens there, or it is not asked. Last
//! comes RPC, where the configuration says.

use std::cell::OnceCell;
use std::fmt::Write;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use pronghorn_config::{Endpoint, Section, Table, load};
use pronghorn_control::{Ask, Client, ClientError, Place, Served, Surroundings, Tell, Trusted};
use pronghorn_rpc::Rpc;

use super::over_rpc::Methods;
use super::{Server, Task, identity};
use crate::arguments::{Arguments, Name};
use crate::directories;
use crate::service::CONFIGURATION;

/// What a person wrote to name a server by its RPC.
const RPC_LISTEN: &str = "rpc.listen";

/// Where the server of a configuration is, and that of a folder without one.
pub(crate) fn place_of(arguments: &Arguments, file: Option<&Path>) -> Place {
    let base = arguments.globals.workdir.clone().unwrap_or_default();
    let base = directories::current().join(base);
    Place::of(&file.map_or_else(|| base.clone(), |file| base.join(file)))
}

/// Of a configuration, the one section that a command needs: a mistake elsewhere keeps nobody from
/// a server that runs.
struct RpcAlone(Option<Rpc>);

impl Section for RpcAlone {
    fn read(t: &mut Table<'_>) -> Self {
        Self(t.optional_section("rpc", "Calls from PHP to the server."))
    }
}

impl<'a> Task<'a> {
    pub(super) fn of(name: Name, arguments: &'a Arguments) -> Self {
        let file = arguments.input().main_file();
        Self {
            name,
            arguments,
            place: place_of(arguments, file.as_deref()),
            configured: file.is_some(),
            directory: directories::working(arguments, file.as_deref()),
            rpc: OnceCell::new(),
        }
    }

    /// The server, or what was looked for and how to start one.
    pub(super) async fn server(&self) -> Result<Server, String> {
        let named = self.names_rpc().then(|| self.rpc()).flatten();
        // The most useful error: of a server of somebody trusted, or of one of somebody else.
        let (mut tried, mut own, mut foreign) = (Vec::new(), None, None);
        for path in self.sockets() {
            match Client::connect(&path, self.trusted()).await {
                Ok(mut client) => match named {
                    Some(endpoint) if !listens_at(&mut client, endpoint).await => {
                        tried.push(format!(
                            "{}: its server has another `rpc.listen`",
                            path.display()
                        ));
                    }
                    _ => return Ok(Server::Control(client)),
                },
                Err(ClientError::Nobody(path)) => tried.push(path.display().to_string()),
                // Nobody keeps a command from the right one by a wrong one.
                Err(error @ ClientError::Foreign { .. }) => _ = foreign.get_or_insert(error),
                Err(error) => match owner_of_socket(&path) {
                    Some(uid) if self.trusted().has(uid) => _ = own.get_or_insert(error),
                    Some(uid) => {
                        foreign.get_or_insert(ClientError::Foreign { path, uid });
                    }
                    None => tried.push(format!("{}: {}", path.display(), why(&error))),
                },
            }
        }
        if let Some(endpoint) = self.rpc() {
            match pronghorn_rpc::Client::connect(endpoint).await {
                Ok(mut client) => {
                    // Whoever names an address means the server there, whatever it serves.
                    if !self.names_rpc() {
                        identity::expect(
                            &self.directory,
                            self.place.named(),
                            &mut client,
                            endpoint,
                        )
                        .await?;
                    }
                    return Ok(Server::Rpc(Methods::Rpc(client), endpoint.clone()));
                }
                Err(error) => tried.push(error.to_string()),
            }
        }
        let found = own.or(foreign);
        Err(found.map_or_else(|| self.nobody(&tried), |found| found.to_string()))
    }

    /// Of the server behind the control socket, if there is one.
    pub(super) async fn control(&self) -> Option<Client> {
        for path in self.sockets() {
            if let Ok(client) = Client::connect(&path, self.trusted()).await {
                return Some(client);
            }
        }
        None
    }

    /// The methods of the server's services.
    pub(super) async fn methods(&self) -> Result<Methods, String> {
        Ok(match self.server().await? {
            Server::Control(client) => Methods::Control(client),
            Server::Rpc(methods, _) => methods,
        })
    }

    /// Whose server is asked.
    pub(super) fn trusted(&self) -> Trusted {
        Trusted::at(self.place.named())
    }

    /// By the path as it was written, and by the one behind its links: a server may have been
    /// started by that.
    fn sockets(&self) -> Vec<PathBuf> {
        let surroundings = Surroundings::of_this_process();
        let mut sockets = self.place.for_command(&surroundings);
        if let Ok(real) = self.place.named().canonicalize()
            && real != self.place.named()
        {
            sockets.extend(Place::of(&real).for_command(&surroundings));
        }
        sockets
    }

    fn names_rpc(&self) -> bool {
        let mut names = self
            .arguments
            .globals
            .overrides
            .iter()
            .filter_map(|o| o.split_once('='));
        names.any(|(key, _)| key.trim().eq_ignore_ascii_case(RPC_LISTEN))
    }

    /// Where RPC listens by the configuration, if it says. That is read once, and only where it is
    /// needed: a command may look for its server a hundred times.
    fn rpc(&self) -> Option<&Endpoint> {
        self.rpc.get_or_init(|| self.read_rpc()).as_ref()
    }

    fn read_rpc(&self) -> Option<Endpoint> {
        let loaded = load(&self.arguments.input());
        let settings = loaded.resolve_part::<RpcAlone>().into_settings();
        Some(match settings.ok()?.0?.listen {
            Endpoint::Unix(path) => Endpoint::Unix(self.directory.join(path)),
            tcp @ Endpoint::Tcp(_) => tcp,
        })
    }

    fn nobody(&self, tried: &[String]) -> String {
        let named = self.place.named();
        if self.configured && !named.exists() {
            return format!(
                "there is no file {}\nhint: `-c FILE` names the configuration of a server",
                named.display()
            );
        }
        let named = named.display();
        let program = self.name.program();
        let (mut said, hint) = if self.configured {
            let said = format!("no server of {named} is running");
            (said, format!("`{program} serve -c {named}` starts one"))
        } else {
            let said = format!("no server is running for {named}, where there is no configuration");
            let of_machine = if Path::new(CONFIGURATION).exists() {
                format!(", `-c {CONFIGURATION}` that of this machine's service")
            } else {
                String::new()
            };
            (
                said,
                format!(
                    "`-c FILE` names the configuration of a server{of_machine}, `{program} serve` \
                     starts one"
                ),
            )
        };
        for place in tried {
            _ = write!(said, "\n  looked at  {place}"); // a String takes it
        }
        format!("{said}\nhint: {hint}")
    }
}

/// Whose socket it is, if there is one that this user can see.
fn owner_of_socket(path: &Path) -> Option<u32> {
    let found = path.symlink_metadata().ok()?;
    found.file_type().is_socket().then(|| found.uid())
}

/// Why a path is of no use, for a line that begins with it.
fn why(error: &ClientError) -> String {
    match error {
        ClientError::NoRight(_) => "this user may not look".to_owned(),
        ClientError::Io { cause, .. } => cause.to_string(),
        error => error.to_string(),
    }
}

async fn listens_at(client: &mut Client, endpoint: &Endpoint) -> bool {
    match client.ask_once(Ask::Status).await {
        Ok(Tell::Status(status)) => {
            let endpoint = endpoint.to_string();
            let is_it = |served: &Served| served.service == "rpc" && served.at == endpoint;
            status.services.iter().any(is_it)
        }
        _ => false,
    }
}
