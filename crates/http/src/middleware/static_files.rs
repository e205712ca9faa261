//! `static`: files, before PHP is asked.
//!
//! A route that refuses some requests closes the files, too. One that refuses all that is left does
//! not: it stands for what is no file. One that asks for a password asks for files, too.

use std::future::ready;
use std::sync::Arc;

use pronghorn_serve::{Exchange, Handled, Handler, Request, Response};

use super::limits::{Limits, asked};
use super::parts::{Parts, Unusable};
use crate::basic_auth::BasicAuth;
use crate::files::{Answer, Files, Looked};
use crate::routes::Ambiguous;
use crate::settings::{FieldRules, RootKeys, RouteSettings};

/// Answers with a file where there is one.
struct StaticFiles {
    next: Arc<dyn Handler>,
    files: Arc<Files>,
    request: FieldRules,
    limits: Limits<FileLimit>,
}

/// The limit of a route on files.
enum FileLimit {
    /// The status of the refusal.
    Refused(u16),
    Guarded(Arc<BasicAuth>),
}

pub(super) fn around(
    next: Arc<dyn Handler>,
    parts: Parts<'_>,
) -> Result<Arc<dyn Handler>, Unusable> {
    let Some(settings) = &parts.settings.files else {
        return Ok(next);
    };
    let to_root = |keys: &RootKeys| keys.settings(parts.folder, settings.tag);
    let files = Files::open(settings.roots.iter().map(to_root).collect());
    let files = files.map_err(|(number, source)| Unusable {
        key: "http.static",
        path: settings.roots[number].folder.clone(),
        source,
    })?;
    let files = Arc::new(files);
    parts.file_caches.add(&files);
    let limit = |route: &RouteSettings| {
        let refused = route.refuse.filter(|_| route.refuses_some());
        let refused = refused.map(FileLimit::Refused);
        refused.or_else(|| parts.guards.of(route).map(FileLimit::Guarded))
    };
    Ok(Arc::new(StaticFiles {
        next,
        files,
        request: settings.request.clone(),
        limits: Limits::by(parts.settings, limit),
    }))
}

impl Handler for StaticFiles {
    fn handle<'a>(&'a self, mut request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        for (name, value) in self.request.iter() {
            let fields = request.head.fields_mut();
            fields.set(name.to_ascii_lowercase(), value);
        }
        let found = self.files.look(&request.head, request.accepted);
        if let Looked::Nothing = found {
            return self.next.handle(request, exchange);
        }
        let asked = asked(&request.head, request.peer.address.ip());
        let limit = match self.limits.of(&asked) {
            Err(Ambiguous) | Ok(Some(FileLimit::Refused(_))) => {
                return self.next.handle(request, exchange);
            }
            Ok(limit) => limit,
        };
        match found {
            Looked::Answer(answer)
                if limit.is_none() && self.limit_of_page(&answer, &request).is_none() =>
            {
                Box::pin(ready(answer.response))
            }
            _ => Box::pin(self.answer_within(limit, request, exchange)),
        }
    }
}

impl StaticFiles {
    /// The limit of a route for a page that stands for the path of a request.
    fn limit_of_page(&self, answer: &Answer, request: &Request) -> Option<&FileLimit> {
        let path = answer.page.as_ref()?;
        let address = request.peer.address.ip();
        self.limits.of_page(&request.head, path, address)
    }

    /// Within the limit of the request's route, and of one for a page that stands for its path.
    async fn answer_within(
        &self,
        limit: Option<&FileLimit>,
        mut request: Request,
        exchange: &mut dyn Exchange,
    ) -> Response {
        if let Some(FileLimit::Guarded(guard)) = limit
            && let Err(refusal) = guard.admit(&mut request).await
        {
            return refusal;
        }
        let Some(answer) = self.files.answer(&request).await else {
            return self.next.handle(request, exchange).await;
        };
        let of_page = self.limit_of_page(&answer, &request);
        match of_page {
            Some(FileLimit::Refused(status)) => return Response::status_only(*status),
            Some(FileLimit::Guarded(guard)) => {
                if let Err(refusal) = guard.admit(&mut request).await {
                    return refusal;
                }
            }
            None => {}
        }
        if limit.or(of_page).is_some() {
            private(answer.response)
        } else {
            answer.response
        }
    }
}

/// A file that was sent for a password is for no shared cache (RFC 9111, section 3.5).
fn private(mut response: Response) -> Response {
    let fields = &mut response.fields;
    let Some(value) = fields.get("cache-control") else {
        return response;
    };
    let value = String::from_utf8_lossy(value).into_owned();
    let is_shared = |part: &str| {
        let name = part.split('=').next().unwrap_or_default().trim();
        let shared = ["public", "private", "s-maxage"];
        shared.iter().any(|it| name.eq_ignore_ascii_case(it))
    };
    let parts = value.split(',').map(str::trim).filter(|it| !is_shared(it));
    let parts: Vec<&str> = std::iter::once("private").chain(parts).collect();
    fields.set("Cache-Control", parts.join(", "));
    response
}
