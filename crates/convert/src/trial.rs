//! Tries each limit of a file by itself: beside it none other is left, nor anything that lets
//! clients in. Where the same is made as without it, it was overlooked, wherever that was.

use std::cell::RefCell;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use super::directive::Directive;

/// So many are tried: each reads all files again. The rest is told.
const MOST: usize = 256;

/// A limit, by its text and its line in that. Files of the same text have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    text: u64,
    line: usize,
}

/// A limit for a person.
#[derive(Debug, Clone)]
struct Unit {
    key: Key,
    shown: String,
}

#[derive(Default)]
enum Trial {
    /// Statements stay as they are.
    #[default]
    None,
    Collect(Vec<Unit>),
    /// No limit stays but this one.
    Only(Option<Key>),
}

/// The `.htaccess` files below a root.
#[derive(Debug, Clone)]
pub(super) struct Listed {
    pub(super) root: PathBuf,
    /// The path below it of the directory that each is in, and its text; none of one that can't be
    /// read.
    pub(super) files: Vec<(String, Option<String>)>,
    /// Sentences on the directories that were not looked at.
    pub(super) told: Vec<String>,
}

thread_local! {
    static TRIAL: RefCell<Trial> = const { RefCell::new(Trial::None) };
    /// The files below a root do not change between two trials.
    static LISTED: RefCell<Vec<Listed>> = const { RefCell::new(Vec::new()) };
}

/// Gives what `make` makes, and the limits that change nothing of it, each with its place.
pub(super) fn with_overlooked<T, S: PartialEq>(
    make: impl Fn() -> Option<T>,
    shape: impl Fn(T) -> S,
) -> (Option<T>, Vec<String>) {
    set(Trial::Collect(Vec::new()));
    let made = make();
    let units = match set(Trial::Only(None)) {
        Trial::Collect(units) if made.is_some() => units,
        _ => Vec::new(),
    };
    let mut told = Vec::new();
    let mut seen = HashSet::new();
    let without = if units.is_empty() {
        None
    } else {
        make().map(&shape)
    };
    let units = units.iter().filter(|it| seen.insert(it.key));
    for (nth, unit) in units.enumerate() {
        if nth == MOST {
            told.push(format!(
                "{}: this limit and those after it were not tried by themselves, as there are more \
                 than {MOST}: see whether they are in this file",
                unit.shown
            ));
            break;
        }
        set(Trial::Only(Some(unit.key)));
        if without.is_some() && make().map(&shape) == without {
            told.push(format!("{}: nothing is in its place", unit.shown));
        }
    }
    set(Trial::None);
    LISTED.with_borrow_mut(Vec::clear);
    (made, told)
}

fn set(to: Trial) -> Trial {
    TRIAL.replace(to)
}

/// A list of files that is made once for all trials of a conversion.
pub(super) fn listed(list: impl FnOnce() -> Listed, is_it: impl Fn(&Listed) -> bool) -> Listed {
    if TRIAL.with_borrow(|it| matches!(it, Trial::None)) {
        return list();
    }
    let known = LISTED.with_borrow(|all| all.iter().find(|it| is_it(it)).cloned());
    known.unwrap_or_else(|| {
        let listed = list();
        LISTED.with_borrow_mut(|all| all.push(listed.clone()));
        listed
    })
}

/// Calls for each limit among statements. The first of a group is the limit's own.
pub(super) type Groups = fn(&[Directive], &mut dyn FnMut(&[&Directive]));

/// Leaves those statements of a file that are read. `file` is its name, `is_access` says which of
/// them may let clients in.
pub(super) fn pass(
    (text, file): (&str, &str),
    all: Vec<Directive>,
    groups: Groups,
    is_access: fn(&Directive) -> bool,
) -> Vec<Directive> {
    let key = |line| {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Key {
            text: hasher.finish(),
            line,
        }
    };
    TRIAL.with_borrow_mut(|trial| match trial {
        Trial::None => all,
        Trial::Collect(units) => {
            groups(&all, &mut |group| {
                let first = &group[0];
                let place = format!("{file}:{}", first.place.line);
                units.push(Unit {
                    key: key(first.place.line),
                    shown: format!("{place}: `{}`", first.shown()),
                });
            });
            all
        }
        Trial::Only(only) => {
            let mut lines = HashSet::new();
            lines_of_access(&all, is_access, &mut lines);
            let mut kept = HashSet::new();
            groups(&all, &mut |group| {
                let is_kept = Some(key(group[0].place.line)) == *only;
                let into = if is_kept { &mut kept } else { &mut lines };
                for it in group {
                    lines_of(it, into);
                }
            });
            without(all, &|it| {
                let line = it.place.line;
                lines.contains(&line) && !kept.contains(&line)
            })
        }
    })
}

fn lines_of(it: &Directive, lines: &mut HashSet<usize>) {
    lines.insert(it.place.line);
    it.inside.iter().for_each(|it| lines_of(it, lines));
}

/// Whoever is let in by one of these is let in without it as well.
fn lines_of_access(
    all: &[Directive],
    is_access: fn(&Directive) -> bool,
    lines: &mut HashSet<usize>,
) {
    for it in all {
        if is_access(it) {
            lines.insert(it.place.line);
        }
        lines_of_access(&it.inside, is_access, lines);
    }
}

fn without(all: Vec<Directive>, is_out: &impl Fn(&Directive) -> bool) -> Vec<Directive> {
    let all = all.into_iter().filter(|it| !is_out(it));
    all.map(|mut it| {
        it.inside = without(it.inside, is_out);
        it
    })
    .collect()
}
