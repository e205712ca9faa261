//! All programs of a server.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pronghorn_base::{BoxFuture, lock};
use pronghorn_config::show_duration;
use pronghorn_process::{Credentials, LookupError, Mark};
use pronghorn_workers::{Watch, Watching};
use thiserror::Error;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::channel::record;
use crate::instance::{Refused, Spec, Surroundings};
use crate::machine::ProcessState;
use crate::program::{Idle, Program};
use crate::settings::ProgramSettings;

/// More are a mistake: each is a process at least.
const MOST: usize = 1_000;

/// Clones are the same ones.
#[derive(Clone, Debug)]
pub(crate) struct Programs(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    programs: Mutex<BTreeMap<String, Arc<Program>>>,
    watches: Mutex<BTreeMap<String, Watched>>,
    /// Restarts that changed files have led to: at most one for each watch.
    restarts: Arc<Mutex<JoinSet<()>>>,
    around: Surroundings,
    /// Nothing is started any more.
    stopping: CancellationToken,
}

/// The watch over the files of a program, and what is watched.
#[derive(Debug)]
struct Watched {
    watching: Watching,
    directory: PathBuf,
    _watch: Watch,
}

/// Why a program is not there, or can't be. The texts are RoadRunner's where it has some.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum ProgramsError {
    #[error("the service with {0} name already exists")]
    Exists(String),
    #[error("the service with {0} name doesn't exist")]
    Missing(String),
    /// The same for methods of ours.
    #[error("there is no program `{0}`")]
    Unknown(String),
    #[error("the service with {0} name should have at least 1 process")]
    NoProcess(String),
    #[error("there are {MOST} programs already")]
    Full,
    #[error("the server is stopping")]
    Stopping,
    /// The operator's: what is written for its user, its command or its start.
    #[error("{name}: {why}")]
    NotStarted { name: String, why: String },
}

impl Programs {
    pub(crate) fn new(around: Surroundings, stopping: CancellationToken) -> Self {
        Self(Arc::new(Inner {
            programs: Mutex::default(),
            watches: Mutex::default(),
            restarts: Arc::default(),
            around,
            stopping,
        }))
    }

    /// A program with its user.
    pub(crate) fn spec(name: &str, settings: ProgramSettings) -> Result<Spec, Refused> {
        let user = user(&settings)?;
        Ok(Spec {
            name: name.to_owned(),
            settings,
            user,
        })
    }

