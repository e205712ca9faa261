//! Requests that the server makes itself, for new workers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use pronghorn_base::{micros, since_1970};
use pronghorn_cgi::{Script, Target, Variables};
use pronghorn_pool::{
    Body, Dispatch, Encoding, Observer, Payload, Unencodable, Warmup, WarmupCall,
};
use pronghorn_wire::native::{self, Envelope};
use pronghorn_wire::{Codec, DecodeError, Fields, Form, Head, Protocol, Request, json, proto};
use pronghorn_workers::settings::{Mode, SiteSettings};

use crate::scripts::{Mount, Scripts};

const HOST: &str = "localhost";

/// `GET` requests for these targets, as a client on this machine would send them.
pub fn warmup(targets: &[String]) -> Warmup {
    if targets.is_empty() {
        return Warmup::default();
    }
    let call = |target: &String| -> Arc<dyn WarmupCall> { Arc::new(Get(target.clone())) };
    let calls: Vec<_> = targets.iter().map(call).collect();
    Warmup::new(move || calls.clone()).in_words(&targets.join(" "))
}

/// The same for scripts below this root. Which ones they are is looked up for each worker: a root
/// may be a link that moves.
pub fn warmup_of_scripts(
    targets: &[String],
    site: &SiteSettings,
    mode: Mode,
    root: PathBuf,
) -> Warmup {
    if targets.is_empty() {
        return Warmup::default();
    }
    let (targets, site) = (targets.to_vec(), site.clone());
    Warmup::new(move || {
        let scripts = Scripts::open(&site, mode, root.clone(), &Mount::default());
        let scripts = scripts.map(|scripts| match scripts.releases() {
            Some(releases) => releases.last(),
            None => Arc::new(scripts),
        });
        let scripts = scripts.map_err(|error| error.to_string());
        let call = |target: &String| -> Arc<dyn WarmupCall> {
            let target = Get(target.clone());
            let found = scripts.clone().and_then(|scripts| target.script(scripts));
            Arc::new(Run { target, found })
        };
        targets.iter().map(call).collect()
    })
}

/// Of a target.
struct Get(String);

impl Get {
    fn path(&self) -> (&[u8], Option<&[u8]>) {
        match self.0.split_once('?') {
            Some((path, query)) => (path.as_bytes(), Some(query.as_bytes())),
            None => (self.0.as_bytes(), None),
        }
    }

    fn script(&self, scripts: Arc<Scripts>) -> Result<(Arc<Scripts>, Script), String> {
        match scripts.look_up(self.path().0) {
            Ok(Target::Script(script)) => Ok((scripts, script)),
            Ok(_) => Err("no script below the root answers it".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn with_request<R>(&self, headers: &Fields, work: impl FnOnce(&Request<'_>) -> R) -> R {
        let (path, query) = self.path();
        let none = Fields::new();
        work(&Request {
            method: "GET",
            tls: false,
            authority: HOST,
            path,
            query,
            protocol: Protocol::Http11,
            remote: "127.0.0.1",
            headers,
            attributes: &none,
            accepted_us: micros(since_1970(SystemTime::now())),
        })
    }
}

impl Payload for Get {
    fn encode(&self, encoding: Encoding, out: &mut Vec<u8>) -> Result<Body, Unencodable> {
        let Encoding::Frame(codec, terms) = encoding else {
            return Err(Unencodable::for_no_script());
        };
        self.with_request(&Fields::new(), |request| match codec {
            Codec::Native => native::encode_request(out, request, envelope(terms)),
            Codec::Json => _ = json::encode_request(out, request, Form::default()), // ASCII loses nothing
            Codec::Proto => proto::encode_request(out, request, Form::default()),
        });
        Ok(Body::Empty)
    }

    fn decode_head(&self, codec: Codec, context: &Bytes) -> Result<Head, DecodeError> {
        Head::decode_http(codec, context)
    }

    fn repeatable(&self) -> bool {
        false
    }

    fn describe(&self) -> String {
        format!("GET {}", self.0)
    }
}

impl Observer for Get {}

impl WarmupCall for Get {
    fn failure(&self, head: &Head) -> Option<String> {
        failure(head)
    }
}

/// `/` may well redirect.
fn failure(head: &Head) -> Option<String> {
    match head {
        Head::Http(head) if head.status >= 500 => Some(format!("it answered {}", head.status)),
        Head::Http(_) | Head::LocalRedirect(_) => None,
        Head::Raw | Head::Job(_) | Head::Tcp(..) | Head::Context(_) | Head::NoAnswer => {
            Some("its answer is none to a request".to_owned())
        }
    }
}

fn envelope(terms: Dispatch) -> Envelope {
    Envelope {
        call: terms.number,
        time_left_ms: terms.time_left_ms,
        ..Envelope::default()
    }
}

/// Of a target that a script answers; or why none does.
struct Run {
    target: Get,
    found: Result<(Arc<Scripts>, Script), String>,
}

impl Run {
    fn write(
        &self,
        before: impl FnOnce(&Request<'_>, &mut Vec<u8>),
        out: &mut Vec<u8>,
    ) -> Result<Body, Unencodable> {
        let found = self.found.as_ref();
        let (scripts, script) = found.map_err(|why| Unencodable::Pool(why.clone()))?;
        // Programs look for it among the fields.
        let mut headers = Fields::new();
        headers.push("Host", HOST);
        self.target.with_request(&headers, |request| {
            before(request, out);
            let variables = Variables {
                request,
                uri: self.target.path(),
                site: scripts.site(),
                script,
                body_len: None,
                remote_port: None,
                server: None,
                software: scripts.software(),
            };
            variables.write(out);
        });
        Ok(Body::Empty)
    }
}

impl Payload for Run {
    fn encode(&self, encoding: Encoding, out: &mut Vec<u8>) -> Result<Body, Unencodable> {
        let head = |request: &Request<'_>, out: &mut Vec<u8>| match encoding {
            // A worker that runs scripts has the native codec.
            Encoding::Frame(_, terms) => {
                native::encode_script(out, request.accepted_us, envelope(terms));
            }
            Encoding::Variables => {}
        };
        self.write(head, out)
    }

    fn decode_head(&self, codec: Codec, context: &Bytes) -> Result<Head, DecodeError> {
        Head::decode_http(codec, context)
    }

    fn repeatable(&self) -> bool {
        false
    }

    fn describe(&self) -> String {
        self.target.describe()
    }
}

impl Observer for Run {}

impl WarmupCall for Run {
    fn failure(&self, head: &Head) -> Option<String> {
        failure(head)
    }
}
