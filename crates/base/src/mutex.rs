//! Locks that outlive a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes the lock also after a thread has panicked with it: one task that fails must not end all
/// others. For state that is whole between any two statements.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_outlives_a_panic() {
        let mutex = Mutex::new(1);
        std::thread::scope(|scope| {
            let failing = scope.spawn(|| {
                let _guard = lock(&mutex);
                panic!("with the lock taken");
            });
            assert!(failing.join().is_err());
        });
        assert!(mutex.is_poisoned());
        assert_eq!(*lock(&mutex), 1);
    }
}
