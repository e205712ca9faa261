//! The error page of development mode.

use pronghorn_h1::reason;
use pronghorn_wire::native::Thrown;

use crate::message::{Body, Request, Response};

/// What was thrown, for whoever wrote it: HTML for a browser, text for all others.
pub(crate) fn thrown(request: &Request, status: u16, thrown: &Thrown) -> Response {
    let Thrown {
        class,
        message,
        file,
        line,
        trace,
    } = thrown;
    let wants_html = request
        .head
        .fields()
        .get("accept")
        .is_some_and(|accept| String::from_utf8_lossy(accept).contains("text/html"));
    if !wants_html {
        let text = format!("{class}: {message}\nin {file}:{line}\n\n{trace}\n");
        return Response::plain(status, &text);
    }
    let reason = reason(status);
    let request_line = format!("{} {}", request.head.method(), request.target());
    let [class, message, file, trace, request_line] =
        [class, message, file, trace, &request_line].map(|text| escape(text));
    let html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{class}: {message}</title>\n\
         <style>body{{font:16px/1.5 system-ui,sans-serif;margin:3rem auto;max-width:60rem;padding:0 1rem;color:#222;background:#fff}}\
         h1{{font-size:1.3rem;margin:0}}p{{margin:.5rem 0}}code,pre{{font:14px/1.5 ui-monospace,monospace}}\
         pre{{background:#f4f4f4;padding:1rem;overflow:auto}}.muted{{color:#777}}\
         @media(prefers-color-scheme:dark){{body{{color:#ddd;background:#1b1b1b}}pre{{background:#262626}}}}</style></head>\n\
         <body><p class=\"muted\">{status} {reason} &middot; <code>{request_line}</code></p>\n\
         <h1>{class}</h1><p>{message}</p>\n<p><code>{file}:{line}</code></p>\n<pre>{trace}</pre>\n\
         <p class=\"muted\">Shown because the server runs in development mode.</p></body></html>\n"
    );
    let mut response = Response::new(status, Body::Whole(html.into()));
    response
        .fields
        .push("Content-Type", "text/html; charset=utf-8");
    response
}

/// Text that can't be taken for markup.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}
