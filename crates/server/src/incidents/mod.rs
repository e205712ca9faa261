//! From incidents to reports: a pool tells of one and goes on; a thread of its own writes, so that
//! a slow disk holds nobody up. Number and size of the files are bounded, and what is secret in a
//! request is masked before it is written.

use std::fs::{self, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::SystemTime;

use pronghorn_base::{Budget, LeftOut, LogThrottle, Trusted, lock, shown, since_1970};
use pronghorn_config::RequestMask;
use pronghorn_pool::{CallDetails, Incident, Incidents};
use pronghorn_store::create_state_folder;

use crate::VERSION;
use crate::reports::{Files, LONGEST, Report, ReportedRequest, files};
use crate::settings::ReportSettings;

/// Reports in a second. A crash loop says the same each time.
const MOST: u32 = 10;
/// Reports that wait for the disk.
const WAITING: usize = 64;
/// Of one text. With all of a report's texts it stays far below what is read back.
const LONGEST_TEXT: usize = 16 << 10;
const MOST_LINES: usize = 100;
const MOST_HEADERS: usize = 100;

/// Keeps what pools tell. Dropped, it writes what waits.
#[derive(Debug)]
pub(crate) struct Writer(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    folder: PathBuf,
    settings: ReportSettings,
    mask: RequestMask,
    budget: Budget,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    written: u32,
    /// Begun with the first report: most servers need none.
    thread: Option<(SyncSender<Report>, JoinHandle<()>)>,
    is_over: bool,
}

impl Writer {
    pub(crate) fn new(folder: PathBuf, settings: ReportSettings) -> Self {
        Self(Arc::new(Shared {
            folder,
            mask: RequestMask::new(settings.mask.clone()),
            settings,
            budget: Budget::per_second(MOST),
            state: Mutex::default(),
        }))
    }

    /// Where pools tell.
    pub(crate) fn incidents(&self) -> Incidents {
        if self.0.settings.keep == 0 {
            return Incidents::default();
        }
        let shared = self.0.clone();
        Incidents::new(move |incident| shared.take(incident))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.is_over = true;
        let thread = state.thread.take();
        drop(state);
        if let Some((reports, thread)) = thread {
            drop(reports);
            _ = thread.join(); // one that panicked has nothing more to write
        }
    }
}

impl Shared {
    fn take(&self, incident: Incident) {
        let Some(left_out) = self.budget.spend() else {
            return;
        };
        let mut state = lock(&self.state);
        if state.is_over {
            return;
        }
        state.written = state.written.wrapping_add(1);
        let report = self.report(incident, state.written, left_out);
        if state.thread.is_none() {
            let (reports, waiting) = sync_channel(WAITING);
            let (folder, settings) = (self.folder.clone(), self.settings.clone());
            let write = move || write_all(&folder, &settings, &waiting);
            let thread = thread::Builder::new()
                .name("reports".to_owned())
                .spawn(write);
            // Without a thread there is worse to know than this.
            state.thread = thread.ok().map(|thread| (reports, thread));
        }
        if let Some((reports, _)) = &state.thread {
            _ = reports.try_send(report); // a disk that is too slow has enough to write
        }
    }

    fn report(&self, incident: Incident, number: u32, left_out: u64) -> Report {
        let now = SystemTime::now();
        let millis = since_1970(now).as_millis();
        let kind = incident.kind.name();
        let request = incident
            .request
            .map(|what| self.request(&what, incident.details));
        Report {
            id: format!("{millis:013}-{}-{number}-{kind}", std::process::id()),
            time: date(now),
            kind: kind.to_owned(),
            group: group_of(kind, &incident.pool, &incident.cause),
            pool: incident.pool,
            pid: incident.pid,
            cause: cut(incident.cause),
            text: cut(incident.text),
            request,
            ran_ms: incident.ran.map(pronghorn_base::millis),
            split: incident.progress.map(Into::into),
            retried: incident.retried,
            memory_bytes: incident.memory,
            stack: cut_lines(incident.stack),
            stderr: cut_lines(incident.stderr),
            left_out,
            version: VERSION.to_owned(),
        }
    }

    fn request(&self, what: &str, details: Option<Box<CallDetails>>) -> ReportedRequest {
        let what = bounded(&self.mask.target(what));
        let Some(details) = details else {
            return ReportedRequest {
                what,
                ..ReportedRequest::default()
            };
        };
        let headers = details.headers.into_iter().take(MOST_HEADERS);
        let headers = headers.map(|(name, value)| {
            let value = bounded(&self.mask.header(&name, &value));
            (bounded(&name), value)
        });
        ReportedRequest {
            what,
            method: bounded(&details.method),
            target: bounded(&self.mask.target(&details.target)),
            protocol: details.protocol,
            remote_address: details.remote_address,
            request_id: details.request_id.as_deref().map(bounded),
            route: details.route.as_deref().map(bounded),
            headers: headers.collect(),
        }
    }
}

fn date(time: SystemTime) -> String {
    crate::logs::timestamp(time)
}

/// Numbers are no cause: a line, an address and a process are others the next time.
fn group_of(kind: &str, pool: &str, cause: &str) -> String {
    let mut shape = String::with_capacity(cause.len());
    for letter in cause.chars() {
        if !letter.is_ascii_digit() {
            shape.push(letter);
        } else if !shape.ends_with('#') {
            shape.push('#');
        }
    }
    let mut hasher = DefaultHasher::new();
    (kind, pool, shape).hash(&mut hasher);
    format!("{:08x}", hasher.finish() >> 32)
}

/// A text that a visitor has sent.
fn bounded(text: &str) -> String {
    shown(text).into_owned()
}

/// A text of the worker or the server.
fn cut(mut text: String) -> String {
    if text.len() > LONGEST_TEXT {
        let end = text.floor_char_boundary(LONGEST_TEXT);
        let left_out = LeftOut(text.len() - end);
        text.truncate(end);
        text.push_str(&left_out.to_string());
    }
    text
}

fn cut_lines(lines: Vec<String>) -> Vec<String> {
    let mut left = LONGEST_TEXT;
    let fits = lines.into_iter().take(MOST_LINES).take_while(|line| {
        let fits = line.len() <= left;
        left = left.saturating_sub(line.len());
        fits
    });
    fits.collect()
}

fn write_all(folder: &Path, settings: &ReportSettings, waiting: &Receiver<Report>) {
    let failures = LogThrottle::default();
    for report in waiting {
        let Err(error) = write(folder, settings, &report) else {
            continue;
        };
        if let Some(reports) = failures.should_log() {
            tracing::warn!(
                target: "server", reports, folder = %folder.display(),
                "a report can't be written: {error}"
            );
        }
    }
}

/// In one step: nobody reads half of it.
fn write(folder: &Path, settings: &ReportSettings, report: &Report) -> io::Result<()> {
    let text = serde_json::to_vec_pretty(report).map_err(io::Error::other)?;
    if text.len() as u64 > LONGEST {
        return Err(io::Error::other("it is too long"));
    }
    if let Some(state) = folder.parent() {
        create_state_folder(state)?;
    }
    Trusted::steps_of_server().make_directory(folder, 0o700)?;
    let path = folder.join(format!("{}.json", report.id));
    let unfinished = path.with_extension("new");
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&unfinished)
        .and_then(|mut file| file.write_all(&text))
        .and_then(|()| fs::rename(&unfinished, &path));
    if written.is_err() {
        _ = fs::remove_file(&unfinished); // on a full disk it is in the way
    }
    written?;
    make_room(folder, settings)
}

