//! The handler that asks PHP: a request becomes a call, its reply a response.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use pronghorn_base::LogThrottle;
use pronghorn_cgi::Variables;
use pronghorn_pool::{
    Answer, Body as CallBody, CallDetails, CallError, Content, Encoding, Identity, Look, Observer,
    Origin, Payload, Pending, Pool, Reply, ReplyBody, Stamps, Taker, Terms, Unencodable, streamed,
};
use pronghorn_process::Credentials;
use pronghorn_serve::{
    Body, Charge, Destination, Exchange, Handled, Handler, OnSent, Request, Response, Sent, Split,
    give_back_body,
};
use pronghorn_wire::native::{self, Envelope, Spent, Thrown};
use pronghorn_wire::{Codec, DecodeError, Head, ReplyHead, Request as WireRequest, json, proto};
use pronghorn_workers::settings::Retry;
use tokio::time::Instant;

use crate::body::{
    BodySettings, Collected, NotTaken, RequestBody, check_announced, collect, empty, for_foreign,
    for_native, for_script, is_streamed,
};
use crate::development::{Asked as AskedPage, Development, Problem, show};
use crate::error;
use crate::feeder::Feeder;
use crate::file;
use crate::files::Asked;
use crate::identity::identity;
use crate::local_redirects::LocalRedirects;
use crate::pool_metrics::PoolMetrics;
use crate::record::{self, request_id};
use crate::route_names::{LONGEST_NAME, RouteNames};
use crate::router::OwnRouter;
use crate::scripts::{Answerer, ScriptCall, Scripts};
use crate::slow_log::SlowLog;
use crate::split::{Known, server_timing};
use crate::trace::RequestTrace;

/// PHP's default for a body without a Content-Type (`default_mimetype` and `default_charset` of
/// php.ini).
const DEFAULT_CONTENT_TYPE: &str = "text/html; charset=UTF-8";
/// What nginx logs for a client that left; it is never sent.
const CLIENT_LEFT: u16 = 499;

/// Answers requests by a pool of workers, on the terms of one route.
#[derive(Debug, Clone)]
pub struct PoolHandler {
    pub pool: Pool,
    /// What the route asks for.
    pub terms: Terms,
    pub bodies: BodySettings,
    /// What a client gets when the application failed, `http.internal_error_code`.
    pub internal_error_code: u16,
    /// In development, how error details are shown to the client.
    pub development: Option<Arc<Development>>,
    /// More fields in the record of a request, `http.access_logs`.
    pub access_logs: bool,
    /// Whether responses say what their time was spent on, `http.server_timing`.
    pub server_timing: bool,
    /// Whether the access log does.
    pub shows_split: bool,
    /// Of the pool, where somebody reads metrics.
    pub metrics: Option<Arc<PoolMetrics>>,
    /// Of the pool, where somebody reads them.
    pub routes: Option<Arc<RouteNames>>,
    /// What takes longer is told of.
    pub slow: Option<Arc<SlowLog>>,
    /// Which calls may be given to a second worker after the first one died with them.
    pub retry: Retry,
    /// Who the workers are, when they are not the server's own user: a file that they name is sent
    /// only if they may read it themselves.
    pub worker_user: Option<Arc<Credentials>>,
    /// Of a pool that runs scripts.
    pub scripts: Option<Arc<Scripts>>,
    /// For answers that lead to another path of this server.
    pub local_redirects: Arc<LocalRedirects>,
    /// For scripts that stand for directories.
    pub own_router: Arc<OwnRouter>,
}

/// A [`PoolHandler`] at work, which each of its calls keeps.
struct SharedPoolHandler(Arc<PoolHandler>);

impl Handler for SharedPoolHandler {
    fn handle<'a>(&'a self, request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        let Self(handler) = self;
        match &handler.scripts {
            None => handler.answer(request, exchange, None),
            Some(scripts) => Box::pin(handler.answer_by(scripts, request, exchange)),
        }
    }
}

/// A call that its worker has, or waits for one.
struct Begun {
    call: Arc<HttpCall>,
    pending: Pending,
}

