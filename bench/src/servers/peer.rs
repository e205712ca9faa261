//! Any other server: a command line that starts it, or the address at which it runs.

use std::net::SocketAddr;
use std::str::FromStr;

use super::{Adapter, Kind, Place, names};
use crate::error::BenchError;
use crate::program::Argv;
use crate::site::find;

/// `--peer name=command|url`, `--peer name@scenario,scenario=command|url`
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Peer {
    name: String,
    /// Those that it can answer; all when there are none.
    scenarios: Vec<String>,
    how: How,
}

#[derive(Debug, Clone, PartialEq)]
enum How {
    Command(String),
    At(SocketAddr),
}

impl Peer {
    pub(crate) fn serves(&self, scenario: &str) -> bool {
        self.scenarios.is_empty() || self.scenarios.iter().any(|name| name == scenario)
    }
}

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (left, how) = text
            .split_once('=')
            .ok_or("expected `name=command` or `name=http://address:port`")?;
        let (name, scenarios) = left.split_once('@').unwrap_or((left, ""));
        let is_name = |name: &str| {
            let holds = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            !name.is_empty() && name.bytes().all(holds)
        };
        if !is_name(name) {
            return Err(format!(
                "{name:?} is no name: letters, digits, `-`, `_` and `.`"
            ));
        }
        if name == super::FLOOR || names().any(|known| known == name) {
            return Err(format!("`{name}` is a server of the runner's own"));
        }
        Ok(Self {
            name: name.to_owned(),
            scenarios: scenarios
                .split(',')
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect(),
            how: How::parse(how.trim())?,
        })
    }
}

impl How {
    fn parse(text: &str) -> Result<Self, String> {
        let Some(address) = text.strip_prefix("http://") else {
            return match text {
                "" => Err("the command is empty".to_owned()),
                _ if !text.contains("{port}") && !text.contains("{address}") => Err(
                    "the command needs {port} or {address}: it has to listen where it is told"
                        .to_owned(),
                ),
                _ => Ok(Self::Command(text.to_owned())),
            };
        };
        let address = address
            .trim_end_matches('/')
            .replace("localhost", "127.0.0.1");
        address
            .parse()
            .map(Self::At)
            .map_err(|_| format!("`{text}` is not http://, an IP address and a port"))
    }
}

impl Adapter for Peer {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> Kind {
        Kind::Rival
    }

    fn packages(&self) -> &'static str {
        ""
    }

    /// The shell's words, without a shell that stays.
    fn programs(&self, place: &Place<'_>) -> Result<Vec<Argv>, BenchError> {
        let How::Command(command) = &self.how else {
            return Ok(Vec::new());
        };
        let mut command = format!("exec {command}");
        for (name, value) in [
            ("{port}", place.address.port().to_string()),
            ("{address}", place.address.to_string()),
            ("{app}", place.app().display().to_string()),
            ("{workers}", place.workers().to_string()),
            ("{ini}", place.php_ini().display().to_string()),
            ("{folder}", place.folder.display().to_string()),
        ] {
            command = command.replace(name, &value);
        }
        Ok(vec![Argv::new(
            find("sh", "dash")?,
            ["-c".into(), command.into()],
        )])
    }

    fn runs_at(&self) -> Option<SocketAddr> {
        match self.how {
            How::At(address) => Some(address),
            How::Command(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_a_name_with_a_command_or_an_address() {
        let peer: Peer = "swoole@hello,json=php -c {ini} server.php {port}"
            .parse()
            .unwrap();
        assert_eq!(
            peer.how,
            How::Command("php -c {ini} server.php {port}".to_owned())
        );
        assert_eq!((peer.serves("json"), peer.serves("slim")), (true, false));
        let peer: Peer = "unit=http://localhost:8080/".parse().unwrap();
        assert_eq!(peer.runs_at(), Some("127.0.0.1:8080".parse().unwrap()));
        assert!(peer.serves("slim"));
    }

    #[test]
    fn what_is_none_is_told() {
        for (text, why) in [
            ("swoole", "expected `name=command`"),
            ("a b=run {port}", "is no name"),
            ("nginx-fpm=run {port}", "of the runner's own"),
            ("nginx=run {port}", "of the runner's own"),
            ("x=", "is empty"),
            ("x=run", "needs {port}"),
            ("x=http://example.com/", "is not http://"),
        ] {
            let error = text.parse::<Peer>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
