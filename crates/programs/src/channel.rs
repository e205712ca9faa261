//! The service that programs belong to: their records are on its channel of the log.

/// A service with programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    Service,
    Temporal,
}

impl Channel {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Temporal => "temporal",
        }
    }

    /// The name of a program in reports.
    pub(crate) fn pool(self, program: &str) -> String {
        match self {
            Self::Service => format!("service.{program}"),
            Self::Temporal => program.to_owned(),
        }
    }

    /// Begins the names of metrics.
    pub(crate) const fn metric(self) -> &'static str {
        match self {
            Self::Service => "program",
            Self::Temporal => "temporal",
        }
    }

    /// A pipe for the next process, whose other end is closed when the programs of this one are
    /// gone.
    pub(crate) const fn ended(self) -> &'static str {
        match self {
            Self::Service => "service.ended",
            Self::Temporal => "temporal.ended",
        }
    }
}

/// A record on a channel. Targets of `tracing` are constants.
macro_rules! record {
    ($channel:expr, $level:ident, $($what:tt)+) => {
        match $channel {
            $crate::channel::Channel::Service => {
                tracing::$level!(target: "service", $($what)+);
            }
            $crate::channel::Channel::Temporal => {
                tracing::$level!(target: "temporal", $($what)+);
            }
        }
    };
}
pub(crate) use record;
