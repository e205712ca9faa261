//! The handler: requests of HTTP become calls, replies become responses.

use bytes::Bytes;
use pronghorn_base::BoxFuture;
use pronghorn_serve::{Body, Charge, Exchange, Handled, Handler, Refusal, Request, Response, vary};
use pronghorn_wire::{Fields, Protocol};

use crate::call::{Call, Ending, Incoming, Input, Reply, ReplyBody, read_body};
use crate::content::{Content, Flavour};
use crate::gzip;
use crate::metadata::Metadata;
use crate::outgoing::{Outgoing, Writing, ending_fields, in_time, late, too_long};
use crate::path::MethodPath;
use crate::status::{Code, Status};
use crate::timeout::parse_timeout;

/// Fields of a reply that scripts of another origin may read.
const EXPOSED: &str = "grpc-status, grpc-message, grpc-status-details-bin";
/// Fields that such a script may set, where it names none.
const ALLOWED: &str = "content-type, x-grpc-web, x-user-agent, grpc-timeout";

/// Bytes that a call takes beside its request and its messages: its metadata, its way to a worker
/// and back. Measured with thousands of open streams.
const CALL: usize = 7 << 10;

/// HTTP's status of a head with too many fields, or too long ones.
const TOO_LARGE: u16 = 431;

/// Answers calls.
pub trait Answers: Send + Sync + 'static {
    /// Answers one call. Dropped when the client's deadline passes; a client that leaves is seen by
    /// [`Input::poll_gone`].
    fn answer<'a>(&'a self, call: Call, input: &'a mut Input<'_>) -> BoxFuture<'a, Reply>;

    /// A call whose deadline passed before it was answered, to be noted.
    fn is_late(&self, _method: &MethodPath) {}
}

/// Bytes that one message may have, without its compression.
#[derive(Debug, Clone, Copy)]
pub struct MessageLimits {
    pub receive: usize,
    pub send: usize,
}

impl Default for MessageLimits {
    /// RoadRunner's.
    fn default() -> Self {
        Self {
            receive: 50 << 20,
            send: 50 << 20,
        }
    }
}

/// Origins whose scripts may call by gRPC-Web.
#[derive(Debug, Clone, Default)]
pub struct Cors {
    /// As browsers write them; `*` for all.
    pub origins: Vec<String>,
}

impl Cors {
    fn allows(&self, origin: &[u8]) -> bool {
        let mut origins = self.origins.iter();
        origins.any(|known| known == "*" || known.as_bytes() == origin)
    }
}

/// Takes calls from requests, and refuses everything else.
#[derive(Debug)]
pub struct Server<A> {
    answers: A,
    limits: MessageLimits,
    /// None where gRPC-Web is not spoken.
    web: Option<Cors>,
}

/// The codings of a call and of its reply.
struct Terms {
    content: Content,
    /// The request's messages may be compressed.
    is_gzip: bool,
    writing: Writing,
}

impl<A: Answers> Server<A> {
    pub fn new(answers: A, limits: MessageLimits, web: Option<Cors>) -> Self {
        Self {
            answers,
            limits,
            web,
        }
    }

    /// Whether a request is a call, or asks whether a script may make one.
    pub fn is_for(&self, request: &Request) -> bool {
        let fields = request.head.fields();
        let content = fields.get("content-type").and_then(Content::parse);
        content.is_some_and(|content| self.web.is_some() || !content.is_web())
            || self.is_preflight(request)
    }

    fn is_preflight(&self, request: &Request) -> bool {
        self.web.is_some()
            && request.head.has_method("OPTIONS")
            && request
                .head
                .fields()
                .get("access-control-request-method")
                .is_some()
    }

    async fn respond(&self, request: Request, exchange: &mut dyn Exchange) -> Response {
        if self.is_preflight(&request) {
            return self.preflight(&request);
        }
        let fields = request.head.fields();
        let content = fields.get("content-type").and_then(Content::parse);
        let content = content.filter(|content| self.web.is_some() || !content.is_web());
        let Some(content) = content else {
            let mut response = Response::plain(415, "this port speaks gRPC\n");
            response.fields.push("Accept-Post", "application/grpc");
            return response;
        };
        if !request.head.has_method("POST") {
            let mut response = Response::status_only(405);
            response.fields.push("Allow", "POST");
            return response;
        }
        if content.flavour == Flavour::Grpc && request.protocol() != Protocol::Http2 {
            return Response::plain(505, "gRPC needs HTTP/2\n");
        }
        let origin = fields.get("origin").map(<[u8]>::to_vec);
        let terms = self.terms(content, &request);
        let mut response = match terms {
            Err((content, status)) => failed(content, &status.into()),
            Ok(terms) => self.answer(terms, request, exchange).await,
        };
        self.share(&mut response, origin.as_deref());
        response
    }