impl PoolHandler {
    pub(crate) fn into_handler(self) -> Arc<dyn Handler> {
        Arc::new(SharedPoolHandler(Arc::new(self)))
    }

    /// Answers a request to a pool of scripts.
    async fn answer_by(
        self: &Arc<Self>,
        scripts: &Arc<Scripts>,
        mut request: Request,
        exchange: &mut dyn Exchange,
    ) -> Response {
        let scripts = match scripts.releases() {
            None => scripts,
            Some(releases) => &Box::pin(releases.now()).await,
        };
        let found = scripts.find(&request).await;
        // Without routes nothing is asked for each request.
        if self.own_router.is_there() {
            let path = match &found {
                Answerer::Server(answer) => answer.page.clone(),
                Answerer::Script(script) => scripts.own_path(&request, script),
            };
            if let Some(path) = path {
                request = match self.own_router.ask(request, &path, exchange).await {
                    Ok(request) => request,
                    Err(answer) => return answer,
                };
            }
        }
        match found {
            Answerer::Server(answer) => answer.response,
            Answerer::Script(script) => {
                let scripts = scripts.clone();
                let script = Some(ScriptCall { scripts, script });
                self.answer(request, exchange, script).await
            }
        }
    }

    /// Answers a request by a worker, which runs a script if one is named.
    fn answer<'a>(
        self: &'a Arc<Self>,
        request: Request,
        exchange: &'a mut dyn Exchange,
        script: Option<ScriptCall>,
    ) -> Handled<'a> {
        if request.head.body_len() == Some(0) {
            // Nothing to wait for, so the call begins here: what is made now need not be carried
            // into a future.
            let body = empty(&request, &self.bodies);
            let begun = self.begin(request, Collected::of(body), script);
            Box::pin(self.finish(begun, exchange, until_gone))
        } else if script.is_none() && is_streamed(&request, &self.bodies) {
            Box::pin(self.answer_streamed(request, exchange))
        } else {
            Box::pin(self.answer_with_body(request, exchange, script))
        }
    }

    async fn answer_with_body(
        self: &Arc<Self>,
        request: Request,
        exchange: &mut dyn Exchange,
        script: Option<ScriptCall>,
    ) -> Response {
        match collect(&request, exchange, &self.bodies).await {
            Ok(collected) => {
                let begun = self.begin(request, collected, script);
                self.finish(begun, exchange, until_gone).await
            }
            Err(why) => not_taken(&request, why),
        }
    }

    /// Hands a request in whose body is here, or is to be asked for.
    fn begin(
        self: &Arc<Self>,
        request: Request,
        collected: Collected,
        script: Option<ScriptCall>,
    ) -> Begun {
        let accepted = request.accepted;
        let now = if collected.read == 0 {
            accepted
        } else {
            Instant::now()
        };
        let call = self.call(request, collected, script);
        let pending = self.pool.call(call.clone(), self.terms, accepted, now);
        Begun { call, pending }
    }

    /// Waits for the reply; `meanwhile` says when there is nobody to wait for.
    async fn finish(
        &self,
        begun: Begun,
        exchange: &mut dyn Exchange,
        meanwhile: impl FnMut(&mut Context<'_>, &mut dyn Exchange) -> Poll<NotTaken>,
    ) -> Response {
        let Begun { call, mut pending } = begun;
        let outcome = wait(&call, &mut pending, exchange, meanwhile).await;
        // What is seldom waits in places of its own: it would make this future longer.
        if let Ok(Ok(reply)) = &outcome
            && let Head::LocalRedirect(target) = &reply.head
        {
            return Box::pin(self.follow(&call.request, target, exchange)).await;
        }
        if let Ok(Ok(reply)) = &outcome
            && let ReplyBody::Pieces { pieces, .. } = &reply.body
            && let Some(client) = exchange.charge().client(call.request.peer.address)
        {
            pieces.hold_for(client);
        }
        let mut response = match outcome {
            Ok(Ok(reply)) if matches!(reply.body, ReplyBody::File(_)) => {
                Box::pin(self.send_file(&call.request, reply)).await
            }
            outcome => match &self.development {
                Some(development) => {
                    Box::pin(self.conclude_openly(&call, outcome, development)).await
                }
                None => self.conclude(&call, outcome),
            },
        };
        if self.server_timing
            && let Some(split) = call.split(call.request.accepted.elapsed())
        {
            response.fields.push("Server-Timing", server_timing(&split));
        }
        response.worker_user.clone_from(&self.worker_user);
        response.on_sent = Some(call);
        response
    }

    /// Answers a request by what another path of this server answers.
    async fn follow(
        &self,
        request: &Request,
        target: &[u8],
        exchange: &mut dyn Exchange,
    ) -> Response {
        match self.local_redirects.follow(request, target) {
            Ok((next, first)) => first.handle(next, exchange).await,
            Err(why) => {
                let why = format!("the reply's `Location: {}` {why}", target.escape_ascii());
                self.fail(request, &why, &why)
            }
        }
    }

    /// Answers a request whose body the worker asks for.
    async fn answer_streamed(
        self: &Arc<Self>,
        request: Request,
        exchange: &mut dyn Exchange,
    ) -> Response {
        if let Err(why) = check_announced(&request, &self.bodies) {
            return not_taken(&request, why);
        }
        let (feed, stream) = streamed();
        let body = Collected::of(RequestBody::Stream(stream));
        let begun = self.begin(request, body, None);
        let call = begun.call.clone();
        let mut feeder = Feeder::new(feed, self.bodies.max_size);
        let feed = |cx: &mut Context<'_>, exchange: &mut dyn Exchange| feeder.poll(cx, exchange);
        let response = self.finish(begun, exchange, feed).await;
        call.read_bytes.store(feeder.read(), Relaxed);
        response
    }

    fn call(
        self: &Arc<Self>,
        request: Request,
        collected: Collected,
        script: Option<ScriptCall>,
    ) -> Arc<HttpCall> {
        let Collected { body, read, held } = collected;
        Arc::new(HttpCall {
            is_timed: self.server_timing
                || self.shows_split
                || self.slow.is_some()
                || request.trace.is_some()
                || tracing::enabled!(target: "http", tracing::Level::INFO),
            request,
            body,
            _held: held,
            script,
            handler: self.clone(),
            begun: HasBegun::default(),
            read_bytes: AtomicU64::new(read),
            stamps: OnceLock::new(),
            known: Known::default(),
            route: OnceLock::new(),
            look: OnceLock::new(),
            fatal: OnceLock::new(),
        })
    }

    /// The response that ends a call, but for one whose reply names a file.
    fn conclude(
        &self,
        call: &HttpCall,
        outcome: Result<Result<Box<Reply>, CallError>, NotTaken>,
    ) -> Response {
        let request = &call.request;
        match outcome {
            Ok(Ok(reply)) => self.respond(request, *reply),
            Ok(Err(CallError::Thrown(thrown))) => self.thrown(request, &thrown, call.known.pid()),
            Ok(Err(error)) => self.refuse(request, &error),
            Err(why) => not_taken(request, why),
        }
    }

    /// As [`conclude`](Self::conclude), for who wrote the application.
    async fn conclude_openly(
        &self,
        call: &HttpCall,
        outcome: Result<Result<Box<Reply>, CallError>, NotTaken>,
        development: &Development,
    ) -> Response {
        let problem = match &outcome {
            Ok(Err(CallError::Thrown(thrown))) => Some(Problem::from(&**thrown)),
            Ok(Err(CallError::Deadline | CallError::Worker(_) | CallError::Poisoned)) => None,
            // What PHP ended in the middle has nothing to show but the reason.
            Ok(Ok(reply)) if is_empty(&reply.body) => {
                call.fatal.get().map(|thrown| Problem::from(&**thrown))
            }
            _ => return self.conclude(call, outcome),
        };
        let mut response = self.conclude(call, outcome);
        if response.status < 500 {
            return response;
        }
        let problem = problem.unwrap_or_else(|| match &response.body {
            Body::Whole(text) => Problem::of_server(&String::from_utf8_lossy(text)),
            _ => Problem::of_server(pronghorn_h1::reason(response.status)),
        });
        let asked = AskedPage::by(&call.request);
        let shown = show(&asked, response.status, &problem, development).await;
        for (name, value) in shown.fields.iter() {
            response.fields.remove(name);
            response.fields.push(name, value);
        }
        for name in ["content-length", "content-encoding"] {
            response.fields.remove(name);
        }
        Response {
            body: shown.body,
            from_application: true,
            ..response
        }
    }

    /// Why a reply's head can't be sent, if so. One that can be has lost what no protocol has.
    fn bad_head(&self, request: &Request, head: &mut ReplyHead) -> Option<Response> {
        let why = match head.check() {
            Ok(()) if head.status >= 200 => {
                if let Some((name, byte)) = head.leave_out_control_characters() {
                    self.tell_of_left_out(request, &name, byte);
                }
                return None;
            }
            Ok(()) => format!("status {} ends no request", head.status),
            Err(bad) => bad.to_string(),
        };
        let record = format!("the application's reply can't be sent: {why}");
        Some(self.fail(request, &record, &why))
    }

    fn tell_of_left_out(&self, request: &Request, name: &str, byte: u8) {
        static LEFT_OUT: LogThrottle = LogThrottle::new();
        if let Some(replies) = LEFT_OUT.should_log() {
            tracing::warn!(
                target: "http", pool = self.pool.name(), replies, method = request.head.method(), URI = request.shown_target(),
                "a field of the application's reply is left out: the value of `{name}` has a control character in it (0x{byte:02x})"
            );
        }
    }

    /// A response from a worker's reply, but for one that names a file.
    fn respond(&self, request: &Request, reply: Reply) -> Response {
        let Reply { head, body } = reply;
        let mut head = match http_head(head) {
            Ok(head) => head,
            Err(why) => return self.fail(request, why, why),
        };
        if let Some(bad) = self.bad_head(request, &mut head) {
            return bad;
        }
        let body = match body {
            ReplyBody::Whole(Content::Here(bytes)) if !bytes.is_empty() => Body::Whole(bytes),
            ReplyBody::Whole(Content::Lent(loan)) => Body::Lent(loan),
            ReplyBody::Pieces { pieces, len } => Body::Pieces { pieces, len },
            ReplyBody::Whole(_) | ReplyBody::File(_) => Body::Empty,
        };
        // A script's PHP has a default of its own, which may be none. An empty type of a kept
        // worker says that it has none. What has no content has no type: a cache would take it over
        // into what it has (RFC 9111, section 3.2).
        let of_php = self.scripts.is_some();
        let has_content = !matches!(head.status, 204 | 304) && !matches!(body, Body::Empty);
        match head.headers.get("content-type") {
            Some([]) => {
                head.headers.remove("content-type");
            }
            None if !of_php && has_content => {
                head.headers.push("Content-Type", DEFAULT_CONTENT_TYPE);
            }
            _ => {}
        }
        Response {
            status: head.status,
            fields: head.headers,
            body,
            from_application: true,
            worker_user: None,
            on_sent: None,
        }
    }

    async fn send_file(&self, request: &Request, reply: Box<Reply>) -> Response {
        let Reply { head, body } = *reply;
        let ReplyBody::File(path) = body else {
            unreachable!("the caller has looked");
        };
        let mut head = match http_head(head) {
            Ok(head) => head,
            Err(why) => return self.fail(request, why, why),
        };
        if let Some(bad) = self.bad_head(request, &mut head) {
            return bad;
        }
        let user = self.worker_user.clone();
        match file::open(path.clone(), Arc::default(), user, |_, _| true).await {
            Ok(file) => Asked::by(&request.head).answer(head.status, head.headers, &path, file),
            Err(why) => {
                let text = format!("the file `{}` can't be sent: {why}", path.display());
                self.fail(request, &text, &text)
            }
        }
    }

    /// A response to a call that got no reply.
    fn refuse(&self, request: &Request, error: &CallError) -> Response {
        let status = error::status(error, self.internal_error_code);
        match error {
            CallError::Reported(text) => {
                return self.fail(
                    request,
                    &format!("the worker reported an error: {text}"),
                    text,
                );
            }
            CallError::Unencodable(Unencodable::Request(_)) => {
                return Response::plain(status, &format!("{error}\n"));
            }
            CallError::Unencodable(Unencodable::Pool(why)) => return self.fail(request, why, why),
            CallError::Refused(_) | CallError::NotBegun => {
                let mut response = Response::status_only(status);
                response.fields.push("Retry-After", error::RETRY_AFTER);
                return response;
            }
            CallError::Thrown(_)
            | CallError::Deadline
            | CallError::Worker(_)
            | CallError::Poisoned => {}
        }
        if self.development.is_some() {
            return for_developer(Response::plain(status, &format!("{error}\n")));
        }
        Response::status_only(status)
    }

    /// The handler threw: one record with everything, and a number by which the client can name it.
    fn thrown(&self, request: &Request, thrown: &Thrown, pid: Option<u32>) -> Response {
        let id = request_id(request);
        self.pool.tell_failure(|left_out| {
            tracing::error!(
                target: "http",
                class = thrown.class,
                file = thrown.file,
                line = thrown.line,
                method = request.head.method(),
                URI = request.shown_target(),
                request_id = id,
                pool = self.pool.name(),
                pid,
                trace = thrown.trace,
                left_out,
                "{}", thrown.message
            );
        });
        let status = self.internal_error_code;
        let mut response = Response::status_only(status);
        response.fields.push("X-Request-Id", &*id);
        response
    }

    /// The application failed in another way.
    fn fail(&self, request: &Request, record: &str, shown: &str) -> Response {
        let id = request_id(request);
        self.pool.tell_failure(|left_out| {
            tracing::error!(
                target: "http", method = request.head.method(), URI = request.shown_target(), request_id = id, left_out,
                "{record}"
            );
        });
        let status = self.internal_error_code;
        let mut response = if self.development.is_some() {
            for_developer(Response::plain(status, &format!("{shown}\n")))
        } else {
            Response::status_only(status)
        };
        response.fields.push("X-Request-Id", &*id);
        response
    }
}

