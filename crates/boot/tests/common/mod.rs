//! Jobs for tests: ranks as threads of this process, joined over TCP on the loopback address.
#![allow(dead_code, reason = "each test file uses a part")]

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;
use tidegate_boot::{BootError, Config, TcpControl};
use tidegate_hal::control::{Control, Event, Packet};

pub(crate) const SECRET: &str = "a secret that only this test knows";

/// Long enough for a loaded machine, short enough to fail within a test run.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Configurations for all ranks of a job. The port is reserved before it is needed.
pub(crate) fn configs(size: usize) -> Vec<Config> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut configs: Vec<_> = (0..size)
        .map(|rank| Config::new(rank, size, &*address, SECRET))
        .collect();
    configs[0].listener = Some(listener);
    configs
}

/// Joins all of `configs`, each in its own thread, and runs `body` there.
pub(crate) fn run<R: Send>(
    configs: Vec<Config>,
    body: impl Fn(Result<TcpControl, BootError>) -> R + Sync,
) -> Vec<R> {
    thread::scope(|scope| {
        let ranks: Vec<_> = configs
            .into_iter()
            .map(|config| scope.spawn(|| body(TcpControl::join(config))))
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Runs `body` on every rank of a job that starts.
pub(crate) fn job<R: Send>(size: usize, body: impl Fn(TcpControl) -> R + Sync) -> Vec<R> {
    run(configs(size), |joined| body(joined.unwrap()))
}

pub(crate) fn bytes(bytes: &[u8]) -> Packet {
    Packet {
        bytes: bytes.to_vec(),
        handles: Vec::new(),
    }
}

pub(crate) fn events(control: &TcpControl) -> Receiver<Event> {
    let (sender, receiver) = channel();
    control.subscribe(Arc::new(move |event| {
        let _ = sender.send(event);
    }));
    receiver
}
