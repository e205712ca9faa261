//! The words that keys of a pool take.

use pronghorn_config::Choice;
use pronghorn_launch::{Preset, TransportChoice};
use pronghorn_pool::Fence;

/// `mode`: what the workers of a pool are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// PHP processes that serve one call after the other.
    Worker,
    /// Any PHP program, in a kept process.
    Classic,
    /// Whatever speaks FastCGI.
    FastCgi,
    /// An executable per call.
    Cgi,
}

impl Choice for Mode {
    const CHOICES: &'static [(&'static str, Self)] = &[
        (Self::Worker.name(), Self::Worker),
        (Self::Classic.name(), Self::Classic),
        (Self::FastCgi.name(), Self::FastCgi),
        (Self::Cgi.name(), Self::Cgi),
    ];
}

impl Mode {
    /// As it is written.
    const fn name(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Classic => "classic",
            Self::FastCgi => "fastcgi",
            Self::Cgi => "cgi",
        }
    }

    /// For a key that does nothing in pools of these modes: what to say in one of them.
    pub(super) fn ignores(self, modes: &[Self]) -> Option<String> {
        let message = || format!("has no effect in a pool in `mode: {}`", self.name());
        modes.contains(&self).then(message)
    }

    /// For a key of processes that serve one call after the other.
    pub(super) fn without_kept(self) -> Option<(&'static str, &'static str)> {
        const MESSAGE: &str =
            "is of pools whose processes are kept, and `mode: cgi` starts one for each call";
        (self == Self::Cgi).then_some((MESSAGE, "remove it"))
    }
}

/// How workers are connected.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct TransportWord(pub(super) TransportChoice);

impl Choice for TransportWord {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("auto", Self(TransportChoice::Auto)),
        ("relay", Self(TransportChoice::Relay)),
        ("ring", Self(TransportChoice::Ring)),
    ];
}

/// How calls are written for foreign packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodecChoice {
    /// `json`, or `native` for a worker that announces it.
    Auto,
    /// RoadRunner's older one; takes UTF-8 only.
    Json,
    /// RoadRunner's newer one; any bytes.
    Proto,
}

impl Choice for CodecChoice {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("auto", Self::Auto),
        ("json", Self::Json),
        ("proto", Self::Proto),
    ];
}

/// When a call to a foreign worker begins with a question.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct FenceWord(pub(super) Fence);

impl Choice for FenceWord {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("always", Self(Fence::Always)),
        ("never", Self(Fence::Never)),
    ];
}

/// Whether workers get the defaults of `ini`.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct PresetWord(pub(super) Preset);

impl Choice for PresetWord {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("auto", Self(Preset::Auto)),
        ("on", Self(Preset::On)),
        ("off", Self(Preset::Off)),
    ];
}

/// Which calls may run once more when their worker died before it replied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// None.
    Never,
    /// GET, HEAD, OPTIONS, TRACE.
    Safe,
    /// Those, PUT and DELETE.
    Idempotent,
}

impl Choice for Retry {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("never", Self::Never),
        ("safe", Self::Safe),
        ("idempotent", Self::Idempotent),
    ];
}

/// What becomes of a call whose client leaves while it waits for a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientGone {
    /// It runs, as with php-fpm: a program may ask itself for work and not wait for it, as
    /// `WordPress` does for its cron.
    Run,
    /// It is dropped: a worker does nothing for nobody.
    Drop,
}

impl Choice for ClientGone {
    const CHOICES: &'static [(&'static str, Self)] = &[("run", Self::Run), ("drop", Self::Drop)];
}

impl ClientGone {
    /// What programs written for php-fpm rely on, where such programs run.
    pub(super) const fn usual(mode: Mode) -> Self {
        match mode {
            Mode::Classic | Mode::FastCgi => Self::Run,
            Mode::Worker | Mode::Cgi => Self::Drop,
        }
    }
}

/// When a worker gets its request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestBody {
    /// When all of it is there: a slow client holds no worker.
    Buffer,
    /// As it comes, when the worker asks.
    Stream,
}

impl Choice for RequestBody {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("buffer", Self::Buffer), ("stream", Self::Stream)];
}

/// What is done about state that calls leave to those after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaks {
    /// They are told in development, and not looked for elsewhere.
    Auto,
    Off,
    /// Each place is told once.
    Report,
    /// Its worker is replaced as well.
    Recycle,
}

impl Choice for Leaks {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("auto", Self::Auto),
        ("off", Self::Off),
        ("report", Self::Report),
        ("recycle", Self::Recycle),
    ];
}

impl Leaks {
    /// Outside of development one call of so many is examined, and the one before it: 2 times 100
    /// µs or so for each 64 calls.
    const SAMPLE: u32 = 64;

    /// What a worker is told of it.
    pub(crate) fn variable(self, development: bool) -> Option<String> {
        let every = if development { 1 } else { Self::SAMPLE };
        match self {
            Self::Auto if !development => None,
            Self::Off => None,
            Self::Auto | Self::Report => Some(format!("report {every}")),
            Self::Recycle => Some(format!("recycle {every}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Leaks;

    #[test]
    fn leaks_are_looked_for_after_each_call_in_development_alone() {
        for (leaks, development, expected) in [
            (Leaks::Auto, false, None),
            (Leaks::Auto, true, Some("report 1")),
            (Leaks::Off, true, None),
            (Leaks::Report, false, Some("report 64")),
            (Leaks::Recycle, true, Some("recycle 1")),
        ] {
            assert_eq!(
                leaks.variable(development).as_deref(),
                expected,
                "{leaks:?}"
            );
        }
    }
}
