//! The NIC's programs for an epoch.
//!
//! # Model
//!
//! An epoch has one program for each target behind the NIC: the operations of the target's lane, then the signal. There
//! are two kinds:
//!
//! - The NIC accesses the program's own regions, and these get tickets.
//! - The data is *staged*. The stream copies the elements of a put to a copy of the target's slot, and the NIC sends
//!   from there. Data that lies side by side goes as one transfer, even if it comes from several puts. But data of two
//!   stages ([`stages`](super::stages)) stays apart, because the NIC sends one stage while the stream copies the next.
//!   The stream also copies the operands of updates to memory that the NIC reads. What the NIC gets comes to such
//!   memory, and the stream copies it when the NIC has it. At the target, NICs access a copy of the elements.
//!
//! # Failure
//!
//! A NIC refuses what it cannot do when the program is prepared. At that time nothing has been enqueued.

use tidegate_hal::batch::{Action, Move, Shape, Side};
use tidegate_hal::device::Device;
use tidegate_hal::memory::Ptr;
use tidegate_hal::nic::{Direction, Keep, Program, RemoteMemory, RemotePtr, RemoteSide, Transfer};

use super::edge::{Edge, Touched};
use super::note::{Lanes, Note, What, lower_note, parts};
use super::stages::{StagePart, stages};
use super::{Half, Link};
use crate::error::Result;
use crate::ground::visited;
use crate::nic::NicLine;
use crate::stream::Arm;

/// Lets the NIC prepare the programs for the targets behind it.
pub(super) fn programs<D: Device>(
    half: &Half<D>,
    edges: &[Edge],
    members: &[usize],
    lanes: &Lanes<'_, D>,
    touched: &[Touched],
) -> Result<Vec<Arm<D>>> {
    let mut arms = Vec::new();
    let mut memory: Vec<Vec<Keep>> = vec![Vec::new(); half.peers.len()];
    for each in touched {
        if let Some(lane) = each.lane {
            memory[lane].push(each.tickets.memory().clone());
        }
    }
    for &lane in members {
        let Link::Nic(line) = &half.peers[lane].link else {
            continue;
        };
        let notes = lanes.notes(lane);
        let is_staged = lanes.is_staged(lane);
        let transfers = if is_staged {
            let size = half.window.element_size;
            let chunks = line.chunks(half.world.chunks());
            let puts = lanes.puts(lane);
            let stages = stages(&puts, size, chunks);
            let mut transfers = staged_transfers(&stages, edges, line.remote(), size);
            // They may go with the first part of a ring, since the stream moves all operands before it rings.
            transfers.extend(lanes.moved(lane).map(|(note, at)| {
                let edge = &edges[note.edge as usize];
                let whole = lower_note(note, edge, Ptr::NULL, size);
                let here = Side::linear(at);
                let moved = match note.what {
                    What::Get => Move { dst: here, ..whole },
                    _ => Move { src: here, ..whole },
                };
                transfer(moved, note, edge, line)
            }));
            transfers
        } else {
            let edge = |note: &Note<D>| &edges[note.edge as usize];
            let each = notes
                .iter()
                .flat_map(|note| transfers(note, edge(note), line, half));
            each.collect()
        };
        let program = Program {
            transfers,
            signal: line.signal().clone(),
            keep: notes
                .iter()
                .flat_map(|note| note.keeps(edges))
                .chain(std::mem::take(&mut memory[lane]))
                .chain(lanes.keep())
                .chain([half.window.clone() as Keep])
                .collect(),
        };
        // SAFETY: as for the batch, sides were checked when the operations were noted. They lie in the target's
        // registered block, and in regions whose memory the program keeps, or in staged memory, which the window keeps.
        // The stream rings after the target's exposure has come; for a stage, when it has copied the stage. Until the
        // NIC has sent, tickets keep every other use off the regions, and the wait for a buffer keeps the stream off
        // staged memory. The target waits for the signal.
        let program = unsafe { line.queue().prepare(program) }?;
        arms.push(Arm::new(line, program, &half.window));
    }
    Ok(arms)
}

/// The transfers of an operation: one, or several if it covers only some elements of a layout.
fn transfers<'a, D: Device>(
    note: &'a Note<D>,
    edge: &'a Edge,
    line: &'a NicLine,
    half: &Half<D>,
) -> impl Iterator<Item = Transfer> + 'a {
    let whole = lower_note(note, edge, Ptr::NULL, half.window.element_size);
    parts(whole, note, edge).map(|part| transfer(part, note, edge, line))
}

fn transfer<D: Device>(part: Move, note: &Note<D>, edge: &Edge, line: &NicLine) -> Transfer {
    let Move {
        action,
        size,
        count,
        src,
        dst,
        ..
    } = part;
    let (action, direction, local, remote) = match note.what {
        What::Get => (action, Direction::Get, dst, src),
        // A NIC does not look at the count: it sends the whole source.
        What::PutCounted { .. } | What::PutRows { .. } => (Action::Copy, Direction::Put, src, dst),
        _ => (action, Direction::Put, src, dst),
    };
    // The edge has no address here. The side's base is instead the distance from the edge's beginning to the first
    // element of the layout.
    let offset = edge.offset + remote.base.0.addr();
    Transfer {
        action,
        direction,
        size,
        count,
        local,
        remote: RemoteSide {
            base: RemotePtr {
                memory: line.remote().clone(),
                offset,
            },
            flip: remote.flip,
            shape: remote.shape,
        },
        stage: 0,
    }
}

/// The transfers of a staged lane, stage by stage. The streams have put the data to copies of the target's slots, so
/// data that lies side by side goes as one transfer.
pub(super) fn staged_transfers<D: Device>(
    stages: &[Vec<StagePart<'_, D>>],
    edges: &[Edge],
    remote: &RemoteMemory,
    size: usize,
) -> Vec<Transfer> {
    let mut transfers = Vec::new();
    for (stage, pieces) in stages.iter().enumerate() {
        // Runs are sorted by edge, and neighbouring ones are joined.
        let mut runs = Vec::new();
        for piece in pieces {
            visited();
            let extents = piece.extents();
            runs.extend(extents.map(|(first, end)| (piece.edge(), first, end)));
        }
        runs.sort_unstable();
        runs.dedup_by(|next, before| {
            let beside = (next.0, next.1) == (before.0, before.2);
            if beside {
                before.2 = next.2;
            }
            beside
        });
        let side = |base: Ptr, flip: usize| Side {
            base,
            flip,
            shape: Shape::Linear,
        };
        transfers.extend(runs.into_iter().filter_map(|(edge, first, end)| {
            let edge = &edges[edge];
            let staging = edge.staging?;
            Some(Transfer {
                action: Action::Copy,
                direction: Direction::Put,
                size: size as u32,
                count: end - first,
                local: side(staging.base.byte_add(first * size), staging.flip),
                remote: RemoteSide {
                    base: RemotePtr {
                        memory: remote.clone(),
                        offset: edge.offset + first * size,
                    },
                    flip: edge.flip,
                    shape: Shape::Linear,
                },
                stage: stage as u32,
            })
        }));
    }
    transfers
}
