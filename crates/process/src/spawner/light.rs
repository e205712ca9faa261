//! Starting a program without a copy of this process.
//!
//! `fork` copies the page tables, which takes longer than many a program runs: measured with 20 MB
//! in memory, 1,300 µs of CPU for a program in C from its start to its end, and 510 µs in this way.
//! Here the child runs in this process's memory until it executes the program, and the thread that
//! starts it stands still so long.

use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::ptr;

use nix::libc;
use rustix::process::Pid;

use super::{close_on_exec_from, put_at};
use crate::open_files;

/// For the few calls between clone and exec; without optimisation each takes some hundred bytes.
const STACK: usize = 64 << 10;
/// The last of the signals that handlers are installed for; those behind are the C library's own,
/// and real-time ones.
const LAST_SIGNAL: c_int = 31;
/// The first descriptor behind the standard streams.
const FIRST_FD: c_int = 3;

/// What the child needs, made before it is there: it must not allocate.
pub(super) struct Image {
    program: CString,
    cwd: CString,
    _texts: Vec<CString>,
    args: Vec<*const c_char>,
    env: Vec<*const c_char>,
    streams: [OwnedFd; 3],
    parent: Pid,
    /// Why there is no program; 0 while it is not known. Written by the child, in this process's
    /// memory.
    failed: c_int,
}

impl Image {
    /// # Errors
    ///
    /// When something has a NUL in it.
    pub(super) fn new(
        program: &OsStr,
        args: &[OsString],
        env: &[(OsString, OsString)],
        cwd: OsString,
        streams: [OwnedFd; 3],
    ) -> io::Result<Self> {
        let text = |text: OsString| Ok::<_, io::Error>(CString::new(text.into_vec())?);
        let program = text(program.to_owned())?;
        let mut texts = Vec::with_capacity(args.len() + env.len());
        let mut pointers = |text: CString| {
            let pointer = text.as_ptr();
            texts.push(text); // its bytes stay where they are
            pointer
        };
        let mut arguments = vec![program.as_ptr()];
        for arg in args {
            arguments.push(pointers(text(arg.clone())?));
        }
        let mut environment = Vec::with_capacity(env.len() + 1);
        for (name, value) in env {
            let length = name.len().saturating_add(value.len()).saturating_add(2);
            let mut variable = OsString::with_capacity(length);
            variable.push(name);
            variable.push("=");
            variable.push(value);
            environment.push(pointers(text(variable)?));
        }
        arguments.push(ptr::null());
        environment.push(ptr::null());
        Ok(Self {
            program,
            cwd: text(cwd)?,
            _texts: texts,
            args: arguments,
            env: environment,
            streams,
            parent: rustix::process::getpid(),
            failed: 0,
        })
    }

    /// Starts the program and returns its number and its pidfd.
    ///
    /// # Errors
    ///
    /// Those of the kernel; a program that can't be executed leaves no child.
    pub(super) fn start(mut self) -> io::Result<(Pid, OwnedFd)> {
        let (pid, pidfd) = match self.clone_with_pidfd() {
            // qemu's emulation of user programs knows no such clone. Its children have a copy of
            // this memory: one that can't execute its program is a process that ends with 127.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => self.clone_and_open()?,
            cloned => cloned?,
        };
        if self.failed != 0 {
            // It has ended, so this does not wait.
            _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
            return Err(io::Error::from_raw_os_error(self.failed));
        }
        Ok((pid, pidfd))
    }

    fn clone_with_pidfd(&mut self) -> io::Result<(Pid, OwnedFd)> {
        let mut pidfd: c_int = -1;
        let pid = self.clone_process(libc::CLONE_PIDFD, &mut pidfd)?;
        #[expect(unsafe_code, reason = "the kernel has just made it")]
        // SAFETY: clone succeeded, so the number is an open descriptor that nobody else knows.
        let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
        Ok((pid, pidfd))
    }

    fn clone_and_open(&mut self) -> io::Result<(Pid, OwnedFd)> {
        let pid = self.clone_process(0, &mut -1)?;
        // Nobody has waited for it, so the number is still its.
        let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
        Ok((pid, pidfd))
    }

