//! Processes that services keep running and that are no workers, for whoever shows them: commands,
//! RPC, the admin listener.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pronghorn_base::{BoxFuture, lock};
use tokio::task::JoinSet;

/// Programs that are started or replaced at the same time, if many are. Each mostly waits, for an
/// end and for `start_time`, but its boot takes a processor.
pub const PROGRAMS_AT_ONCE: usize = 8;

/// Work on programs: that of a lower order first, and [`PROGRAMS_AT_ONCE`] at a time where there is
/// no order between them. Dropped, what is under way is cut off.
#[derive(Debug)]
pub struct InOrder<F: Future> {
    waiting: BTreeMap<i32, VecDeque<F>>,
    running: JoinSet<F::Output>,
    /// The rest of the order under way.
    group: VecDeque<F>,
}

impl<F: Future<Output: Send + 'static> + Send + 'static> InOrder<F> {
    /// Nothing of it begins before [`next`](Self::next).
    pub fn new(work: impl IntoIterator<Item = (i32, F)>) -> Self {
        let mut waiting: BTreeMap<i32, VecDeque<F>> = BTreeMap::new();
        for (order, work) in work {
            waiting.entry(order).or_default().push_back(work);
        }
        Self {
            waiting,
            running: JoinSet::new(),
            group: VecDeque::new(),
        }
    }

    /// The next outcome, as it comes; None when all is done. Work that panics has none.
    pub async fn next(&mut self) -> Option<F::Output> {
        loop {
            if self.running.is_empty() && self.group.is_empty() {
                let (_, group) = self.waiting.pop_first()?;
                self.group = group;
            }
            while self.running.len() < PROGRAMS_AT_ONCE
                && let Some(work) = self.group.pop_front()
            {
                self.running.spawn(work);
            }
            if let Some(Ok(outcome)) = self.running.join_next().await {
                return Some(outcome);
            }
        }
    }
}

/// One process, or the place of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessReport {
    /// The name of the program that it belongs to.
    pub group: String,
    /// Programs of a lower one come first.
    pub order: i32,
    /// Its place there.
    pub index: u32,
    /// 0 where there is no process at the moment.
    pub pid: u32,
    /// In a word.
    pub state: String,
    /// As it was written.
    pub command: String,
    /// The start of the process, since 1970.
    pub started: Duration,
    /// The number of processes so far.
    pub starts: u64,
    /// Resident bytes.
    pub memory: u64,
    /// Processor time since its start.
    pub cpu: Duration,
    /// The reason why it is not up, while it starts.
    pub waits: Option<ProcessWait>,
}

/// The wait of a process that starts, or will start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessWait {
    /// Goes on after `waits for`.
    pub what: String,
    /// Since 1970: the begin of the wait.
    pub since: Duration,
}

type Source = Arc<dyn Fn() -> Vec<ProcessReport> + Send + Sync>;

/// Replaces the processes of the program of this name.
type Restart = Arc<dyn Fn(String) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// The processes of a server, by the services that have them. Clones are the same ones.
#[derive(Clone, Default)]
pub struct Processes(Arc<Mutex<Vec<Owner>>>);

#[derive(Clone)]
struct Owner {
    service: &'static str,
    source: Source,
    restart: Restart,
}

/// A program whose processes can be replaced.
#[derive(Clone)]
pub struct Restartable {
    /// Its name.
    pub group: String,
    /// Programs of a lower one come first.
    pub order: i32,
    owner: Owner,
}

impl Restartable {
    /// Replaces its processes one by one.
    ///
    /// # Errors
    ///
    /// Why a process did not come up.
    pub async fn restart(&self) -> Result<(), String> {
        (self.owner.restart)(self.group.clone()).await
    }

    /// The number of its processes.
    #[must_use]
    pub fn count(&self) -> usize {
        let reports = (self.owner.source)();
        let own = reports.iter().filter(|report| report.group == self.group);
        own.filter(|report| report.pid > 0).count()
    }
}

impl fmt::Debug for Restartable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Restartable").field(&self.group).finish()
    }
}

