//! Threads that own the state of a namespace and run jobs on it.

use std::sync::mpsc;
use std::thread;

type Job<S> = Box<dyn FnOnce(&mut S) + Send>;

/// A thread that owns some state. The thread ends when this handle is dropped.
pub(super) struct Worker<S> {
    jobs: Option<mpsc::Sender<Job<S>>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl<S: 'static> Worker<S> {
    /// Starts the thread, and waits until `setup` has created the state on it.
    pub(super) fn start(
        setup: impl FnOnce() -> Result<S, String> + Send + 'static,
    ) -> Result<Self, String> {
        let (jobs, incoming) = mpsc::channel::<Job<S>>();
        let (report, reported) = mpsc::channel();
        let serve = move || match setup() {
            Ok(mut state) => {
                let _ = report.send(Ok(()));
                for job in incoming {
                    job(&mut state);
                }
            }
            Err(why) => {
                let _ = report.send(Err(why));
            }
        };
        let thread = thread::Builder::new()
            .name("kernel oracle".to_owned())
            .spawn(serve)
            .map_err(|error| format!("cannot start the oracle's thread: {error}"))?;
        let worker = Self { jobs: Some(jobs), thread: Some(thread) };
        reported
            .recv()
            .map_err(|_| "the oracle's thread ended before it was ready".to_owned())??;
        Ok(worker)
    }

    /// Runs a job on the thread and waits for its result.
    ///
    /// # Panics
    ///
    /// Panics if the job panics.
    pub(super) fn run<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut S) -> R + Send + 'static,
    ) -> R {
        let (answer, answered) = mpsc::channel();
        let job: Job<S> = Box::new(move |state| {
            let _ = answer.send(job(state));
        });
        let jobs = self.jobs.as_ref().expect("jobs are open until the drop");
        jobs.send(job).expect("the thread serves until the drop");
        answered.recv().expect("the job ends with a result")
    }
}

impl<S> Drop for Worker<S> {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
