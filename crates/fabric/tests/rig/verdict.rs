//! Fails a test whose wire has failed although it may not. A thread of the NIC hears of the failure, and a panic there
//! would fail no test.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// To be dropped after the endpoint, on the thread of the test. Its drop fails the test.
pub(crate) struct Verdict {
    may_fail: Arc<AtomicBool>,
    why: Arc<Mutex<Option<String>>>,
}

impl Verdict {
    pub(crate) fn new(may_fail: Arc<AtomicBool>) -> Self {
        let why = Arc::default();
        Verdict { may_fail, why }
    }

    /// The function for `Connection::failed`.
    pub(crate) fn hears(&self) -> impl Fn(String) + Send + Sync + 'static {
        let heard = self.why.clone();
        move |why| *heard.lock().unwrap() = Some(why)
    }
}

impl Drop for Verdict {
    fn drop(&mut self) {
        let why = self.why.lock().unwrap().take();
        if let Some(why) = why.filter(|_| !self.may_fail.load(Ordering::SeqCst))
            && !std::thread::panicking()
        {
            panic!("the wire has failed, and may not: {why}");
        }
    }
}
