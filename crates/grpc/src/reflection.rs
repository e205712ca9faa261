//! `grpc.reflection`: which services there are and, where their files compile, their descriptors.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use pronghorn_grpc_wire::{Code, Detached, Messages, Status, Streamed};
use prost::{Message, Oneof};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::descriptors::Descriptors;
use crate::health::stopped;
use crate::table::{HEALTH, REFLECTION_V1, REFLECTION_V1ALPHA, ServiceTable};

/// Both versions have the same messages.
pub(crate) const SERVICES: [&str; 2] = [REFLECTION_V1, REFLECTION_V1ALPHA];
pub(crate) const METHOD: &str = "ServerReflectionInfo";

#[derive(Clone, PartialEq, Eq, Message)]
struct Request {
    #[prost(string, tag = "1")]
    host: String,
    #[prost(oneof = "Question", tags = "3, 4, 5, 6, 7")]
    question: Option<Question>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
enum Question {
    #[prost(string, tag = "3")]
    FileByName(String),
    #[prost(string, tag = "4")]
    FileOfSymbol(String),
    #[prost(message, tag = "5")]
    FileOfExtension(Extension),
    #[prost(string, tag = "6")]
    ExtensionsOf(String),
    #[prost(string, tag = "7")]
    Services(String),
}

#[derive(Clone, PartialEq, Eq, Message)]
struct Extension {
    #[prost(string, tag = "1")]
    of: String,
    #[prost(int32, tag = "2")]
    number: i32,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct Response {
    #[prost(string, tag = "1")]
    host: String,
    #[prost(message, optional, tag = "2")]
    request: Option<Request>,
    #[prost(oneof = "Answer", tags = "4, 5, 6, 7")]
    answer: Option<Answer>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
enum Answer {
    #[prost(message, tag = "4")]
    Files(Files),
    #[prost(message, tag = "5")]
    Extensions(Extensions),
    #[prost(message, tag = "6")]
    Services(ServiceList),
    #[prost(message, tag = "7")]
    Error(ErrorAnswer),
}

#[derive(Clone, PartialEq, Eq, Message)]
struct Files {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    files: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct Extensions {
    #[prost(string, tag = "1")]
    of: String,
    #[prost(int32, repeated, tag = "2")]
    numbers: Vec<i32>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct ServiceList {
    #[prost(message, repeated, tag = "1")]
    services: Vec<ServiceName>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct ServiceName {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct ErrorAnswer {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}

/// Everything that can be asked.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    services: Vec<String>,
    descriptors: Descriptors,
}

impl Catalogue {
    pub(crate) fn new(table: &ServiceTable, descriptors: Descriptors) -> Self {
        let own = SERVICES.into_iter().chain([HEALTH]);
        let served = table.iter().map(|(name, _)| name);
        let mut services: Vec<_> = served.chain(own).map(str::to_owned).collect();
        services.sort();
        services.dedup();
        Self {
            services,
            descriptors,
        }
    }

    fn answer(&self, question: Option<&Question>) -> Answer {
        let files = |files: Option<Vec<Bytes>>, what: &str| match files {
            Some(files) => Answer::Files(Files { files }),
            None => not_found(what),
        };
        match question {
            Some(Question::Services(_)) => {
                let names = self.services.iter();
                let services = names.map(|name| ServiceName { name: name.clone() });
                Answer::Services(ServiceList {
                    services: services.collect(),
                })
            }
            Some(Question::FileByName(name)) => files(self.descriptors.file(name), name),
            Some(Question::FileOfSymbol(name)) => files(self.descriptors.of_symbol(name), name),
            Some(Question::FileOfExtension(extension)) => files(
                self.descriptors
                    .of_extension(&extension.of, extension.number),
                &extension.of,
            ),
            Some(Question::ExtensionsOf(of)) => match self.descriptors.extensions(of) {
                Some(numbers) => Answer::Extensions(Extensions {
                    of: of.clone(),
                    numbers,
                }),
                None => not_found(of),
            },
            None => error(
                Code::InvalidArgument,
                "the request asks for nothing".to_owned(),
            ),
        }
    }

    fn respond(&self, message: &[u8]) -> Result<Bytes, Status> {
        let request = Request::decode(message);
        let request =
            request.map_err(|error| Status::new(Code::InvalidArgument, error.to_string()))?;
        let answer = self.answer(request.question.as_ref());
        let response = Response {
            host: request.host.clone(),
            request: Some(request),
            answer: Some(answer),
        };
        Ok(response.encode_to_vec().into())
    }
}

fn not_found(what: &str) -> Answer {
    error(
        Code::NotFound,
        format!("no descriptor of `{what}` is known"),
    )
}

fn error(code: Code, message: String) -> Answer {
    Answer::Error(ErrorAnswer {
        code: i32::from(code.number()),
        message,
    })
}

type NextQuestion = Pin<Box<dyn Future<Output = (Detached, Result<Option<Bytes>, Status>)> + Send>>;

/// Answers one question after the other.
pub(crate) struct Conversation {
    catalogue: Arc<Catalogue>,
    asked: Option<NextQuestion>,
    stopping: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Conversation {
    pub(crate) fn new(
        catalogue: Arc<Catalogue>,
        messages: Detached,
        stopping: CancellationToken,
    ) -> Self {
        Self {
            catalogue,
            asked: Some(next(messages)),
            stopping: Box::pin(stopping.cancelled_owned()),
        }
    }
}

fn next(mut messages: Detached) -> NextQuestion {
    Box::pin(async move {
        let message = messages.next().await;
        (messages, message)
    })
}

impl std::fmt::Debug for Conversation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conversation").finish_non_exhaustive()
    }
}

impl Streamed for Conversation {
    fn is_news(&self) -> bool {
        true
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Messages> {
        let Some(asked) = &mut self.asked else {
            return Poll::Ready(Messages::End(Status::OK.into()));
        };
        let Poll::Ready((messages, message)) = asked.as_mut().poll(cx) else {
            std::task::ready!(self.stopping.as_mut().poll(cx));
            return Poll::Ready(Messages::End(stopped().into()));
        };
        self.asked = None;
        let answer = match message {
            Ok(None) => return Poll::Ready(Messages::End(Status::OK.into())),
            Ok(Some(message)) => self.catalogue.respond(&message),
            Err(status) => Err(status),
        };
        Poll::Ready(match answer {
            Ok(answer) => {
                self.asked = Some(next(messages));
                Messages::Message(answer)
            }
            Err(status) => Messages::End(status.into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ask(question: Question) -> Answer {
        let catalogue = Catalogue::new(&ServiceTable::default(), Descriptors::default());
        let request = Request {
            host: String::new(),
            question: Some(question),
        };
        let response = catalogue.respond(&request.encode_to_vec()).unwrap();
        let response = Response::decode(response).unwrap();
        assert_eq!(response.request, Some(request));
        response.answer.unwrap()
    }

    #[test]
    fn names_are_told_and_what_is_not_known_is_an_answer() {
        let Answer::Services(list) = ask(Question::Services(String::new())) else {
            panic!("it was asked for services");
        };
        assert!(list.services.iter().any(|service| service.name == HEALTH));
        let unknown = ask(Question::FileOfSymbol("a.B".to_owned()));
        assert!(matches!(unknown, Answer::Error(error) if error.code == 5));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            _ = Catalogue::default().respond(&bytes); // most are none
        }
    }
}
