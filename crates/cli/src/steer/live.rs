//! `workers -i`: the table every second, until the person leaves.

use std::collections::HashMap;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::table::{Look, View, table};
use super::terminal::{Screen, has_colours, size};
use super::text::{cut, lines};
use super::workers::{load, look_at};
use super::{Server, Task};
use crate::exit::Exit;

const EVERY: Duration = Duration::from_secs(1);

pub(super) async fn run(
    task: &Task<'_>,
    of: &[String],
    server: Server,
    first: Vec<View>,
) -> Result<Exit, String> {
    let failed = |error: std::io::Error| format!("the terminal can't be used: {error}");
    let mut interrupted = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminated = signal(SignalKind::terminate()).map_err(failed)?;
    let mut hung_up = signal(SignalKind::hangup()).map_err(failed)?;
    let mut resized = signal(SignalKind::window_change()).map_err(failed)?;
    let mut source = Source {
        task,
        of,
        server: Some(server),
        loads: Loads::default(),
    };
    let mut screen = Screen::open().map_err(failed)?;
    let mut shown = Ok(source.loads.since_last(first));
    let mut tick = interval(EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick.tick().await; // the first is at once
    loop {
        Screen::draw(&frame(task, &shown)).map_err(failed)?;
        let next = async {
            tick.tick().await;
            source.look().await
        };
        tokio::select! {
            looked = next => shown = looked,
            _ = resized.recv() => {}
            () = screen.left() => return Ok(Exit::Done),
            _ = interrupted.recv() => return Ok(Exit::Done),
            _ = terminated.recv() => return Ok(Exit::Done),
            _ = hung_up.recv() => return Ok(Exit::Done),
        }
    }
}

/// Where the views come from. A server that ends is looked for again: it may be restarted.
struct Source<'a> {
    task: &'a Task<'a>,
    of: &'a [String],
    server: Option<Server>,
    loads: Loads,
}

impl Source<'_> {
    async fn look(&mut self) -> Result<Vec<View>, String> {
        let mut server = match self.server.take() {
            Some(server) => server,
            None => self.task.server().await?,
        };
        let views = look_at(&mut server, self.of).await?;
        self.server = Some(server);
        Ok(self.loads.since_last(views))
    }
}

fn frame(task: &Task<'_>, shown: &Result<Vec<View>, String>) -> String {
    let (width, height) = size();
    let head = format!("{}   q ends", task.place.named().display());
    let head = cut(&lines(&head), width);
    match shown {
        Ok(views) => {
            let look = Look {
                width: Some(width),
                height: Some(height.saturating_sub(2)),
                colours: has_colours(),
            };
            format!("{head}\n\n{}", table(views, look))
        }
        Err(why) => {
            let why = lines(why);
            let why = why
                .lines()
                .take(height.saturating_sub(2))
                .map(|line| cut(line, width));
            format!("{head}\n\n{}", why.collect::<Vec<_>>().join("\n"))
        }
    }
}

/// Processor time that was seen last, by process.
#[derive(Default)]
struct Loads(HashMap<u32, (u64, Instant)>);

impl Loads {
    /// What each worker took since the last look; since its start for one that is new.
    fn since_last(&mut self, mut views: Vec<View>) -> Vec<View> {
        let now = Instant::now();
        let mut seen = HashMap::new();
        for row in views.iter_mut().flat_map(|view| &mut view.rows) {
            let Some(cpu) = row.cpu.filter(|_| row.pid != 0) else {
                continue;
            };
            if let Some((before, then)) = self.0.get(&row.pid) {
                let taken = Duration::from_millis(cpu.saturating_sub(*before));
                row.load = load(taken, now.duration_since(*then));
            }
            seen.insert(row.pid, (cpu, now));
        }
        self.0 = seen;
        views
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::Row;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_load_is_that_of_the_last_second() {
        let view = |cpu| {
            let row = Row {
                pid: 7,
                cpu: Some(cpu),
                load: 3.0,
                ..Row::default()
            };
            vec![View {
                rows: vec![row],
                ..View::default()
            }]
        };
        let mut loads = Loads::default();
        let mut after = |cpu| loads.since_last(view(cpu)).remove(0).rows.remove(0).load;
        assert!((after(1000) - 3.0).abs() < 0.01, "nothing is known yet");
        tokio::time::advance(EVERY).await;
        assert!((after(1250) - 25.0).abs() < 0.01);
        tokio::time::advance(EVERY).await;
        assert!(
            after(0).abs() < 0.01,
            "another process with the same number"
        );
    }
}
