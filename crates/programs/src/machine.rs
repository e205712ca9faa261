//! The life of one process of a program: states and what moves them, without a clock and
//! without processes, so that a random test can hold it to its promises:
//!
//! - there is never a second process beside one that runs;
//! - nothing is started after [`Event::Remove`];
//! - what has given up, or was stopped, is started only when somebody says so.

use std::time::Duration;

use pronghorn_base::Backoff;

/// Where the process of one index stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessState {
    /// Somebody has stopped it, or nobody has started it yet.
    Stopped,
    /// It has a process that is not up yet.
    Starting,
    Running,
    /// Its process has ended, and the next one comes after a pause.
    Waiting,
    /// Its process was asked to end.
    Stopping(Then),
    /// It has ended, and that was all.
    Exited,
    /// It was started too often in vain.
    GaveUp,
    /// For good: nothing is ever started again.
    Removed,
}

/// The step after the end of a process that was asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Stay,
    Again,
    /// As if it had ended by itself.
    Judge(Why),
    Remove,
}

/// Why the server ends a process by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// It has not come up in time.
    StartTimedOut,
    /// Its health command has failed too often.
    Unhealthy,
    /// It takes more memory than it may.
    Memory,
    /// It has run for as long as it may.
    Time,
}

/// Something that happens to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Somebody wants it to run.
    Start,
    /// Somebody wants it to be stopped.
    Stop,
    /// Somebody wants a new process.
    Restart,
    /// The program is no more.
    Remove,
    /// The process could not be started.
    NotStarted,
    CameUp,
    Ended {
        /// Whether it has ended as it should.
        expected: bool,
        lived: Duration,
    },
    PauseOver,
    Unfit(Why),
}

/// A step that the driver takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Action {
    Nothing,
    /// Starts a process.
    Spawn,
    /// Asks the process to end, and kills it if it does not.
    End,
    /// [`Event::PauseOver`] is to follow after so long.
    Pause(Duration),
}

/// When a process that has ended is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Restart {
    #[default]
    No,
    /// When it has not ended as it should.
    OnFailure,
    Always,
}

/// The pause before a process is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// As RoadRunner has it.
    Fixed(Duration),
    /// It doubles from failure to failure.
    Growing { first: Duration, longest: Duration },
}

impl Pause {
    /// A process that has lived for so long was no failure.
    const fn longest(self) -> Duration {
        match self {
            Self::Fixed(pause) => pause,
            Self::Growing { longest, .. } => longest,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) restart: Restart,
    pub(crate) pause: Pause,
    /// Failures in a row after which it is given up.
    pub(crate) most_failures: Option<u32>,
}

#[derive(Debug)]
pub(crate) struct Machine {
    rules: Rules,
    state: ProcessState,
    backoff: Backoff,
    failures: u32,
}

impl Machine {
    pub(crate) const fn new(rules: Rules) -> Self {
        Self {
            rules,
            state: ProcessState::Stopped,
            backoff: backoff(rules.pause),
            failures: 0,
        }
    }

    pub(crate) const fn state(&self) -> ProcessState {
        self.state
    }

    /// In a row.
    pub(crate) const fn failures(&self) -> u32 {
        self.failures
    }

    /// From the next event on.
    pub(crate) fn set_rules(&mut self, rules: Rules) {
        if self.rules.pause != rules.pause {
            self.backoff = backoff(rules.pause);
        }
        self.rules = rules;
    }

