//! Methods with the option `google.api.http`, as JSON over HTTP.

mod answer;
mod fields;
mod lines;
mod memory;
mod place;
mod request;
mod rules;
mod template;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use bytes::Bytes;
use pronghorn_grpc_wire::{
    Call, Code, Content, Ending, Flavour, LONG, Metadata, MethodPath, ReplyBody, Server, Status,
    Wanted, aside, in_time, late, parse_timeout, while_there,
};
use pronghorn_serve::{Body, Charge, Exchange, Request, Response};
use prost_reflect::DescriptorPool;

use crate::calls::Calls;
use crate::descriptors::Descriptors;
use crate::files::FileError;
use crate::table::ServiceTable;

use answer::{counted_json, failure, put, success, too_dear};
use lines::Lines;
use rules::{BodyRule, Route};

/// The routes of all methods that have some.
#[derive(Debug)]
pub(crate) struct Json {
    pool: DescriptorPool,
    /// The more specific ones first.
    routes: Vec<Arc<Route>>,
}

/// A request whose path has routes.
#[derive(Debug)]
pub(crate) enum RouteMatch {
    /// A route, by its number.
    Route(usize),
    /// The path has routes, but none for the request's method; these methods have one.
    OtherVerb(String),
}

impl Json {
    /// Reads the rules of the services that are served.
    pub(crate) fn new(descriptors: &Descriptors, table: &ServiceTable) -> Result<Self, FileError> {
        let pool = descriptors.pool().clone();
        let mut routes = Vec::new();
        let services = pool.services();
        for service in services.filter(|service| table.get(service.full_name()).is_some()) {
            for method in service.methods() {
                let found = rules::routes(&method).map_err(|why| FileError::Rule {
                    method: method.full_name().to_owned(),
                    why,
                })?;
                routes.extend(found.into_iter().map(Arc::new));
            }
        }
        // A rule for any method of HTTP is for those that no other rule has.
        routes.sort_by_cached_key(|route| (route.template.order(), route.verb == "*"));
        Ok(Self { pool, routes })
    }

    /// Tells routes that get no request, because others are the same and come first.
    pub(crate) fn hidden(&self) -> Vec<String> {
        let mut hidden = Vec::new();
        for alike in self.routes.chunk_by(|a, b| a.template.is_like(&b.template)) {
            let mut firsts: BTreeMap<&str, &Route> = BTreeMap::new();
            for route in alike {
                match firsts.entry(&route.verb) {
                    Entry::Vacant(place) => _ = place.insert(route),
                    Entry::Occupied(first) => hidden.push(hidden_by(route, first.get())),
                }
            }
        }
        hidden
    }

    /// The answer to a request without a route, where nobody else has one for it.
    pub(crate) fn no_route(&self) -> Response {
        let status = Status::new(Code::NotFound, "no method has this path");
        failure(&self.pool, &status.into())
    }

    /// Finds the route of a request.
    pub(crate) fn find(&self, request: &Request) -> Option<RouteMatch> {
        let (path, mut others) = (request.head.path(), Vec::new());
        for (at, route) in self.routes.iter().enumerate() {
            if route.template.matches(path).is_none() {
                continue;
            }
            if route.verb == "*" || request.head.has_method(&route.verb) {
                return Some(RouteMatch::Route(at));
            }
            if !others.contains(&&*route.verb) {
                others.push(&*route.verb);
            }
        }
        (!others.is_empty()).then(|| RouteMatch::OtherVerb(others.join(", ")))
    }

    /// Answers a request that was found.
    pub(crate) async fn respond(
        &self,
        found: RouteMatch,
        server: &Server<Calls>,
        request: Request,
        exchange: &mut dyn Exchange,
    ) -> Response {
        let at = match found {
            RouteMatch::Route(at) => at,
            RouteMatch::OtherVerb(verbs) => {
                let status = Status::new(Code::Unimplemented, "the path has other methods");
                let mut response = failure(&self.pool, &status.into());
                response.status = 405;
                response.fields.push("Allow", verbs);
                return response;
            }
        };
        let answer = match self.routes.get(at) {
            Some(route) if !matches!(route.body, BodyRule::None) && !may_be_json(&request) => {
                let what =
                    "the body is sent as another type: write `Content-Type: application/json`";
                let status = Status::new(Code::InvalidArgument, what);
                let mut response = failure(&self.pool, &status.into());
                response.status = 415;
                return response;
            }
            Some(route) => self.answer(route, server, request, exchange).await,
            None => Err(Status::new(Code::Internal, "the route is gone").into()),
        };
        answer.unwrap_or_else(|ending| failure(&self.pool, &ending))
    }

