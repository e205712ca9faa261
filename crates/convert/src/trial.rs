//! Tries each limit of a file by itself: beside it none other is left, nor anything that lets
//! clients in. Where the same is made as without it, it was overlooked, wherever that was.

use std::cell::RefCell;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use super::directive::Directive;

/// So many are tried: each reads all files again. The rest is told.
const MOST: usize = 256;

/// A limit, by its text and its number in that. Files of the same text have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    text: u64,
    nth: usize,
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

/// A part of a file.
pub(super) enum Part<'a> {
    /// A limit, and what goes with it.
    Limit(&'a [&'a Directive]),
    /// A block that stays whole: nothing depends on the limits in it.
    Block(&'a Directive),
}

/// Calls for each part among statements that matters.
pub(super) type Parts = fn(&[Directive], &mut dyn FnMut(Part<'_>));

/// Leaves those statements of a file that are read. `file` is its name, `is_access` says which of
/// them may let clients in.
pub(super) fn pass(
    (text, file): (&str, &str),
    all: Vec<Directive>,
    parts: Parts,
    is_access: fn(&Directive) -> bool,
) -> Vec<Directive> {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let mut next = Key {
        text: hasher.finish(),
        nth: 0,
    };
    let mut key = || {
        next.nth += 1;
        next
    };
    TRIAL.with_borrow_mut(|trial| match trial {
        Trial::None => all,
        Trial::Collect(units) => {
            parts(&all, &mut |part| {
                let Part::Limit(group) = part else {
                    return;
                };
                let place = format!("{file}:{}", group[0].place.line);
                units.push(Unit {
                    key: key(),
                    shown: format!("{place}: `{}`", group[0].shown()),
                });
            });
            all
        }
        Trial::Only(only) => {
            let mut out = Statements::default();
            out.add_if(&all, is_access);
            let mut kept = Statements::default();
            parts(&all, &mut |part| match part {
                Part::Block(it) => kept.add(it),
                Part::Limit(group) => {
                    let is_kept = Some(key()) == *only;
                    let into = if is_kept { &mut kept } else { &mut out };
                    for it in group {
                        into.add(it);
                    }
                }
            });
            without(&all, &|it| out.has(it) && !kept.has(it))
        }
    })
}

/// Statements by where they are in memory: as long as their lists are not changed.
#[derive(Default)]
struct Statements(HashSet<*const Directive>);

impl Statements {
    fn has(&self, it: &Directive) -> bool {
        self.0.contains(&std::ptr::from_ref(it))
    }

    /// With all that is inside.
    fn add(&mut self, it: &Directive) {
        self.0.insert(std::ptr::from_ref(it));
        it.inside.iter().for_each(|it| self.add(it));
    }

    /// Whoever is let in by one of these is let in without it as well.
    fn add_if(&mut self, all: &[Directive], is_one: fn(&Directive) -> bool) {
        for it in all {
            if is_one(it) {
                self.0.insert(std::ptr::from_ref(it));
            }
            self.add_if(&it.inside, is_one);
        }
    }
}

fn without(all: &[Directive], is_out: &impl Fn(&Directive) -> bool) -> Vec<Directive> {
    let all = all.iter().filter(|it| !is_out(it));
    all.map(|it| Directive {
        inside: without(&it.inside, is_out),
        ..it.clone()
    })
    .collect()
}
