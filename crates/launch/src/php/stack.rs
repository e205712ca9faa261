//! PHP's stack, read from outside while it runs, by what the extension has published: no signal,
//! and nothing that the process would notice.
//!
//! Where to look is the worker's word, and what lies there changes meanwhile. So all of it is
//! checked, and bounded; a look that goes wrong ends the list, and reads no other process.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use pronghorn_pool::transport::StackLayout;

/// Frames from the innermost one on. Frameworks have 40 of them.
const MOST_FRAMES: usize = 64;
/// Looks at one stack, while each finds it changing. One takes some microseconds.
const MOST_LOOKS: usize = 8;
/// Of a name; what is beyond is cut.
const LONGEST_NAME: usize = 200;
/// Of the name of a file.
const LONGEST_FILE: usize = 400;
/// A longer string is none: what was there has been freed.
const LONGEST_STRING: u64 = 64 << 10;

/// PHP's kinds of functions: built in, in PHP code, code of `eval`.
const INTERNAL: u8 = 1;
const USER: u8 = 2;
const EVAL: u8 = 4;

/// The memory of a process.
trait Memory {
    /// All of these bytes, or none.
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()>;
}

/// Of a worker, through `/proc`: for whoever may trace it, its parent of the same user for
/// instance.
struct Process(File);

impl Memory for Process {
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(into, at)
    }
}

/// What PHP is at, the innermost first: `Repository::find() /app/src/Repository.php:12`.
///
/// # Errors
///
/// When the process can't be read.
pub(crate) fn read(pid: u32, layout: &StackLayout) -> io::Result<Vec<String>> {
    let memory = Process(File::open(format!("/proc/{pid}/mem"))?);
    look(|| Ok(frames(&memory, layout, pointer(&memory, layout.current)?)))
}

/// Looks again, a few times, while the stack changes under the look; then takes what was seen most
/// of it. Short functions come and go in a loop that computes.
fn look(
    mut once: impl FnMut() -> io::Result<Result<Vec<String>, Vec<String>>>,
) -> io::Result<Vec<String>> {
    let mut most = Vec::new();
    for _ in 0..MOST_LOOKS {
        match once()? {
            Ok(frames) => return Ok(frames),
            Err(frames) if frames.len() > most.len() => most = frames,
            Err(_) => {}
        }
    }
    Ok(most)
}

/// The error is what was seen before something had changed.
fn frames(
    memory: &dyn Memory,
    layout: &StackLayout,
    first: u64,
) -> Result<Vec<String>, Vec<String>> {
    let mut frames = Vec::new();
    let mut at = first;
    for _ in 0..MOST_FRAMES {
        if at == 0 {
            break;
        }
        match frame(memory, layout, at) {
            Ok(Some(text)) => frames.push(text),
            Ok(None) => {}
            // It has changed meanwhile, or never was a frame.
            Err(_) => return Err(frames),
        }
        match pointer(memory, at.wrapping_add(layout.previous)) {
            Ok(previous) => at = previous,
            Err(_) => return Err(frames),
        }
    }
    Ok(frames)
}

