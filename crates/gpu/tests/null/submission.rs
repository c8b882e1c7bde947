//! Batches: how many calls each takes, and what is left when one of them is refused.

use std::panic::Location;

use tidegate_gpu::driver::{ErrorKind, WordOp};
use tidegate_hal::batch::{POISON, QUANTUM};
use tidegate_hal::code::Code;
use tidegate_hal::device::{DeviceError, Fault, Reclaim as _, Stream as _};

use super::driver::Did;
use super::{Bench, of, vendor};

/// Programs say which wave has which lane, so a wrong width would leave lanes out.
#[test]
fn a_device_has_waves_of_a_width_that_the_kernel_has() {
    for wave in [32, 64] {
        vendor::open(wave).unwrap();
    }
    for wave in [0, 1, 16, 48, 128] {
        let error = vendor::open(wave).err().unwrap();
        let text = format!("no device has waves of {wave} threads");
        assert!(error.to_string().contains(&text), "{error}");
    }
}

#[test]
fn a_batch_is_one_launch_however_many_lanes_it_has() {
    let bench = Bench::new();
    let stream = bench.stream();
    bench.null.did();
    for lanes in [1, 2, 17, 30] {
        // SAFETY: nothing is carried out.
        unsafe { stream.submit(&bench.batch(lanes), Location::caller()) }.unwrap();
        assert_eq!(
            bench.null.did(),
            [Did::Launch(of(&stream), true)],
            "{lanes}"
        );
    }
    // SAFETY: as above.
    unsafe { stream.submit(&bench.batch(0), Location::caller()) }.unwrap();
    assert_eq!(bench.null.did(), []);
}

#[test]
fn a_stream_knows_the_blocks_of_its_widest_batch() {
    let bench = Bench::new();
    let stream = bench.stream();
    assert_eq!(stream.widest(), 0);
    let mut blocks = Vec::new();
    for lanes in [1, 30, 2] {
        // SAFETY: nothing is carried out.
        unsafe { stream.submit(&bench.batch(lanes), Location::caller()) }.unwrap();
        blocks.push(bench.null.blocks());
        assert_eq!(Some(&stream.widest()), blocks.iter().max());
    }
    assert!(blocks[0] < blocks[1] && blocks[2] < blocks[1], "{blocks:?}");
    // What is recorded counts, too, and other streams do not.
    let other = bench.stream();
    other.begin_capture(&[]).unwrap();
    // SAFETY: as above.
    unsafe { other.submit(&bench.batch(1), Location::caller()) }.unwrap();
    other.end_capture(&[]).unwrap();
    assert_eq!(
        [&stream, &other].map(|of| of.widest()),
        [blocks[1], blocks[0]]
    );
}

#[test]
fn a_refused_launch_leaves_nothing_behind() {
    let bench = Bench::new();
    let (stream, batch) = (bench.stream(), bench.batch(2));
    for kind in [
        ErrorKind::OutOfMemory,
        ErrorKind::Unsupported,
        ErrorKind::Other,
    ] {
        bench.null.did();
        bench.null.refuse("launch", 0, kind);
        // SAFETY: nothing is carried out.
        let error = unsafe { stream.submit(&batch, Location::caller()) }.unwrap_err();
        let expected = match kind {
            ErrorKind::OutOfMemory => matches!(error, DeviceError::Exhausted { .. }),
            ErrorKind::Unsupported => {
                matches!(error, DeviceError::Unsupported { device: "null", .. })
            }
            _ => matches!(error, DeviceError::System { .. }),
        };
        assert!(
            expected && error.to_string().contains("launch is refused"),
            "{error}"
        );
        assert_eq!((bench.null.did(), stream.fault()), (vec![], None));
    }
    // SAFETY: as above.
    unsafe { stream.submit(&batch, Location::caller()) }.unwrap();
    assert_eq!(bench.null.did(), [Did::Launch(of(&stream), true)]);
}

#[test]
fn a_large_put_goes_beside_the_launch() {
    let bench = Bench::new();
    let (stream, batch) = (bench.stream(), bench.large());
    stream.prepare(&batch, 1).unwrap();
    bench.null.did();
    // SAFETY: as above.
    unsafe { stream.submit(&batch, Location::caller()) }.unwrap();
    let did = bench.null.did();
    let [
        Did::Words(courier, go),
        Did::Copy(copies),
        Did::Words(returns, back),
        Did::Launch(launches, _),
    ] = &did[..]
    else {
        panic!("{did:?}");
    };
    assert!(matches!(go[..], [WordOp::Wait(_, QUANTUM)]), "{go:?}");
    assert!(matches!(back[..], [WordOp::Write(_, QUANTUM)]), "{back:?}");
    assert_eq!((courier, returns, *launches), (copies, copies, of(&stream)));
    assert_ne!(*copies, of(&stream));
}

