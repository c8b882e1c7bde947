//! What happens to a stream when code of the program panics.

use std::panic::Location;

use super::*;

#[test]
fn a_panic_in_a_stream_fails_it_and_poisons_what_others_wait_for() {
    let device = Host::over(Arc::new(Fails::default()));
    for (recorded, inline) in [(false, false), (true, false), (false, true), (true, true)] {
        let s = stream(&device, inline);
        let (source, words, bell) = (7, [Word::new(0), Word::new(0)], Bell::new());
        let batches = words
            .each_ref()
            .map(|word| put_and_signal(&source, word, &bell));
        if recorded {
            s.begin_capture(&[]).unwrap();
        }
        for batch in &batches {
            // SAFETY: the promises of the batch hold.
            unsafe { s.submit(batch, Location::caller()) }.unwrap();
        }
        if recorded {
            let graph = Arc::new(s.end_capture(&[]).unwrap());
            // SAFETY: as above.
            unsafe { s.replay(&[], &graph, 3) }.unwrap();
        }
        let fault = s.synchronize().unwrap().unwrap_err();
        match fault {
            Fault::Transport(detail) => assert!(detail.contains("on purpose"), "{detail}"),
            other => panic!("{other:?}"),
        }
        for word in &words {
            assert_eq!(
                word.load(),
                POISON,
                "recorded: {recorded}, inline: {inline}"
            );
        }
    }
}

/// A waker that panics.
struct Bad;

impl Wake for Bad {
    fn wake(self: Arc<Self>) {
        panic!("on purpose")
    }
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("on purpose")
    }
}

#[test]
fn wakers_and_garbage_that_panic_do_not_end_a_stream() {
    let device = Host::for_threads();
    let s = stream(&device, false);
    let gate = Arc::new(std::sync::Barrier::new(2));
    let here = gate.clone();
    let waits = move |_: &dyn Issues| {
        here.wait();
    };
    // SAFETY: the kernel touches nothing but what it owns.
    unsafe { s.launch::<(), _>(waits) }.unwrap();
    let mark = s.mark();
    assert!(!s.reclaim().wake_at(mark, 1, &Waker::from(Arc::new(Bad))));
    s.reclaim().retire(Box::new(Bomb));
    gate.wait();
    s.synchronize().unwrap().unwrap();
    // SAFETY: as above.
    unsafe { s.launch::<(), _>(|_| {}) }.unwrap();
    s.synchronize().unwrap().unwrap();
}

#[test]
fn a_kernel_whose_drop_panics_is_a_kernel_that_panicked() {
    let device = Host::for_threads();
    for (recorded, inline) in [(false, false), (true, false), (false, true), (true, true)] {
        let s = stream(&device, inline);
        if recorded {
            s.begin_capture(&[]).unwrap();
        }
        let gate = Arc::new(std::sync::Barrier::new(2));
        // An inline stream runs on this thread, so its kernels wait for nothing.
        let (here, waits) = (gate.clone(), !inline);
        for bomb in [Bomb, Bomb] {
            let here = here.clone();
            let kernel = move |_: &dyn Issues| {
                let _bomb = &bomb;
                if waits {
                    here.wait();
                }
            };
            // SAFETY: the kernel touches nothing but what it owns.
            unsafe { s.launch::<(), _>(kernel) }.unwrap();
        }
        if recorded {
            let graph = Arc::new(s.end_capture(&[]).unwrap());
            // SAFETY: as above.
            unsafe { s.replay(&[], &graph, 1) }.unwrap();
            // The stream drops the kernels one by one, or this thread does if all has been done. No panic gets out.
            drop(graph);
        }
        if waits {
            gate.wait();
            // Kernels after one that has panicked are not called.
            if recorded {
                gate.wait();
            }
        }
        let ended = s.synchronize().unwrap();
        if recorded && inline {
            assert_eq!(ended, Ok(()));
        } else {
            assert_eq!(ended, Err(Fault::Kernel("on purpose".into())));
        }
    }
}

#[test]
fn a_capture_that_is_given_up_drops_its_kernels_one_by_one() {
    let s = stream(&Host::for_threads(), false);
    s.begin_capture(&[]).unwrap();
    for bomb in [Bomb, Bomb] {
        // SAFETY: the kernel touches nothing but what it owns.
        unsafe { s.launch::<(), _>(move |_| _ = &bomb) }.unwrap();
    }
    drop(s);
}
