//! A control plane that carries keys.

use std::sync::Arc;

use super::inner::Inner;
use super::notice::Notice;
use serde::{Deserialize, Serialize};
use tidegate_hal::control::{
    Control, ControlError, Decision, Event, Handle, Packet, Proposal, Sink,
};
use tidegate_hal::ids::TeamId;

/// The header of a letter's bytes.
#[derive(Serialize, Deserialize)]
struct Head {
    /// The key of each handle, if it has one.
    keys: Vec<Option<Vec<u8>>>,
}

/// A control plane that also carries keys among the handles. Keys are sent with the bytes of a letter, and so reach
/// ranks of other nodes, too.
///
/// Before a rank leaves, it waits until its peers have received its last signals.
pub(super) struct Keyed(pub(super) Arc<dyn Control>, pub(super) Arc<Inner>);

/// How many bytes of a letter are reserved for keys.
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

    fn exchange_in(
        &self,
        team: TeamId,
        label: &str,
        bytes: Vec<u8>,
    ) -> Result<Vec<Vec<u8>>, ControlError> {
        self.0.exchange_in(team, label, bytes)
    }

    fn confer_in(
        &self,
        team: TeamId,
        label: &str,
        mut proposal: Proposal,
    ) -> Result<Decision, ControlError> {
        for letter in &mut proposal.letters {
            let packet = std::mem::take(&mut letter.packet);
            let (bytes, handles) = (packet.bytes.len(), packet.handles.len());
            let most = Packet::MAX_BYTES - ROOM;
            if bytes > most || handles > Packet::MAX_HANDLES {
                let label = label.to_owned();
                return Err(ControlError::TooLarge {
                    label,
                    bytes,
                    most,
                    handles,
                });
            }
            letter.packet = packed(packet);
        }
        let mut decision = self.0.confer_in(team, label, proposal)?;
        if let Decision::Agreed { letters, .. } = &mut decision {
            for letter in letters {
                let packet = unpacked(std::mem::take(&mut letter.packet));
                letter.packet = packet.map_err(|_| ControlError::Mismatch {
                    rank: letter.rank,
                    mine: format!("{label}, over MPI"),
                    theirs: format!("{label}, in another way"),
                })?;
            }
        }
        Ok(decision)
    }

    fn found(&self, name: &str, ranks: &[usize]) -> Result<TeamId, ControlError> {
        self.0.found(name, ranks)
    }

    fn dissolve(&self, team: TeamId) {
        self.0.dissolve(team);
    }

    fn notify(&self, to: Option<&[usize]>, bytes: &[u8]) -> Result<(), ControlError> {
        self.0.notify(to, &Notice::Other(bytes.to_vec()).encode())
    }

    fn subscribe(&self, sink: Sink) {
        let bus = Arc::downgrade(&self.1);
        self.0.subscribe(Arc::new(move |event| match event {
            Event::Message { from, bytes } => match postcard::from_bytes(&bytes) {
                Ok(Notice::Other(bytes)) => sink(Event::Message { from, bytes }),
                Ok(Notice::Failed(detail)) => {
                    if let Some(bus) = bus.upgrade() {
                        bus.failed_at(from, &detail);
                    }
                }
                Err(error) => tidegate_hal::tell(|| {
                    tracing::error!("rank {from} says what nobody understands: {error}")
                }),
            },
            other => sink(other),
        }));
    }

    fn leave(&self) {
        self.1.settle();
        self.0.leave();
    }

    fn fail(&self, reason: &str) {
        self.0.fail(reason);
    }

    fn follows(&self, rank: usize, why: &str) {
        self.0.follows(rank, why);
    }
}

fn packed(packet: Packet) -> Packet {
    let (mut keys, mut handles) = (Vec::new(), Vec::new());
    for handle in packet.handles {
        match handle {
            Handle::Key(key) => keys.push(Some(key)),
            other => {
                keys.push(None);
                handles.push(other);
            }
        }
    }
    let mut bytes = postcard::to_stdvec(&Head { keys }).expect("plain data can be encoded");
    bytes.extend(packet.bytes);
    Packet { bytes, handles }
}

/// A packet from another node has only keys.
fn unpacked(packet: Packet) -> Result<Packet, postcard::Error> {
    let (head, bytes): (Head, _) = postcard::take_from_bytes(&packet.bytes)?;
    let mut came = packet.handles.into_iter();
    let handle = |key| match key {
        Some(key) => Some(Handle::Key(key)),
        None => came.next(),
    };
    Ok(Packet {
        bytes: bytes.to_vec(),
        handles: head.keys.into_iter().filter_map(handle).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_to_all_and_descriptors_to_the_node() {
        let packet = || {
            let fd = std::fs::File::open("/dev/null").unwrap();
            packed(Packet {
                bytes: vec![1, 2, 3],
                handles: vec![
                    Handle::Key(vec![7]),
                    Handle::Fd(Arc::new(fd.into())),
                    Handle::Key(vec![8, 9]),
                ],
            })
        };
        let here = unpacked(packet()).unwrap();
        assert_eq!(here.bytes, [1, 2, 3]);
        assert!(
            matches!(&here.handles[..], [Handle::Key(a), Handle::Fd(_), Handle::Key(b)] if a[..] == [7] && b[..] == [8, 9])
        );
        let mut packet = packet();
        packet.handles.clear();
        let there = unpacked(packet).unwrap();
        assert!(
            matches!(&there.handles[..], [Handle::Key(a), Handle::Key(b)] if a[..] == [7] && b[..] == [8, 9])
        );
    }
}
