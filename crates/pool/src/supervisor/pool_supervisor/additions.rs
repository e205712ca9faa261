//! People who wait for the workers that they have added.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::super::plan::NotResized;
use super::super::slot_supervisor::MemberId;
use super::members::Members;

/// Hears how many workers there are, or why not so many.
pub(crate) type Resized = oneshot::Sender<Result<usize, NotResized>>;

#[derive(Default)]
pub(super) struct Additions(Vec<Addition>);

struct Addition {
    /// Of these, so many have not begun.
    to_begin: usize,
    members: Vec<MemberId>,
    failed: Option<Arc<str>>,
    done: Resized,
}

impl Additions {
    /// Their members are those that begin next.
    pub(super) fn add(&mut self, count: usize, done: Resized) {
        self.0.push(Addition {
            to_begin: count,
            members: Vec::new(),
            failed: None,
            done,
        });
    }

    /// A member was begun that somebody may have waited for.
    pub(super) fn begun(&mut self, id: MemberId) {
        if let Some(addition) = self.0.iter_mut().find(|it| it.to_begin > 0) {
            addition.to_begin -= 1;
            addition.members.push(id);
        }
    }

    /// There are as many as there should be: a reload that began after an order has brought its
    /// members up already.
    pub(super) fn all_begun(&mut self) {
        for addition in &mut self.0 {
            addition.to_begin = 0;
        }
    }

    /// A member did not come up. Whether somebody waits for it.
    pub(super) fn failed(&mut self, id: MemberId, why: impl FnOnce() -> Arc<str>) -> bool {
        let mut all = self.0.iter_mut();
        let Some(addition) = all.find(|addition| addition.members.contains(&id)) else {
            return false;
        };
        addition.failed.get_or_insert_with(why);
        true
    }

    /// Answers those whose members take calls or have not come up; there are `size` workers then.
    pub(super) fn settle(&mut self, members: &Members, size: usize) {
        let under_way = |id: &MemberId| members.get(*id).is_some_and(|member| !member.is_in());
        let done = self.0.extract_if(.., |addition| {
            addition.to_begin == 0 && !addition.members.iter().any(under_way)
        });
        for addition in done {
            let answer = match addition.failed {
                Some(why) => Err(NotResized::Boot(why)),
                None => Ok(size),
            };
            _ = addition.done.send(answer); // whoever asked may have left
        }
    }

    /// The pool stops: the answer is that nobody answers.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
