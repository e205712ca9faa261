//! When workers ask one question after another.

use std::time::Duration;

use tokio::time::Instant;

/// Questions with less time than this between them come in a row: a thread is woken in that.
const ROW: Duration = Duration::from_micros(60);

/// What workers ask a thread beside their calls. One that pushes a hundred jobs asks a hundred
/// times in a row; to sleep and be woken in between would take longer than all the rest.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    answered: Option<Instant>,
    /// The last one came right after the answer to the one before it.
    in_a_row: bool,
    /// It is answered, so the next one may come at any moment.
    is_near: bool,
}

impl Questions {
    pub(crate) fn asked(&mut self, now: Instant) {
        let gap = self.answered.map(|at| now.saturating_duration_since(at));
        self.in_a_row = gap.is_some_and(|gap| gap < ROW);
    }

    pub(crate) fn answered(&mut self, now: Instant) {
        self.answered = Some(now);
        self.is_near = self.in_a_row;
    }

    /// Whether it is worth to look for the next one before a sleep; once for each answer.
    pub(crate) const fn is_one_near(&mut self) -> bool {
        std::mem::replace(&mut self.is_near, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_one_is_looked_for_once_where_they_come_in_a_row() {
        let mut questions = Questions::default();
        let mut now = Instant::now();
        let mut ask_after = |micros| {
            now += Duration::from_micros(micros);
            questions.asked(now);
            questions.answered(now);
            (questions.is_one_near(), questions.is_one_near())
        };
        assert_eq!(ask_after(0), (false, false), "the first one");
        assert_eq!(ask_after(30), (true, false));
        assert_eq!(ask_after(5), (true, false));
        assert_eq!(ask_after(100), (false, false), "another handler's");
        assert_eq!(ask_after(30), (true, false));
    }
}
