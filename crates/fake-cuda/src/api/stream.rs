//! Streams and events, and what is enqueued.

use std::ffi::{c_int, c_uint};
use std::sync::Arc;

use cudarc::driver::sys;

use super::{api, current, give};
use crate::codes;
use crate::handle::Handle;
use crate::memory;
use crate::state::{Event, State, Stream, state};
use crate::work::{What, Word};

/// The status of a stream that is captured.
fn status(state: &mut State, stream: Handle) -> Result<c_uint, i32> {
    let Some(recording) = state.stream(stream)?.recording.clone() else {
        return Ok(0);
    };
    Ok(if state.is_invalid(&recording) { 2 } else { 1 })
}

/// # Safety
///
/// As for `cuStreamGetCaptureInfo`.
unsafe fn capture_info(
    stream: Handle,
    (what, id, graph): (*mut c_uint, *mut u64, *mut Handle),
    (nodes, edges, count): (*mut *const Handle, *mut *const [u8; 8], *mut usize),
) -> Result<(), i32> {
    let mut state = state();
    let known = status(&mut state, stream)?;
    // SAFETY: the caller's promise.
    unsafe { give(what, known) }?;
    let Some(recording) = state
        .stream(stream)?
        .recording
        .clone()
        .filter(|_| known == 1)
    else {
        return Ok(());
    };
    let captured = state.recorded(&recording)?;
    // It stays until the next call on the stream.
    let stands = state.stream(stream)?.recording.as_ref().expect("it is");
    let (last, hows) = (stands.last.as_ptr(), stands.edges.as_ptr());
    let given = [
        // SAFETY: the caller's promise, for all of them: each is null, or may be written.
        (!id.is_null()).then(|| unsafe { give(id, recording.capture) }),
        // SAFETY: as above.
        (!graph.is_null()).then(|| unsafe { give(graph, captured) }),
        // SAFETY: as above.
        (!nodes.is_null()).then(|| unsafe { give(nodes, last) }),
        // SAFETY: as above.
        (!edges.is_null()).then(|| unsafe { give(edges, hows) }),
        // SAFETY: as above.
        (!count.is_null()).then(|| unsafe { give(count, recording.last.len()) }),
    ];
    given.into_iter().flatten().collect()
}

/// An operation on a word, as the driver has it.
///
/// # Safety
///
/// It was made as the driver's documentation says.
unsafe fn word(op: &sys::CUstreamBatchMemOpParams) -> Result<Option<Word>, i32> {
    // SAFETY: the first field of each part.
    let kind = unsafe { (&raw const op.operation).cast::<u32>().read() };
    let wide = matches!(kind, 4 | 5);
    Ok(Some(match kind {
        1 | 4 => {
            // SAFETY: it is a wait.
            let wait = unsafe { op.waitValue };
            Word::Wait {
                at: wait.address as usize,
                // SAFETY: a number, as long as its kind says.
                value: unsafe {
                    match wide {
                        true => wait.__bindgen_anon_1.value64,
                        false => u64::from(wait.__bindgen_anon_1.value),
                    }
                },
                wide,
                how: wait.flags,
            }
        }
        2 | 5 => {
            // SAFETY: it is a write.
            let write = unsafe { op.writeValue };
            Word::Write {
                at: write.address as usize,
                // SAFETY: as above.
                value: unsafe {
                    match wide {
                        true => write.__bindgen_anon_1.value64,
                        false => u64::from(write.__bindgen_anon_1.value),
                    }
                },
                wide,
            }
        }
        3 | 6 => return Ok(None),
        _ => return Err(codes::INVALID_VALUE),
    }))
}

/// # Safety
///
/// There are so many bytes.
unsafe fn read(from: usize, bytes: usize) -> Arc<[u8]> {
    let from = std::ptr::with_exposed_provenance::<u8>(from);
    match bytes {
        0 => Arc::new([]),
        // SAFETY: the caller's promise.
        _ => unsafe { std::slice::from_raw_parts(from, bytes) }.into(),
    }
}

/// A stream.
fn made() -> Result<Handle, i32> {
    current()?;
    let mut state = state();
    let handle = state.fresh();
    state.streams.insert(handle, Stream::default());
    Ok(handle)
}