/// The oldest go. What only has the name of a report counts for nothing and stays: it may be a
/// folder of somebody's.
fn make_room(folder: &Path, settings: &ReportSettings) -> io::Result<()> {
    let Files { files, .. } = files(folder)?;
    let mut size: u64 = files.iter().map(|file| file.size).sum();
    let mut left = files.len();
    for file in files {
        if left <= settings.keep && size <= settings.size.bytes() {
            break;
        }
        fs::remove_file(&file.path)?;
        left -= 1;
        size = size.saturating_sub(file.size);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    use pronghorn_config::Size;
    use pronghorn_pool::IncidentKind;
    use rustix::fs::{CWD, FileType, Mode};

    use pronghorn_testkit::Directory;

    use super::*;
    use crate::reports::{Found, Reports, groups};

    fn settings(keep: usize, size: Size) -> ReportSettings {
        ReportSettings {
            keep,
            size,
            mask: vec!["token".to_owned()],
        }
    }

    fn crash(cause: &str) -> Incident {
        let target = "/a?token=abc".to_owned();
        Incident {
            kind: IncidentKind::Crash,
            pool: "default".into(),
            pid: 7,
            cause: cause.to_owned(),
            request: Some("GET /a?token=abc".into()),
            details: Some(Box::new(CallDetails {
                method: "GET".into(),
                target,
                headers: vec![("X-Token".into(), "abc".into())],
                ..CallDetails::default()
            })),
            ran: Some(Duration::from_millis(12)),
            ..Incident::default()
        }
    }

    #[test]
    fn a_report_is_kept_for_its_owner_alone_and_without_secrets() {
        let state = Directory::new();
        let folder = state.join("reports");
        let writer = Writer::new(folder.clone(), settings(10, Size::megabytes(1)));
        writer
            .incidents()
            .tell(|| crash("exit code 255 in a.php:12"));
        writer
            .incidents()
            .tell(|| crash("exit code 255 in a.php:13"));
        drop(writer);

        let Files { files, .. } = files(&folder).unwrap();
        let mode = fs::metadata(&files[0].path).unwrap().permissions().mode();
        assert_eq!((files.len(), mode & 0o777), (2, 0o600));
        let text = fs::read_to_string(&files[0].path).unwrap();
        assert!(!text.contains("abc"), "{text}");
        let Found { reports, others } = Reports::new(folder).all().unwrap();
        assert_eq!(others, Vec::<String>::new());
        let first = &reports[0];
        assert_eq!((first.kind.as_str(), first.ran_ms), ("crash", Some(12)));
        let groups = groups(&reports);
        assert_eq!((groups.len(), groups[0].reports), (1, 2));
        assert_eq!(groups[0].last, reports[1]);
    }

    #[test]
    fn the_oldest_make_room() {
        let state = Directory::new();
        let folder = state.join("reports");
        let writer = Writer::new(folder.clone(), settings(3, Size::megabytes(1)));
        for number in 0..5 {
            writer
                .incidents()
                .tell(|| crash(&format!("cause {}", "x".repeat(number))));
        }
        drop(writer);
        let reports = Reports::new(folder.clone()).all().unwrap().reports;
        let causes: Vec<_> = reports.iter().map(|report| report.cause.as_str()).collect();
        assert_eq!(causes, ["cause xx", "cause xxx", "cause xxxx"]);
        let small = settings(3, Size::kilobytes(1));
        make_room(&folder, &small).unwrap();
        let left: u64 = files(&folder)
            .unwrap()
            .files
            .iter()
            .map(|file| file.size)
            .sum();
        assert!(left <= 1 << 10);
    }

    #[test]
    fn what_only_has_the_name_of_a_report_is_told_and_left_alone() {
        let state = Directory::new();
        let folder = state.join("reports");
        let writer = Writer::new(folder.clone(), settings(2, Size::megabytes(1)));
        for cause in ["one", "two", "three"] {
            writer.incidents().tell(|| crash(cause));
            if cause == "one" {
                drop(plant(&folder));
            }
        }
        drop(writer);
        fs::write(folder.join("z-nonsense.json"), "{").unwrap();
        let Found { reports, others } = Reports::new(folder).all().unwrap();
        let causes: Vec<_> = reports.iter().map(|report| &*report.cause).collect();
        assert_eq!(
            causes,
            ["two", "three"],
            "they make room as if nothing else were there"
        );
        assert_eq!(
            others[..5],
            [
                "`0-folder.json` is a folder",
                "`0-large.json` is too long",
                "`0-link.json` is a symbolic link",
                "`0-pipe.json` is a named pipe",
                "`0-socket.json` is a socket",
            ]
        );
        assert!(
            others[5].starts_with("`z-nonsense.json` can't be read: "),
            "{others:?}"
        );
    }

    /// One of each kind, with names that come before all reports.
    fn plant(folder: &Path) -> UnixListener {
        fs::create_dir_all(folder.join("0-folder.json")).unwrap();
        let large = fs::File::create(folder.join("0-large.json")).unwrap();
        large.set_len(2 << 30).unwrap(); // without a byte on the disk
        std::os::unix::fs::symlink("/dev/zero", folder.join("0-link.json")).unwrap();
        let pipe = folder.join("0-pipe.json");
        rustix::fs::mknodat(CWD, pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
        UnixListener::bind(folder.join("0-socket.json")).unwrap()
    }

    #[test]
    fn a_disk_that_takes_nothing_holds_nobody_up() {
        let state = Directory::new();
        fs::create_dir_all(&state).unwrap();
        let file = state.join("a file");
        fs::write(&file, "").unwrap();
        let writer = Writer::new(file, settings(3, Size::megabytes(1)));
        for _ in 0..100 {
            writer.incidents().tell(|| crash("cause"));
        }
    }
}
