//! What a call is, and what a worker's answer to it begins with.

use std::fmt;

use bytes::Bytes;

use crate::native::{JobReply, TcpReply};
use crate::{Codec, DecodeError, ReplyHead, json, native, proto};

/// What a worker is asked to do. Workers announce the kinds that they answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An HTTP request.
    Http,
    /// An HTTP request that a script answers, by the variables of CGI.
    Script,
    /// Bytes, answered by bytes.
    Raw,
    /// A job out of a queue.
    Job,
    /// An event of a TCP connection.
    Tcp,
    /// A call of a gRPC method.
    Grpc,
    /// A call of Centrifugo, which only foreign workers answer.
    Centrifugo,
}

impl Kind {
    /// As workers announce it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Script => "script",
            Self::Raw => "raw",
            Self::Job => "job",
            Self::Tcp => "tcp",
            Self::Grpc => "grpc",
            Self::Centrifugo => "centrifugo",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What an answer begins with. Which one it is depends on the kind of the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Head {
    /// Of an HTTP request or a script, not yet checked.
    Http(ReplyHead),
    /// Of a script: the server is to answer as if this path, with its query, had been asked for by
    /// GET.
    LocalRedirect(Vec<u8>),
    /// Of a raw call, or of a job in a foreign worker, which have none.
    Raw,
    /// Of a job.
    Job(JobReply),
    /// The head of an answer to a TCP call, and whether its body is for the client.
    Tcp(TcpReply, bool),
    /// The context as it came, for a gRPC call in a foreign worker.
    Context(Bytes),
    /// In place of an answer: a foreign worker waits for its next call, and has given none.
    NoAnswer,
}

impl Head {
    /// Reads the head of an answer to an HTTP request or a script.
    ///
    /// # Errors
    ///
    /// When the context is no such head in this codec.
    pub fn decode_http(codec: Codec, context: &Bytes) -> Result<Self, DecodeError> {
        let head = match codec {
            Codec::Json => json::decode_reply(context),
            Codec::Proto => proto::decode_reply(context),
            Codec::Native => native::decode_reply(context),
        };
        head.map(Self::Http)
    }

    /// Reads the head of an answer to a raw call.
    ///
    /// # Errors
    ///
    /// When there is one.
    pub fn decode_raw(codec: Codec, context: &Bytes) -> Result<Self, DecodeError> {
        match (codec, context.len()) {
            (Codec::Native, _) => native::decode_raw_reply(context)?,
            (Codec::Json | Codec::Proto, 0) => {}
            (Codec::Json | Codec::Proto, bytes) => {
                return Err(DecodeError::LeftOver { codec, bytes });
            }
        }
        Ok(Self::Raw)
    }

    /// Reads the head of an answer to a job. RoadRunner's packages say all in the body.
    ///
    /// # Errors
    ///
    /// When the context is none in this codec.
    pub fn decode_job(codec: Codec, context: &Bytes) -> Result<Self, DecodeError> {
        match codec {
            Codec::Native => native::decode_job_reply(context).map(Self::Job),
            Codec::Json | Codec::Proto => Ok(Self::Raw),
        }
    }

    /// Reads the head of an answer to a TCP call. That of RoadRunner's packages is a word, and any
    /// other word than theirs ends the connection.
    ///
    /// # Errors
    ///
    /// When the context is none in this codec.
    pub fn decode_tcp(codec: Codec, context: &Bytes) -> Result<Self, DecodeError> {
        if codec == Codec::Native {
            return native::decode_tcp_reply(context).map(|reply| Self::Tcp(reply, true));
        }
        let (close, is_sent) = match &context[..] {
            b"CONTINUE" => (false, false),
            b"WRITE" => (false, true),
            b"WRITECLOSE" => (true, true),
            _ => (true, false),
        };
        let reply = TcpReply { close, state: None };
        Ok(Self::Tcp(reply, is_sent))
    }

    /// Reads the head of an answer to a gRPC call. Our workers say all in the body; others in a
    /// context that is the service's to read.
    ///
    /// # Errors
    ///
    /// When the context is none in this codec.
    pub fn decode_grpc(codec: Codec, context: &Bytes) -> Result<Self, DecodeError> {
        match codec {
            Codec::Native => native::decode_raw_reply(context).map(|()| Self::Raw),
            Codec::Json | Codec::Proto => Ok(Self::Context(context.clone())),
        }
    }

    /// Whether the real answer is still to come, where the codec has no message of its own for
    /// that.
    pub fn is_interim(&self) -> bool {
        matches!(self, Self::Http(head) if (100..200).contains(&head.status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_to_a_raw_call_has_no_head() {
        for codec in [Codec::Json, Codec::Proto] {
            assert_eq!(Head::decode_raw(codec, &Bytes::new()).unwrap(), Head::Raw);
            let refused = Head::decode_raw(codec, &Bytes::from_static(b"{}"));
            let text = format!("the {codec} context has 2 bytes too many");
            assert_eq!(refused.unwrap_err().to_string(), text);
        }
    }

    #[test]
    fn roadrunners_words_say_what_becomes_of_a_connection() {
        for (word, close, is_sent) in [
            ("CONTINUE", false, false),
            ("WRITE", false, true),
            ("WRITECLOSE", true, true),
            ("CLOSE", true, false),
            ("write", true, false),
            ("", true, false),
        ] {
            let context = Bytes::from_static(word.as_bytes());
            let head = Head::decode_tcp(Codec::Json, &context).unwrap();
            let reply = TcpReply { close, state: None };
            assert_eq!(head, Head::Tcp(reply, is_sent), "{word}");
        }
    }

    #[test]
    fn only_1xx_is_interim() {
        for (status, interim) in [(99, false), (100, true), (199, true), (200, false)] {
            let context = Bytes::from(format!(r#"{{"status":{status}}}"#));
            let head = Head::decode_http(Codec::Json, &context).unwrap();
            assert_eq!(head.is_interim(), interim, "{status}");
        }
        assert!(!Head::Raw.is_interim());
        assert!(!Head::LocalRedirect(b"/".to_vec()).is_interim());
    }
}