    /// Answers a call, or says how it ended before its reply began.
    async fn answer(
        &self,
        route: &Arc<Route>,
        server: &Server<Calls>,
        request: Request,
        exchange: &mut dyn Exchange,
    ) -> Result<Response, Ending> {
        let invalid = |why: String| Status::new(Code::InvalidArgument, why);
        if route.method.is_client_streaming() {
            let what = "methods whose clients stream have no JSON";
            return Err(Status::new(Code::Unimplemented, what).into());
        }
        let head = &request.head;
        let fields = head.fields();
        let deadline = match fields.get("grpc-timeout").map(parse_timeout) {
            None => None,
            Some(Some(time)) => Some(request.accepted + time),
            Some(None) => return Err(invalid("malformed grpc-timeout".to_owned()).into()),
        };
        let message = message_of(route, server, &request, exchange);
        let (message, _charge) = in_time(deadline, Box::pin(message))
            .await
            .ok_or_else(late)??;
        let call = Call {
            method: MethodPath {
                service: route.method.parent_service().full_name().to_owned(),
                method: route.method.name().to_owned(),
            },
            content: Content {
                flavour: Flavour::Grpc,
            },
            metadata: Metadata::of_request(fields.iter())
                .map_err(|broken| invalid(broken.message))?,
            authority: head.authority().to_owned(),
            deadline,
            peer: request.peer.clone(),
            accepted: request.accepted,
            accepted_us: request.accepted_us,
        };
        let reply = server
            .answer_message(call, Bytes::from(message), exchange)
            .await;
        let mut response = Response::new(200, Body::Empty);
        if route.method.is_server_streaming() {
            let (output, pool) = (route.output.clone(), self.pool.clone());
            let lines = Lines::begin(output, pool, reply.body, deadline, exchange).await?;
            response.body = Body::Made(Box::new(lines));
            response.fields.push("Content-Type", "application/x-ndjson");
        } else {
            let message = only(reply.body)?;
            let json = if message.len() < LONG {
                success(&route.output, &message)?
            } else {
                let json = long_json(route, message, exchange);
                in_time(deadline, Box::pin(json)).await.ok_or_else(late)??
            };
            put(&mut response, json);
        }
        let fields = &mut response.fields;
        reply.headers.write(|name, value| fields.push(name, value));
        Ok(response)
    }
}

/// Whether a request has no body, or one that does not say that it is something else than JSON. A
/// page of another site can send forms and plain text without being asked, and nothing else.
fn may_be_json(request: &Request) -> bool {
    let head = &request.head;
    let Some(written) = head.fields().get("content-type") else {
        return true;
    };
    let kind = written
        .split(|&byte| byte == b';')
        .next()
        .unwrap_or_default();
    let kind = kind.trim_ascii().to_ascii_lowercase();
    let is_json = matches!(&kind[..], b"application/json" | b"text/json")
        || kind.starts_with(b"application/") && kind.ends_with(b"+json");
    is_json || head.body_len() == Some(0)
}

/// Reads the message of a request, and counts it as long as it is kept.
async fn message_of(
    route: &Arc<Route>,
    server: &Server<Calls>,
    request: &Request,
    exchange: &mut dyn Exchange,
) -> Result<(Vec<u8>, Charge), Status> {
    let (body, charge) = match route.body {
        BodyRule::None => Default::default(),
        BodyRule::Whole | BodyRule::Field(_) => server.read_body(exchange).await?,
    };
    if body.len() >= LONG {
        let made = long_message(route, request, body, charge);
        return while_there(exchange, made).await;
    }
    let head = &request.head;
    let variables = route.template.matches(head.path()).unwrap_or_default();
    let wanted = Wanted::default();
    let message = request::message(route, &variables, head.query(), &body, &wanted);
    let message = message.map_err(|why| Status::new(Code::InvalidArgument, why))?;
    Ok((message, charge))
}

/// Makes a message where it takes no I/O thread its time. What the values of the body take is
/// counted before they are read.
async fn long_message(
    route: &Arc<Route>,
    request: &Request,
    body: Bytes,
    mut charge: Charge,
) -> Result<(Vec<u8>, Charge), Status> {
    let head = &request.head;
    let (route, path) = (route.clone(), head.path().to_vec());
    let query = head.query().map(<[u8]>::to_vec);
    let made = aside(charge.holder(), move |wanted| {
        let most = memory::of_json(route.is_dear, &body);
        charge.try_set(body.len() + most).map_err(too_dear)?;
        let variables = route.template.matches(&path).unwrap_or_default();
        let message = request::message(&route, &variables, query.as_deref(), &body, wanted);
        let message = message.map_err(|why| Status::new(Code::InvalidArgument, why))?;
        // The call has a copy of it.
        charge.set(2 * message.len());
        Ok((message, charge))
    });
    made.await?
}

/// The same for the JSON of a reply.
async fn long_json(
    route: &Arc<Route>,
    message: Bytes,
    exchange: &mut dyn Exchange,
) -> Result<Vec<u8>, Status> {
    let (output, mut charge) = (route.output.clone(), exchange.charge());
    let json = aside(charge.holder(), move |_: &Wanted| {
        counted_json(&output, &message, &mut charge)
    });
    while_there(exchange, async { json.await? }).await
}

fn hidden_by(route: &Route, first: &Route) -> String {
    let Route {
        verb, path, method, ..
    } = route;
    let (name, by) = (method.full_name(), first.method.full_name());
    if name == by {
        return format!("gives `{name}` the route `{verb} {path}` twice: the first rule counts");
    }
    let same = if *path == first.path {
        String::new()
    } else {
        format!(" as `{}`", first.path)
    };
    format!(
        "gives `{name}` the route `{verb} {path}`, which `{by}` has{same}: `{by}` comes first and \
         gets the requests"
    )
}

/// The message of a reply that has one.
fn only(body: ReplyBody) -> Result<Bytes, Ending> {
    match body {
        ReplyBody::One(message, _) => Ok(message),
        ReplyBody::Empty(ending) if ending.status.code != Code::Ok => Err(ending),
        ReplyBody::Empty(_) | ReplyBody::Stream(_) => {
            let what = "the worker has not answered with one message";
            Err(Status::new(Code::Internal, what).into())
        }
    }
}
