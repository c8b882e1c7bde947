//! Reports and errors name the place in the program that made a call.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tidegate_host::Host;

use super::tests::wait_for_report;
use super::*;
use crate::window::{Buffers, BySlot, Inbox, Outbox, SlotWindow, exchange};
use crate::{AllReduce, Barrier, Region, Stream, World};

type Halves<'s> = (Inbox<'s, u8, Host, BySlot>, Outbox<'s, u8, Host, BySlot>);

/// A window with one slot in each direction between two ranks.
fn open<'s>(s: &Stream<'s, Host>, buffers: Buffers) -> Halves<'s> {
    let other = 1 - s.world().rank();
    let mut window = SlotWindow::new("w").buffers(buffers);
    window.slot_from(other, 0, 8);
    window.slot_to(other, 0);
    window.open(s).unwrap()
}

/// The words of a report about a wait that was enqueued in a line of this file.
fn enqueued(line: u32) -> String {
    format!("stream `s`, enqueued at {}:{line}:", file!())
}

/// The words of a report about a call on a stream that was made in a line of this file.
fn made(call: &str, line: u32) -> String {
    format!(
        "rank 0: its own stream `s`, in {call} at {}:{line}:",
        file!()
    )
}

/// Both ranks make the same calls, but rank 1 stops at the gate until a report contains the text that the gate is
/// given.
fn is_reported(call: impl Fn(&mut Stream<'_, Host>, &dyn Fn(String)) + Sync) {
    World::<Host>::local(2, |world| {
        crate::stream!(let s = world.stream().unwrap());
        world.report_waits_after(Duration::from_millis(200));
        call(&mut s, &|said| {
            if world.rank() == 1 {
                wait_for_report(&world, |report| report.contains(&said));
            }
        });
        s.synchronize().unwrap();
        world.all_gather("done", Vec::new()).unwrap();
    });
}

#[test]
fn a_report_names_the_line_of_a_wait() {
    is_reported(|s, gate| {
        let (inbox, outbox) = open(s, Buffers::Double);
        let exposed = inbox.post(s).unwrap();
        gate(enqueued(line!() + 2));
        let _outbox = outbox.start().complete(s).unwrap();
        let _inbox = exposed.wait(s).unwrap();
    });
}

#[test]
fn a_report_names_the_line_of_a_complete() {
    is_reported(|s, gate| {
        let (inbox, outbox) = open(s, Buffers::Single);
        gate(enqueued(line!() + 2));
        let exposed = inbox.post(s).unwrap();
        let _outbox = outbox.start().complete(s).unwrap();
        let _inbox = exposed.wait(s).unwrap();
    });
}

/// By then the host has enqueued more work, in other places.
#[test]
fn a_report_names_the_line_of_the_epoch_that_is_late() {
    is_reported(|s, gate| {
        let (inbox, outbox) = open(s, Buffers::Double);
        gate(enqueued(line!() + 1));
        let (inbox, outbox) = exchange(s, inbox, outbox.start()).unwrap();
        let (inbox, outbox) = exchange(s, inbox, outbox.start()).unwrap();
        let _outbox = outbox.start().complete(s).unwrap();
        let _inbox = inbox.expose(s).unwrap();
    });
}

/// A recorded wait is named by the place where it was recorded.
#[test]
fn a_report_names_the_line_in_a_recorded_step() {
    is_reported(|s, gate| {
        let halves = open(s, Buffers::Double);
        let line = line!() + 2;
        let recorded = s.capture(halves, |s, (inbox, outbox)| {
            let (inbox, outbox) = exchange(s, inbox, outbox.start())?;
            Ok((inbox, outbox))
        });
        let (graph, halves) = recorded.unwrap();
        gate(enqueued(line));
        let _halves = graph.replay(s, halves, 3).unwrap();
    });
}

#[test]
fn a_report_names_the_line_of_what_all_ranks_do() {
    is_reported(|s, gate| {
        let mut barrier = Barrier::open(s, "b").unwrap();
        gate(enqueued(line!() + 1));
        barrier.enqueue(s).unwrap();
    });
    is_reported(|s, gate| {
        let mut sum = AllReduce::<f64, _>::open(s, "sum", 1, tidegate_hal::batch::Op::Sum).unwrap();
        let mut x = Region::zeroed(s.world(), 1).unwrap().on(s).unwrap();
        gate(enqueued(line!() + 1));
        sum.enqueue(s, &mut x).unwrap();
    });
}

#[test]
fn a_report_names_the_line_in_which_the_program_waits() {
    is_reported(|s, gate| {
        let (inbox, outbox) = open(s, Buffers::Double);
        gate(made("`synchronize`", line!() + 2));
        let _halves = exchange(s, inbox, outbox.start()).unwrap();
        s.synchronize().unwrap();
    });
    is_reported(|s, gate| {
        let (inbox, outbox) = open(s, Buffers::Double);
        let x = Region::<f64, _>::zeroed(s.world(), 1).unwrap();
        let x = x.on(s).unwrap();
        gate(made("`into_host`", line!() + 2));
        let _halves = exchange(s, inbox, outbox.start()).unwrap();
        x.into_host(s).unwrap();
    });
    is_reported(|s, gate| {
        let (inbox, outbox) = open(s, Buffers::Double);
        gate(made("`read`", line!() + 2));
        let (mut inbox, _outbox) = exchange(s, inbox, outbox.start()).unwrap();
        inbox.read(s).unwrap();
    });
}

/// Futures are named by the place where they were made, and not where they are awaited.
#[test]
fn a_report_names_the_line_in_which_a_future_was_made() {
    fn wait_for<F: Future>(future: F) -> F::Output {
        let mut future = pin!(future);
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    is_reported(|s, gate| {
        let (inbox, outbox) = open(s, Buffers::Double);
        let x = Region::<f64, _>::zeroed(s.world(), 1).unwrap();
        let x = x.on(s).unwrap();
        gate(made("`synchronized`", line!() + 2));
        let _halves = exchange(s, inbox, outbox.start()).unwrap();
        let host = x.into_host_async(s);
        wait_for(host).unwrap();
    });
    is_reported(|s, gate| {
        let (inbox, outbox) = open(s, Buffers::Double);
        gate(made("`synchronized`", line!() + 2));
        let _halves = exchange(s, inbox, outbox.start()).unwrap();
        let all = s.synchronized();
        wait_for(all).unwrap();
    });
}

#[test]
fn an_error_names_the_line_of_the_wait() {
    World::<Host>::local(2, |world| {
        crate::stream!(let s = world.stream().unwrap());
        let other = 1 - world.rank();
        let mut window = SlotWindow::<u8>::new("w").fail_after(Duration::from_millis(100));
        window.slot_from(other, 0, 8);
        window.slot_to(other, 0);
        let (inbox, outbox) = window.open(&s).unwrap();
        if world.rank() == 0 {
            let line = line!() + 1;
            let _halves = exchange(&s, inbox, outbox.start()).unwrap();
            let error = s.synchronize().unwrap_err();
            let Error::Wait(failed) = &error else {
                panic!("{error}")
            };
            let site = failed.site.unwrap();
            assert_eq!((site.file(), site.line()), (file!(), line));
            let part = format!(", epoch 0, enqueued at {}:{line}:", file!());
            assert!(error.to_string().contains(&part), "{error}");
        }
        world.all_gather("done", Vec::new()).unwrap();
    });
}
