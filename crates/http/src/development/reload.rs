//! Pages that load again after a change: a script in each page, and a stream of events that it
//! listens to.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use pronghorn_serve::{
    Body, BodySource, Exchange, Handled, Handler, Read, Reader, Request, Response, wanted,
};
use pronghorn_workers::Standing;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const EVENTS: &[u8] = b"/.pronghorn/reload";
const SCRIPT: &[u8] = b"/.pronghorn/reload.js";
/// A longer page is sent as it is.
const LONGEST_PAGE: u64 = 4 << 20;
/// So often a stream says something, so that a client that is gone is noticed.
const ALIVE: Duration = Duration::from_secs(20);

/// Counts the generations of workers. No two servers begin with the same number, so that a page
/// also loads again after a restart.
#[derive(Debug, Clone)]
pub(crate) struct Changes(Arc<watch::Sender<u64>>);

impl Default for Changes {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(fastrand::u64(..))))
    }
}

impl Changes {
    /// Follows a pool until it ends: each time its workers were replaced, or could not be.
    pub(crate) fn follow(
        &self,
        mut standing: watch::Receiver<Standing>,
    ) -> impl Future<Output = ()> + use<> {
        let changes = self.0.clone();
        async move {
            while standing.changed().await.is_ok() {
                changes.send_modify(|generation| *generation = generation.wrapping_add(1));
            }
        }
    }
}

/// Answers the script's requests, and puts the script into pages of the next handler.
pub(crate) struct Reloading {
    pub(crate) next: Arc<dyn Handler>,
    pub(crate) changes: Changes,
    /// The server stops: no stream holds that up.
    pub(crate) stopping: CancellationToken,
}

impl Handler for Reloading {
    fn handle<'a>(&'a self, request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        match request.head.path() {
            EVENTS => return Box::pin(std::future::ready(self.events())),
            SCRIPT => return Box::pin(std::future::ready(script())),
            _ => {}
        }
        if !shows_page(&request) {
            return self.next.handle(request, exchange);
        }
        Box::pin(async move {
            // Read before the page is made: a change meanwhile is one that it may not show.
            let generation = *self.changes.0.borrow();
            let mut response = self.next.handle(request, exchange).await;
            if takes_script(&response) {
                put_script(&mut response, generation).await;
            }
            response
        })
    }
}

impl Reloading {
    fn events(&self) -> Response {
        let mut changes = self.changes.0.subscribe();
        changes.mark_changed();
        let events = Events {
            next: Box::pin(next(changes, self.stopping.clone())),
        };
        let mut response = Response::new(200, Body::Made(Box::new(events)));
        response.fields.push("Content-Type", "text/event-stream");
        response.fields.push("Cache-Control", "no-store");
        response
    }
}

fn script() -> Response {
    let script = Bytes::from_static(include_bytes!("reload.js"));
    let mut response = Response::new(200, Body::Whole(script));
    response
        .fields
        .push("Content-Type", "text/javascript; charset=utf-8");
    response.fields.push("Cache-Control", "no-cache");
    response
}

/// Whether a browser asks for a page that it shows. A script that asks for a part of one gets that
/// part as it is.
fn shows_page(request: &Request) -> bool {
    let fields = request.head.fields();
    let is_shown = match fields.get("sec-fetch-dest") {
        None => true,
        Some(destination) => destination == b"document" || destination == b"iframe",
    };
    request.head.method() == "GET" && is_shown && wanted(fields, "text/html") > 0
}

/// HTML that is here as a whole, in no coding, to be shown.
fn takes_script(response: &Response) -> bool {
    let fields = &response.fields;
    let is_html = fields.get("content-type").is_some_and(|media| {
        let media = media.split(|&byte| byte == b';').next().unwrap_or_default();
        media.trim_ascii().eq_ignore_ascii_case(b"text/html")
    });
    let is_whole = match &response.body {
        Body::Whole(_) | Body::Lent(_) => true,
        Body::Pieces { len, .. } => len.is_some(),
        Body::Empty | Body::File(_) | Body::Parts(_) | Body::Made(_) => false,
    };
    let len = response.body.known_len().unwrap_or(u64::MAX);
    is_html
        && is_whole
        && len <= LONGEST_PAGE
        && response.status != 206
        && fields.get("content-encoding").is_none()
        && fields.get("content-disposition").is_none()
}

async fn put_script(response: &mut Response, generation: u64) {
    let mut reader = Reader::new(std::mem::take(&mut response.body));
    let mut page = Vec::new();
    let is_broken = loop {
        match std::future::poll_fn(|cx| reader.poll_next(cx)).await {
            Read::Bytes(bytes) => page.extend_from_slice(&bytes),
            Read::End => break false,
            Read::Broken => break true,
        }
    };
    response.fields.remove("content-length");
    if is_broken {
        // What has come is sent, and then the end that it really has.
        response.body = Body::Made(Box::new(Cut(Some(page.into()))));
        return;
    }
    let script = format!(
        "<script async src=\"/.pronghorn/reload.js\" data-generation=\"{generation}\"></script>\n"
    );
    let at = end_of_body(&page).unwrap_or(page.len());
    page.splice(at..at, script.into_bytes());
    response.body = Body::Whole(page.into());
    for name in ["etag", "last-modified", "cache-control", "expires"] {
        response.fields.remove(name);
    }
    // A page from a cache would be of another generation.
    response.fields.push("Cache-Control", "no-store");
}