    pub(crate) fn step(&mut self, event: Event) -> Action {
        use ProcessState::{
            Exited, GaveUp, Removed, Running, Starting, Stopped, Stopping, Waiting,
        };
        match (self.state, event) {
            (Removed, _) => Action::Nothing,
            (Stopped | Exited | GaveUp | Waiting, Event::Start | Event::Restart) => self.begin(),
            (Stopped | Exited | GaveUp | Waiting, Event::Stop) => self.become_(Stopped),
            (Stopped | Exited | GaveUp | Waiting, Event::Remove) => self.become_(Removed),
            (Starting | Running, Event::Stop) => self.end(Then::Stay),
            (Starting | Running, Event::Restart) => self.end(Then::Again),
            (Starting | Running, Event::Remove) => self.end(Then::Remove),
            (Starting | Running, Event::Unfit(why)) => self.end(Then::Judge(why)),
            (Starting, Event::CameUp) => self.become_(Running),
            (Starting, Event::NotStarted) if self.rules.restart == Restart::No => {
                self.become_(GaveUp)
            }
            (Starting, Event::NotStarted) => self.failed(Duration::ZERO),
            (Starting, Event::Ended { expected, lived }) => match self.rules.restart {
                Restart::No => self.become_(Exited),
                Restart::OnFailure if expected => self.become_(Exited),
                // However well it has ended: started again and again, it would never be up.
                Restart::OnFailure | Restart::Always => self.failed(lived),
            },
            (Running, Event::Ended { expected, lived }) => self.judge(expected, lived),
            // Somebody who starts what is about to end wants the next one.
            (Stopping(Then::Stay | Then::Judge(_)), Event::Start | Event::Restart) => {
                self.become_(Stopping(Then::Again))
            }
            (Stopping(Then::Again | Then::Judge(_)), Event::Stop) => {
                self.become_(Stopping(Then::Stay))
            }
            (Stopping(_), Event::Remove) => self.become_(Stopping(Then::Remove)),
            (Stopping(then), Event::Ended { lived, .. }) => match then {
                Then::Stay => self.become_(Stopped),
                Then::Remove => self.become_(Removed),
                Then::Again => self.begin(),
                Then::Judge(Why::Memory | Why::Time) => self.replace(),
                Then::Judge(Why::StartTimedOut | Why::Unhealthy) => self.judge(false, lived),
            },
            (Waiting, Event::PauseOver) => {
                self.state = Starting;
                Action::Spawn
            }
            // Events that come too late, or say what is so already.
            (
                Stopped | Starting | Running | Waiting | Stopping(_) | Exited | GaveUp,
                Event::Start
                | Event::Stop
                | Event::Restart
                | Event::NotStarted
                | Event::CameUp
                | Event::Ended { .. }
                | Event::PauseOver
                | Event::Unfit(_),
            ) => Action::Nothing,
        }
    }

    fn become_(&mut self, state: ProcessState) -> Action {
        self.state = state;
        Action::Nothing
    }

    /// A command to start also forgets earlier failures.
    fn begin(&mut self) -> Action {
        self.backoff.reset();
        self.failures = 0;
        self.state = ProcessState::Starting;
        Action::Spawn
    }

    fn end(&mut self, then: Then) -> Action {
        self.state = ProcessState::Stopping(then);
        Action::End
    }

    /// Judges the end of one that was up.
    fn judge(&mut self, expected: bool, lived: Duration) -> Action {
        match self.rules.restart {
            Restart::No => self.become_(ProcessState::Exited),
            Restart::OnFailure if expected => self.become_(ProcessState::Exited),
            Restart::Always if expected => self.replace(),
            Restart::OnFailure | Restart::Always => self.failed(lived),
        }
    }

    /// After an end that is no failure and not the last one.
    fn replace(&mut self) -> Action {
        if self.rules.restart == Restart::No {
            return self.become_(ProcessState::Exited);
        }
        self.backoff.reset();
        self.failures = 0;
        self.state = ProcessState::Waiting;
        Action::Pause(match self.rules.pause {
            Pause::Fixed(pause) => pause,
            Pause::Growing { first, .. } => first,
        })
    }