    pub(crate) fn names(&self) -> Vec<String> {
        lock(&self.0.programs).keys().cloned().collect()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Program>> {
        lock(&self.0.programs).values().cloned().collect()
    }

    pub(crate) fn get(&self, name: &str) -> Result<Arc<Program>, ProgramsError> {
        let found = lock(&self.0.programs).get(name).cloned();
        found.ok_or_else(|| ProgramsError::Missing(name.to_owned()))
    }

    /// Adds one that is stopped.
    pub(crate) fn add(&self, spec: Spec, was_created: bool) -> Result<Arc<Program>, ProgramsError> {
        let mut programs = lock(&self.0.programs);
        if self.0.stopping.is_cancelled() {
            return Err(ProgramsError::Stopping);
        }
        if programs.contains_key(&spec.name) {
            return Err(ProgramsError::Exists(spec.name));
        }
        if programs.len() >= MOST {
            return Err(ProgramsError::Full);
        }
        let name = spec.name.clone();
        let (around, stopping) = (self.0.around.clone(), self.0.stopping.clone());
        let program = Arc::new(Program::new(spec, around, was_created, stopping));
        programs.insert(name, program.clone());
        Ok(program)
    }

    /// Starts one, or nothing of it.
    pub(crate) async fn create(&self, spec: Spec) -> Result<(), ProgramsError> {
        let name = spec.name.clone();
        let refused = |why| ProgramsError::NotStarted {
            name: spec.name.clone(),
            why,
        };
        let found = self.0.around.look_up(&spec);
        found.map_err(|why| refused(why.to_string()))?;
        let program = self.add(spec, true)?;
        if let Err(why) = program.start().await {
            self.remove(&name).await?;
            return Err(ProgramsError::NotStarted { name, why });
        }
        Ok(())
    }

    /// Stops one for good; returns when it is gone.
    pub(crate) async fn remove(&self, name: &str) -> Result<(), ProgramsError> {
        let program = self.get(name)?;
        lock(&self.0.watches).remove(name);
        program.remove().await;
        let mut programs = lock(&self.0.programs);
        // Another one may have its name meanwhile.
        if programs
            .get(name)
            .is_some_and(|known| Arc::ptr_eq(known, &program))
        {
            programs.remove(name);
        }
        Ok(())
    }

    /// All that are to start with the server wait for this, until [`start_all`](Self::start_all).
    pub(crate) fn line_up(&self, what: &str) {
        for program in self.all() {
            if program.spec().settings.autostart {
                program.line_up(what);
            }
        }
    }

    /// Starts all that wait for it, in their order.
    pub(crate) async fn start_all(&self) -> Result<(), ProgramsError> {
        let groups = by_order(self.all());
        let last = groups.len().saturating_sub(1);
        for at in 0..groups.len() {
            let mut group = groups[at].clone();
            // Also those that somebody else starts.
            for program in &group {
                self.watch(program);
            }
            group.retain(|program| program.is_in_line());
            for program in &group {
                if self.0.stopping.is_cancelled() {
                    return Err(ProgramsError::Stopping);
                }
                program
                    .start_in_line()
                    .await
                    .map_err(|why| ProgramsError::NotStarted {
                        name: program.spec().name.clone(),
                        why,
                    })?;
            }
            if at == last {
                break;
            }
            for program in group {
                let what = format!("`{}` (`order`)", program.spec().name);
                let later = groups[at + 1..].iter().flatten();
                later.for_each(|later| later.update_wait(&what));
                self.wait_for(&program).await;
            }
        }
        Ok(())
    }

    /// Waits until a program is up, or has failed: its records say why, and those after it may do
    /// without.
    async fn wait_for(&self, program: &Program) {
        /// Before the first record, and the longest pause between two.
        const FIRST: Duration = Duration::from_secs(2);
        const LONGEST: Duration = Duration::from_secs(10);
        let (mut settled, mut pause) = (pin!(program.settled()), FIRST);
        let mut waited = Duration::ZERO;
        while timeout(pause, &mut settled).await.is_err() {
            waited += pause;
            pause = (pause * 2).min(LONGEST);
            let spec = program.spec();
            record!(
                self.0.around.channel,
                info,
                program = spec.name,
                "the start has waited {} for it to come up (at most {}, `start_timeout`): programs with a higher `order` start after it, and then the server",
                show_duration(waited),
                show_duration(spec.settings.start_timeout)
            );
        }
    }

    /// Stops all in the reverse order, each of them in a share of the time that is left. Says how
    /// many processes were still there in the end.
    pub(crate) async fn stop_all(&self, deadline: Instant) -> usize {
        /// Kills take a moment, too.
        const KILLING: Duration = Duration::from_millis(500);
        self.0.stopping.cancel();
        lock(&self.0.watches).clear();
        let mut groups = by_order(self.all());
        while let Some(group) = groups.pop() {
            let shares = u32::try_from(groups.len() + 1).unwrap_or(u32::MAX);
            let left = deadline.saturating_duration_since(Instant::now());
            let share = left.saturating_sub(KILLING) / shares;
            let mut stops: JoinSet<()> = JoinSet::new();
            for program in group {
                stops.spawn(async move { program.stop(Some(share)).await });
            }
            let all = async { while stops.join_next().await.is_some() {} };
            // A process that is left after that waits for a disk.
            _ = timeout(share + KILLING, all).await;
        }
        let programs = std::mem::take(&mut *lock(&self.0.programs));
        let left = programs.values().map(|program| program.count()).sum();
        if left > 0 {
            let all = async {
                for program in programs.values() {
                    program.cut_off().await;
                }
                // Whatever they have started: when this one is done, those before it are.
                let sweeper = self.0.around.spawner.sweeper();
                sweeper.sweep(Mark::new()).await
            };
            _ = timeout(2 * KILLING, all).await;
        }
        left
    }

    /// Restarts a program when files change, if its settings say so.
    pub(crate) fn watch(&self, program: &Arc<Program>) {
        let spec = program.spec();
        let Some(watching) = spec.settings.watch.clone() else {
            lock(&self.0.watches).remove(&spec.name);
            return;
        };
        let directory = self.0.around.directory_of(&spec);
        let known = |it: &Watched| it.watching == watching && it.directory == directory;
        // A new watch would not know what has changed a moment ago.
        if lock(&self.0.watches).get(&spec.name).is_some_and(known) {
            return;
        }
        let (name, of) = (spec.name.clone(), Arc::downgrade(program));
        let (channel, restarts) = (self.0.around.channel, self.0.restarts.clone());
        let react = move |file: PathBuf| -> BoxFuture<'static, ()> {
            let (name, of, restarts) = (name.clone(), of.clone(), restarts.clone());
            Box::pin(async move {
                let Some(program) = of.upgrade().filter(|program| !program.is_idle()) else {
                    return;
                };
                record!(
                    channel,
                    info,
                    program = name,
                    "{} changed: it is restarted",
                    file.display()
                );
                let (done, is_done) = oneshot::channel::<()>();
                {
                    // A restart goes on where the watch ends with a reload.
                    let mut restarts = lock(&restarts);
                    while restarts.try_join_next().is_some() {}
                    restarts.spawn(async move {
                        if let Err(why) = program.replace_again().await {
                            record!(channel, error, program = name, "not restarted: {why}");
                        }
                        drop(done);
                    });
                }
                _ = is_done.await; // an error says that it is done
            })
        };
        let watch = Watch::with(watching.clone(), &directory, Vec::new(), react);
        match watch {
            Ok(watch) => {
                let watched = Watched {
                    watching,
                    directory,
                    _watch: watch,
                };
                lock(&self.0.watches).insert(spec.name.clone(), watched);
            }
            Err(error) => {
                record!(
                    self.0.around.channel,
                    warn,
                    program = spec.name,
                    "files can't be watched: {error}"
                );
            }
        }
    }

