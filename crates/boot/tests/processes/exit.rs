//! A process that ends while its control plane still serves others. Once it exits, no other thread of it can.

use super::ground::{LONG, job, mark, wait_for};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use tidegate_boot::TcpControl;
use tidegate_cli::Signal;
use tidegate_hal::control::{Control, Event};

/// A rank's program. Rank 0 has left, and its process ends; rank 1 stays.
pub(super) fn play(role: &str, control: &TcpControl, events: &Receiver<Event>) {
    control.exchange("start", Vec::new()).unwrap();
    match (role, control.rank()) {
        ("handles signals", 0) => {
            let (mut heard, signalled) = std::os::unix::net::UnixStream::pair().unwrap();
            signal_hook::low_level::pipe::register(libc::SIGINT, signalled).unwrap();
            std::thread::spawn(move || {
                std::io::Read::read_exact(&mut heard, &mut [0]).unwrap();
                std::process::exit(130);
            });
            leave_and_exit(control);
        }
        ("handles signals", _) => loop {
            let event = events.recv_timeout(LONG).unwrap();
            if matches!(event, Event::Lost { rank: 0, .. }) {
                mark("lost", 0);
                return;
            }
        },
        ("subscriber exits", 0) => {
            tracing::subscriber::set_global_default(Exits).unwrap();
            leave_and_exit(control);
        }
        ("subscriber exits", _) => {
            let marks = std::path::PathBuf::from(std::env::var_os("TEST_MARKS").unwrap());
            let started = Instant::now();
            while !marks.join("exits.0").exists() && started.elapsed() < LONG {
                std::thread::sleep(Duration::from_millis(5));
            }
            std::process::abort();
        }
        other => panic!("no such role: {other:?}"),
    }
}

fn leave_and_exit(control: &TcpControl) {
    extern "C" fn exits() {
        mark("exits", 0);
    }
    control.leave();
    // The function runs before those that were registered when this rank joined. So the process exits, but has not
    // begun to wait.
    // SAFETY: the function is this program's, and may be called from anywhere.
    assert_eq!(unsafe { libc::atexit(exits) }, 0);
}

/// Ends the process at each warning.
struct Exits;

impl tracing::Subscriber for Exits {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn event(&self, _: &tracing::Event<'_>) {
        std::process::exit(9);
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// The program's thread for the signal cannot end the process any more.
#[test]
fn a_signal_ends_a_process_that_waits_for_others_at_its_exit() {
    let marks = tempfile::tempdir().unwrap();
    let job = job("exit: handles signals", 2).env("TEST_MARKS", marks.path());
    let job = job.spawn().unwrap();
    wait_for(&marks, "exits.0");
    let started = Instant::now();
    while !marks.path().join("lost.0").exists() {
        assert!(started.elapsed() < LONG, "rank 0 waits for ever");
        let _ = job.signal(0, Signal::INT);
        std::thread::sleep(Duration::from_millis(50));
    }
    let outcome = job.wait();
    use std::os::unix::process::ExitStatusExt;
    let signal = outcome.ranks[0].status.signal();
    assert_eq!(signal, Some(libc::SIGINT), "{outcome:?}");
}

/// The service of rank 0 is stuck in a subscriber of `tracing` for ever.
#[test]
fn a_process_does_not_wait_for_a_service_that_is_stuck_at_its_exit() {
    let marks = tempfile::tempdir().unwrap();
    let job = job("exit: subscriber exits", 2)
        .env("TEST_MARKS", marks.path())
        .env("TIDEGATE_HEARTBEAT_MS", "100")
        .env("TIDEGATE_SILENCE_MS", "1500");
    let outcome = job.run().unwrap();
    assert_eq!(outcome.ranks[0].status.code(), Some(0), "{outcome:?}");
    let text = String::from_utf8_lossy(&outcome.ranks[0].stderr).into_owned();
    assert!(text.contains("does nothing any more"), "{text}");
}