impl Processes {
    /// The service that has some says how they are asked, and how those of a program are replaced.
    /// It is asked on any thread, and must not wait.
    pub fn answer_with<F>(
        &self,
        service: &'static str,
        source: impl Fn() -> Vec<ProcessReport> + Send + Sync + 'static,
        restart: impl Fn(String) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        lock(&self.0).push(Owner {
            service,
            source: Arc::new(source),
            restart: Arc::new(move |group| Box::pin(restart(group))),
        });
    }

    /// The programs that a name means: all of a service, or the one of this name.
    #[must_use]
    pub fn restartable(&self, name: &str) -> Vec<Restartable> {
        let mut found: Vec<Restartable> = Vec::new();
        let owners = lock(&self.0).clone();
        for owner in owners {
            for ProcessReport { group, order, .. } in (owner.source)() {
                let is_meant = owner.service == name || group == name;
                if is_meant && found.last().is_none_or(|last| last.group != group) {
                    let owner = owner.clone();
                    found.push(Restartable {
                        group,
                        order,
                        owner,
                    });
                }
            }
        }
        found
    }

    /// The services that have some.
    #[must_use]
    pub fn services(&self) -> Vec<&'static str> {
        lock(&self.0).iter().map(|owner| owner.service).collect()
    }

    /// The processes of a service. None where it has none, or there is no such service.
    #[must_use]
    pub fn of(&self, service: &str) -> Option<Vec<ProcessReport>> {
        let found = lock(&self.0)
            .iter()
            .find(|owner| owner.service == service)
            .map(|owner| owner.source.clone());
        found.map(|source| source())
    }
}

impl fmt::Debug for Processes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Processes").field(&self.services()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_is_that_of_a_service_or_of_a_program() {
        let processes = Processes::default();
        let report = |group: &str, pid| ProcessReport {
            group: group.to_owned(),
            pid,
            ..ProcessReport::default()
        };
        let restarted = async |group: String| match group.as_str() {
            "a" => Ok(()),
            group => Err(format!("{group} did not come up")),
        };
        let source = move || vec![report("a", 1), report("a", 0), report("b", 2)];
        processes.answer_with("service", source, restarted);
        let names = |name| {
            let found = processes.restartable(name).into_iter();
            found.map(|it| it.group).collect::<Vec<_>>()
        };
        assert_eq!(names("service"), ["a", "b"]);
        assert_eq!(names("b"), ["b"]);
        assert_eq!(names("http"), [""; 0]);
        let found = processes.restartable("service");
        assert_eq!(found[0].count(), 1);
        assert_eq!(found[0].restart().await, Ok(()));
        let failed = Err("b did not come up".to_owned());
        assert_eq!(found[1].restart().await, failed);
    }

    #[test]
    fn processes_are_those_of_their_service() {
        let processes = Processes::default();
        assert_eq!(processes.of("service"), None);
        let restart = |_| std::future::ready(Ok(()));
        processes.answer_with("service", || vec![ProcessReport::default()], restart);
        assert_eq!(processes.services(), ["service"]);
        assert_eq!(
            processes.of("service"),
            Some(vec![ProcessReport::default()])
        );
        assert_eq!(processes.of("http"), None);
    }

    #[tokio::test]
    async fn work_is_done_in_its_order_and_eight_at_a_time() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let running = Arc::new(AtomicUsize::new(0));
        let work = (0..40).map(|number: i32| {
            let running = running.clone();
            let order = number % 2;
            let work = async move {
                let at_once = running.fetch_add(1, Ordering::Relaxed) + 1;
                tokio::task::yield_now().await;
                running.fetch_sub(1, Ordering::Relaxed);
                assert_ne!(number, 3, "one may fail");
                (order, at_once)
            };
            (order, work)
        });
        let mut all = InOrder::new(work);
        let mut outcomes = Vec::new();
        while let Some(outcome) = all.next().await {
            outcomes.push(outcome);
        }
        assert_eq!(outcomes.len(), 39);
        assert!(outcomes.is_sorted_by_key(|(order, _)| *order));
        let most = outcomes.iter().map(|(_, at_once)| *at_once).max();
        assert_eq!(most, Some(PROGRAMS_AT_ONCE));
    }
}