#[test]
fn a_courier_that_is_refused_is_not_asked_again() {
    let bench = Bench::new();
    let (stream, batch) = (bench.stream(), bench.large());
    stream.prepare(&batch, 1).unwrap();
    bench.null.did();
    // The second operation on words is refused, so nothing is launched.
    bench.null.refuse("stream_word_ops", 1, ErrorKind::Other);
    // SAFETY: nothing is carried out.
    assert!(unsafe { stream.submit(&batch, Location::caller()) }.is_err());
    assert!(!bench.null.did().contains(&Did::Launch(of(&stream), true)));
    assert_eq!(stream.fault(), None);
    // From then on blocks make the copies.
    // SAFETY: as above.
    unsafe { stream.submit(&batch, Location::caller()) }.unwrap();
    assert_eq!(bench.null.did(), [Did::Launch(of(&stream), true)]);
}

/// A courier that waits for a launch which does not come waits for ever, so the device is never idle any more. Without
/// one, it is.
#[test]
fn only_a_courier_that_was_sent_waits_for_ever() {
    for (call, times, waits) in [
        ("stream_word_ops", 0, false),
        ("copy", 0, true),
        ("stream_word_ops", 1, true),
        ("launch", 0, true),
    ] {
        let bench = Bench::new();
        let (stream, batch) = (bench.stream(), bench.large());
        stream.prepare(&batch, 1).unwrap();
        bench.null.refuse(call, times, ErrorKind::Other);
        // SAFETY: nothing is carried out.
        assert!(unsafe { stream.submit(&batch, Location::caller()) }.is_err());
        let idle = bench.device.load(&Code::new(&[])).is_ok();
        assert_eq!(idle, !waits, "{call}, {times}");
        // In a lost context, it waits for nothing.
        bench
            .null
            .refuse("stream_synchronize", 0, ErrorKind::ContextLost);
        assert!(stream.synchronize().unwrap().is_err());
        assert!(bench.device.load(&Code::new(&[])).is_ok());
    }
}

#[test]
fn where_processes_take_turns_a_gate_comes_first() {
    let gated = Bench::gated();
    let (stream, batch) = (gated.stream(), gated.batch(1));
    gated.null.did();
    // SAFETY: nothing is carried out.
    unsafe { stream.submit(&batch, Location::caller()) }.unwrap();
    let did = gated.null.did();
    let [Did::Words(on, ops), Did::Launch(launches, early)] = &did[..] else {
        panic!("{did:?}");
    };
    let word = gated.word(0).0.addr() as u64;
    assert!(
        matches!(ops[..], [WordOp::Write32(_, 1), WordOp::Wait(at, QUANTUM)] if at == word),
        "{ops:?}"
    );
    assert_eq!((*on, *launches, *early), (of(&stream), of(&stream), false));
    // The next epoch's gate waits for the next count.
    // SAFETY: as above.
    unsafe { stream.submit(&batch, Location::caller()) }.unwrap();
    let did = gated.null.did();
    assert!(
        matches!(&did[0], Did::Words(_, ops) if ops[1] == WordOp::Wait(word, 2 * QUANTUM)),
        "{did:?}"
    );
}

#[test]
fn a_stream_whose_batch_was_taken_in_part_has_failed() {
    let gated = Bench::gated();
    let (stream, batch) = (gated.stream(), gated.batch(1));
    gated.null.hold(stream.as_raw());
    // The gate is taken, and the launch behind it is refused.
    gated.null.refuse("launch", 0, ErrorKind::Other);
    // SAFETY: nothing is carried out.
    unsafe { stream.submit(&batch, Location::caller()) }.unwrap();
    let fault = stream.fault();
    assert!(
        matches!(&fault, Some(Fault::Transport(why) | Fault::Kernel(why)) if why.contains("in part only")),
        "{fault:?}"
    );
    // The gate is opened, so that the stream comes to its end.
    // SAFETY: the word lives.
    let word = unsafe { gated.device.peek(gated.word(0)) };
    assert_eq!(word & POISON, POISON);
    gated.null.release(stream.as_raw());
    assert!(stream.synchronize().unwrap().is_err());
}

/// The batch can be submitted once more, on another stream too. A failure of this stream does not concern it.
#[test]
fn a_gate_that_is_refused_poisons_no_words() {
    let gated = Bench::gated();
    let (stream, batch) = (gated.stream(), gated.batch(1));
    gated.null.refuse("stream_word_ops", 0, ErrorKind::Other);
    // SAFETY: nothing is carried out.
    assert!(unsafe { stream.submit(&batch, Location::caller()) }.is_err());
    stream.reclaim().abort();
    // SAFETY: the word lives.
    assert_eq!(unsafe { gated.device.peek(gated.word(0)) } & POISON, 0);
}

#[test]
fn a_stream_that_is_ended_gets_no_more_gates() {
    let gated = Bench::gated();
    let (stream, batch) = (gated.stream(), gated.batch(1));
    stream.reclaim().abort();
    gated.null.did();
    // SAFETY: nothing is carried out.
    unsafe { stream.submit(&batch, Location::caller()) }.unwrap();
    assert_eq!(gated.null.did(), [Did::Launch(of(&stream), true)]);
}