api! {
    fn cuStreamCreateWithPriority(stream: *mut Handle, _flags: c_uint, _priority: c_int) {
        // SAFETY: `api`.
        unsafe { give(stream, made()?) }
    }

    fn cuStreamCreate(stream: *mut Handle, _flags: c_uint) {
        // SAFETY: `api`.
        unsafe { give(stream, made()?) }
    }

    fn cuStreamDestroy_v2(stream: Handle) {
        let mut state = state();
        state.not_captured(stream)?;
        // What it has enqueued is still done.
        state.streams.remove(&stream);
        Ok(())
    }

    fn cuStreamSynchronize(stream: Handle) {
        let mut state = state();
        state.not_captured(stream)?;
        state.until(|state| state.is_idle(stream)).map(|_| ())
    }

    fn cuStreamQuery(stream: Handle) {
        let mut state = state();
        state.not_captured(stream)?;
        match state.is_idle(stream) {
            true => Ok(()),
            false => Err(codes::NOT_READY),
        }
    }

    fn cuStreamGetCtx(stream: Handle, context: *mut Handle) {
        state().stream(stream)?;
        // All devices are one here: that of whoever asks.
        // SAFETY: `api`.
        unsafe { give(context, current()? as Handle + 1) }
    }

    fn cuStreamWaitEvent(stream: Handle, event: Handle, _flags: c_uint) {
        state().follow(stream, event)
    }

    fn cuStreamBeginCapture_v2(stream: Handle, mode: c_uint) {
        if mode > 2 {
            return Err(codes::INVALID_VALUE);
        }
        state().begin_capture(stream)
    }

    fn cuStreamEndCapture(stream: Handle, graph: *mut Handle) {
        let made = state().end_capture(stream)?;
        // SAFETY: `api`.
        unsafe { give(graph, made) }
    }

    fn cuStreamIsCapturing(stream: Handle, what: *mut c_uint) {
        let known = status(&mut state(), stream)?;
        // SAFETY: `api`.
        unsafe { give(what, known) }
    }

    fn cuStreamGetCaptureInfo_v2(
        stream: Handle, what: *mut c_uint, id: *mut u64, graph: *mut Handle, nodes: *mut *const Handle, count: *mut usize,
    ) {
        // SAFETY: `api`.
        unsafe { capture_info(stream, (what, id, graph), (nodes, std::ptr::null_mut(), count)) }
    }

    fn cuStreamGetCaptureInfo_v3(
        stream: Handle, what: *mut c_uint, id: *mut u64, graph: *mut Handle,
        nodes: *mut *const Handle, edges: *mut *const [u8; 8], count: *mut usize,
    ) {
        // SAFETY: `api`.
        unsafe { capture_info(stream, (what, id, graph), (nodes, edges, count)) }
    }

    fn cuThreadExchangeStreamCaptureMode(mode: *mut c_uint) {
        // All are relaxed here.
        // SAFETY: `api`.
        unsafe { give(mode, 2) }
    }

    fn cuEventCreate(event: *mut Handle, flags: c_uint) {
        current()?;
        let mut state = state();
        let handle = state.fresh();
        let made = Event { timed: flags & 2 == 0, ..Event::default() };
        state.events.insert(handle, made);
        // SAFETY: `api`.
        unsafe { give(event, handle) }
    }

    fn cuEventDestroy_v2(event: Handle) {
        state().events.remove(&event).map(|_| ()).ok_or(codes::INVALID_HANDLE)
    }

    fn cuEventRecord(event: Handle, stream: Handle) {
        state().record(event, stream, false)
    }

    fn cuEventRecordWithFlags(event: Handle, stream: Handle, flags: c_uint) {
        state().record(event, stream, flags & 1 != 0)
    }

    fn cuEventQuery(event: Handle) {
        let mut state = state();
        let event = state.event(event)?;
        let (work, captured) = (event.work, event.nodes.is_some());
        match work {
            _ if captured => Err(codes::CAPTURE_UNSUPPORTED),
            Some(work) if !state.works.is_over(work) => Err(codes::NOT_READY),
            _ => Ok(()),
        }
    }

    fn cuEventSynchronize(event: Handle) {
        let mut state = state();
        let work = state.event(event)?.work;
        state.until(|state| work.is_none_or(|work| state.works.is_over(work))).map(|_| ())
    }

    fn cuEventElapsedTime(milliseconds: *mut f32, start: Handle, end: Handle) {
        let mut state = state();
        let mut times = [None; 2];
        for (time, event) in times.iter_mut().zip([start, end]) {
            let event = state.event(event)?;
            if !event.timed {
                return Err(codes::INVALID_HANDLE);
            }
            let (at, work) = (event.time, event.work);
            if work.is_some_and(|work| !state.works.is_over(work)) {
                return Err(codes::NOT_READY);
            }
            *time = Some(at.ok_or(codes::INVALID_HANDLE)?);
        }
        let [Some(start), Some(end)] = times else {
            return Err(codes::INVALID_HANDLE);
        };
        let passed = match end.checked_duration_since(start) {
            Some(passed) => passed.as_secs_f32(),
            None => -(start - end).as_secs_f32(),
        };
        // SAFETY: `api`.
        unsafe { give(milliseconds, passed * 1e3) }
    }

    fn cuMemcpyHtoDAsync_v2(to: u64, from: usize, bytes: usize, stream: Handle) {
        let mut state = state();
        let captured = state.stream(stream)?.recording.is_some();
        let what = match memory::find(from) {
            // Memory that the device does not reach is read before the call returns.
            // SAFETY: `api`.
            None if !captured => What::Write(to as usize, unsafe { read(from, bytes) }),
            _ => What::Copy(to as usize, from, bytes),
        };
        state.enqueue(stream, what, false).map(drop)
    }

    fn cuMemcpyDtoHAsync_v2(to: usize, from: u64, bytes: usize, stream: Handle) {
        let mut state = state().enqueue(stream, What::Copy(to, from as usize, bytes), false)?;
        let captured = state.stream(stream)?.recording.is_some();
        match memory::find(to) {
            // Likewise written.
            None if !captured => state.until(|state| state.is_idle(stream)).map(|_| ()),
            _ => Ok(()),
        }
    }

    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle) {
        state().enqueue(stream, What::Copy(to as usize, from as usize, bytes), false).map(drop)
    }

    fn cuMemsetD8Async(at: u64, value: u8, count: usize, stream: Handle) {
        state().enqueue(stream, What::Fill(at as usize, u32::from(value), 1, count), false).map(drop)
    }

    fn cuMemsetD32Async(at: u64, value: c_uint, count: usize, stream: Handle) {
        state().enqueue(stream, What::Fill(at as usize, value, 4, count), false).map(drop)
    }

    fn cuMemAllocFromPoolAsync(at: *mut u64, bytes: usize, _pool: Handle, stream: Handle) {
        let device = current()?;
        state().stream(stream)?;
        let made = memory::alloc(bytes, memory::Kind::Device(device))?;
        // SAFETY: `api`.
        unsafe { give(at, made as u64) }
    }

    fn cuMemAllocAsync(at: *mut u64, bytes: usize, stream: Handle) {
        let device = current()?;
        state().stream(stream)?;
        let made = memory::alloc(bytes, memory::Kind::Device(device))?;
        // SAFETY: `api`.
        unsafe { give(at, made as u64) }
    }

    fn cuMemFreeAsync(at: u64, stream: Handle) {
        if !memory::is_piece(at as usize, |kind| matches!(kind, memory::Kind::Device(_))) {
            return Err(codes::INVALID_VALUE);
        }
        state().enqueue(stream, What::Free(at as usize), false).map(drop)
    }

    fn cuLaunchHostFunc(stream: Handle, function: unsafe extern "C" fn(usize), data: usize) {
        state().enqueue(stream, What::Call(function, data), false).map(drop)
    }

    fn cuStreamBatchMemOp_v2(stream: Handle, count: c_uint, ops: *const sys::CUstreamBatchMemOpParams, flags: c_uint) {
        if flags != 0 || ops.is_null() || count == 0 || count > 256 {
            return Err(codes::INVALID_VALUE);
        }
        // SAFETY: `api`: there are so many.
        let ops = unsafe { std::slice::from_raw_parts(ops, count as usize) };
        // SAFETY: `api`.
        let words: Result<Vec<_>, i32> = ops.iter().map(|op| unsafe { word(op) }).collect();
        state().enqueue(stream, What::Words(words?.into_iter().flatten().collect()), false).map(drop)
    }
}