    fn clone_process(&mut self, flags: c_int, pidfd: &mut c_int) -> io::Result<Pid> {
        let mut stack = Vec::<u8>::with_capacity(STACK);
        let top = stack.as_mut_ptr_range().start.wrapping_add(STACK);
        // The highest address of 16-byte alignment, as every ABI asks for.
        let top = top.wrapping_sub(top.addr() % 16);
        let flags = flags | libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let before = block_signals();
        #[expect(unsafe_code, reason = "no library wraps clone(2) with a pidfd")]
        // SAFETY: the stack, the image and the place for the pidfd outlive the call, which returns
        // when the child has left this memory (CLONE_VFORK). The child runs `become_program` alone,
        // with all signals blocked.
        let number = unsafe {
            libc::clone(
                become_program,
                top.cast(),
                flags,
                ptr::from_mut(self).cast(),
                ptr::from_mut(pidfd),
            )
        };
        let cloned = if number < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(number)
        };
        set_signals(&before);
        Pid::from_raw(cloned?).ok_or_else(|| io::ErrorKind::Other.into())
    }

    /// In the child. Returns only when it fails.
    fn execute(&self) -> io::Error {
        default_signals();
        if let Err(error) = self.prepare() {
            return error;
        }
        set_signals(&no_signals());
        #[expect(unsafe_code, reason = "no library wraps it without allocating")]
        // SAFETY: both lists end in null and point to texts that end in NUL, all owned by `self`.
        unsafe {
            libc::execve(self.program.as_ptr(), self.args.as_ptr(), self.env.as_ptr());
        }
        io::Error::last_os_error()
    }

    fn prepare(&self) -> io::Result<()> {
        rustix::process::setpgid(None, None)?;
        open_files::restore();
        // As for all children; it is the thread that starts them whose end counts.
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
        if rustix::process::getppid() != Some(self.parent) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        rustix::process::chdir::<&CStr>(&self.cwd)?;
        for (number, stream) in (0..).zip(&self.streams) {
            put_at(number, stream)?;
        }
        close_on_exec_from(FIRST_FD);
        Ok(())
    }
}

/// What the child runs.
extern "C" fn become_program(image: *mut c_void) -> c_int {
    let image: *mut Image = image.cast();
    #[expect(unsafe_code, reason = "what clone hands over is a pointer")]
    // SAFETY: it is the image of the thread that stands still meanwhile.
    let image = unsafe { &mut *image };
    let error = image.execute();
    image.failed = error.raw_os_error().unwrap_or(libc::EIO);
    #[expect(
        unsafe_code,
        reason = "the child must run nothing of this process at its end"
    )]
    // SAFETY: ends the child at once.
    unsafe {
        libc::_exit(127)
    }
}

type Signals = libc::sigset_t;

fn no_signals() -> Signals {
    let mut signals = MaybeUninit::zeroed();
    #[expect(unsafe_code, reason = "the C library's only way to make a set")]
    // SAFETY: writes a set to a place for one.
    unsafe {
        libc::sigemptyset(signals.as_mut_ptr());
    }
    #[expect(unsafe_code, reason = "as above")]
    // SAFETY: it was written just before, over zeros.
    unsafe {
        signals.assume_init()
    }
}

/// Blocks all signals for this thread, and so for a child of it; returns what was blocked before.
fn block_signals() -> Signals {
    let (mut all, mut before) = (no_signals(), no_signals());
    #[expect(unsafe_code, reason = "as in `no_signals`")]
    // SAFETY: writes a set to a place for one.
    unsafe {
        libc::sigfillset(&raw mut all);
    }
    #[expect(unsafe_code, reason = "rustix has no signal masks")]
    // SAFETY: reads one set and writes another; no handler of this process relies on being able to
    // run here.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    }
    before
}

fn set_signals(signals: &Signals) {
    #[expect(unsafe_code, reason = "rustix has no signal masks")]
    // SAFETY: reads one set.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, signals, ptr::null_mut());
    }
}

/// In the child: no handler of this process may run there, and the program starts with those of any
/// other.
fn default_signals() {
    let none = MaybeUninit::<libc::sigaction>::zeroed();
    #[expect(unsafe_code, reason = "the C library has no value for it")]
    // SAFETY: all zeros is the default action without flags (`SIG_DFL` is 0).
    let none = unsafe { none.assume_init() };
    for signal in 1..=LAST_SIGNAL {
        #[expect(unsafe_code, reason = "rustix has no signal actions")]
        // SAFETY: the child has its own table of actions. Refused for SIGKILL and SIGSTOP, which
        // have none.
        unsafe {
            libc::sigaction(signal, &raw const none, ptr::null_mut());
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{WaitOptions, waitpid};

    use super::*;

    #[test]
    fn a_kernel_that_makes_no_pidfd_is_asked_for_one() {
        let null = || {
            OwnedFd::from(
                std::fs::File::options()
                    .write(true)
                    .open("/dev/null")
                    .unwrap(),
            )
        };
        let args = ["-c".into(), "exit 7".into()];
        let streams = [null(), null(), null()];
        let mut image = Image::new("/bin/sh".as_ref(), &args, &[], "/".into(), streams).unwrap();
        let (pid, pidfd) = image.clone_and_open().unwrap();
        let info = format!(
            "/proc/self/fdinfo/{}",
            std::os::fd::AsRawFd::as_raw_fd(&pidfd)
        );
        let info = std::fs::read_to_string(info).unwrap();
        assert!(
            info.contains(&format!("Pid:\t{}\n", pid.as_raw_nonzero())),
            "{info}"
        );
        let (_, end) = waitpid(Some(pid), WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(end.exit_status(), Some(7));
    }
}