/// The head of a reply that is for a client.
fn http_head(head: Head) -> Result<ReplyHead, &'static str> {
    match head {
        Head::Http(head) => Ok(head),
        Head::LocalRedirect(_) => Err("the reply leads to another path of this server"),
        Head::Raw | Head::Job(_) | Head::Tcp(..) | Head::Context(_) | Head::NoAnswer => {
            Err("the reply is none to a request")
        }
    }
}

/// The answer to a request whose body can't be had.
pub(crate) fn not_taken(request: &Request, why: NotTaken) -> Response {
    match why {
        NotTaken::Gone => Response::new(CLIENT_LEFT, Body::Empty),
        NotTaken::Refused { status, why } => {
            tracing::debug!(
                target: "http", status, method = request.head.method(), URI = request.shown_target(),
                remote_address = %request.peer.address, "request refused: {why}"
            );
            Response::plain(status, &format!("{why}\n"))
        }
    }
}

fn is_empty(body: &ReplyBody) -> bool {
    matches!(body, ReplyBody::Whole(content) if content.is_empty())
}

/// No error page hides it.
fn for_developer(response: Response) -> Response {
    Response {
        from_application: true,
        ..response
    }
}

/// Ready when the client has left.
fn until_gone(cx: &mut Context<'_>, exchange: &mut dyn Exchange) -> Poll<NotTaken> {
    exchange.poll_gone(cx).map(|()| NotTaken::Gone)
}

