//! The control plane of a test. It answers a NIC's questions about peers, at once or when the test lets it.
#![allow(dead_code, reason = "not every test uses everything")]

use std::sync::{Arc, Mutex, OnceLock, Weak, mpsc};
use std::time::Duration;

use tidegate_hal::nic::{News, Nic};

/// Longer than a peer's departure takes, however busy the machine is.
const LONG: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(crate) struct Plane {
    nic: OnceLock<Weak<dyn Nic>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Questions are not answered.
    is_mute: bool,
    /// How many questions it was asked.
    asked: usize,
    /// The questions without an answer: the peer, and the number of the question.
    open: Vec<(usize, u64)>,
}

impl Plane {
    /// Sets the NIC that it gives news to.
    pub(crate) fn serves(&self, nic: &Arc<dyn Nic>) {
        assert!(self.nic.set(Arc::downgrade(nic)).is_ok(), "it serves one");
    }

    /// The function for `Connection::asks`.
    pub(crate) fn asks(self: &Arc<Self>) -> impl Fn(usize, u64) + Send + Sync + 'static {
        let plane = Arc::downgrade(self);
        move |peer, number| {
            let Some(plane) = plane.upgrade() else { return };
            let mut state = plane.state.lock().unwrap();
            state.asked += 1;
            state.open.push((peer, number));
            let is_mute = state.is_mute;
            drop(state);
            if !is_mute {
                plane.answers();
            }
        }
    }

    /// Gives no answers from now on.
    pub(crate) fn is_mute(&self) {
        self.state.lock().unwrap().is_mute = true;
    }

    /// How often it was asked.
    pub(crate) fn asked(&self) -> usize {
        self.state.lock().unwrap().asked
    }

    /// Answers that the peer is there, to all open questions and to later ones.
    pub(crate) fn answers(&self) {
        let open = {
            let mut state = self.state.lock().unwrap();
            state.is_mute = false;
            std::mem::take(&mut state.open)
        };
        for (peer, number) in open {
            self.tell(peer, News::There(number));
        }
    }

    fn tell(&self, peer: usize, news: News) {
        if let Some(nic) = self.nic.get().and_then(Weak::upgrade) {
            nic.hear(peer, news);
        }
    }
}

/// Lets a peer leave, and waits until its departure is over.
pub(crate) fn leaves(nic: &dyn Nic, peer: usize) {
    let (over, is_over) = mpsc::channel();
    let then = move || over.send(()).unwrap();
    nic.hear(peer, News::Left(Box::new(then)));
    is_over.recv_timeout(LONG).expect("it never ends");
}
