//! Requests of peers, which this rank's engine applies and answers: see [`crate::mail`].
//!
//! # Model
//!
//! A request comes from the peer of one of this rank's queues, on the line that both have. The engine applies it at
//! once, while it is turned, so the peer waits for no program of this rank. Its answer is a firing of a second queue to
//! that peer, which belongs to the engine alone. So answers are sent, watched, and told of their failure as all other
//! programs are. They have trigger slots of their own, because a firing of updates holds its slot until it is answered.
//!
//! The notice that ends the peer's firing is carried out at the end of the turn, when the answer has been posted.
//!
//! # Failure
//!
//! A request that is not the next one, or that makes no sense, is dropped. Its origin gives up when no answer comes.
//! Once a request was applied, its answer is sent, whatever becomes of the window. The second queue ends with the
//! first, when its last answer has arrived. It keeps what the first one kept, so this rank is not through with the peer
//! before that.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_hal::batch::QUANTUM;
use tidegate_hal::memory::Ptr;
use tidegate_hal::nic::{Direction, Keep, Prepared, QueueConfig};

use super::program::{Script, ScriptPiece, script};
use super::queue::Queue;
use super::queues::{Agenda, Answers};
use super::state::Engine;
use crate::mail::{Letter, Mail, ROOM, Zeroed, hint};
use crate::notice::Notice;
use crate::regions::Regions;
use crate::remote::RemoteRegion;
use crate::wire::{LAST, Wire};

/// The places in the memory of the second queue: its doorbell, its *sent* word, the bell of that, and two buffers for
/// answers. A buffer is used again when the answer before the last is through.
const DOORBELL: usize = 0;
const SENT: usize = 64;
const BELL: usize = 128;
const BUFFERS: usize = 192;

impl<W: Wire> Engine<W> {
    /// Reads the letters that have come.
    pub(super) fn read_letters(&mut self, regions: &Regions) {
        for (mail, number) in regions.take_letters() {
            self.heard += 1;
            let (line, letter) = Letter::of(number);
            let Some(index) = self.queue_of(&mail, line) else {
                self.strays
                    .drops("a letter has come to a queue that is gone");
                continue;
            };
            let read = match letter {
                Letter::Answer => {
                    self.answered_by(index);
                    Ok(())
                }
                Letter::Request => self.serve(index, &mail, line),
            };
            if let Err(why) = read {
                self.strays.drops(why);
            }
        }
    }

    /// Carries out what ends the firings of peers whose last requests were answered in this turn.
    pub(super) fn end_served(&mut self, regions: &Regions) {
        for notice in std::mem::take(&mut self.served) {
            regions.hear(Notice::decode(notice));
        }
    }

    /// The number of the queue of a line.
    fn queue_of(&self, mail: &Mail, line: usize) -> Option<usize> {
        let word = mail.signalled(line);
        let is = |index: &usize| {
            let agenda = self.queues.all.at(*index);
            agenda.is_some_and(|agenda| agenda.queue.back() == word)
        };
        let known = hint(mail.queue(line));
        let found = Some(known).filter(is);
        let found = found.or_else(|| (0..self.queues.all.numbers()).find(is))?;
        mail.queue(line).store(found, Ordering::Relaxed);
        Some(found)
    }

    /// Applies the request that has come on a line, and answers it.
    fn serve(&mut self, index: usize, mail: &Arc<Mail>, line: usize) -> Result<(), &'static str> {
        let agenda = self.queues.get(index);
        if agenda.answers.is_none() {
            // The peer's request came behind this rank's signal to it, by the same queue.
            let firing = agenda.firing().map(|firing| &firing.program);
            let word = firing.map(|program| script::<W>(program).word.clone());
            let word = word.or_else(|| agenda.doubt.signalled());
            let place = word.and_then(|(region, offset)| {
                let mail = region.mail.as_ref()?;
                Some((mail.region.clone(), mail.place(offset, Letter::Answer)?))
            });
            let (to, place) =
                place.ok_or("a request has come from a peer that was not exposed to")?;
            let (peer, keep) = (agenda.queue.peer, agenda.queue.keep());
            let answers = self.begin_answers(peer, keep, to, place)?;
            self.queues.get(index).answers = Some(answers);
        }
        let answers = self.queues.get(index).answers.as_mut();
        let answers = answers.expect("it was made above");
        let parity = (answers.served % 2) as usize;
        let buffer = answers.memory.at(BUFFERS + parity * ROOM);
        // SAFETY: the buffer is as long, and aligned. The peer sends a request when it has the answer to the one
        // before. That answer was posted when the one before it was through, and that was the last to use this buffer.
        let applied = unsafe { mail.apply(line, answers.served, buffer) }?;
        answers.served += 1;
        let programs = match &answers.program {
            Some((bytes, programs)) if *bytes == applied.answer => programs.clone(),
            _ => {
                let programs: Arc<[Prepared]> = [answers.prepare(applied.answer)].into();
                answers.program = Some((applied.answer, programs.clone()));
                programs
            }
        };
        let armed = answers.queue.arm(&programs, 1);
        answers.memory.word(DOORBELL).add(QUANTUM);
        let number = answers.number;
        self.queues.make_ready(number);
        if applied.notice != 0 {
            self.served.push(applied.notice);
        }
        armed.map_or(Err("an answer could not be sent"), |_| Ok(()))
    }

    /// Makes the queue for the answers to a peer's requests.
    fn begin_answers(
        &mut self,
        peer: usize,
        keep: Keep,
        to: Arc<RemoteRegion<W>>,
        place: (u64, usize, usize),
    ) -> Result<Answers<W>, &'static str> {
        let memory = Zeroed::new(BUFFERS + 2 * ROOM);
        let memory = Arc::new(memory.map_err(|_| "there is no memory for answers")?);
        let config = QueueConfig {
            doorbell: Ptr(memory.at(DOORBELL)),
            sent: Ptr(memory.at(SENT)),
            sent_bell: Ptr(memory.at(BELL)),
            back: Ptr::NULL,
            keep: Arc::new((memory.clone(), keep)),
        };
        let departure = self.peers.departures.of(peer).clone();
        let queue = Arc::new(Queue::new(peer, departure, config, &self.answer_slots));
        let number = self.queues.add(Agenda::new(queue.clone(), None));
        Ok(Answers {
            queue,
            number,
            memory,
            to,
            place,
            served: 0,
            program: None,
        })
    }
}

impl<W: Wire> Answers<W> {
    /// The program that sends an answer of so many bytes.
    fn prepare(&self, bytes: usize) -> Prepared {
        let (notice, word, room) = self.place;
        let piece = ScriptPiece {
            direction: Direction::Put,
            rows: 0..0,
            local: self.memory.at(BUFFERS),
            local_flip: ROOM,
            bytes,
            remote: self.to.clone(),
            offset: room,
            flip: 0,
            stage: 0,
            rail: 0,
        };
        Prepared(Arc::new(Script {
            pieces: Some(piece).filter(|_| bytes > 0).into_iter().collect(),
            rows: Vec::new(),
            asks: 0,
            parts: None,
            longest: bytes as u64,
            signal: notice,
            first: 0,
            poison: notice | LAST,
            word: (self.to.clone(), word),
            requests: None,
            _keep: vec![self.memory.clone()],
        }))
    }
}
