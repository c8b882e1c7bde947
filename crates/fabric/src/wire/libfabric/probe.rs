//! Finding out how a triggered endpoint can signal.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_ffi::fabric::{
    AddressVector, Completion, CompletionQueue, Counter, Desc, Endpoint, FabricError, Local,
    MemoryRegion, OpFlags, Remote, WaitObject, Work, WorkQueue,
};

use super::super::chain::Signals;
use super::error::OpenError;
use super::region::{PAD, Pad};

/// The provider whose hardware fires deferred works.
pub(super) const HARDWARE: &str = "cxi";
/// The longest time of a probe.
pub(super) const LIMIT: Duration = Duration::from_secs(2);
/// The bits that a probe sends.
const SAID: u64 = 0x7469_6465_6761_7465;

/// The endpoint that is probed.
pub(super) struct Ends<'a> {
    pub(super) endpoint: &'a Arc<Endpoint>,
    pub(super) vector: &'a Arc<AddressVector>,
    pub(super) queue: &'a Arc<CompletionQueue>,
    pub(super) pad: &'a MemoryRegion,
    pub(super) bytes: &'a Arc<Pad>,
    /// Whether the endpoint counts writes of peers.
    pub(super) counts: bool,
    pub(super) wanted: Option<Signals>,
}

/// How signals are made: as requested, or else in the first way that works.
pub(super) fn signals(ends: &Ends<'_>) -> Result<Signals, OpenError> {
    let forms = match ends.wanted {
        Some(form) => vec![form],
        None => vec![Signals::Notice, Signals::Add],
    };
    let mut tried = Vec::new();
    for form in forms {
        match ends.try_form(form) {
            Ok(()) => return Ok(form),
            Err(why) => tried.push(format!("signals by {form:?}: {why}")),
        }
    }
    let tried = tried.join(", ");
    Err(OpenError::NotTriggered { tried })
}

impl Ends<'_> {
    /// Signals to itself, once. The counters go when the work is complete; if it never is, it is leaked with all that
    /// it needs.
    fn try_form(&self, form: Signals) -> Result<(), String> {
        let text = |error: FabricError| error.to_string();
        if form == Signals::Add && !self.counts {
            return Err("nothing counts what peers write".into());
        }
        let name = self.endpoint.name().map_err(text)?;
        let own = self.vector.insert(&[name]).map_err(|e| e.to_string())?[0];
        let to = Remote {
            peer: own,
            address: self.pad.remote_base(),
            key: self.pad.key().ok_or("its keys are no numbers")?,
        };
        let domain = self.endpoint.domain();
        let counter = || Counter::open(domain, WaitObject::NONE).map_err(text);
        let (trigger, done) = (counter()?, counter()?);
        let make = || {
            let made = match form {
                Signals::Notice => {
                    let from = Local {
                        address: self.bytes.at(),
                        len: PAD,
                        desc: Desc::NONE,
                    };
                    let flags = OpFlags::DELIVERY_COMPLETE | OpFlags::REMOTE_CQ_DATA;
                    Work::write(self.endpoint, from, to).map(|work| work.flags(flags).data(SAID))
                }
                Signals::Add => Work::add(self.endpoint, 0, to)
                    .map(|work| work.flags(OpFlags::DELIVERY_COMPLETE)),
            };
            let work = made.map_err(text)?.after(&trigger, 1).completes(&done);
            Ok::<_, String>(work.keep(self.bytes.clone()))
        };
        let works = WorkQueue::new(domain);
        let start = Instant::now();
        loop {
            // SAFETY: the bytes are kept by the work and written by nobody; the counter counts nothing else.
            match unsafe { works.queue(make()?) } {
                Ok(_) => break,
                // Other processes may have taken all room, for a moment.
                Err(error) if error.is_full() && start.elapsed() < LIMIT => {
                    std::thread::yield_now();
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        trigger.add(1).map_err(text)?;
        let mut heard = form == Signals::Add;
        while done.read() == 0 || !heard {
            let mut entry = [Completion::default()];
            match self.queue.read(&mut entry) {
                Ok(0) => std::thread::yield_now(),
                Ok(_) => heard |= entry[0].remote_data() == Some(SAID),
                Err(error) => return Err(error.to_string()),
            }
            if start.elapsed() > LIMIT {
                return Err("it was fired, and nothing came".into());
            }
        }
        works.reclaim();
        Ok(())
    }
}
