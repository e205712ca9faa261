//! Metrics of programs: read from their facts when somebody asks.

use pronghorn_metrics::Registry;

use crate::channel::Channel;
use crate::machine::ProcessState;
use crate::programs::Programs;

pub(crate) fn add(channel: Channel, registry: &Registry, programs: &Programs) {
    type IsIn = fn(ProcessState) -> bool;
    let states: [(&str, IsIn); 5] = [
        ("running", |it| it == ProcessState::Running),
        ("starting", |it| it == ProcessState::Starting),
        ("waiting", |it| it == ProcessState::Waiting),
        ("gave_up", |it| it == ProcessState::GaveUp),
        ("stopped", |it| {
            matches!(
                it,
                ProcessState::Stopped
                    | ProcessState::Exited
                    | ProcessState::Stopping(_)
                    | ProcessState::Removed
            )
        }),
    ];
    for (name, is_in) in states {
        let programs = programs.clone();
        registry.labelled("state", name).present(
            &format!("{}_processes", channel.metric()),
            "Processes of programs by state.",
            move || {
                let all = programs.all();
                let facts = all.iter().flat_map(|program| program.facts());
                number(facts.filter(|(_, facts)| is_in(facts.state)).count())
            },
        );
    }
    let programs = programs.clone();
    registry.counted(
        &format!("{}_starts_total", channel.metric()),
        "Processes of programs that were started.",
        move || {
            let all = programs.all();
            let facts = all.iter().flat_map(|program| program.facts());
            let starts: u64 = facts.map(|(_, facts)| facts.starts).sum();
            number(usize::try_from(starts).unwrap_or(usize::MAX))
        },
    );
}

#[expect(clippy::cast_precision_loss, reason = "few processes")]
const fn number(count: usize) -> f64 {
    count as f64
}
