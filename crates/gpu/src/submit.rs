//! Submitting a batch in one of three forms: whole, apart, or in parts.
//!
//! # Model
//!
//! | form | when | what is enqueued |
//! |---|---|---|
//! | whole | in a recording, and whenever no other row applies | one launch |
//! | apart | a lane has a large put, and the stream has couriers | on the couriers: wait, copies, write; then one launch |
//! | in parts | processes use the GPU in turn (or the environment asks for gates), and the batch is not the first behind a hand-off | up to three launches, with gates |
//!
//! # Failure
//!
//! A [`Form`] has everything that can be refused: the stream's quota, and memory for the program. It is made before
//! anything is enqueued, so it can also be made in advance ([`prepare`](tidegate_hal::device::Stream::prepare)).
//!
//! The stream holds what the batch names before any part is enqueued, and counts the item afterwards. Otherwise a
//! thread that looks in between would take the item for passed.
//!
//! If the driver refuses a part of a batch after it took another part, the batch counts as submitted, and the stream
//! has failed: a post that was enqueued cannot be taken back. If it refuses the couriers' part, nothing is launched,
//! and the stream has no couriers from then on; they wait for ever ([`crate::courier`]).
//!
//! The same holds for a replay, which can be several launches, and which other streams may have to come after.

use std::ffi::c_void;
use std::sync::Arc;

use tidegate_hal::batch::Batch;
use tidegate_hal::device::{DeviceError, Stream as _};

use crate::courier::Couriers;
use crate::driver::{Doing, WordOp};
use crate::followed::{Followed, LOOKED_AT};
use crate::gates::Bars;
use crate::last::Last;
use crate::line::First;
use crate::lower::operands::{self, Advance};
use crate::place::{ApartForm, Forms, PartForm, Placed};
use crate::reports::refused_or_broken_off;
use crate::stream::GpuStream;

/// The form in which a batch is submitted, with everything that the submission needs. Nothing is left that could be
/// refused for lack of memory or blocks.
pub(crate) enum Form<'a> {
    /// There is nothing to do.
    Nothing,
    /// One launch. It advances operands this far, if they are counted.
    Whole(Arc<Placed>, Advance),
    Apart(Arc<ApartForm>, &'a Couriers),
    Parts(Arc<[PartForm]>),
}

/// What the form of a batch depends on.
#[derive(Clone, Copy, Debug)]
struct Case {
    /// The batch has nothing to do.
    empty: bool,
    /// Waits on this GPU have gates.
    gated: bool,
    capturing: bool,
    /// The batch is the first behind a hand-off.
    follows: bool,
    /// A lane has a large put.
    large: bool,
}

/// The form of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice<C> {
    Nothing,
    Whole,
    /// With these couriers.
    Apart(C),
    Parts,
}

impl Case {
    /// Chooses by the table in the module's documentation. It asks for the stream's `couriers`, which makes them, only
    /// if they have work.
    fn choose<C>(self, couriers: impl FnOnce() -> Option<C>) -> Choice<C> {
        if self.empty {
            return Choice::Nothing;
        }
        if self.capturing {
            return Choice::Whole;
        }
        match self.gated {
            // A gate does not end when another stream fails. So the batch that looks at other streams has no gates.
            true if self.follows => Choice::Whole,
            true => Choice::Parts,
            false if self.large => couriers().map_or(Choice::Whole, Choice::Apart),
            false => Choice::Whole,
        }
    }

    /// Whether the batch has parts once another batch is submitted before it, although it is whole now.
    fn has_parts_later(self) -> bool {
        let later = Case {
            follows: false,
            ..self
        };
        let parts = |case: Case| case.choose(|| None::<()>) == Choice::Parts;
        parts(later) && !parts(self)
    }
}

