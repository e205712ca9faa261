//! `error_pages`: pages of one's own in place of the server's few words.
//!
//! They are read once. A client that asks for JSON gets a problem object (RFC 9457) with the status
//! and its name, and nothing that tells of the application.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use pronghorn_base::begin_in;
use pronghorn_h1::{RequestHead, reason};
use pronghorn_serve::{Body, Exchange, Handled, Handler, Request, Response, wanted, weighed};

use super::parts::{Parts, Unusable};
use crate::file::{content_type, read_for_all};
use crate::settings::ErrorPagesSettings;

/// They are held in memory.
const LARGEST_PAGE: u64 = 1 << 20;
/// What described the body that a page replaces. `Content-Range` is not of it: with 416 it tells
/// how long the file is.
const OF_THE_BODY: [&str; 7] = [
    "content-type",
    "content-length",
    "content-encoding",
    "content-language",
    "content-disposition",
    "etag",
    "last-modified",
];

struct ErrorPages {
    next: Arc<dyn Handler>,
    /// Those of one status first.
    pages: Vec<Page>,
    intercept: bool,
}

#[derive(Debug)]
struct Page {
    /// Lowest and highest status.
    of: (u16, u16),
    content_type: &'static str,
    body: Bytes,
}

pub(super) fn around(
    next: Arc<dyn Handler>,
    parts: Parts<'_>,
) -> Result<Arc<dyn Handler>, Unusable> {
    let Some(settings) = &parts.settings.error_pages else {
        return Ok(next);
    };
    let pages = read(settings, parts.folder)?;
    Ok(Arc::new(ErrorPages {
        next,
        pages,
        intercept: settings.intercept,
    }))
}

/// The first of its files that can't be used.
pub(crate) fn judge(settings: &ErrorPagesSettings, directory: &Path) -> Option<Unusable> {
    read(settings, directory).err()
}

fn read(settings: &ErrorPagesSettings, directory: &Path) -> Result<Vec<Page>, Unusable> {
    let mut pages = Vec::new();
    for (of, path) in settings.pages.iter() {
        let path = begin_in(directory, &path);
        let body = read_for_all(&path, LARGEST_PAGE).map_err(|source| Unusable {
            key: "http.error_pages.pages",
            path: path.clone(),
            source,
        })?;
        let content_type = match content_type(&path) {
            "text/html" => "text/html; charset=utf-8",
            other => other,
        };
        pages.push(Page {
            of,
            content_type,
            body: body.into(),
        });
    }
    Ok(pages)
}

impl Handler for ErrorPages {
    fn handle<'a>(&'a self, request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        let wants_json = wants_json(&request.head);
        Box::pin(async move {
            let mut response = self.next.handle(request, exchange).await;
            let is_replaced =
                response.status >= 400 && (self.intercept || !response.from_application);
            if is_replaced {
                self.replace(&mut response, wants_json);
            }
            response
        })
    }
}

impl ErrorPages {
    fn replace(&self, response: &mut Response, wants_json: bool) {
        let status = response.status;
        let page = self
            .pages
            .iter()
            .find(|page| (page.of.0..=page.of.1).contains(&status));
        // What an application tells programs is worth more to them than a status and its name.
        if response.from_application && (page.is_none() || is_json(response)) {
            return;
        }
        let (body, content_type) = match page {
            _ if wants_json => {
                let title = reason(status);
                let problem = format!("{{\"status\":{status},\"title\":\"{title}\"}}\n");
                (problem.into(), "application/problem+json")
            }
            Some(page) => (page.body.clone(), page.content_type),
            None => return,
        };
        for name in OF_THE_BODY {
            response.fields.remove(name);
        }
        response.fields.push("Content-Type", content_type);
        response.body = Body::Whole(body);
    }
}

fn is_json(response: &Response) -> bool {
    let media = response.fields.get("content-type").unwrap_or_default();
    media_is_json(media)
}

fn media_is_json(media: &[u8]) -> bool {
    let media = media.split(|&byte| byte == b';').next().unwrap_or_default();
    let media = media.trim_ascii().to_ascii_lowercase();
    media == b"application/json" || media.ends_with(b"+json")
}

/// A program that names JSON and wants it more than a page.
fn wants_json(head: &RequestHead) -> bool {
    let fields = head.fields();
    let json = weighed(fields, "accept").filter(|(media, _)| media_is_json(media));
    let json = json.map(|(_, weight)| weight).max().unwrap_or(0);
    json > wanted(fields, "text/html")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::middleware::testing::head;

    fn pages() -> ErrorPages {
        let page = |of, body: &'static str| Page {
            of,
            content_type: "text/html; charset=utf-8",
            body: body.into(),
        };
        ErrorPages {
            next: Arc::new(crate::middleware::testing::Nobody),
            pages: vec![page((404, 404), "gone"), page((400, 499), "yours")],
            intercept: true,
        }
    }

    fn replaced(status: u16, wants_json: bool) -> Response {
        let mut response = Response::plain(status, "secret");
        response.fields.push("ETag", "\"of the other body\"");
        pages().replace(&mut response, wants_json);
        response
    }

    fn shown(response: Response) -> String {
        let content_type =
            String::from_utf8_lossy(response.fields.get("content-type").unwrap_or_default())
                .into_owned();
        match response.body {
            Body::Whole(bytes) => format!("{content_type} {}", String::from_utf8_lossy(&bytes)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_page_of_a_status_comes_before_that_of_its_class() {
        assert_eq!(shown(replaced(404, false)), "text/html; charset=utf-8 gone");
        let other = replaced(403, false);
        assert_eq!(other.fields.get("etag"), None);
        assert_eq!(shown(other), "text/html; charset=utf-8 yours");
        assert_eq!(
            shown(replaced(500, false)),
            "text/plain; charset=utf-8 secret"
        );
    }

    #[test]
    fn of_an_application_only_pages_are_replaced() {
        for (status, content_type, wants_json, expected) in [
            (404, "text/html", false, "text/html; charset=utf-8 gone"),
            (404, "application/json", false, "application/json theirs"),
            (
                422,
                "application/problem+json",
                true,
                "application/problem+json theirs",
            ),
            (503, "text/html", true, "text/html theirs"),
        ] {
            let mut response = Response::new(status, Body::Whole("theirs".into()));
            response.from_application = true;
            response.fields.push("Content-Type", content_type);
            pages().replace(&mut response, wants_json);
            assert_eq!(shown(response), expected);
        }
    }

    #[test]
    fn who_asked_for_what_is_not_there_still_learns_what_is() {
        let mut response = Response::plain(416, "secret");
        response.fields.push("Content-Range", "bytes */10");
        pages().replace(&mut response, false);
        let length = response.fields.get("content-range").unwrap_or_default();
        assert_eq!(length, b"bytes */10");
    }

    #[test]
    fn a_program_gets_json() {
        let json =
            "application/problem+json {\"status\":500,\"title\":\"Internal Server Error\"}\n";
        assert_eq!(shown(replaced(500, true)), json);
        for (accept, wanted) in [
            ("application/json", true),
            ("application/vnd.api+json;q=0.9, */*", true),
            ("text/html,application/xhtml+xml,application/json", false),
            ("text/html;q=0.5, application/json", true),
            ("application/json;q=0", false),
            ("text/html;q=0, application/json;q=0.1", true),
            ("*/*", false),
        ] {
            let head = head(&format!(
                "GET / HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\n\r\n"
            ));
            assert_eq!(wants_json(&head), wanted, "{accept}");
        }
    }
}
