//! The page for what went wrong: HTML for a browser, text for all others.

use std::fmt::Write as _;

use pronghorn_config::RequestMask;
use pronghorn_h1::reason;
use pronghorn_serve::{Body, Request, Response, wanted};

use super::Development;
use super::problem::{Frame, Problem, is_of_application};
use super::source::{Excerpt, excerpt};

/// Frames of the application whose lines are shown.
const WITH_SOURCE: usize = 10;

/// What a page says of the request.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) wants_html: bool,
    line: String,
    fields: Vec<(String, String)>,
}

impl Asked {
    pub(crate) fn by(request: &Request) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        // Pages are shown around.
        let mask = RequestMask::default();
        let fields = request.head.fields().iter().map(|(name, value)| {
            let name = text(name);
            let value = mask.header(&name, &text(value));
            (name, value)
        });
        Self {
            wants_html: wanted(request.head.fields(), "text/html") > 0,
            line: format!("{} {}", request.head.method(), request.shown_target()),
            fields: fields.collect(),
        }
    }
}

/// A frame, and its lines if they are shown.
struct Shown {
    frame: Frame,
    excerpt: Option<Excerpt>,
}

/// The response that shows a problem.
pub(crate) async fn show(
    asked: &Asked,
    status: u16,
    problem: &Problem,
    development: &Development,
) -> Response {
    if !asked.wants_html {
        let mut response = Response::plain(status, &plain(problem));
        response.from_application = true;
        return response;
    }
    let mut shown = Vec::new();
    let mut with_source = 0;
    for frame in problem.frames() {
        let place = frame.place.as_ref();
        let place = place.filter(|(file, _)| with_source < WITH_SOURCE && is_of_application(file));
        let excerpt = match place {
            Some((file, line)) => {
                with_source += 1;
                excerpt(file, *line, development.worker_user.clone()).await
            }
            None => None,
        };
        shown.push(Shown { frame, excerpt });
    }
    let html = html(asked, status, problem, &shown, development);
    let mut response = Response::new(status, Body::Whole(html.into()));
    response
        .fields
        .push("Content-Type", "text/html; charset=utf-8");
    response.fields.push("Cache-Control", "no-store");
    response.from_application = true; // no error page hides it
    response
}

fn plain(problem: &Problem) -> String {
    let Problem {
        class,
        message,
        place,
        trace,
        story,
    } = problem;
    if !story.is_empty() {
        return format!("{story}\n\nThe server tries again when a file changes.\n");
    }
    match place {
        Some((file, line)) => format!("{class}: {message}\nin {file}:{line}\n\n{trace}\n"),
        None => format!("{message}\n"),
    }
}

fn html(
    asked: &Asked,
    status: u16,
    problem: &Problem,
    shown: &[Shown],
    development: &Development,
) -> String {
    let (class, message) = (escape(&problem.class), escape(&problem.message));
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>{class}: {message}</title>\n<style>{}</style></head>\n<body>\n\
         <p class=\"muted\">{status} {} &middot; <code>{}</code></p>\n\
         <h1>{class}</h1>\n<p class=\"message\">{message}</p>\n",
        include_str!("page.css"),
        reason(status),
        escape(&asked.line),
    );
    write_trace(&mut html, shown, development);
    if !problem.story.is_empty() {
        _ = write!(
            html,
            "<h2>What the server says</h2>\n<pre class=\"text\">{}\n\nThe server tries again when \
             a file changes.</pre>\n",
            escape(&problem.story)
        ); // a String takes all, as below
    }
    html.push_str("<h2>Request</h2>\n<table>\n");
    for (name, value) in &asked.fields {
        _ = writeln!(
            html,
            "<tr><td>{}</td><td>{}</td></tr>",
            escape(name),
            escape(value)
        );
    }
    html.push_str(
        "</table>\n<p class=\"muted\">Shown because the server runs in development mode. \
         <code>http.development.editor</code> chooses the editor of the links.</p>\n</body></html>\n",
    );
    html
}

/// The application's frames first, each with its lines; those of packages are folded.
fn write_trace(html: &mut String, shown: &[Shown], development: &Development) {
    let is_own = |shown: &&Shown| {
        let place = shown.frame.place.as_ref();
        place.is_some_and(|(file, _)| is_of_application(file))
    };
    let mut is_first = true;
    for Shown { frame, excerpt } in shown.iter().filter(is_own) {
        let title = title(frame, development);
        match excerpt {
            Some(excerpt) => {
                let open = if is_first { " open" } else { "" };
                _ = writeln!(html, "<details{open}><summary>{title}</summary>");
                write_excerpt(html, excerpt, frame);
                html.push_str("</details>\n");
                is_first = false;
            }
            None => _ = writeln!(html, "<details><summary>{title}</summary></details>"),
        }
    }
    let others: Vec<_> = shown.iter().filter(|shown| !is_own(shown)).collect();
    if others.is_empty() {
        return;
    }
    let frames = if others.len() == 1 { "frame" } else { "frames" };
    _ = writeln!(
        html,
        "<details><summary>{} {frames} in packages and PHP itself</summary>",
        others.len()
    );
    for Shown { frame, .. } in others {
        _ = writeln!(
            html,
            "<div class=\"frame\">{}</div>",
            title(frame, development)
        );
    }
    html.push_str("</details>\n");
}

fn title(frame: &Frame, development: &Development) -> String {
    let call = escape(&frame.call);
    let number = match frame.number.as_str() {
        "" => String::new(),
        number => format!("#{} ", escape(number)),
    };
    let Some((file, line)) = &frame.place else {
        return format!("<span class=\"muted\">{number}</span>{call}");
    };
    let link = escape(&development.editor.link(file, *line));
    format!(
        "<span class=\"muted\">{number}</span><a href=\"{link}\">{}:{line}</a> {call}",
        escape(file)
    )
}

fn write_excerpt(html: &mut String, excerpt: &Excerpt, frame: &Frame) {
    let here = frame.place.as_ref().map(|(_, line)| *line);
    html.push_str("<pre>");
    for (number, line) in &excerpt.lines {
        let class = if Some(*number) == here {
            " class=\"here\""
        } else {
            ""
        };
        _ = write!(html, "<span{class}><i>{number}</i>{}</span>", escape(line));
    }
    html.push_str("</pre>");
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::middleware::testing::request;
    use crate::settings::Editor;

    #[tokio::test]
    async fn the_page_hides_secrets_and_escapes_what_it_shows() {
        let request = request(
            "GET /?q=<script> HTTP/1.1\r\nhost: a\r\naccept: text/html\r\ncookie: s=hidden\r\n\
             authorization: Bearer hidden\r\nx-note: <i>\r\n\r\n",
        );
        let problem = Problem {
            class: "Oops".into(),
            message: "<b>".into(),
            place: Some((file!().into(), 1)),
            trace: "#0 /srv/vendor/a/b.php(3): f()".into(),
            story: String::new(),
        };
        let development = Development {
            editor: Editor::default(),
            worker_user: None,
        };
        let response = show(&Asked::by(&request), 500, &problem, &development).await;
        let Body::Whole(page) = response.body else {
            panic!("it is whole");
        };
        let page = String::from_utf8(page.to_vec()).unwrap();
        for (part, is_there) in [
            ("hidden", false),
            ("<script>", false),
            ("<b>", false),
            ("<i></i>", false),
            ("&lt;b&gt;", true),
            ("1 frame in packages", true),
            ("vscode://file/srv/vendor/a/b.php:3", true),
        ] {
            assert_eq!(page.contains(part), is_there, "{part} in {page}");
        }
    }
}