/// Waits for the reply and passes 1xx replies on; `meanwhile` says when there is nobody to wait
/// for.
async fn wait(
    call: &HttpCall,
    pending: &mut Pending,
    exchange: &mut dyn Exchange,
    mut meanwhile: impl FnMut(&mut Context<'_>, &mut dyn Exchange) -> Poll<NotTaken>,
) -> Result<Result<Box<Reply>, CallError>, NotTaken> {
    // Looked for at each step: the client can close its sending side between any two.
    let mut begun = None;
    let mut tell = |exchange: &mut dyn Exchange| {
        if begun.is_none() {
            begun = call.begun.get();
            if let Some(can_be_told) = begun {
                exchange.begun(can_be_told);
            }
        }
    };
    loop {
        let answer = poll_fn(|cx| match pending.poll_answer(cx) {
            Poll::Ready(answer) => Poll::Ready(Ok(answer)),
            Poll::Pending => {
                tell(exchange);
                meanwhile(cx, exchange).map(Err)
            }
        });
        match answer.await? {
            Ok(Answer::Reply(reply)) => {
                tell(exchange); // of a stream, the rest is still to come
                return Ok(Ok(reply));
            }
            Ok(Answer::Interim(head)) => {
                // One that can't be sent is no reason to fail the request: hints are hints.
                if let Head::Http(mut head) = head
                    && head.check().is_ok()
                {
                    head.leave_out_control_characters();
                    exchange.inform(head.status, &head.headers);
                    exchange.flush().await;
                }
            }
            Err(error) => return Ok(Err(error)),
        }
    }
}

/// A request on its way through a pool.
#[derive(Debug)]
pub(crate) struct HttpCall {
    request: Request,
    body: RequestBody,
    /// For what of the body is in memory.
    _held: Charge,
    /// What runs, in a pool of scripts.
    script: Option<ScriptCall>,
    handler: Arc<PoolHandler>,
    begun: HasBegun,
    /// Of the body; of one that was read while the worker had the call, known at the end.
    read_bytes: AtomicU64,
    /// Once the pool is done with it.
    stamps: OnceLock<Stamps>,
    /// Whether somebody will read what its time was spent on.
    is_timed: bool,
    known: Known,
    /// What the application calls its route.
    route: OnceLock<Box<str>>,
    /// What was seen of its worker when it had taken long.
    look: OnceLock<Box<Look>>,
    /// In development, by what PHP itself has ended it.
    fatal: OnceLock<Box<Thrown>>,
}

/// Whether a worker has a call; and whether the first that got it can be told before its reply
/// that the client has left.
#[derive(Debug, Default)]
struct HasBegun(AtomicU8);

impl HasBegun {
    /// By the one relay that has the call.
    fn set(&self, can_be_told: bool) {
        if self.get().is_none() {
            self.0.store(1 + u8::from(can_be_told), Relaxed);
        }
    }

    fn get(&self) -> Option<bool> {
        self.0.load(Relaxed).checked_sub(1).map(|told| told == 1)
    }
}

impl Payload for HttpCall {
    fn encode(&self, encoding: Encoding, out: &mut Vec<u8>) -> Result<CallBody, Unencodable> {
        let request = self.wire();
        let Encoding::Frame(codec, terms) = encoding else {
            return self.variables(&request, out);
        };
        if codec == Codec::Native {
            let (body, kind) = for_native(&self.body)?;
            let envelope = Envelope {
                call: terms.number,
                time_left_ms: terms.time_left_ms,
                body: kind,
                development: self.handler.development.is_some(),
                timed: self.is_timed,
            };
            match &self.script {
                None => native::encode_request(out, &request, envelope),
                Some(script) => {
                    native::encode_script(out, request.accepted_us, envelope);
                    self.script_variables(&request, script).write(out);
                }
            }
            return Ok(body);
        }
        let foreign = for_foreign(&self.body, &self.handler.bodies.forms)?;
        if codec == Codec::Proto {
            proto::encode_request(out, &request, foreign.form());
        } else if json::encode_request(out, &request, foreign.form()) > 0
            && self.handler.pool.stats().replaced_text()
        {
            tracing::warn!(
                target: "http", pool = self.handler.pool.name(), URI = self.request.shown_target(),
                "the json codec can't carry bytes that are not UTF-8, they were replaced: `pool.codec: proto` can (said once)"
            );
        }
        Ok(foreign.body)
    }

    fn decode_head(&self, codec: Codec, context: &Bytes) -> Result<Head, DecodeError> {
        Head::decode_http(codec, context)
    }

    fn repeatable(&self) -> bool {
        if matches!(self.body, RequestBody::Stream(_)) {
            return false; // part of it may be gone
        }
        // RFC 9110, section 9.2.
        let method = self.request.head.method();
        let safe = matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE");
        match self.handler.retry {
            Retry::Never => false,
            Retry::Safe => safe,
            Retry::Idempotent => safe || matches!(method, "PUT" | "DELETE"),
        }
    }

    fn describe(&self) -> String {
        format!(
            "{} {}",
            self.request.head.method(),
            self.request.shown_target()
        )
    }
}

impl Observer for HttpCall {
    fn begun(&self, by: Taker) {
        self.begun.set(by.hears && self.script.is_none());
        self.known.taken(by);
    }

    fn is_timed(&self) -> bool {
        self.is_timed
    }

    fn spent(&self, spent: Spent) {
        self.known.spent(spent);
    }

    fn route(&self, name: &str) {
        let is_plain = |byte: u8| (b' '..=b'~').contains(&byte) && !b"\"\\".contains(&byte);
        if (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(is_plain) {
            _ = self.route.set(name.into()); // the first one counts
        }
    }

    fn ended_by_php(&self, thrown: Thrown) {
        if self.handler.development.is_some() {
            _ = self.fatal.set(Box::new(thrown)); // the first one counts
        }
    }

    fn details(&self) -> Option<Box<CallDetails>> {
        let Request { head, peer, .. } = &self.request;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let fields = head.fields().iter();
        let headers = fields.map(|(name, value)| (text(name), text(value)));
        Some(Box::new(CallDetails {
            method: head.method().to_owned(),
            target: self.request.target(),
            shown_target: self.request.shown_target(),
            protocol: self.request.protocol().name().to_owned(),
            remote_address: peer.address.to_string(),
            request_id: record::known_id(&self.request).map(Into::into),
            route: self.route.get().map(ToString::to_string),
            headers: headers.collect(),
        }))
    }

    fn notes_methods(&self) -> bool {
        self.request.trace.is_some()
    }

    fn called(&self, method: &str, since: Instant, error: Option<&str>) {
        if let Some(trace) = RequestTrace::of(&self.request) {
            trace.calls().add(method, since, error);
        }
    }

    fn looked_at(&self, look: Look) -> Option<Look> {
        _ = self.look.set(Box::new(look)); // of the first worker, where there was another one
        None
    }

    fn origin(&self) -> Origin<'_> {
        Origin {
            request_id: self.request.id.as_deref(),
            route: self.route.get().map(|name| &**name),
            trace_id: RequestTrace::of(&self.request).map(RequestTrace::id),
        }
    }

    fn ended(&self, stamps: &Stamps) {
        // A call ends once.
        _ = self.stamps.set(*stamps);
    }

    fn late_answer(&self) -> &'static str {
        "got 504"
    }

    fn is_complete(&self) -> bool {
        !matches!(self.body, RequestBody::Stream(_))
    }

    fn identity(&self) -> Option<Identity> {
        Some(identity(&self.request, &self.body))
    }
}

