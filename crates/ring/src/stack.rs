//! Where a worker says that PHP's stack is: what the extension publishes once, in the order of
//! `ext/pronghorn/stack.c`.

use crate::layout::STACK as NUMBERS;
use crate::sync::{AtomicU64, Ordering::Relaxed};

/// The first byte of a structure that is looked at is no further from its beginning: PHP's are
/// smaller.
const FURTHEST: u64 = 4096;

/// An address in the worker, and offsets in the structures of its PHP. The worker has written them:
/// whoever reads by them reads that worker's memory, or nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackLayout {
    /// Of the pointer to the frame that runs.
    pub current: u64,
    /// In a frame: the instruction that it is at.
    pub opline: u64,
    /// In a frame: its function.
    pub function: u64,
    /// In a frame: the one that called it.
    pub previous: u64,
    /// In an instruction.
    pub line: u64,
    /// In a function, whose kind is the first byte.
    pub function_name: u64,
    /// In a function: its class.
    pub scope: u64,
    /// In a function in PHP code: the name of its file.
    pub file: u64,
    /// In a class.
    pub class_name: u64,
    /// In a string.
    pub length: u64,
    /// In a string: its first byte.
    pub text: u64,
}

impl StackLayout {
    /// `None` where nothing is published, or what can't be.
    pub(crate) fn read(words: &[AtomicU64; NUMBERS]) -> Option<Self> {
        let numbers = words.each_ref().map(|word| word.load(Relaxed));
        let [current, offsets @ ..] = numbers;
        if current == 0 || offsets.iter().any(|offset| *offset >= FURTHEST) {
            return None;
        }
        let [
            opline,
            function,
            previous,
            line,
            function_name,
            scope,
            file,
            class_name,
            length,
            text,
        ] = offsets;
        Some(Self {
            current,
            opline,
            function,
            previous,
            line,
            function_name,
            scope,
            file,
            class_name,
            length,
            text,
        })
    }
}
