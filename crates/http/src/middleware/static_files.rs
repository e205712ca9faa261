//! `static`: files, before PHP is asked.
//!
//! A route that refuses some requests closes the files, too. One that refuses all that is left does
//! not: it stands for what is no file.

use std::sync::Arc;

use pronghorn_serve::{Exchange, Handled, Handler, Request};

use super::parts::{Parts, Unusable};
use super::refusals::Refusals;
use crate::files::{Files, Looked};
use crate::settings::{FieldRules, RootKeys, RouteSettings};

/// Answers with a file where there is one.
struct StaticFiles {
    next: Arc<dyn Handler>,
    files: Arc<Files>,
    request: FieldRules,
    closed: Refusals,
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
    Ok(Arc::new(StaticFiles {
        next,
        files,
        request: settings.request.clone(),
        closed: Refusals::by(parts.settings, RouteSettings::refuses_some),
    }))
}

impl Handler for StaticFiles {
    fn handle<'a>(&'a self, mut request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        for (name, value) in self.request.iter() {
            let fields = request.head.fields_mut();
            fields.set(name.to_ascii_lowercase(), value);
        }
        match self.files.look(&request.head, request.accepted) {
            Looked::Answer(_) | Looked::Later
                if self.closed.take(&request.head, request.peer.address.ip()) =>
            {
                self.next.handle(request, exchange)
            }
            Looked::Answer(response) => Box::pin(std::future::ready(response)),
            Looked::Nothing => self.next.handle(request, exchange),
            Looked::Later => Box::pin(async move {
                match self.files.answer(&request).await {
                    Some(response) => response,
                    None => self.next.handle(request, exchange).await,
                }
            }),
        }
    }
}
