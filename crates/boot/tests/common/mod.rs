//! Jobs for tests: ranks as threads of this process, joined over TCP on the loopback address.
#![allow(dead_code, reason = "each test file uses a part")]

pub(crate) mod contract;

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;
use tidegate_boot::{BootError, Config, TcpControl};
use tidegate_hal::control::{
    Control, ControlError, Decision, Event, Handle, Letter, Packet, Proposal,
};

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

pub(crate) fn letter(rank: usize, bytes: &[u8], handles: Vec<Handle>) -> Letter {
    let bytes = bytes.to_vec();
    let packet = Packet { bytes, handles };
    Letter { rank, packet }
}

/// Sends letters in a call in which all ranks agree. Returns the letters to this rank.
pub(crate) fn write(
    control: &TcpControl,
    label: &str,
    letters: Vec<Letter>,
) -> Result<Vec<Letter>, ControlError> {
    let proposal = Proposal {
        letters,
        ..Proposal::default()
    };
    match control.confer(label, proposal)? {
        Decision::Agreed { letters, .. } => Ok(letters),
        other => panic!("{other:?}"),
    }
}

/// Sends the same letter to all ranks. Returns the letters of all.
pub(crate) fn write_to_all(
    control: &TcpControl,
    label: &str,
    bytes: &[u8],
    handles: &[Handle],
) -> Result<Vec<Packet>, ControlError> {
    let letters = (0..control.size()).map(|rank| letter(rank, bytes, handles.to_vec()));
    let all = write(control, label, letters.collect())?;
    assert!(all.iter().map(|letter| letter.rank).eq(0..control.size()));
    Ok(all.into_iter().map(|letter| letter.packet).collect())
}

pub(crate) fn events(control: &impl Control) -> Receiver<Event> {
    let (sender, receiver) = channel();
    control.subscribe(Arc::new(move |event| {
        let _ = sender.send(event);
    }));
    receiver
}
