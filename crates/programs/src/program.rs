//! A program: its processes by their indexes, and how all of them are started, stopped and
//! replaced.
//!
//! While one may not start yet, because of its `order` or of the programs of the process before, it
//! stands in line: `Programs::start_all` starts it in its turn. A stop takes it out, so that it
//! stays stopped.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use pronghorn_base::{lock, since_1970};
use pronghorn_plugin_api::ProcessWait;
use pronghorn_process::NamedSignal;
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio_util::sync::CancellationToken;

use crate::instance::{Facts, Handle, InstanceOrder, Refused, Spec, Surroundings};
use crate::machine::ProcessState;
use crate::said::Hearing;
use crate::settings::Replace;

#[derive(Debug)]
pub(crate) struct Program {
    spec: Mutex<Arc<Spec>>,
    slots: Mutex<Vec<Handle>>,
    pub(crate) hearing: Arc<Hearing>,
    around: Surroundings,
    /// Whether it was created over RPC.
    pub(crate) was_created: bool,
    /// Held by whoever starts or replaces processes.
    changing: AsyncMutex<()>,
    /// The thing that it waits for in line; None where it does not stand in line.
    line: watch::Sender<Option<ProcessWait>>,
    /// During a restart, the other process of an index: first the new one, then the old one.
    beside: Mutex<Option<Handle>>,
    /// Ends restarts that began before: a stop does not wait for them. It then has a new one.
    until_stop: Mutex<CancellationToken>,
    /// Nothing is started any more.
    stopping: CancellationToken,
}

/// The answer to whoever starts something while the server stops.
const STOPPING: &str = "the server is stopping";

fn waiting_for(what: &str) -> ProcessWait {
    ProcessWait {
        what: what.to_owned(),
        since: since_1970(SystemTime::now()),
    }
}

/// Whether a restart starts what is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Idle {
    Starts,
    Stays,
}

impl Program {
    /// One that is stopped.
    pub(crate) fn new(
        spec: Spec,
        around: Surroundings,
        was_created: bool,
        stopping: CancellationToken,
    ) -> Self {
        let hearing = Arc::new(Hearing::new(&spec.name));
        let spec = Arc::new(spec);
        let program = Self {
            spec: Mutex::new(spec.clone()),
            slots: Mutex::default(),
            hearing,
            around,
            was_created,
            changing: AsyncMutex::default(),
            line: watch::Sender::default(),
            beside: Mutex::default(),
            until_stop: Mutex::new(stopping.child_token()),
            stopping,
        };
        let slots = (0..spec.settings.process_num).map(|index| program.slot(index, &spec));
        let slots = slots.collect();
        *lock(&program.slots) = slots;
        program
    }

    fn slot(&self, index: u32, spec: &Arc<Spec>) -> Handle {
        let (spec, hearing) = (spec.clone(), self.hearing.clone());
        Handle::new(index, spec, hearing, self.around.clone())
    }

    pub(crate) fn spec(&self) -> Arc<Spec> {
        lock(&self.spec).clone()
    }

    pub(crate) fn slots(&self) -> Vec<Handle> {
        lock(&self.slots).clone()
    }

    pub(crate) fn facts(&self) -> Vec<(u32, Facts)> {
        let wait = self.line.borrow().clone();
        let beside = lock(&self.beside).clone();
        let facts = |slot: Handle| {
            let mut facts = slot.facts();
            if facts.state == ProcessState::Stopped && wait.is_some() {
                (facts.state, facts.waits) = (ProcessState::Starting, wait.clone());
            }
            if let Some(other) = beside.as_ref().filter(|it| it.index == slot.index) {
                facts.waits = other.facts().waits;
            }
            (slot.index, facts)
        };
        self.slots().into_iter().map(facts).collect()
    }

    /// It is to start when others have come up, or have ended.
    pub(crate) fn line_up(&self, what: &str) {
        self.line.send_replace(Some(waiting_for(what)));
    }

    /// The same while the process before has programs; says whether that is so. They may go
    /// meanwhile: then [`start_in_line`](Self::start_in_line) comes later and finds it in line.
    fn lines_up(&self) -> bool {
        let before = &self.around.before;
        let mut lines_up = false;
        self.line.send_if_modified(|line| {
            lines_up = before.are_there();
            let is_new = lines_up && line.is_none();
            if is_new {
                *line = Some(waiting_for(&before.wait()));
            }
            is_new
        });
        lines_up
    }

    /// Names what it waits for from now on.
    pub(crate) fn update_wait(&self, what: &str) {
        self.line.send_if_modified(|line| {
            let wait = line.as_mut();
            wait.map(|wait| what.clone_into(&mut wait.what)).is_some()
        });
    }

    /// Whether it is still to start; somebody may have started or stopped it.
    pub(crate) fn is_in_line(&self) -> bool {
        self.line.borrow().is_some()
    }

    fn leave_line(&self) {
        self.line.send_replace(None);
    }

    /// Whether it could be started by these settings, before anything is stopped for it.
    pub(crate) fn look_up(&self, spec: &Spec) -> Result<(), Refused> {
        self.around.look_up(spec)
    }

