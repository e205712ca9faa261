//! Why a command has no answer.

use thiserror::Error;

/// Why a command has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RedisFailure {
    /// Nobody answers there, or not in time. The command may have been carried out.
    #[error("{title} does not answer: {why}")]
    Away { title: String, why: String },
    /// It says no: to who asks, or to the command.
    #[error("{title} refuses: {why}")]
    Refused {
        title: String,
        why: String,
        /// The word that its error begins with, as `NOGROUP`; none where what it says is not
        /// understood.
        code: Option<String>,
    },
    /// All answers of one call together are longer than whoever asks has room for.
    #[error("{title}: its answers take more than {most} bytes: ask for fewer at a time")]
    LongAnswers { title: String, most: usize },
    /// A file or a host that the settings name can't be used.
    #[error("{0}")]
    Unusable(String),
}
