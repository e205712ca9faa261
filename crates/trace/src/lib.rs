//! Traces of requests and jobs, as plain data.
//!
//! - [`Incoming`]: what a caller says of its trace, in the fields of W3C, B3 and Jaeger.
//! - [`Tracer`]: off until somebody wants traces; then its [`Recorder`] draws identifiers, decides
//!   which traces are kept, and puts them into a bounded queue.
//! - [`Traces`]: the other end of that queue.
//!
//! Knows no protocol in which traces are exported, and no service that makes them.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod calls;
mod id;
mod propagation;
mod recorder;
mod sampling;
mod span;

pub use calls::Calls;
pub use id::{SpanId, TraceId};
pub use propagation::{Incoming, Outgoing, fuzz_propagation, names_trace};
pub use recorder::{Begun, Recorder, Tracer, Traces};
pub use sampling::{Sampling, nanos};
pub use span::{Kind, Span, Trace, Value, add_server, text};