impl GpuStream {
    /// The forms that were made of a batch, and how many blocks it may have.
    fn forms_of(&self, batch: &Arc<Batch>) -> Result<(Arc<Forms>, usize), DeviceError> {
        let (gpu, quota) = (&self.shared.gpu, self.shared.quota()?);
        gpu.enter()?;
        let forms = batch.lowered(
            |forms: &Forms| forms.fits(gpu, quota),
            || Ok::<_, DeviceError>(Forms::new(gpu, batch)),
        )?;
        Ok((forms, quota))
    }

    /// Makes every form in which the batch may be submitted to this stream, now or behind other batches.
    pub(crate) fn prepare_batch(&self, batch: &Arc<Batch>) -> Result<(), DeviceError> {
        self.form_of(batch)?;
        let (forms, quota) = self.forms_of(batch)?;
        if self.case(batch, &forms).has_parts_later() {
            forms.parts(batch, quota)?;
        }
        Ok(())
    }

    fn case(&self, batch: &Batch, forms: &Forms) -> Case {
        Case {
            empty: batch.lanes().is_empty(),
            gated: self.shared.gpu.gated(),
            capturing: self.capturing(),
            follows: !self.followed.is_empty(),
            large: forms.large,
        }
    }

    /// The form in which the batch would be submitted to this stream now.
    pub(crate) fn form_of(&self, batch: &Arc<Batch>) -> Result<Form<'_>, DeviceError> {
        let (forms, quota) = self.forms_of(batch)?;
        let case = self.case(batch, &forms);
        if !case.empty && self.followed.are_too_many() {
            self.look()?;
        }
        Ok(match case.choose(|| self.shared.couriers()) {
            Choice::Nothing => Form::Nothing,
            Choice::Parts => Form::Parts(forms.parts(batch, quota)?),
            Choice::Apart(couriers) => Form::Apart(forms.apart(batch, quota, couriers)?, couriers),
            Choice::Whole => {
                let advance = if case.gated {
                    operands::advance_of(batch)
                } else {
                    Advance::new()
                };
                Form::Whole(forms.whole(batch, quota, case.capturing)?, advance)
            }
        })
    }

    /// # Safety
    ///
    /// As [`Stream::submit`](tidegate_hal::device::Stream::submit).
    pub(crate) unsafe fn submit_batch(&self, batch: &Arc<Batch>) -> Result<(), DeviceError> {
        let form = self.form_of(batch)?;
        if !matches!(form, Form::Nothing) {
            self.look_while(Followed::are_too_many)?;
        }
        // The batch may be lowered again for another stream. This stream's programs must live until it has passed them.
        let mark = self.shared.submitted() + 1;
        if !matches!(form, Form::Nothing) {
            self.hold(batch.clone(), mark);
        }
        match form {
            Form::Nothing => Ok(()),
            // SAFETY: the caller's promise.
            Form::Parts(parts) => unsafe { self.submit_parts(&parts) },
            // SAFETY: the caller's promise.
            Form::Apart(form, couriers) => unsafe { self.submit_apart(&form, couriers) },
            // SAFETY: the caller's promise.
            Form::Whole(program, advance) => unsafe { self.submit_whole(program, advance) },
        }
    }

    /// # Safety
    ///
    /// As `submit`, for what the program does.
    unsafe fn submit_whole(
        &self,
        program: Arc<Placed>,
        advance: Advance,
    ) -> Result<(), DeviceError> {
        let shared = &self.shared;
        self.hold(program.clone(), shared.submitted() + 1);
        if !self.capturing() {
            program.launches();
        }
        // SAFETY: the caller's promise.
        let launched = self.following(|follow| unsafe { self.launch(&program, follow, false) });
        shared.count();
        launched?;
        // This comes after the launch. A count that is too low only costs time, but one that is too high would keep a
        // gate closed.
        if self.capturing() {
            self.recorded.borrow_mut().extend(advance);
        } else if !advance.is_empty() {
            shared.gpu.operands().advance(&advance, 1);
        }
        self.submitted()
    }

    /// # Safety
    ///
    /// As [`GpuStream::submit_batch`], for what the program does. The stream holds the program.
    pub(crate) unsafe fn launch(
        &self,
        program: &Placed,
        follow: [u64; LOOKED_AT],
        behind_gate: bool,
    ) -> Result<(), DeviceError> {
        if program.is_empty() {
            return Ok(());
        }
        let shared = &self.shared;
        shared.widens_to(program.blocks);
        self.other_follows();
        if program.crowded {
            // The reports of a recording are this stream's, on whichever stream and whenever it is replayed.
            let until = if self.capturing() {
                u64::MAX
            } else {
                shared.submitted() + 1
            };
            shared.crowded.until(until);
        }
        let expected = &program.expected;
        let lets_next_come = expected.lets_next_come(shared.gpu.early, self.capturing());
        let (state, mirror) = (shared.state_address(), shared.mirror_address());
        let mut parameter = program.parameter(state, mirror, follow, lets_next_come);
        let mut arguments = [std::ptr::from_mut(&mut parameter).cast::<c_void>()];
        // SAFETY: the kernel takes one parameter, of this type. The caller promises for what the batch names, and holds
        // the program until the stream has passed it.
        let launched = unsafe {
            shared.gpu.driver.launch(
                shared.kernels().of_program(program.reduces),
                &program.config(behind_gate),
                shared.raw,
                &mut arguments,
            )
        };
        launched
            .map_err(|error| shared.note(error))
            .doing("launching a batch")?;
        let last = Last::Batch {
            expected: expected.clone(),
            lets_next_come,
        };
        let first = match program.wide {
            true => First::Other,
            false => First::Batch,
        };
        self.launched(last, first);
        Ok(())
    }

    /// # Safety
    ///
    /// As `submit`, for what the form does.
    unsafe fn submit_apart(
        &self,
        form: &ApartForm,
        couriers: &Couriers,
    ) -> Result<(), DeviceError> {
        let shared = &self.shared;
        self.hold(form.program.clone(), shared.submitted() + 1);
        // SAFETY: the copies are moves of the batch. They are made after the wait that orders them, and before the add
        // that announces them, so the caller's promise for moves holds. If the stream fails in between, retired memory
        // is kept until the courier is back.
        unsafe { couriers.send(&form.errands) }
            .map_err(|error| shared.note(error))
            .doing("sending a courier")?;
        // SAFETY: the caller's promise.
        let launched =
            self.following(|follow| unsafe { self.launch(&form.program, follow, false) });
        shared.count();
        launched.inspect_err(|_| couriers.give_up(form.errands.len()))?;
        self.submitted()
    }

    /// # Safety
    ///
    /// As `submit`, for the parts together.
    unsafe fn submit_parts(&self, parts: &[PartForm]) -> Result<(), DeviceError> {
        let shared = &self.shared;
        let mark = shared.submitted() + 1;
        for part in parts {
            self.hold(part.program.clone(), mark);
        }
        let mut taken = false;
        let all = parts.iter().try_for_each(|part| {
            // SAFETY: the caller's promise.
            unsafe { self.submit_part(part, &mut taken) }
        });
        let all = refused_or_broken_off(taken, all, |error| shared.break_off("a batch", error));
        shared.count();
        all?;
        self.submitted()
    }

    /// `taken` is set once anything has been enqueued. A gate counts, since it cannot be taken back.
    ///
    /// # Safety
    ///
    /// As [`GpuStream::submit_batch`], for the part, which the stream holds.
    unsafe fn submit_part(&self, part: &PartForm, taken: &mut bool) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise.
        let behind_gate = unsafe { self.put_gate(part) }?;
        *taken |= behind_gate;
        // SAFETY: the caller's promise. No other stream is followed.
        unsafe { self.launch(&part.program, [0; LOOKED_AT], behind_gate) }?;
        *taken = true;
        self.shared.gpu.operands().advance(&part.advance, 1);
        Ok(())
    }

    /// Enqueues the gate of a part, if it needs one. Returns whether it does.
    ///
    /// # Safety
    ///
    /// The words live until the stream has passed the part.
    unsafe fn put_gate(&self, part: &PartForm) -> Result<bool, DeviceError> {
        let shared = &self.shared;
        let bars = {
            let known = shared.gpu.operands();
            Bars::new(&part.gate, |wait| known.awaited(wait))
        };
        if bars.bars.is_empty() {
            return Ok(false);
        }
        let waits = bars.bars.iter();
        let waits: Vec<_> = waits.map(|bar| WordOp::Wait(bar.word, bar.value)).collect();
        let Some(number) = shared.add_gate(bars) else {
            return Ok(false);
        };
        let come = WordOp::Write32(shared.gate_address(), number);
        let operations: Vec<_> = std::iter::once(come).chain(waits).collect();
        self.other_follows();
        // SAFETY: the stream is live; the mirror is pinned, and only this stream uses it; the caller promises for the
        // words.
        unsafe { shared.gpu.driver.stream_word_ops(shared.raw, &operations) }
            .map_err(|error| shared.note(error))
            .doing("putting a gate")
            .inspect_err(|_| shared.take_gate_back())?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every case.
    fn cases() -> impl Iterator<Item = Case> {
        (0..32).map(|bits: u32| {
            let is = |bit: u32| bits >> bit & 1 == 1;
            Case {
                empty: is(0),
                gated: is(1),
                capturing: is(2),
                follows: is(3),
                large: is(4),
            }
        })
    }

    #[test]
    fn the_form_of_a_batch_is_as_the_table_says() {
        for (case, has_couriers) in cases().flat_map(|case| [(case, false), (case, true)]) {
            let mut asked = false;
            let choice = case.choose(|| {
                asked = true;
                has_couriers.then_some("couriers")
            });
            let Case {
                empty,
                gated,
                capturing,
                follows,
                large,
            } = case;
            let expected = match (empty, capturing, gated, follows, large, has_couriers) {
                (true, ..) => Choice::Nothing,
                (_, false, true, false, ..) => Choice::Parts,
                (_, false, false, _, true, true) => Choice::Apart("couriers"),
                _ => Choice::Whole,
            };
            assert_eq!(choice, expected, "{case:?}");
            // Asking for couriers makes them, and each takes a hardware queue.
            let wanted = !empty && !capturing && !gated && large;
            assert_eq!(asked, wanted, "{case:?}");
        }
    }

    /// A prepared batch may be submitted behind another batch, which then looks at the streams that are followed.
    #[test]
    fn what_is_prepared_is_all_that_a_batch_can_become() {
        let form = |case: Case| case.choose(|| Some(()));
        for case in cases() {
            let later = form(Case {
                follows: false,
                ..case
            });
            let prepared = if case.has_parts_later() {
                vec![form(case), Choice::Parts]
            } else {
                vec![form(case)]
            };
            assert!(prepared.contains(&later), "{case:?}");
            // Nothing more is prepared, since a program takes device memory.
            assert!(prepared.len() == 1 || prepared[0] != later, "{case:?}");
            let hand_off = case.gated && case.follows && !case.empty && !case.capturing;
            assert_eq!(prepared.len() == 2, hand_off, "{case:?}");
        }
    }

    #[test]
    fn only_what_has_begun_is_broken_off() {
        let refusal = || Err(DeviceError::Capturing("a test"));
        for (taken, all, refused, broken_off) in [
            (false, Ok(()), false, false),
            (true, Ok(()), false, false),
            (false, refusal(), true, false),
            (true, refusal(), false, true),
        ] {
            let mut broken = false;
            let said = refused_or_broken_off(taken, all, |_| broken = true);
            assert_eq!((said.is_err(), broken), (refused, broken_off), "{taken}");
        }
    }
}