fn end_of_body(page: &[u8]) -> Option<usize> {
    const END: &[u8] = b"</body";
    let mut windows = page.windows(END.len());
    windows.rposition(|window| window.eq_ignore_ascii_case(END))
}

/// A body that was cut short where it came from.
#[derive(Debug)]
struct Cut(Option<Bytes>);

impl BodySource for Cut {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Read> {
        Poll::Ready(self.0.take().map_or(Read::Broken, Read::Bytes))
    }
}

type Next = (Read, watch::Receiver<u64>, CancellationToken);

/// The number of each generation, as it comes.
struct Events {
    next: Pin<Box<dyn Future<Output = Next> + Send>>,
}

async fn next(mut changes: watch::Receiver<u64>, stopping: CancellationToken) -> Next {
    let read = tokio::select! {
        () = stopping.cancelled() => Read::End,
        changed = changes.changed() => match changed {
            Ok(()) => Read::Bytes(format!("data: {}\n\n", *changes.borrow_and_update()).into()),
            Err(_) => Read::End,
        },
        () = tokio::time::sleep(ALIVE) => Read::Bytes(Bytes::from_static(b":\n\n")),
    };
    (read, changes, stopping)
}

impl BodySource for Events {
    fn is_news(&self) -> bool {
        true
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Read> {
        let (read, changes, stopping) = ready!(self.next.as_mut().poll(cx));
        self.next = Box::pin(next(changes, stopping));
        Poll::Ready(read)
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Events")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::middleware::testing::request;

    fn html(body: Body) -> Response {
        let mut response = Response::new(200, body);
        response
            .fields
            .push("Content-Type", "text/html; charset=utf-8");
        response
    }

    fn whole(text: &'static str) -> Body {
        Body::Whole(Bytes::from_static(text.as_bytes()))
    }

    #[tokio::test]
    async fn the_script_stands_at_the_end_of_the_body() {
        let script =
            "<script async src=\"/.pronghorn/reload.js\" data-generation=\"7\"></script>\n";
        for (page, before, behind) in [
            ("<p>a</BODY></html>", "<p>a", "</BODY></html>"),
            ("hello", "hello", ""),
            ("<!-- </body> --></body>", "<!-- </body> -->", "</body>"),
        ] {
            let mut response = html(whole(page));
            response.fields.push("Content-Length", "1");
            response.fields.push("ETag", "\"x\"");
            put_script(&mut response, 7).await;
            assert!(response.fields.get("content-length").is_none());
            assert!(response.fields.get("etag").is_none());
            let Body::Whole(body) = response.body else {
                panic!("it is whole");
            };
            assert_eq!(body, format!("{before}{script}{behind}"));
        }
    }

    #[test]
    fn only_pages_that_a_browser_shows_get_it() {
        let page = "accept: text/html,*/*\r\n";
        for (method, fields, shows) in [
            ("GET", page.to_owned(), true),
            ("GET", format!("{page}sec-fetch-dest: document\r\n"), true),
            ("GET", format!("{page}sec-fetch-dest: empty\r\n"), false),
            ("GET", "accept: */*\r\n".to_owned(), false),
            ("HEAD", page.to_owned(), false),
            ("POST", page.to_owned(), false),
        ] {
            let request = request(&format!("{method} / HTTP/1.1\r\nhost: a\r\n{fields}\r\n"));
            assert_eq!(shows_page(&request), shows, "{method} {fields}");
        }
        assert!(takes_script(&html(whole("x"))));
        assert!(!takes_script(&html(Body::Empty)));
        assert!(!takes_script(&html(Body::Made(Box::new(Cut(None))))));
        for (name, value) in [
            ("Content-Encoding", "gzip"),
            ("Content-Disposition", "attachment"),
        ] {
            let mut response = html(whole("x"));
            response.fields.push(name, value);
            assert!(!takes_script(&response), "{name}");
        }
        let mut json = Response::new(200, whole("{}"));
        json.fields.push("Content-Type", "application/json");
        assert!(!takes_script(&json));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_tells_each_change_and_ends_with_the_server() {
        let (changes, stopping) = (Changes::default(), CancellationToken::new());
        let first = *changes.0.borrow();
        let reloading = Reloading {
            next: Arc::new(crate::middleware::testing::Nobody),
            changes: changes.clone(),
            stopping: stopping.clone(),
        };
        let Body::Made(mut events) = reloading.events().body else {
            panic!("it is a stream");
        };
        let mut next = async || match std::future::poll_fn(|cx| events.poll_next(cx)).await {
            Read::Bytes(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            Read::End => "end".to_owned(),
            Read::Broken => "broken".to_owned(),
        };
        assert_eq!(next().await, format!("data: {first}\n\n"));
        assert_eq!(next().await, ":\n\n");
        let (standing, seen) = watch::channel(Standing::Up);
        let mut following = tokio::task::JoinSet::new();
        following.spawn(changes.follow(seen));
        tokio::task::yield_now().await;
        standing.send_replace(Standing::Up);
        assert_eq!(next().await, format!("data: {}\n\n", first.wrapping_add(1)));
        stopping.cancel();
        assert_eq!(next().await, "end");
        drop(standing);
        following.join_all().await;
    }
}