    /// Goes over to these programs, beside those that were created over RPC. Returns before all of
    /// it is done where that takes long.
    ///
    /// # Errors
    ///
    /// Why a program goes on as it was.
    pub(crate) async fn renew(
        &self,
        to: Vec<(String, ProgramSettings)>,
    ) -> Result<(), Vec<String>> {
        /// A program may have an hour for its stop, and other services wait for this one.
        const LONGEST: Duration = Duration::from_secs(60);
        let (mut specs, mut wrong) = (Vec::new(), Vec::new());
        for (name, settings) in to {
            match self.judge(&name, settings) {
                Ok(spec) => specs.push(spec),
                Err(why) => wrong.push(why),
            }
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        let mut changes: JoinSet<Result<(), String>> = JoinSet::new();
        for program in self.all() {
            let spec = program.spec();
            let stays = specs.iter().any(|to| to.name == spec.name);
            if !stays && !program.was_created {
                let programs = self.clone();
                changes.spawn(async move {
                    _ = programs.remove(&spec.name).await; // it is gone already
                    Ok(())
                });
            }
        }
        for spec in specs {
            let programs = self.clone();
            changes.spawn(async move { programs.renew_one(spec).await });
        }
        let all = async {
            let mut wrong = Vec::new();
            while let Some(changed) = changes.join_next().await {
                wrong.extend(changed.ok().and_then(Result::err));
            }
            wrong
        };
        match timeout(LONGEST, all).await {
            Ok(wrong) if wrong.is_empty() => Ok(()),
            Ok(wrong) => Err(wrong),
            Err(_) => {
                record!(
                    self.0.around.channel,
                    info,
                    "programs are still being restarted; their records tell how that goes on"
                );
                changes.detach_all();
                Ok(())
            }
        }
    }

    /// Before anything is stopped for it.
    fn judge(&self, name: &str, settings: ProgramSettings) -> Result<Spec, String> {
        let refused = |why: Refused| format!("{name}: {why}");
        let spec = Self::spec(name, settings).map_err(refused)?;
        let is_same = self.get(name).is_ok_and(|known| *known.spec() == spec);
        if is_same || !spec.settings.autostart {
            return Ok(spec);
        }
        self.0.around.look_up(&spec).map_err(refused)?;
        Ok(spec)
    }

    async fn renew_one(&self, spec: Spec) -> Result<(), String> {
        let name = spec.name.clone();
        let tell = |why: String| {
            let why = format!("{name}: {why}");
            record!(
                self.0.around.channel,
                error,
                program = name,
                "the program goes on as it was: {why}"
            );
            why
        };
        let known = self.get(&name).ok();
        if let Some(known) = known.filter(|known| !known.was_created) {
            let spec = Arc::new(spec);
            if known.spec() == spec {
                return Ok(());
            }
            // Whoever has stopped another one keeps it stopped.
            let is_begun = spec.settings.autostart && !known.spec().settings.autostart;
            let (idle, what) = match (known.is_idle(), is_begun) {
                (false, _) => (Idle::Stays, "is restarted"),
                (true, true) => (Idle::Starts, "is started"),
                (true, false) => (Idle::Stays, "stays stopped"),
            };
            record!(
                self.0.around.channel,
                info,
                program = name,
                "its settings have changed: it {what}"
            );
            known.replace(spec, idle).await.map_err(tell)?;
            self.watch(&known);
            return Ok(());
        }
        // The file's takes the place of one that was created.
        _ = self.remove(&name).await;
        let autostart = spec.settings.autostart;
        let program = self.add(spec, false).map_err(|error| error.to_string())?;
        self.watch(&program);
        if autostart && let Err(why) = program.start().await {
            self.remove(&name).await.ok();
            return Err(tell(why));
        }
        Ok(())
    }

    /// Whether each process of the programs that the server needs is up.
    pub(crate) fn ready(&self) -> Result<(), String> {
        for program in self.all() {
            let spec = program.spec();
            if !spec.settings.essential {
                continue;
            }
            for (index, facts) in program.facts() {
                if facts.state != ProcessState::Running {
                    let (name, state) = (&spec.name, facts.state.name());
                    let waits = facts.waits.map(|wait| format!(", waits for {}", wait.what));
                    let waits = waits.unwrap_or_default();
                    return Err(format!("program `{name}`, process {index}: {state}{waits}"));
                }
            }
        }
        Ok(())
    }
}

/// Programs without an order between them are in one group; the lowest order comes first.
pub(crate) fn by_order(programs: Vec<Arc<Program>>) -> Vec<Vec<Arc<Program>>> {
    let mut groups: BTreeMap<i32, Vec<Arc<Program>>> = BTreeMap::new();
    for program in programs {
        let order = program.spec().settings.order;
        groups.entry(order).or_default().push(program);
    }
    groups.into_values().collect()
}

/// The user of a program; None where that is the workers'.
pub(crate) fn user(settings: &ProgramSettings) -> Result<Option<Credentials>, Refused> {
    let Some(user) = &settings.user else {
        return Ok(None);
    };
    let refused = |key, why: &dyn std::fmt::Display, hint: &str| Refused {
        key,
        message: format!("can't be used: {why}"),
        hint: hint.to_owned(),
    };
    let found = Credentials::look_up(user, settings.group.as_deref());
    let found = found.map_err(|error| match error {
        LookupError::NoSuchGroup(_) => refused("group", &error, "name another group"),
        LookupError::NoSuchUser(_) | LookupError::Database { .. } => {
            refused("user", &error, "name another user")
        }
    })?;
    if !found.is_current() && !Credentials::may_change() {
        let why = "only root may start processes of another user";
        return Err(refused(
            "user",
            &why,
            "start the server as root, or remove it",
        ));
    }
    Ok(Some(found))
}