fn tell_of_excess(pool: &Pool, request: &Request) {
    static TOO_LONG: LogThrottle = LogThrottle::new();
    if let Some(replies) = TOO_LONG.should_log() {
        tracing::warn!(
            target: "http", pool = pool.name(), replies, method = request.head.method(), URI = request.shown_target(),
            "a reply's body is longer than its `Content-Length`: the client got as many bytes as that says"
        );
    }
}

impl OnSent for HttpCall {
    fn on_sent(&self, sent: &mut Sent) {
        let PoolHandler {
            metrics,
            pool,
            access_logs,
            shows_split,
            routes,
            slow,
            ..
        } = &*self.handler;
        if let Some(metrics) = metrics {
            metrics.observe(sent, self.stamps.get());
        }
        if sent.is_too_long {
            tell_of_excess(pool, &self.request);
        }
        let is_recorded = record::is_wanted(sent.status);
        let slow = slow.as_ref().filter(|slow| slow.is_slow(sent));
        let trace = RequestTrace::of(&self.request);
        let trace = trace.filter(|trace| trace.is_kept(sent));
        // Most requests are told to nobody.
        let is_told = is_recorded || *shows_split || slow.is_some() || trace.is_some();
        if self.is_timed && is_told {
            sent.split = self.split(sent.elapsed);
        }
        let given = self.route.get().map(|name| &**name);
        let route = routes.as_ref().map(|routes| {
            let route = routes.find(given, self.request.head.path(), sent.status < 400);
            route.duration.observe(sent.elapsed);
            route
        });
        let reached = record::Reached {
            pool: pool.name(),
            route: route.as_ref().map(|route| &*route.name).or(given),
            read_bytes: self.read_bytes.load(Relaxed),
        };
        if let Some(metrics) = metrics.as_ref().filter(|_| reached.read_bytes > 0) {
            metrics.received(reached.read_bytes);
        }
        if let Some(trace) = trace {
            let exemplar = trace.exemplar(sent);
            if let Some(metrics) = metrics {
                metrics.exemplify(exemplar);
            }
            if let Some(route) = &route {
                route.duration.exemplify(exemplar);
            }
            trace.answered_by(reached.pool, reached.route);
            trace.keep(sent);
        }
        if is_recorded {
            record::write(&self.request, &reached, *access_logs, sent);
        }
        if let Some(slow) = slow {
            let look = self.look.get().map(|look| &**look);
            slow.note(&self.request, &reached, look, sent);
        }
    }