/// None: a frame that runs no function, between PHP and what calls it.
fn frame(memory: &dyn Memory, layout: &StackLayout, at: u64) -> io::Result<Option<String>> {
    let function = pointer(memory, at.wrapping_add(layout.function))?;
    if function == 0 {
        return Ok(None);
    }
    let mut kind = [0];
    memory.read(function, &mut kind)?;
    let [kind] = kind;
    let name = pointer(memory, function.wrapping_add(layout.function_name))?;
    let mut text = match name {
        0 => "{main}".to_owned(),
        name => format!("{}()", string(memory, layout, name, LONGEST_NAME)?),
    };
    let scope = pointer(memory, function.wrapping_add(layout.scope))?;
    if scope != 0 && name != 0 {
        let class = pointer(memory, scope.wrapping_add(layout.class_name))?;
        let class = string(memory, layout, class, LONGEST_NAME)?;
        text = format!("{class}::{text}");
    }
    match kind {
        INTERNAL => Ok(Some(text)),
        USER | EVAL => {
            let file = pointer(memory, function.wrapping_add(layout.file))?;
            let file = string(memory, layout, file, LONGEST_FILE)?;
            let instruction = pointer(memory, at.wrapping_add(layout.opline))?;
            // Of a frame that has just begun there may be none yet.
            let line = number(memory, instruction.wrapping_add(layout.line)).unwrap_or(0);
            Ok(Some(format!("{text} {file}:{line}")))
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn pointer(memory: &dyn Memory, at: u64) -> io::Result<u64> {
    let mut bytes = [0; 8];
    memory.read(at, &mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

fn number(memory: &dyn Memory, at: u64) -> io::Result<u32> {
    let mut bytes = [0; 4];
    memory.read(at, &mut bytes)?;
    Ok(u32::from_ne_bytes(bytes))
}

/// One of PHP's strings, at most so many bytes of it.
fn string(
    memory: &dyn Memory,
    layout: &StackLayout,
    at: u64,
    longest: usize,
) -> io::Result<String> {
    let length = pointer(memory, at.wrapping_add(layout.length))?;
    if length > LONGEST_STRING {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let length = usize::try_from(length).unwrap_or(usize::MAX).min(longest);
    let mut bytes = vec![0; length];
    memory.read(at.wrapping_add(layout.text), &mut bytes)?;
    // The name of a class without one goes on behind a NUL, with where it is.
    let shown = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(shown).into_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LAYOUT: StackLayout = StackLayout {
        current: 8,
        opline: 0,
        function: 8,
        previous: 16,
        line: 4,
        function_name: 8,
        scope: 16,
        file: 24,
        class_name: 0,
        length: 0,
        text: 8,
    };

    /// Memory that begins at address 0.
    #[derive(Default)]
    struct Bytes(Vec<u8>);

    impl Memory for Bytes {
        fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
            let at = usize::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
            let end = at
                .checked_add(into.len())
                .ok_or(io::ErrorKind::InvalidInput)?;
            let bytes = self.0.get(at..end).ok_or(io::ErrorKind::InvalidInput)?;
            into.copy_from_slice(bytes);
            Ok(())
        }
    }

    impl Bytes {
        fn put(&mut self, numbers: &[u64]) -> u64 {
            let at = self.0.len() as u64;
            self.0
                .extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
            at
        }

        fn string(&mut self, text: &str) -> u64 {
            let at = self.put(&[text.len() as u64]);
            self.0.extend_from_slice(text.as_bytes());
            self.0.resize(self.0.len().next_multiple_of(8), 0);
            at
        }
    }

    #[test]
    fn a_stack_that_changes_is_looked_at_again() {
        let seen = |count: usize| vec!["f()".to_owned(); count];
        let mut looks = [Err(seen(1)), Err(seen(0)), Ok(seen(3))].into_iter();
        let next = || Ok(looks.next().unwrap());
        assert_eq!(look(next).unwrap(), seen(3));
        let mut count = 0;
        let never = || {
            count += 1;
            Ok(Err(seen(count % 3)))
        };
        assert_eq!(look(never).unwrap(), seen(2));
        assert_eq!(count, MOST_LOOKS);
    }

    #[test]
    fn frames_are_told_from_the_innermost_on() {
        let mut memory = Bytes::default();
        memory.put(&[0, 0]);
        let (file, find, class, fread) = (
            memory.string("/app/a.php"),
            memory.string("find"),
            memory.string("Repository"),
            memory.string("fread"),
        );
        let class = memory.put(&[class]);
        let line = memory.put(&[12 << 32]);
        let (user, internal) = (u64::from(USER), u64::from(INTERNAL));
        let main = memory.put(&[user, 0, 0, file]);
        let method = memory.put(&[user, find, class, file]);
        let function = memory.put(&[internal, fread, 0, 0]);
        let outermost = memory.put(&[line, main, 0]);
        let gap = memory.put(&[0, 0, outermost]);
        let caller = memory.put(&[line, method, gap]);
        let first = memory.put(&[0, function, caller]);
        assert_eq!(
            frames(&memory, &LAYOUT, first).unwrap(),
            [
                "fread()",
                "Repository::find() /app/a.php:12",
                "{main} /app/a.php:12"
            ]
        );
        // One that calls itself for ever.
        let circle = memory.0.len() as u64;
        memory.put(&[0, function, circle]);
        assert_eq!(frames(&memory, &LAYOUT, circle).unwrap().len(), MOST_FRAMES);
    }

    #[test]
    fn a_string_that_is_none_ends_the_list() {
        let mut memory = Bytes::default();
        memory.put(&[0, 0]);
        let huge = memory.put(&[u64::MAX]);
        let function = memory.put(&[u64::from(INTERNAL), huge, 0, 0]);
        let first = memory.put(&[0, function, 0]);
        assert_eq!(frames(&memory, &LAYOUT, first), Err(Vec::new()));
    }

    #[test]
    fn a_process_that_is_none_can_t_be_read() {
        assert!(read(u32::MAX, &LAYOUT).is_err());
    }

    proptest! {
        #[test]
        fn any_memory_gives_a_bounded_list(
            words in prop::collection::vec(0_u64..600, 0..80), first in 0_u64..600, offsets in prop::array::uniform10(0_u64..40),
        ) {
            let mut memory = Bytes::default();
            memory.put(&words);
            let [opline, function, previous, line, function_name, scope, file, class_name, length, text] = offsets;
            let layout = StackLayout {
                current: 0, opline, function, previous, line, function_name, scope, file, class_name, length, text,
            };
            let (Ok(frames) | Err(frames)) = frames(&memory, &layout, first);
            prop_assert!(frames.len() <= MOST_FRAMES);
            let longest = 2 * LONGEST_NAME + LONGEST_FILE + 20;
            prop_assert!(frames.iter().all(|frame| frame.chars().count() <= longest));
        }
    }
}
