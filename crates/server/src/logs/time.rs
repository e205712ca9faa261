//! Dates, in UTC: no time zone of the machine has to be known, and logs of several can be merged.

use std::fmt::Write;
use std::time::SystemTime;

use pronghorn_base::since_1970;

/// The last second that four digits of a year can show.
const END_OF_TIME: u64 = 253_402_300_799;

/// A moment, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Moment {
    pub(super) year: u64,
    pub(super) month: u64,
    pub(super) day: u64,
    pub(super) hour: u64,
    pub(super) minute: u64,
    pub(super) second: u64,
    pub(super) nano: u32,
    /// From 0, a Sunday.
    pub(super) weekday: u64,
}

impl Moment {
    pub(super) fn of(time: SystemTime) -> Self {
        let since = since_1970(time);
        let seconds = since.as_secs().min(END_OF_TIME);
        let (year, month, day) = date(seconds / 86_400);
        Self {
            year,
            month,
            day,
            hour: seconds / 3600 % 24,
            minute: seconds / 60 % 60,
            second: seconds % 60,
            nano: since.subsec_nanos(),
            // 1970 began on a Thursday.
            weekday: (seconds / 86_400 + 4) % 7,
        }
    }

    /// From 1.
    pub(super) fn day_of_year(self) -> u64 {
        const BEFORE: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
        let year = self.year;
        let is_leap =
            year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        let month = usize::try_from(self.month - 1).unwrap_or_default();
        BEFORE[month] + self.day + u64::from(is_leap && self.month > 2)
    }

    /// `2026-11-21T19:26:15+0000`
    pub(super) fn write_long(self, out: &mut String) {
        self.write_second(out);
        out.push_str("+0000");
    }

    fn write_second(self, out: &mut String) {
        push(out, "", self.year / 100);
        push(out, "", self.year % 100);
        push(out, "-", self.month);
        push(out, "-", self.day);
        out.push('T');
        self.write_short(out);
    }

    /// `2026-11-21T19:26:15.123456789Z`
    pub(super) fn write_exact(self, out: &mut String) {
        self.write_second(out);
        // A String takes all.
        _ = write!(out, ".{:09}Z", self.nano);
    }

    /// `19:26:15`
    pub(super) fn write_short(self, out: &mut String) {
        push(out, "", self.hour);
        push(out, ":", self.minute);
        push(out, ":", self.second);
    }

    /// `2026-11-21T19-26-15.123`, as RoadRunner has it in names of files. Ordered as the moments
    /// are.
    pub(super) fn stamp(self) -> String {
        let Self {
            year,
            month,
            day,
            hour,
            minute,
            second,
            nano,
            weekday: _,
        } = self;
        let milli = nano / 1_000_000;
        format!("{year:04}-{month:02}-{day:02}T{hour:02}-{minute:02}-{second:02}.{milli:03}")
    }
}

/// Two digits. Not by `write!`: it was most of what a record cost.
fn push(out: &mut String, before: &str, number: u64) {
    out.push_str(before);
    if number < 10 {
        out.push('0');
    }
    out.push_str(itoa::Buffer::new().format(number));
}

/// Year, month and day of the `days`th day after 1970-01-01.
fn date(days: u64) -> (u64, u64, u64) {
    /// From March on: the day that a leap year adds is the last of its year then.
    const MONTHS: [u64; 12] = [31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 31, 29];
    const FROM_YEAR_0: u64 = 719_468;
    const YEAR: u64 = 365;
    const FOUR_YEARS: u64 = 4 * YEAR + 1;
    const CENTURY: u64 = 25 * FOUR_YEARS - 1;
    const FOUR_CENTURIES: u64 = 4 * CENTURY + 1;

    let days = days + FROM_YEAR_0;
    let in_cycle = days % FOUR_CENTURIES;
    // Of four centuries the last is a day longer, as is the last of four years.
    let centuries = (in_cycle / CENTURY).min(3);
    let in_century = in_cycle - centuries * CENTURY;
    let in_four = in_century % FOUR_YEARS;
    let years = (in_four / YEAR).min(3);
    let year = days / FOUR_CENTURIES * 400 + centuries * 100 + in_century / FOUR_YEARS * 4 + years;

    let mut day = in_four - years * YEAR;
    let mut month = 3;
    for length in MONTHS {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    match month {
        3..=12 => (year, month, day + 1),
        _ => (year + 1, month - 12, day + 1),
    }
}