    /// Reads the codings that the request names.
    fn terms(&self, content: Content, request: &Request) -> Result<Terms, (Content, Status)> {
        let fields = request.head.fields();
        let is_gzip = match fields.get("grpc-encoding") {
            None | Some(b"identity") => false,
            Some(b"gzip") => true,
            Some(other) => {
                let other = String::from_utf8_lossy(other);
                let text =
                    format!("grpc: Decompressor is not installed for grpc-encoding \"{other}\"");
                return Err((content, Status::new(Code::Unimplemented, text)));
            }
        };
        let takes_gzip = fields.all("grpc-accept-encoding").any(|value| {
            let mut codings = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
            codings.any(|coding| coding == b"gzip")
        });
        let writing = Writing {
            flavour: content.flavour,
            gzip: is_gzip && takes_gzip,
            most: self.limits.send,
        };
        Ok(Terms {
            content,
            is_gzip,
            writing,
        })
    }

    async fn answer(
        &self,
        terms: Terms,
        request: Request,
        exchange: &mut dyn Exchange,
    ) -> Response {
        let Terms {
            content,
            is_gzip,
            writing,
        } = terms;
        let fields = request.head.fields();
        let deadline = match fields.get("grpc-timeout").map(parse_timeout) {
            None => None,
            Some(Some(time)) => Some(request.accepted + time),
            Some(None) => {
                let status = Status::new(Code::Internal, "malformed grpc-timeout");
                return failed(content, &status.into());
            }
        };
        let Some(method) = MethodPath::parse(request.head.path()) else {
            let path = String::from_utf8_lossy(request.head.path());
            let text = format!("malformed method name: \"{path}\"");
            return failed(content, &Status::new(Code::Unimplemented, text).into());
        };
        // They are no variables for PHP, so that no name is taken for another one.
        let underscored = request.head.underscored();
        let underscored = underscored.into_iter().flat_map(Fields::iter);
        let metadata = match Metadata::of_request(fields.iter().chain(underscored)) {
            Ok(metadata) => metadata,
            Err(status) => return failed(content, &status.into()),
        };
        // PHP's part of the call has them once more.
        exchange.takes(CALL + 2 * metadata.memory());
        let call = Call {
            method: method.clone(),
            metadata,
            authority: request.head.authority().to_owned(),
            deadline,
            peer: request.peer.clone(),
            accepted: request.accepted,
            accepted_us: request.accepted_us,
            content,
        };
        let is_text = content.flavour == Flavour::WebText;
        let incoming = Incoming::new(is_text, is_gzip, self.limits.receive);
        let mut input = Input::new(exchange, incoming);
        let answer = self.answers.answer(call, &mut input);
        let Some(reply) = in_time(deadline, answer).await else {
            self.answers.is_late(&method);
            return failed(content, &late().into());
        };
        let charge = match &reply.body {
            ReplyBody::Empty(_) => Charge::default(),
            ReplyBody::One(message, _) if message.len() <= exchange.uncounted() => {
                Charge::default()
            }
            ReplyBody::One(..) | ReplyBody::Stream(_) => exchange.charge(),
        };
        respond(content, writing, reply, deadline, charge).await
    }

    /// Answers a call whose one message came in another form than in that of gRPC.
    pub async fn answer_message(
        &self,
        call: Call,
        message: Bytes,
        exchange: &mut dyn Exchange,
    ) -> Reply {
        let (deadline, method) = (call.deadline, call.method.clone());
        let mut input = Input::of_message(exchange, &message, self.limits.receive);
        let answer = self.answers.answer(call, &mut input);
        match in_time(deadline, answer).await {
            Some(reply) => reply,
            None => {
                self.answers.is_late(&method);
                Reply::ended(late())
            }
        }
    }

