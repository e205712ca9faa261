//! An own server: `/ping` and a WebSocket at `/ws` are answered here, everything else by PHP.

use std::process::ExitCode;
use std::sync::Arc;

use futures_util::{SinkExt, StreamExt};
use pronghorn_serve::{Body, Exchange, Handled, Handler, Request, Response, Upgraded};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

fn main() -> ExitCode {
    pronghorn_cli::run_with(|php| Arc::new(Own { php }))
}

/// Stands before PHP. What is said here about a path is said to every request.
struct Own {
    php: Arc<dyn Handler>,
}

impl Handler for Own {
    fn handle<'a>(&'a self, request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        match request.head.path() {
            b"/ping" => Box::pin(async { Response::plain(200, "pong\n") }),
            b"/ws" => Box::pin(async move { web_socket(&request, exchange) }),
            _ => self.php.handle(request, exchange),
        }
    }
}

/// Answers 101 and goes on with [`echo`], or says what is missing.
fn web_socket(request: &Request, exchange: &mut dyn Exchange) -> Response {
    let key = request.head.fields().get("sec-websocket-key");
    let (Some(key), true) = (key, request.asks_for("websocket")) else {
        return Response::plain(426, "this is a WebSocket: connect with ws://\n");
    };
    if !exchange.upgrade("websocket", Box::new(|client| Box::pin(echo(client)))) {
        return Response::plain(501, "WebSockets need HTTP/1.1\n");
    }
    let mut response = Response::new(101, Body::Empty);
    let accept = derive_accept_key(key);
    response.fields.push("Sec-WebSocket-Accept", accept);
    response
}

/// Sends back what comes, until the client leaves or the server stops.
async fn echo(client: Upgraded) {
    let stopping = client.stopping();
    let mut socket = WebSocketStream::from_raw_socket(client, Role::Server, None).await;
    loop {
        let message = tokio::select! {
            message = socket.next() => message,
            () = stopping.cancelled() => break,
        };
        match message {
            Some(Ok(message)) if message.is_text() || message.is_binary() => {
                if socket.send(message).await.is_err() {
                    return;
                }
            }
            Some(Ok(_)) => {} // pings are answered by the library
            Some(Err(_)) | None => return,
        }
    }
    _ = socket.close(None).await; // the client may have left already
}
