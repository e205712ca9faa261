//! When a certificate is ordered: pure, without a clock.
//!
//! All times are seconds since 1970, as certificates have them.

/// From when to when a certificate holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) not_before: u64,
    pub(crate) not_after: u64,
}

/// When the authority wants a certificate to be renewed (RFC 9773).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// The attempts since the last success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attempts {
    pub(crate) failed: u32,
    /// When the last one was begun.
    pub(crate) last: u64,
    /// The authority wants no order before this.
    pub(crate) not_before: u64,
}

impl Attempts {
    /// Whether a command may end the pause after a failure: one that the authority has asked for
    /// goes on.
    pub(crate) const fn is_only_paused(self, now: u64) -> bool {
        self.failed > 0 && self.not_before <= now
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Order,
    /// For so many seconds.
    Wait(u64),
}

/// Certificates that hold no longer are renewed earlier: a day of trouble is a sixth of their life.
const SHORT_LIFE: u64 = 10 * 86_400;
/// Clocks differ. A certificate that is newer than this machine's clock by more is a sign that the
/// clock is wrong, and another order would bring the same.
const CLOCKS_DIFFER: u64 = 86_400;
/// The pauses after failures; the last one goes on. In an hour there are five attempts, which is
/// how many failures Let's Encrypt allows for a name.
const PAUSES: [u64; 5] = [10, 120, 900, 1800, 3600];
/// A pause grows by up to this part, so that names that failed together do not come together.
const JITTER: u64 = 8;
/// The longest time that an authority can keep a name waiting: else an answer could end renewals.
pub(crate) const LONGEST_REFUSAL: u64 = 86_400;

/// When a certificate becomes due. `chance` is from 0 to 1, and stays the same for one certificate:
/// those that were ordered together are not renewed together.
pub(crate) fn due(validity: Validity, window: Option<Window>, chance: f64) -> u64 {
    let Validity {
        not_before,
        not_after,
    } = validity;
    let life = not_after.saturating_sub(not_before);
    let left = if life <= SHORT_LIFE {
        life / 2
    } else {
        life / 3
    };
    // At most a tenth of what is left is given away.
    let by_life = not_after - left + part(left / 10, chance);
    // Whatever the authority says, a half of that time is for attempts.
    let latest = not_after - left / 2;
    match window {
        Some(window) => {
            let len = window.end.saturating_sub(window.start);
            (window.start.saturating_add(part(len, chance))).min(latest)
        }
        None => by_life,
    }
}

/// Says what to do now.
pub(crate) fn plan(
    now: u64,
    validity: Option<Validity>,
    window: Option<Window>,
    attempts: Attempts,
    chance: f64,
) -> Action {
    let due = match validity {
        None => 0,
        Some(validity) if now.saturating_add(CLOCKS_DIFFER) < validity.not_before => {
            return Action::Wait(3600);
        }
        Some(validity) => due(validity, window, chance),
    };
    let allowed = next_attempt(now, attempts, chance).max(due);
    if allowed <= now {
        Action::Order
    } else {
        Action::Wait(allowed - now)
    }
}

/// The earliest moment of another attempt.
fn next_attempt(now: u64, attempts: Attempts, chance: f64) -> u64 {
    let Some(earlier) = attempts.failed.checked_sub(1) else {
        return 0;
    };
    let index = usize::try_from(earlier).unwrap_or(usize::MAX);
    let pause = PAUSES[index.min(PAUSES.len() - 1)];
    let pause = pause + part(pause / JITTER, chance);
    // Clocks are set back: an attempt of the future was one of now.
    let by_pause = attempts.last.min(now).saturating_add(pause);
    let by_authority = attempts.not_before.min(now.saturating_add(LONGEST_REFUSAL));
    by_pause.max(by_authority)
}

/// Which of several is in turn: the challenge after each failure, and the authority after a failure
/// by each challenge.
pub(crate) const fn turn(failed: u32, authorities: usize, challenges: usize) -> (usize, usize) {
    const fn rest(number: usize, of: usize) -> usize {
        if of == 0 { 0 } else { number % of }
    }
    let failed = failed as usize;
    let round = match failed.checked_div(challenges) {
        Some(round) => round,
        None => failed,
    };
    (rest(round, authorities), rest(failed, challenges))
}

/// Less than the server is at work without a renewal: half of the time in which it should have
/// succeeded is over.
pub(crate) fn is_alarming(now: u64, validity: Validity) -> bool {
    let life = validity.not_after.saturating_sub(validity.not_before);
    let left = validity.not_after.saturating_sub(now);
    if life <= SHORT_LIFE {
        left < life / 3
    } else {
        left < life / 6
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "seconds of years are far below 2^52, and none is negative"
)]
fn part(of: u64, chance: f64) -> u64 {
    (of as f64 * chance.clamp(0.0, 1.0)) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: u64 = 3600;
    const DAY: u64 = 24 * HOUR;

    fn valid(days: u64) -> Validity {
        Validity {
            not_before: 1_000_000_000,
            not_after: 1_000_000_000 + days * DAY,
        }
    }

    #[test]
    fn a_third_of_the_life_is_left_and_of_a_short_one_a_half() {
        for (days, left) in [(90, 30), (64, 21), (45, 15), (6, 3)] {
            let validity = valid(days);
            let due = validity.not_after - due(validity, None, 0.0);
            assert_eq!(due / DAY, left, "{days}");
        }
        let six = valid(6);
        assert!(!is_alarming(six.not_after - 2 * DAY, six));
        assert!(is_alarming(six.not_after - 2 * DAY + 1, six));
    }

    #[test]
    fn an_authority_says_when_but_not_so_late_that_nothing_can_be_tried() {
        let validity = valid(90);
        let at = |start: u64, end: u64, chance| {
            let of = |day| validity.not_before + day * DAY;
            let window = Window {
                start: of(start),
                end: of(end),
            };
            (due(validity, Some(window), chance) - validity.not_before) / DAY
        };
        assert_eq!(at(0, 0, 0.5), 0, "at once, as after a revocation");
        assert_eq!(at(50, 60, 0.5), 55);
        assert_eq!(at(200, 300, 0.5), 75);
        assert_eq!(at(60, 50, 1.0), 60, "a window that ends before it begins");
    }

    #[test]
    fn a_certificate_from_the_future_is_not_ordered_again_and_again() {
        let validity = valid(90);
        let now = validity.not_before - 2 * DAY;
        let action = plan(now, Some(validity), None, Attempts::default(), 0.0);
        assert_eq!(action, Action::Wait(HOUR));
    }

    #[test]
    fn a_command_ends_a_pause_but_none_of_the_authority() {
        let paused = |failed, not_before| {
            let attempts = Attempts {
                failed,
                last: 5,
                not_before,
            };
            attempts.is_only_paused(10)
        };
        assert!(paused(1, 10));
        assert!(!paused(1, 11));
        assert!(!paused(0, 0), "nothing has failed");
    }

    #[test]
    fn authorities_and_challenges_have_their_turns() {
        let turns: Vec<_> = (0..5).map(|failed| turn(failed, 2, 2)).collect();
        assert_eq!(turns, [(0, 0), (0, 1), (1, 0), (1, 1), (0, 0)]);
        let turns: Vec<_> = (0..3).map(|failed| turn(failed, 2, 1)).collect();
        assert_eq!(turns, [(0, 0), (1, 0), (0, 0)]);
    }

    /// The times at which it orders, while the authority works only then.
    fn orders(
        validity: Option<Validity>,
        from: u64,
        until: u64,
        chance: f64,
        works: impl Fn(u64) -> bool,
    ) -> (Vec<u64>, bool) {
        let mut attempts = Attempts::default();
        let mut now = from;
        let mut all = Vec::new();
        while now < until {
            match plan(now, validity, None, attempts, chance) {
                Action::Wait(wait) => now += wait.max(1),
                Action::Order => {
                    all.push(now);
                    if works(now) {
                        return (all, true);
                    }
                    attempts.failed += 1;
                    attempts.last = now;
                }
            }
        }
        (all, false)
    }

    proptest! {
        /// The authority works for two hours of the time that is left when a certificate is due.
        #[test]
        fn it_is_renewed_before_its_end_if_the_authority_works_for_some_time(
            days in 6_u64..90, chance in 0.0..1.0, begin in 0.0..0.9,
        ) {
            let validity = valid(days);
            let due = due(validity, None, chance);
            let begin = due + part(validity.not_after - due, begin);
            let works = |now| now >= begin && now < begin + 2 * HOUR;
            let end = validity.not_after;
            let (_, renewed) = orders(Some(validity), validity.not_before, end, chance, works);
            prop_assert!(renewed);
        }

        #[test]
        fn there_are_few_orders_in_an_hour(chance in 0.0..1.0) {
            let (all, _) = orders(None, 1_000_000_000, 1_000_000_000 + 3 * DAY, chance, |_| false);
            for (index, at) in all.iter().enumerate() {
                let in_hour = all[index..].iter().take_while(|later| **later < at + HOUR);
                prop_assert!(in_hour.count() <= 5);
            }
        }

        #[test]
        fn no_number_makes_it_wait_for_ever(
            now in 0..u64::MAX / 4, not_before: u64, len in 0..10 * DAY,
            failed: u32, last: u64, refused: u64, chance in 0.0..1.0,
        ) {
            let not_before = not_before / 4;
            let validity = Validity { not_before, not_after: not_before + len };
            let attempts = Attempts { failed, last, not_before: refused };
            if let Action::Wait(wait) = plan(now, Some(validity), None, attempts, chance)
                && now > validity.not_after
            {
                prop_assert!(wait <= LONGEST_REFUSAL);
            }
        }
    }
}
