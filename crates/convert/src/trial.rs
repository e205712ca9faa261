//! Tries each limit of Apache's files by itself: beside it none other is left, nor anything that
//! lets clients in. Where the same is made as without it, it was overlooked, wherever that was.

use std::cell::RefCell;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use super::apache::{is_hidden, makes_others};
use super::directive::Directive;
use super::draft::is_found;
use super::htaccess::Listed;
use super::limits::{flags, forbids, limits, names_hidden, refusing_status};
use super::statements::{is_access, is_granted, is_none, is_scope, named_by};

/// Files of a machine with many sites are tried for so long; the rest is told.
const LONGEST: Duration = Duration::from_secs(5);

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

thread_local! {
    static TRIAL: RefCell<Trial> = const { RefCell::new(Trial::None) };
    /// The files below a root do not change between two trials.
    static LISTED: RefCell<Vec<Listed>> = const { RefCell::new(Vec::new()) };
}

/// What `make` makes, and the limits that change nothing of it, each with its place.
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
    let begun = Instant::now();
    let mut told = Vec::new();
    let mut seen = HashSet::new();
    let without = if units.is_empty() {
        None
    } else {
        make().map(&shape)
    };
    for unit in units.iter().filter(|it| seen.insert(it.key)) {
        if begun.elapsed() > LONGEST {
            told.push(format!(
                "{}: neither this nor what follows was tried by itself, for want of time: see \
                 whether it is in this file",
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

/// What of a file's statements is read. `file` is its name.
pub(super) fn pass(text: &str, file: &str, all: Vec<Directive>) -> Vec<Directive> {
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
            groups(&all, true, &mut |group| {
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
            lines_of_access(&all, &mut lines);
            let mut kept = HashSet::new();
            groups(&all, true, &mut |group| {
                let is_kept = Some(key(group[0].place.line)) == *only;
                let into = if is_kept { &mut kept } else { &mut lines };
                group.iter().for_each(|it| lines_of(it, into));
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
fn lines_of_access(all: &[Directive], lines: &mut HashSet<usize>) {
    for it in all {
        if says_who(it) {
            lines.insert(it.place.line);
        }
        lines_of_access(&it.inside, lines);
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

/// Calls for each limit: statements on who may come that stand together, or one other statement
/// with its conditions. The first of a group is the limit's own. `has_scripts`: scripts may be among
/// the files that they are about.
fn groups(all: &[Directive], has_scripts: bool, with: &mut impl FnMut(&[&Directive])) {
    let access: Vec<&Directive> = all.iter().filter(|it| says_who(it)).collect();
    let copies: Vec<Directive> = access.iter().map(|it| (*it).clone()).collect();
    if !is_granted(&copies) {
        with(&access);
    }
    let mut conditions = Vec::new();
    for it in all {
        if it.is("RewriteCond") {
            conditions.push(it);
            continue;
        }
        let conditions = std::mem::take(&mut conditions);
        if says_who(it) {
            continue;
        }
        let named = it
            .arguments
            .last()
            .filter(|_| it.is("Files") || it.is("FilesMatch"));
        let is_match = it.is("FilesMatch") || it.arguments.len() > 1;
        if named.is_some_and(|it| is_hidden(it, is_match)) {
            continue; // hidden names are never sent
        }
        if is_limit(it) && (has_scripts || !is_none(it)) {
            let group: Vec<_> = [it].into_iter().chain(conditions).collect();
            with(&group);
        } else {
            let is_script = |named: &String| {
                let expression = named_by(it);
                named.contains("ph") || is_found(&expression, "/a.php")
            };
            let has_scripts = has_scripts && named.is_none_or(is_script);
            groups(&it.inside, has_scripts, with);
        }
    }
}

/// Whether a statement says who may come, or may say so.
fn says_who(it: &Directive) -> bool {
    let name = it.name.to_ascii_lowercase();
    !it.is_foreign && (is_access(it) || name.starts_with("auth"))
}

/// Whether a statement keeps something from clients, or scripts from running.
fn is_limit(it: &Directive) -> bool {
    let of_php = || {
        let shown = it.shown().to_ascii_lowercase();
        shown.contains("fcgi") || shown.contains("php")
    };
    let is_redirect = it.is("Redirect") || it.is("RedirectMatch");
    let is_block = is_scope(it) || !it.inside.is_empty();
    if it.is("RewriteRule") {
        let gives = |flag: &String| {
            ["H=", "T=", "HANDLER=", "TYPE="]
                .iter()
                .any(|it| flag.starts_with(it))
        };
        return !names_hidden(it.argument(0))
            && (forbids(it) || flags(it).any(|flag| gives(&flag) && !of_php()));
    }
    if it.is("RedirectMatch") && names_hidden(it.argument(1)) {
        return false;
    }
    it.is_foreign
        || !is_block
            && (is_none(it)
                || is_redirect && refusing_status(it).is_some()
                || makes_others(it) && !of_php()
                || limits(it))
}