    /// Starts all processes that are not there, or lines up where that may not be yet.
    ///
    /// # Errors
    ///
    /// When one can't be started; whether they come up shows later.
    pub(crate) async fn start(&self) -> Result<(), String> {
        if self.stopping.is_cancelled() {
            return Err(STOPPING.to_owned());
        }
        if self.lines_up() {
            return Ok(());
        }
        let _changing = self.changing.lock().await;
        self.start_processes().await
    }

    /// Starts it in its turn, unless somebody has stopped it meanwhile.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub(crate) async fn start_in_line(&self) -> Result<(), String> {
        let _changing = self.changing.lock().await;
        if !self.is_in_line() {
            return Ok(());
        }
        self.start_processes().await
    }

    async fn start_processes(&self) -> Result<(), String> {
        if self.stopping.is_cancelled() {
            return Err(STOPPING.to_owned());
        }
        let mut started = Ok(());
        for slot in self.slots() {
            let starts = slot.facts().starts;
            slot.tell(InstanceOrder::Start).await;
            let facts = slot.facts();
            if !facts.state.has_process() && facts.starts == starts && !facts.was_expected {
                started = Err(facts.last.unwrap_or_default());
                break;
            }
        }
        self.leave_line();
        started
    }

    /// Waits until each process is up, or it is known that it will not be for now.
    pub(crate) async fn settled(&self) -> Result<(), String> {
        // An error would say that the program is gone.
        _ = self.line.subscribe().wait_for(Option::is_none).await;
        let mut settled = Ok(());
        for slot in self.slots() {
            settled = settled.and(slot.came_up().await);
        }
        settled
    }

    /// Stops all processes at once, and waits for their ends. `within` is the time for it, if that
    /// is less than the program's own.
    pub(crate) async fn stop(&self, within: Option<Duration>) {
        self.leave_line();
        self.end_restarts();
        let _changing = self.changing.lock().await;
        self.tell_and_wait(&InstanceOrder::Stop(within)).await;
    }

    /// The same for good.
    pub(crate) async fn remove(&self) {
        self.leave_line();
        self.end_restarts();
        let _changing = self.changing.lock().await;
        self.tell_and_wait(&InstanceOrder::Remove).await;
        lock(&self.slots).clear();
    }

    fn end_restarts(&self) {
        let next = self.stopping.child_token();
        std::mem::replace(&mut *lock(&self.until_stop), next).cancel();
    }

    /// Tells all processes, also that which a restart has left beside another.
    async fn tell_and_wait(&self, order: &InstanceOrder) {
        let processes = self.processes();
        for process in &processes {
            process.tell(order.clone()).await;
        }
        for process in &processes {
            process.is_gone().await;
        }
        *lock(&self.beside) = None;
    }

    fn processes(&self) -> Vec<Handle> {
        let mut processes = self.slots();
        processes.extend(lock(&self.beside).clone());
        processes
    }

    /// The number of processes that are there.
    pub(crate) fn count(&self) -> usize {
        let processes = self.processes().into_iter();
        processes.filter(|it| it.facts().pid.is_some()).count()
    }

    /// Kills all processes at once.
    pub(crate) async fn cut_off(&self) {
        for process in self.processes() {
            process.cut_off().await;
        }
    }

    /// Whether somebody has stopped it, or nobody has started it yet.
    pub(crate) fn is_idle(&self) -> bool {
        let slots = self.slots();
        let is_stopped = |slot: &Handle| slot.facts().state == ProcessState::Stopped;
        !slots.is_empty() && slots.iter().all(is_stopped)
    }

    /// Sends a signal to all processes, or to that of one index. Says how many there were.
    pub(crate) async fn signal(&self, signal: NamedSignal, index: Option<u32>) -> usize {
        let mut signalled = 0;
        for slot in self.slots() {
            let is_meant = index.is_none_or(|index| index == slot.index);
            if is_meant && slot.facts().pid.is_some() {
                slot.tell(InstanceOrder::Signal(signal)).await;
                signalled += 1;
            }
        }
        signalled
    }

    /// These settings hold from the next start on; the number of processes from the next restart
    /// on.
    pub(crate) async fn update(&self, spec: Arc<Spec>) {
        for slot in self.slots() {
            slot.tell(InstanceOrder::Settings(spec.clone())).await;
        }
        *lock(&self.spec) = spec;
    }

    /// Replaces the processes one after the other by those of `to`, with as many as that says. When
    /// a new one does not come up, the others are not touched, and those that were replaced become
    /// what they were.
    ///
    /// # Errors
    ///
    /// Why a new one did not come up, or that somebody has stopped the program meanwhile.
    pub(crate) async fn replace(&self, to: Arc<Spec>, idle: Idle) -> Result<(), String> {
        if self.stopping.is_cancelled() {
            return Err(STOPPING.to_owned());
        }
        self.look_up(&to).map_err(|why| why.to_string())?;
        let until_stop = lock(&self.until_stop).clone();
        let waits = idle == Idle::Starts && self.lines_up();
        {
            let Ok(_changing) = self.changing.try_lock() else {
                return Err("a restart is under way already".to_owned());
            };
            // None of those that wait is there.
            let idle = if waits { Idle::Stays } else { idle };
            self.exchange(to, idle, until_stop).await?;
        }
        if waits {
            return self.settled().await;
        }
        Ok(())
    }

    /// Replaces the processes by new ones with the same settings, after a restart that is under
    /// way: that may have begun too early.
    ///
    /// # Errors
    ///
    /// As [`replace`](Self::replace).
    pub(crate) async fn replace_again(&self) -> Result<(), String> {
        let until_stop = lock(&self.until_stop).clone();
        let _changing = self.changing.lock().await;
        if until_stop.is_cancelled() {
            return Ok(()); // there is nothing to replace any more
        }
        let to = self.spec();
        self.look_up(&to).map_err(|why| why.to_string())?;
        self.exchange(to, Idle::Stays, until_stop).await
    }

    /// Whoever calls it holds `changing`.
    async fn exchange(
        &self,
        to: Arc<Spec>,
        idle: Idle,
        until_stop: CancellationToken,
    ) -> Result<(), String> {
        let before = self.spec();
        let known = u32::try_from(self.slots().len()).unwrap_or(u32::MAX);
        let mut replaced = Vec::new();
        let rolling = self.roll(&to, idle, &mut replaced);
        let rolled = until_stop.run_until_cancelled(rolling).await;
        if rolled == Some(Ok(())) {
            *lock(&self.spec) = to;
            return Ok(());
        }
        // These settings hold again, for as many processes as there were.
        self.shrink(known).await;
        for slot in self.slots() {
            slot.tell(InstanceOrder::Settings(before.clone())).await;
            // Whoever has stopped the program ends the processes.
            if rolled.is_some() && to != before && replaced.contains(&slot.index) {
                slot.tell(InstanceOrder::Restart).await;
            }
        }
        rolled.unwrap_or_else(|| Err("it was stopped meanwhile".to_owned()))
    }

    /// Notes the indexes of the processes that it begins to replace by new ones in their places.
    async fn roll(
        &self,
        to: &Arc<Spec>,
        idle: Idle,
        replaced: &mut Vec<u32>,
    ) -> Result<(), String> {
        let wanted = to.settings.process_num;
        let slots = self.slots();
        for slot in slots.iter().filter(|slot| slot.index < wanted) {
            if idle == Idle::Stays && slot.facts().state == ProcessState::Stopped {
                slot.tell(InstanceOrder::Settings(to.clone())).await;
                continue;
            }
            if let Err(why) = self.replace_one(slot, to, replaced).await {
                let index = slot.index;
                return Err(format!("process {index} did not come up: {why}"));
            }
        }
        let is_idle = self.is_idle();
        let known = u32::try_from(slots.len()).unwrap_or(u32::MAX);
        for index in known..wanted {
            let slot = self.slot(index, to);
            lock(&self.slots).push(slot.clone());
            if idle == Idle::Starts || !is_idle {
                slot.tell(InstanceOrder::Start).await;
                if let Err(why) = slot.came_up().await {
                    return Err(format!("process {index} did not come up: {why}"));
                }
            }
        }
        self.shrink(wanted).await;
        Ok(())
    }

    /// Ends the processes from this index on.
    async fn shrink(&self, wanted: u32) {
        let slots = self.slots();
        let ending = slots.iter().filter(|slot| slot.index >= wanted);
        for slot in ending.clone() {
            slot.tell(InstanceOrder::Remove).await;
        }
        for slot in ending {
            slot.is_gone().await;
        }
        lock(&self.slots).retain(|slot| slot.index < wanted);
    }

    async fn replace_one(
        &self,
        slot: &Handle,
        to: &Arc<Spec>,
        replaced: &mut Vec<u32>,
    ) -> Result<(), String> {
        let beside = to.settings.replace == Replace::StartFirst;
        if beside && slot.facts().state.has_process() {
            let new = self.slot(slot.index, to);
            // Noted as long as it is there: whoever stops the program meanwhile ends both.
            *lock(&self.beside) = Some(new.clone());
            new.tell(InstanceOrder::Start).await;
            if let Err(why) = new.came_up().await {
                new.tell(InstanceOrder::Remove).await;
                new.is_gone().await;
                *lock(&self.beside) = None;
                return Err(why);
            }
            // From here on the new one is the program's, whatever becomes of this restart.
            for known in lock(&self.slots).iter_mut() {
                if known.index == new.index {
                    *known = new.clone();
                }
            }
            *lock(&self.beside) = Some(slot.clone());
            replaced.push(slot.index);
            slot.tell(InstanceOrder::Remove).await;
            slot.is_gone().await;
            *lock(&self.beside) = None;
            return Ok(());
        }
        replaced.push(slot.index);
        slot.tell(InstanceOrder::Settings(to.clone())).await;
        slot.tell(InstanceOrder::Restart).await;
        slot.came_up().await
    }
}
