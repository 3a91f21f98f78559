//! Sets the CPU affinity and real-time priority of threads, and reads their CPU time.

use core::time::Duration;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use crate::path::kernel;

/// Returns the CPUs on which the calling thread may run, in ascending order.
///
/// # Errors
///
/// Returns any error from `sched_getaffinity(2)`.
pub fn allowed_processors() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&processor| set.is_set(processor)).collect())
}

/// Pins a thread (`None` for the calling thread) to one CPU.
///
/// # Errors
///
/// Returns `EINVAL` if the CPU does not exist, `EPERM` for another user's thread, or `ESRCH` if the thread is gone.
pub fn pin(thread: Option<Pid>, processor: usize) -> io::Result<()> {
    if processor >= CpuSet::MAX_CPU {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut set = CpuSet::new();
    set.set(processor);
    Ok(sched_setaffinity(thread, &set)?)
}

/// Gives a thread (`None` for the calling thread) precedence over all ordinary threads until it sleeps (`SCHED_FIFO`).
///
/// `priority` is from 1 to 99. If two threads with real-time priority share a CPU, the one with the higher priority
/// runs first.
///
/// # Errors
///
/// Returns `EPERM` without `CAP_SYS_NICE` in the initial user namespace, or if the control group has no real-time
/// budget.
pub fn set_realtime(thread: Option<Pid>, priority: u8) -> io::Result<()> {
    let identifier = thread.map_or(0, |thread| thread.as_raw_nonzero().get());
    // The kernel's `struct sched_param` consists of this number. The structure in musl has more fields.
    let parameter = i32::from(priority);
    // SAFETY: the kernel reads one `struct sched_param`. The raw call is used because musl's wrapper
    // only returns that the call is not implemented.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            identifier,
            libc::SCHED_FIFO,
            &raw const parameter,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the ID and name of each kernel thread whose name begins with `prefix`. Omits threads that are not visible to
/// this process.
///
/// # Errors
///
/// Returns any error from reading `/proc`.
pub fn kernel_threads(prefix: &str) -> io::Result<Vec<(Pid, String)>> {
    let mut found = Vec::new();
    for directory in kernel::names("/proc")? {
        let Some(number) = directory.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process may end between listing and reading.
        let process = Path::new("/proc").join(&directory);
        let Ok(name) = kernel::read(process.join("comm")) else { continue };
        // A user's process can take any name; only a kernel thread has no command line.
        if name.starts_with(prefix)
            && kernel::read_bytes(process.join("cmdline")).is_ok_and(|line| line.is_empty())
        {
            found.extend(Pid::from_raw(number).map(|thread| (thread, name.trim_end().to_owned())));
        }
    }
    Ok(found)
}

/// CPU time of a thread, as accounted by the scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// Time during which the thread ran on a CPU.
    pub running: Duration,
    /// Time during which the thread was ready to run while another thread ran.
    pub waiting: Duration,
    /// Number of times the thread was scheduled.
    pub slices: u64,
}

/// Returns the CPU time of the calling thread, with a resolution of 1 ns.
pub fn own_cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Returns the thread ID of the calling thread.
pub fn own_thread() -> Pid {
    rustix::thread::gettid()
}

/// Returns the CPU time of a thread of any process, for example a kernel thread.
///
/// # Errors
///
/// Returns `NotFound` if the thread is gone or the kernel does not keep these statistics (`CONFIG_SCHED_INFO`).
pub fn cpu_time(thread: Pid) -> io::Result<CpuTime> {
    // `/proc` has a directory for every thread, though it lists only processes.
    let path = format!("/proc/{}/schedstat", thread.as_raw_nonzero());
    let text = kernel::read(path)?;
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    match [numbers.next(), numbers.next(), numbers.next()] {
        [Some(Ok(running)), Some(Ok(waiting)), Some(Ok(slices))] => Ok(CpuTime {
            running: Duration::from_nanos(running),
            waiting: Duration::from_nanos(waiting),
            slices,
        }),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("cannot parse schedstat: {text:?}"),
        )),
    }
}

/// Returns the threads of a process, ordered by ID.
///
/// A listing stops early if the thread at its current position ends, so it is repeated until no new threads appear.
///
/// # Errors
///
/// Returns `NotFound` if the process is gone.
pub fn threads(process: Pid) -> io::Result<Vec<Pid>> {
    let folder = format!("/proc/{}/task", process.as_raw_nonzero());
    let mut found = BTreeSet::new();
    for _ in 0..LISTINGS_MAX {
        let before = found.len();
        let names = kernel::names(&folder)?;
        found.extend(names.iter().filter_map(|name| name.to_str()?.parse::<i32>().ok()));
        if before == found.len() {
            break;
        }
    }
    Ok(found.into_iter().filter_map(Pid::from_raw).collect())
}

/// Maximum number of times that the threads of a process are listed if the process keeps starting threads.
const LISTINGS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_can_be_pinned_to_each_processor_it_may_use() {
        for processor in allowed_processors().unwrap() {
            std::thread::spawn(move || {
                pin(None, processor).unwrap();
                assert_eq!(allowed_processors().unwrap(), [processor]);
            })
            .join()
            .unwrap();
        }
        assert!(pin(None, CpuSet::MAX_CPU).is_err());
    }

    #[test]
    fn work_is_accounted_to_the_thread_that_does_it() {
        let (idle, worker) = (
            own_thread(),
            std::thread::spawn(|| {
                let start = own_cpu_time();
                while own_cpu_time() < start + Duration::from_millis(20) {
                    std::hint::spin_loop();
                }
                (own_thread(), cpu_time(own_thread()).unwrap().running)
            }),
        );
        let (thread, account) = worker.join().unwrap();
        assert_ne!(thread, idle);
        assert!(account >= Duration::from_millis(15), "{account:?}");
        let process = rustix::process::getpid();
        assert!(threads(process).unwrap().contains(&idle));
        assert!(cpu_time(process).unwrap().slices > 0);
        assert_eq!(
            cpu_time(Pid::from_raw(i32::MAX).unwrap()).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }

    #[test]
    fn no_kernel_thread_has_an_unlikely_name() {
        assert_eq!(kernel_threads("no such thread").unwrap(), []);
    }
}
