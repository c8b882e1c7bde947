//! A control plane that carries keys.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::bus::Inner;
use serde::{Deserialize, Serialize};
use tidegate_hal::control::{Control, ControlError, Handle, Packet, Sink};

/// What stands in front of a packet's bytes.
#[derive(Serialize, Deserialize)]
struct Head {
    /// For each handle: its key, and whether a descriptor goes with it; or that it is a descriptor and no more.
    handles: Vec<Option<(Vec<u8>, bool)>>,
}

/// Any control plane, with keys among the handles: they go with the bytes, and so to all ranks, also to those of other nodes.
///
/// A rank leaves when its peers have heard its last signals.
pub(super) struct Keyed(pub(super) Arc<dyn Control>, pub(super) Arc<Inner>);

/// What a packet may carry less than others: room for the keys.
const ROOM: usize = 4096;

impl Control for Keyed {
    fn rank(&self) -> usize {
        self.0.rank()
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn node(&self, rank: usize) -> usize {
        self.0.node(rank)
    }

    fn exchange(&self, label: &str, packet: Packet) -> Result<Vec<Packet>, ControlError> {
        let (bytes, handles) = (packet.bytes.len(), packet.handles.len());
        if bytes > Packet::MAX_BYTES - ROOM || handles > Packet::MAX_HANDLES {
            return Err(ControlError::TooLarge { bytes, handles });
        }
        let packets = self.0.exchange(label, packed(packet))?;
        let mine = self.node(self.rank());
        let unpack = |(rank, packet)| unpacked(packet, self.node(rank) == mine).map_err(|_| rank);
        let all: Result<_, usize> = packets.into_iter().enumerate().map(unpack).collect();
        all.map_err(|rank| ControlError::Mismatch {
            rank,
            mine: format!("{label}, over MPI"),
            theirs: format!("{label}, in another way"),
        })
    }

    fn notify(&self, to: Option<&[usize]>, bytes: &[u8]) -> Result<(), ControlError> {
        self.0.notify(to, bytes)
    }

    fn subscribe(&self, sink: Sink) {
        self.0.subscribe(sink);
    }

    fn leave(&self) {
        if !std::thread::panicking() {
            self.1.settle();
        }
        self.0.leave();
    }
}

fn packed(packet: Packet) -> Packet {
    let (mut keys, mut handles) = (Vec::new(), Vec::new());
    for handle in packet.handles {
        match handle {
            Handle::Key { bytes, near } => {
                keys.push(Some((bytes, near.is_some())));
                handles.extend(near.map(Handle::Fd));
            }
            other => {
                keys.push(None);
                handles.push(other);
            }
        }
    }
    let head = Head { handles: keys };
    let mut bytes = postcard::to_stdvec(&head).expect("plain data can be encoded");
    bytes.extend(packet.bytes);
    Packet { bytes, handles }
}

/// `near`: descriptors came with it, if it has any.
fn unpacked(packet: Packet, near: bool) -> Result<Packet, postcard::Error> {
    let (head, bytes): (Head, _) = postcard::take_from_bytes(&packet.bytes)?;
    let mut came = packet.handles.into_iter();
    let mut fd = || -> Option<OwnedFd> {
        match came.next() {
            Some(Handle::Fd(fd)) => Some(fd),
            _ => None,
        }
    };
    let mut handles = Vec::new();
    for each in head.handles {
        match each {
            Some((bytes, has_fd)) => handles.push(Handle::Key {
                bytes,
                near: (near && has_fd).then(&mut fd).flatten(),
            }),
            None if near => handles.extend(fd().map(Handle::Fd)),
            None => {}
        }
    }
    Ok(Packet {
        bytes: bytes.to_vec(),
        handles,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_to_all_and_descriptors_to_the_node() {
        let fd = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let packet = || {
            packed(Packet {
                bytes: vec![1, 2, 3],
                handles: vec![
                    Handle::Key {
                        bytes: vec![7],
                        near: Some(fd()),
                    },
                    Handle::Fd(fd()),
                    Handle::Key {
                        bytes: vec![8, 9],
                        near: None,
                    },
                ],
            })
        };
        let here = unpacked(packet(), true).unwrap();
        assert_eq!(here.bytes, [1, 2, 3]);
        assert!(
            matches!(&here.handles[..], [Handle::Key { bytes: a, near: Some(_) }, Handle::Fd(_), Handle::Key { bytes: b, near: None }] if a[..] == [7] && b[..] == [8, 9])
        );
        let mut packet = packet();
        packet.handles.clear();
        let there = unpacked(packet, false).unwrap();
        assert!(
            matches!(&there.handles[..], [Handle::Key { bytes: a, near: None }, Handle::Key { bytes: b, near: None }] if a[..] == [7] && b[..] == [8, 9])
        );
    }
}
