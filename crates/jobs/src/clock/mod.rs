//! When jobs by the clock are due, and the keys that say so. Knows no job and no store.

mod cron;
mod moments;
mod settings;

pub use cron::Cron;
pub(crate) use moments::Missed;
pub use moments::{Moments, When};
pub use settings::{CatchUp, Overlap, ScheduleSettings, What, read};