    /// Reads a body that is not of messages, as long as one message may be.
    ///
    /// # Errors
    ///
    /// The status that ends the call.
    pub async fn read_body(&self, exchange: &mut dyn Exchange) -> Result<(Bytes, Charge), Status> {
        read_body(exchange, self.limits.receive).await
    }

    /// Whether a script may call, and how.
    fn preflight(&self, request: &Request) -> Response {
        let fields = request.head.fields();
        let mut response = Response::new(204, Body::Empty);
        self.share(&mut response, fields.get("origin"));
        if response.fields.get("access-control-allow-origin").is_some() {
            let asked = fields.get("access-control-request-headers");
            response.fields.push("Access-Control-Allow-Methods", "POST");
            let allowed = asked.unwrap_or(ALLOWED.as_bytes());
            response
                .fields
                .push("Access-Control-Allow-Headers", allowed);
            response.fields.push("Access-Control-Max-Age", "86400");
        }
        response
    }

    /// Lets a script of another origin see the response, where it may.
    fn share(&self, response: &mut Response, origin: Option<&[u8]>) {
        let Some(cors) = self.web.as_ref().filter(|cors| !cors.origins.is_empty()) else {
            return;
        };
        vary(&mut response.fields, "Origin");
        let Some(origin) = origin.filter(|origin| cors.allows(origin)) else {
            return;
        };
        let own = response.fields.iter().filter(|(name, _)| !is_http(name));
        let names: Vec<_> = own.map(|(name, _)| String::from_utf8_lossy(name)).collect();
        let mut exposed = EXPOSED.to_owned();
        for name in names {
            exposed.push_str(", ");
            exposed.push_str(&name);
        }
        response.fields.push("Access-Control-Allow-Origin", origin);
        response
            .fields
            .push("Access-Control-Expose-Headers", exposed);
    }
}

/// Whether a field is of HTTP, or named in any case.
fn is_http(name: &[u8]) -> bool {
    let lower = name.to_ascii_lowercase();
    lower.starts_with(b"grpc-") || lower == b"vary" || lower == b"content-type"
}

/// A response that says only how the call ended, in its head.
fn failed(content: Content, ending: &Ending) -> Response {
    let mut response = Response::new(200, Body::Empty);
    response.fields = ending_fields(ending);
    response.fields.push("content-type", content.of_reply());
    if ending.status.code == Code::Unimplemented {
        response.fields.push("grpc-accept-encoding", "gzip");
    }
    response
}

async fn respond(
    content: Content,
    writing: Writing,
    reply: Reply,
    deadline: Option<tokio::time::Instant>,
    charge: Charge,
) -> Response {
    let mut is_gzip = writing.gzip;
    let outgoing = match reply.body {
        ReplyBody::Empty(ending) if reply.headers.is_empty() => return failed(content, &ending),
        ReplyBody::Empty(ending) => {
            is_gzip = false;
            Outgoing::empty(writing, &ending)
        }
        ReplyBody::One(message, _) if message.len() > writing.most => {
            return failed(content, &too_long(message.len(), writing.most).into());
        }
        ReplyBody::One(message, ending) => {
            let shorter = if writing.gzip {
                gzip::compress(message.clone()).await
            } else {
                None
            };
            is_gzip = shorter.is_some();
            let message = shorter.unwrap_or(message);
            Outgoing::whole(writing, &message, is_gzip, &ending)
        }
        ReplyBody::Stream(source) => Outgoing::stream(writing, source, deadline),
    };
    let mut response = Response::new(200, Body::Made(Box::new(outgoing.counted(charge))));
    let fields = &mut response.fields;
    fields.push("content-type", content.of_reply());
    if is_gzip {
        fields.push("grpc-encoding", "gzip");
    }
    fields.push("grpc-accept-encoding", "gzip");
    reply.headers.write(|name, value| fields.push(name, value));
    response
}

impl<A: Answers> Handler for Server<A> {
    fn handle<'a>(&'a self, request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        Box::pin(self.respond(request, exchange))
    }

    /// A client of gRPC shows no words of HTTP.
    fn refused(&self, content: Option<&[u8]>, refusal: Refusal) -> Option<Response> {
        let content = content.and_then(Content::parse)?;
        let code = if refusal.status() == TOO_LARGE {
            Code::ResourceExhausted
        } else {
            Code::Internal
        };
        Some(failed(
            content,
            &Status::new(code, refusal.to_string()).into(),
        ))
    }
}

#[cfg(test)]
mod tests;