    fn failed(&mut self, lived: Duration) -> Action {
        self.backoff.succeeded_for(lived);
        if lived >= self.rules.pause.longest() {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        let is_over = |most| self.failures >= most;
        if self.rules.most_failures.is_some_and(is_over) {
            return self.become_(ProcessState::GaveUp);
        }
        self.state = ProcessState::Waiting;
        Action::Pause(match self.rules.pause {
            Pause::Fixed(pause) => pause,
            Pause::Growing { .. } => self.backoff.next_wait(),
        })
    }
}

const fn backoff(pause: Pause) -> Backoff {
    match pause {
        Pause::Fixed(pause) => Backoff::new(pause, pause),
        Pause::Growing { first, longest } => Backoff::new(first, longest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(10);

    fn rules(restart: Restart) -> Rules {
        Rules {
            restart,
            pause: Pause::Growing {
                first: FIRST,
                longest: LONGEST,
            },
            most_failures: Some(3),
        }
    }

    fn ended(expected: bool) -> Event {
        Event::Ended {
            expected,
            lived: Duration::from_secs(1),
        }
    }

    fn up(restart: Restart) -> Machine {
        let mut machine = Machine::new(rules(restart));
        assert_eq!(machine.step(Event::Start), Action::Spawn);
        assert_eq!(machine.step(Event::CameUp), Action::Nothing);
        assert_eq!(machine.state(), ProcessState::Running);
        machine
    }

    #[test]
    fn the_end_of_a_program_that_was_up_is_judged_by_the_rule() {
        for (restart, expected, state) in [
            (Restart::No, true, ProcessState::Exited),
            (Restart::No, false, ProcessState::Exited),
            (Restart::OnFailure, true, ProcessState::Exited),
            (Restart::OnFailure, false, ProcessState::Waiting),
            (Restart::Always, true, ProcessState::Waiting),
            (Restart::Always, false, ProcessState::Waiting),
        ] {
            let mut machine = up(restart);
            let action = machine.step(ended(expected));
            assert_eq!(machine.state(), state, "{restart:?} {expected}");
            let is_pause = matches!(action, Action::Pause(_));
            assert_eq!(is_pause, state == ProcessState::Waiting);
        }
    }

    #[test]
    fn one_that_reaches_a_limit_is_replaced_and_has_not_failed() {
        for (restart, state) in [
            (Restart::No, ProcessState::Exited),
            (Restart::OnFailure, ProcessState::Waiting),
            (Restart::Always, ProcessState::Waiting),
        ] {
            for why in [Why::Memory, Why::Time] {
                let mut machine = up(restart);
                assert_eq!(machine.step(Event::Unfit(why)), Action::End);
                let action = machine.step(ended(true));
                assert_eq!(machine.state(), state, "{restart:?} {why:?}");
                assert_eq!(machine.failures(), 0);
                let is_pause = action == Action::Pause(FIRST);
                assert_eq!(is_pause, state == ProcessState::Waiting);
            }
        }
    }

    #[test]
    fn one_that_fails_again_and_again_is_given_up_until_somebody_starts_it() {
        let mut machine = Machine::new(rules(Restart::Always));
        assert_eq!(machine.step(Event::Start), Action::Spawn);
        for _ in 0..2 {
            assert!(matches!(machine.step(ended(true)), Action::Pause(_)));
            assert_eq!(machine.step(Event::PauseOver), Action::Spawn);
        }
        assert_eq!(machine.step(ended(true)), Action::Nothing);
        assert_eq!(machine.state(), ProcessState::GaveUp);
        assert_eq!(machine.step(Event::PauseOver), Action::Nothing);
        assert_eq!(machine.step(Event::Start), Action::Spawn);
        assert_eq!(machine.failures(), 0);
    }

    #[test]
    fn one_that_lived_for_long_begins_anew_with_its_failures() {
        let mut machine = up(Restart::OnFailure);
        for _ in 0..20 {
            let lived = LONGEST;
            let event = Event::Ended {
                expected: false,
                lived,
            };
            let Action::Pause(pause) = machine.step(event) else {
                panic!("{:?}", machine.state());
            };
            assert!(pause <= FIRST, "{pause:?}");
            assert_eq!(machine.step(Event::PauseOver), Action::Spawn);
            assert_eq!(machine.step(Event::CameUp), Action::Nothing);
        }
    }

    /// RoadRunner starts it all the same.
    #[test]
    fn one_that_is_removed_during_a_pause_is_not_started() {
        let mut machine = up(Restart::Always);
        assert!(matches!(machine.step(ended(false)), Action::Pause(_)));
        assert_eq!(machine.step(Event::Remove), Action::Nothing);
        assert_eq!(machine.step(Event::PauseOver), Action::Nothing);
        assert_eq!(machine.step(Event::Start), Action::Nothing);
        assert_eq!(machine.state(), ProcessState::Removed);
    }

    /// A world around the machine: at most one process, and what somebody wants.
    #[derive(Debug, Default)]
    struct World {
        has_process: bool,
        was_asked_to_end: bool,
        pauses: bool,
        wanted: bool,
        removed: bool,
        /// Failures since somebody or a good run forgave them.
        in_vain: u32,
    }

    impl World {
        fn random_event(&self) -> Event {
            let why = [Why::StartTimedOut, Why::Unhealthy, Why::Memory, Why::Time];
            loop {
                return match fastrand::u8(..10) {
                    0 => Event::Start,
                    1 => Event::Stop,
                    2 => Event::Restart,
                    3 if fastrand::u8(..20) == 0 => Event::Remove,
                    4 if self.has_process && fastrand::bool() => Event::NotStarted,
                    5 | 6 if self.has_process => Event::Ended {
                        expected: fastrand::bool(),
                        lived: Duration::from_millis(fastrand::u64(..20_000)),
                    },
                    // Also one that comes too late.
                    7 if self.pauses || fastrand::u8(..5) == 0 => Event::PauseOver,
                    8 => Event::CameUp,
                    9 => Event::Unfit(why[fastrand::usize(..why.len())]),
                    _ => continue,
                };
            }
        }
    }

    #[test]
    fn whatever_happens_it_keeps_its_promises() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        fastrand::seed(seed);
        for _ in 0..300 {
            one_random_life();
        }
    }

    fn one_random_life() {
        let restart = [Restart::No, Restart::OnFailure, Restart::Always][fastrand::usize(..3)];
        let most = fastrand::bool().then(|| fastrand::u32(1..5));
        let rules = Rules {
            most_failures: most,
            ..rules(restart)
        };
        let mut machine = Machine::new(rules);
        let mut world = World::default();
        for _ in 0..400 {
            let before = machine.state();
            let event = world.random_event();
            if event == Event::NotStarted && before != ProcessState::Starting {
                continue; // only an attempt can fail
            }
            let action = machine.step(event);
            let after = machine.state();
            let told = || format!("{rules:?}: {before:?} by {event:?} to {after:?}: {action:?}");
            match event {
                Event::Ended { .. } | Event::NotStarted => {
                    world.has_process = false;
                    world.was_asked_to_end = false;
                }
                Event::Start | Event::Restart if !world.removed => world.wanted = true,
                Event::Stop => world.wanted = false,
                Event::Remove => (world.removed, world.wanted) = (true, false),
                _ => {}
            }
            if matches!(event, Event::Start | Event::Restart | Event::Stop)
                || matches!(event, Event::Ended { lived, .. } if lived >= LONGEST)
                || (before == ProcessState::Running && matches!(event, Event::Ended { expected: true, .. }))
                // That it takes too much is no failure.
                || matches!(before, ProcessState::Stopping(Then::Judge(Why::Memory | Why::Time)))
            {
                world.in_vain = 0;
            }
            world.pauses = false;
            match action {
                Action::Spawn => {
                    assert!(!world.has_process, "a second process: {}", told());
                    assert!(world.wanted, "nobody wanted it: {}", told());
                    world.has_process = true;
                }
                Action::End => {
                    assert!(world.has_process, "there is nothing to end: {}", told());
                    world.was_asked_to_end = true;
                }
                Action::Pause(pause) => {
                    assert!(!world.has_process && pause <= LONGEST, "{}", told());
                    world.pauses = true;
                    world.in_vain += 1;
                    if let Some(most) = most {
                        assert!(world.in_vain <= most, "it goes on for ever: {}", told());
                    }
                }
                Action::Nothing => world.pauses = after == ProcessState::Waiting,
            }
            // States say what is so.
            let alive = matches!(
                after,
                ProcessState::Starting | ProcessState::Running | ProcessState::Stopping(_)
            );
            assert_eq!(alive, world.has_process, "{}", told());
            let asked = matches!(after, ProcessState::Stopping(_));
            assert_eq!(asked, world.was_asked_to_end, "{}", told());
            if world.removed {
                let is_leaving = matches!(
                    after,
                    ProcessState::Removed | ProcessState::Stopping(Then::Remove)
                );
                assert!(is_leaving, "{}", told());
            }
            if before == ProcessState::GaveUp && after != ProcessState::GaveUp {
                let told_to = matches!(
                    event,
                    Event::Start | Event::Restart | Event::Stop | Event::Remove
                );
                assert!(told_to, "{}", told());
            }
            if after == ProcessState::Waiting {
                assert!(world.wanted && restart != Restart::No, "{}", told());
            }
        }
    }
}