    fn ends_trace(&self) -> bool {
        self.request.trace.is_some()
    }

    fn destination(&self) -> Option<Destination<'_>> {
        let given = self.route.get().map(|name| &**name);
        let routes = self.handler.routes.as_ref();
        // What this request teaches was learned when its response was out.
        let route = routes.map(|routes| routes.find(given, self.request.head.path(), false));
        Some(Destination {
            pool: self.handler.pool.name(),
            route: match route {
                Some(route) => Some(route.name.to_string().into()),
                None => given.map(Into::into),
            },
            pid: self.known.pid(),
        })
    }
}

impl Drop for HttpCall {
    fn drop(&mut self) {
        if let RequestBody::Bytes(body) = std::mem::take(&mut self.body) {
            give_back_body(body);
        }
    }
}

impl HttpCall {
    /// What is known so long after it was accepted, once the pool is done with it.
    fn split(&self, after: Duration) -> Option<Split> {
        let stamps = self.stamps.get()?;
        Some(self.known.split(stamps, after))
    }

    fn variables(
        &self,
        request: &WireRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Result<CallBody, Unencodable> {
        let script = self.script.as_ref();
        let script = script.ok_or_else(Unencodable::for_no_script)?;
        // A program is ended when its client leaves; what speaks FastCGI is not told.
        self.begun.set(script.scripts.runs_programs());
        self.script_variables(request, script).write(out);
        for_script(&self.body)
    }

    fn script_variables<'a>(
        &'a self,
        request: &'a WireRequest<'a>,
        script: &'a ScriptCall,
    ) -> Variables<'a> {
        let Request { head, peer, .. } = &self.request;
        let announced = || head.fields().get("content-length").map(|_| 0);
        Variables {
            request,
            uri: head.received_target(),
            site: script.scripts.site(),
            script: &script.script,
            // One of no bytes was sent all the same when its length was.
            body_len: self.body.len().or_else(announced),
            remote_port: peer.address.port(),
            server: peer.server,
            software: script.scripts.software(),
        }
    }

    fn wire(&self) -> WireRequest<'_> {
        let Request {
            head,
            peer,
            attributes,
            accepted_us,
            ..
        } = &self.request;
        WireRequest {
            method: head.method(),
            tls: peer.tls,
            authority: head.authority(),
            path: head.path(),
            query: head.query(),
            protocol: self.request.protocol(),
            remote: &peer.ip,
            headers: head.fields(),
            attributes,
            accepted_us: *accepted_us,
        }
    }
}
