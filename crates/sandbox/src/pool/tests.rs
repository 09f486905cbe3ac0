//! The end of a pool. Its tests with workers are in Python.

use super::*;
use crate::run::instance::ImageLayout;
use crate::run::runner::Reuse;
use std::time::Duration;

/// A pool of one slot without threads: a queued job stays there.
fn shared() -> Arc<Shared> {
    let file = std::env::current_exe().unwrap();
    let prepared = Prepared {
        module: file.clone(),
        image: file.clone(),
        archive: file.clone(),
        layout: ImageLayout::of_numbers(65536, [7, 8, 1, 12, 2, 65532, 3]).unwrap(),
    };
    let source = Source {
        program: Program::hold(&[file.into_os_string()]).unwrap(),
        guest: PinnedGuest::open(prepared).unwrap(),
    };
    Arc::new(Shared::new(
        source,
        Settings {
            workers: 1,
            reuse: Reuse::default(),
            result_cache_bytes: 0,
        },
    ))
}

#[test]
fn a_run_that_is_admitted_before_the_pool_ends_gets_its_error() {
    let large = Request {
        stdin: vec![0; 1 << 20],
        ..Request::default()
    };
    for start in [Shared::enqueue, Shared::run_here] {
        for request in [Request::default(), large.clone()] {
            let shared = shared();
            shared.lock().closed = true;
            let (sender, receiver) = mpsc::channel();
            let callback = Box::new(move |result| drop(sender.send(result)));
            start(&shared, Arc::new(Job::new(request, None, callback)));
            let result = receiver.try_recv();
            assert!(matches!(result, Ok(Err(RunError::Closed))), "{result:?}");
        }
    }
}

#[test]
fn a_thread_of_the_pool_may_close_it_while_another_thread_does() {
    let pool = Arc::new(Pool {
        shared: shared(),
        threads: Mutex::default(),
        owner: std::process::id(),
    });
    let slot = {
        let pool = Arc::clone(&pool);
        std::thread::spawn(move || {
            // A callback, while the other thread waits for this one.
            while !pool.shared.lock().closed {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(50));
            pool.close();
        })
    };
    lock(&pool.threads).push(slot);
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        pool.close();
        sender.send(()).unwrap();
    });
    assert_eq!(receiver.recv_timeout(Duration::from_secs(20)), Ok(()));
}
