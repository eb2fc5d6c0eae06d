//! Tasks of one thread that are waited for together.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::Future;
use std::rc::Rc;

use tokio::sync::mpsc;

use super::engine::Runtime;

/// Tasks of the calling thread, however many. They need no place here once they have ended.
pub(super) struct Crew {
    /// Each task holds a copy; nothing is ever sent.
    held: mpsc::Sender<Infallible>,
    /// Ends when no task holds a sender any more.
    all_gone: mpsc::Receiver<Infallible>,
    unfinished: Rc<Cell<u64>>,
}

impl Crew {
    pub(super) fn new() -> Self {
        let (held, all_gone) = mpsc::channel(1);
        Self { held, all_gone, unfinished: Rc::default() }
    }

    /// Runs `task` beside the others.
    pub(super) fn spawn<R: Runtime>(&self, task: impl Future<Output = ()> + 'static) {
        let (held, unfinished) = (self.held.clone(), Rc::clone(&self.unfinished));
        unfinished.set(unfinished.get() + 1);
        R::spawn(async move {
            task.await;
            unfinished.set(unfinished.get() - 1);
            drop(held);
        });
    }

    /// Waits until all tasks have ended and what they held is dropped.
    ///
    /// # Panics
    /// A task has: its request would be in no figure.
    pub(super) async fn ended(self) {
        let Self { held, mut all_gone, unfinished } = self;
        drop(held);
        // Never a message.
        let _ = all_gone.recv().await;
        assert_eq!(unfinished.get(), 0, "tasks of the load panicked");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::engine::{Epoll, Glommio};

    fn waits_for_all<R: Runtime>() {
        let ended = Rc::new(Cell::new(0));
        R::start().unwrap().run(async {
            let crew = Crew::new();
            for turns in 0..10 {
                let ended = Rc::clone(&ended);
                crew.spawn::<R>(async move {
                    for _ in 0..turns {
                        R::breathe().await;
                    }
                    ended.set(ended.get() + 1);
                });
            }
            crew.ended().await;
            assert_eq!((ended.get(), Rc::strong_count(&ended)), (10, 1));
        });
    }

    #[test]
    fn all_tasks_have_ended_and_let_go_of_what_they_held() {
        waits_for_all::<Epoll>();
        waits_for_all::<Glommio>();
    }

    #[test]
    #[should_panic(expected = "panicked")]
    fn a_task_that_panics_is_no_task_that_ended() {
        Epoll::start().unwrap().run(async {
            let crew = Crew::new();
            crew.spawn::<Epoll>(async { panic!("a task") });
            crew.ended().await;
        });
    }
}
