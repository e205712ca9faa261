//! Which outputs there are: each once, whatever it is called and however many channels name it.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use pronghorn_base::begin_in;

use super::complaints::Complaints;
use super::file::{self, Rotating};
use super::format::{Format, Readers};
use super::host::{self, Host, Identity};
use super::output::{Sink, Stream, Writer};
use super::queue::Queue;
use super::subscriber::Lane;
use super::{LogError, Running};
use crate::settings::{FileLog, LogMode, LogOutput, LogTarget};

/// All outputs, before their threads start.
pub(super) struct Outputs {
    host: Host,
    outputs: Vec<Output>,
}

struct Output {
    identity: Identity,
    place: Place,
    queue: Arc<Queue>,
    /// Of the first channel that named it.
    format: Format,
}

enum Place {
    Stdout,
    Stderr,
    File {
        path: PathBuf,
        file: File,
        rotation: Option<FileLog>,
    },
}

impl Outputs {
    pub(super) fn new(host: Host) -> Self {
        Self {
            host,
            outputs: Vec::new(),
        }
    }

    /// The outputs of a channel, those together that get the same text.
    pub(super) fn lanes(&mut self, target: &LogTarget) -> Result<Arc<[Lane]>, LogError> {
        let mut lanes: Vec<Lane> = Vec::new();
        let mut add = |(format, queue): (Format, Arc<Queue>)| {
            match lanes.iter_mut().find(|lane| lane.format == format) {
                // `stdout` and `stderr` may be one.
                Some(lane) if lane.queues.iter().any(|known| Arc::ptr_eq(known, &queue)) => {}
                Some(lane) => lane.queues.push(queue),
                None => lanes.push(Lane {
                    format,
                    queues: vec![queue],
                }),
            }
        };
        match &target.file {
            _ if target.mode == LogMode::Off => {}
            Some(log) => add(self.file(target, &log.path, Some(log))?),
            None => {
                for output in &target.output {
                    add(match output {
                        LogOutput::Stdout => self.standard(target, Place::Stdout),
                        LogOutput::Stderr => self.standard(target, Place::Stderr),
                        LogOutput::File(path) => self.file(target, path, None)?,
                    });
                }
            }
        }
        Ok(lanes.into())
    }

    fn standard(&mut self, target: &LogTarget, place: Place) -> (Format, Arc<Queue>) {
        let standard = match place {
            Place::Stdout => &self.host.stdout,
            Place::Stderr | Place::File { .. } => &self.host.stderr,
        };
        let readers = Readers {
            terminal: self.host.terminal(standard.is_terminal),
            octane: self.host.octane,
            journal: standard.is_journal,
        };
        let format = Format::new(target, readers);
        let identity = standard.identity;
        let known = self.outputs.iter().find(|o| o.identity == identity);
        let queue = match known {
            Some(output) => output.queue.clone(),
            None => self.add(identity, place, &format),
        };
        (format, queue)
    }

    fn file(
        &mut self,
        target: &LogTarget,
        path: &Path,
        rotation: Option<&FileLog>,
    ) -> Result<(Format, Arc<Queue>), LogError> {
        let path = self.host.folder.join(path);
        let file = file::open(&self.host.folder, &path)?;
        let readers = Readers {
            terminal: self.host.terminal(file.is_terminal()),
            octane: self.host.octane,
            journal: false,
        };
        let format = Format::new(target, readers);
        let identity = host::identity(&file)?;
        // Only a file can be replaced; what else has a path stays what it is.
        let rotation = rotation
            .filter(|_| file.metadata().is_ok_and(|metadata| metadata.is_file()))
            .cloned();
        let known = self.outputs.iter_mut().find(|o| o.identity == identity);
        let queue = if let Some(output) = known {
            output.rotate(rotation)?;
            output.queue.clone()
        } else {
            let place = Place::File {
                path,
                file,
                rotation,
            };
            self.add(identity, place, &format)
        };
        Ok((format, queue))
    }

    fn add(&mut self, identity: Identity, place: Place, format: &Format) -> Arc<Queue> {
        let queue = Arc::new(Queue::default());
        self.outputs.push(Output {
            identity,
            place,
            queue: queue.clone(),
            format: format.clone(),
        });
        queue
    }

    /// Starts a thread for each.
    pub(super) fn start(self) -> io::Result<Vec<Running>> {
        let Self { host, outputs } = self;
        let complaints = |output: &Output| Arc::new(Complaints::new(&output.place.name(), &host));
        let complaints: Vec<_> = outputs.iter().map(complaints).collect();
        let (mut stdout, mut stderr) = (Some(host.stdout.out), Some(host.stderr.out));
        let mut running = Vec::with_capacity(outputs.len());
        for (output, complaints) in outputs.into_iter().zip(complaints) {
            let path = output.place.path();
            let sink = match output.place {
                Place::Stdout => stdout.take().map(Stream::new).map(Sink::Stream),
                Place::Stderr => stderr.take().map(Stream::new).map(Sink::Stream),
                Place::File {
                    file,
                    rotation: None,
                    ..
                } => Some(Sink::Stream(Stream::new(Box::new(file)))),
                Place::File {
                    path,
                    file,
                    rotation: Some(log),
                } => {
                    let clock = host.clock.clone();
                    let path = begin_in(&host.folder, &path);
                    let file = Rotating::new(&path, file, &log, clock, complaints.clone());
                    Some(Sink::Rotating(file))
                }
            };
            let writer = Writer {
                queue: output.queue.clone(),
                sink: sink.expect("each identity has one output"),
                format: output.format,
                complaints,
                clock: host.clock.clone(),
            };
            running.push(Running {
                queue: output.queue,
                path,
                working: host.folder.clone(),
                thread: Some(
                    thread::Builder::new()
                        .name("logs".to_owned())
                        .spawn(move || writer.run())?,
                ),
            });
        }
        Ok(running)
    }
}

impl Output {
    /// One channel with limits is enough; two must agree.
    fn rotate(&mut self, new: Option<FileLog>) -> Result<(), LogError> {
        match (&mut self.place, new) {
            (
                Place::File {
                    path,
                    rotation: Some(known),
                    ..
                },
                Some(new),
            ) if !known.has_limits_of(&new) => Err(LogError::TwoLimits(path.clone())),
            (Place::File { rotation, .. }, Some(new)) => {
                *rotation = Some(new);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl FileLog {
    fn has_limits_of(&self, other: &Self) -> bool {
        let limits = |log: &Self| (log.max_size, log.max_age, log.max_backups, log.compress);
        limits(self) == limits(other)
    }
}

impl Place {
    fn path(&self) -> Option<PathBuf> {
        match self {
            Self::File { path, .. } => Some(path.clone()),
            Self::Stdout | Self::Stderr => None,
        }
    }

    /// In a sentence.
    fn name(&self) -> String {
        match self {
            Self::Stdout => "standard output".to_owned(),
            Self::Stderr => "standard error".to_owned(),
            Self::File { path, .. } => format!("`{}`", path.display()),
        }
    }
}
