//! CPUs for tests that measure. Each test has a CPU to itself, so the number of CPUs limits how many tests run at once.

use std::sync::{Condvar, LazyLock, Mutex, MutexGuard};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPUs that this process may use, and those that no test uses at the moment.
struct Processors {
    all: CpuSet,
    free: Mutex<Vec<usize>>,
    returned: Condvar,
}

static PROCESSORS: LazyLock<Processors> = LazyLock::new(|| {
    let all = sched_getaffinity(None).expect("a thread may read its own affinity");
    let free = (0..CpuSet::MAX_CPU).filter(|&number| all.is_set(number)).collect();
    Processors { all, free: Mutex::new(free), returned: Condvar::new() }
});

impl Processors {
    fn free(&self) -> MutexGuard<'_, Vec<usize>> {
        self.free.lock().expect("no holder of the lock panics")
    }
}

/// Returns the number of CPUs, which is the maximum number of tests that can measure at once.
pub fn count() -> usize {
    PROCESSORS.all.count() as usize
}

/// A CPU that is reserved for the calling thread and the processes that it starts, until this value is dropped.
///
/// The value cannot be sent to another thread, because it represents the affinity of the thread that created it.
#[derive(Debug)]
pub struct Processor {
    number: usize,
    not_send: core::marker::PhantomData<*const ()>,
}

impl Processor {
    /// Waits until a CPU is free, and binds the calling thread to it.
    ///
    /// # Panics
    ///
    /// Panics if the system does not let the thread run on this CPU.
    pub fn acquire() -> Self {
        let mut free = PROCESSORS.free();
        let number = loop {
            match free.pop() {
                Some(number) => break number,
                None => {
                    free = PROCESSORS.returned.wait(free).expect("no holder of the lock panics")
                }
            }
        };
        let mut set = CpuSet::new();
        set.set(number);
        sched_setaffinity(None, &set).expect("the CPU is one of the process's CPUs");
        Self { number, not_send: core::marker::PhantomData }
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        // If the affinity cannot be restored, the thread stays on its CPU.
        let _ = sched_setaffinity(None, &PROCESSORS.all);
        PROCESSORS.free().push(self.number);
        PROCESSORS.returned.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicUsize, sync::atomic::Ordering, thread};

    use super::*;

    #[test]
    fn no_processor_belongs_to_two_threads_and_each_comes_back() {
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 * count() {
                scope.spawn(|| {
                    let processor = Processor::acquire();
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    let set = sched_getaffinity(None).unwrap();
                    assert!(set.count() == 1 && set.is_set(processor.number));
                    thread::yield_now();
                    now.fetch_sub(1, Ordering::SeqCst);
                    drop(processor);
                    assert_eq!(sched_getaffinity(None).unwrap(), PROCESSORS.all);
                });
            }
        });
        assert!(most.into_inner() <= count());
        let _all: Vec<Processor> = (0..count()).map(|_| Processor::acquire()).collect();
        assert!(PROCESSORS.free().is_empty());
    }
}
