//! How the ranks meet: they exchange bells and NIC addresses, and find out which of them share hardware.

use std::sync::{Arc, OnceLock};

use tidegate_hal::control::{Control, Handle, Packet};
use tidegate_hal::device::{Device, DeviceError};
use tidegate_hal::memory::{Block as _, Sharing};
use tidegate_hal::nic::{Connection, Keep, Key, Memory, Nic, NicError, Registration, Signalled};
use tidegate_hal::stamps::now;
use tidegate_words::Bell;

use crate::error::{Error, MeetError, Result};
use crate::nic::Attached;

/// What each rank tells about itself when the ranks meet.
#[derive(serde::Serialize, serde::Deserialize)]
struct Hello {
    device: String,
    /// An identifier of the hardware.
    hardware: Vec<u8>,
    /// The process, by a number that no other process of the job has.
    process: u64,
    /// How much of the hardware the process may use while others use it, too.
    portion: usize,
    /// Whether somebody observes the rank.
    observed: bool,
    /// The rank's NIC, if it has one, or the reason why it could not open the one that it needs.
    nic: Result<Option<HelloNic>, String>,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct HelloNic {
    name: String,
    address: Vec<u8>,
    /// The key to the rank's bell, and whether a handle goes with it.
    bell: (Vec<u8>, bool),
}

/// A number for this process. The system's own number is not enough: ranks in containers on one node may have the same.
fn process() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    static NUMBER: OnceLock<u64> = OnceLock::new();
    *NUMBER.get_or_init(|| RandomState::new().hash_one(std::process::id()))
}

/// A user of a piece of hardware: the hardware's identifier, the process, and the portion that it may use.
type User = (Vec<u8>, u64, usize);

/// How many other processes use the hardware of `mine`, and the least portion of all of them. `all` has every rank's
/// entry. The nodes of the ranks do not matter, since one machine may act as several nodes.
fn others_on_hardware(mine: &User, all: &[User]) -> (usize, usize) {
    let (hardware, process, portion) = mine;
    let others = all
        .iter()
        .filter(|other| !hardware.is_empty() && other.0 == *hardware && other.1 != *process);
    let least = others
        .clone()
        .map(|other| other.2)
        .fold(*portion, usize::min);
    let mut others: Vec<_> = others.map(|other| other.1).collect();
    others.sort_unstable();
    others.dedup();
    (others.len(), least)
}

/// What a rank has after it has met the others.
pub(crate) struct Met<D: Device> {
    pub(crate) own_bell: Arc<D::Block>,
    /// Every rank's bell, or `None` for ranks on other nodes.
    pub(crate) bells: Vec<Option<D::Block>>,
    pub(crate) nic: Option<Attached<D>>,
    /// For observers: see [`Joined::rounds`](crate::observe::Joined::rounds).
    pub(crate) rounds: Vec<(u64, u64)>,
}

/// How many rounds compare the clocks of nodes. Most of them meet no other work, and the tightest counts.
const ROUNDS: usize = 16;

/// The functions that a NIC calls: [`Connection::failed`] and [`Connection::asks`].
type NicCalls = (
    Box<dyn Fn(String) + Send + Sync>,
    Box<dyn Fn(usize, u64) + Send + Sync>,
);

/// Exchanges bells, and what NICs need to know of each other. The call is collective. A rank that could not open its
/// NIC tells the others, so that all of them fail with the same error.
pub(crate) fn meet<D: Device>(
    control: &dyn Control,
    device: &D,
    opened: Result<Option<Arc<dyn Nic>>, NicError>,
    calls: NicCalls,
    observed: bool,
) -> Result<Met<D>> {
    let bytes = size_of::<Bell>();
    let (nic, no_nic) = match opened {
        Ok(nic) => (nic, None),
        Err(error) => (None, Some(error.to_string())),
    };
    if let Some(nic) = &nic {
        nic.begin(device.staged())?;
    }
    let own = Arc::new(device.alloc(bytes, Sharing::Peers)?);
    // The bell that NICs ring. An agent must be able to reach it.
    let rung = if device.staged() {
        Arc::new(device.alloc(bytes, Sharing::Nics)?)
    } else {
        own.clone()
    };
    let mut handles = vec![own.share()?];
    let mut registration = None;
    let hello = Hello {
        device: D::NAME.into(),
        hardware: device.hardware(),
        process: process(),
        portion: device.portion(),
        observed,
        nic: match (&nic, no_nic) {
            (_, Some(reason)) => Err(reason),
            (None, None) => Ok(None),
            (Some(nic), None) => {
                let memory = Memory {
                    base: rung.base(),
                    bytes,
                    signalled: Signalled::Bell,
                    share: &|| rung.share(),
                    keep: rung.clone(),
                };
                // SAFETY: the block is kept. It holds a bell, which anyone may ring.
                let Registration { key, guard } = unsafe { nic.register(memory) }?;
                registration = Some(guard);
                let bell = (key.bytes, key.handle.is_some());
                handles.extend(key.handle);
                Ok(Some(HelloNic {
                    name: nic.name().into(),
                    address: nic.address(),
                    bell,
                }))
            }
        },
    };
    let packet = Packet {
        bytes: postcard::to_stdvec(&hello).expect("plain data can be encoded"),
        handles,
    };
    own.share_no_more();
    rung.share_no_more();
    let (mut bells, mut theirs, mut users) = (Vec::new(), Vec::new(), Vec::new());
    let mut any_observed = false;
    for (rank, packet) in control
        .exchange("making a world", packet)?
        .into_iter()
        .enumerate()
    {
        let said: Hello =
            postcard::from_bytes(&packet.bytes).map_err(|error| MeetError::Unreadable {
                rank,
                reason: error.to_string(),
            })?;
        if said.device != D::NAME {
            return Err(Error::Meet(MeetError::OtherDevice {
                rank,
                theirs: said.device,
                mine: D::NAME,
            }));
        }
        any_observed |= said.observed;
        let mut handles = packet.handles.into_iter();
        let bell = handles
            .next()
            .map(|handle: Handle| device.map(handle, bytes));
        bells.push(match bell.transpose() {
            // The rank is near, but cannot be mapped. A window will report that, or use the NIC.
            Err(DeviceError::Unsupported { .. }) => None,
            bell => bell?,
        });
        let nic = said
            .nic
            .map_err(|reason| Error::Meet(MeetError::NoNic { rank, reason }))?;
        theirs.push((nic, handles.next()));
        users.push((said.hardware, said.process, said.portion));
    }
    let mine = (hello.hardware, hello.process, hello.portion);
    let (processes, portion) = others_on_hardware(&mine, &users);
    device.shared_with(processes, portion);
    let node = control.node(control.rank());
    let with_nic = theirs
        .iter()
        .enumerate()
        .filter(|(_, (said, _))| said.is_some());
    let nics_on_node = with_nic
        .filter(|(rank, _)| control.node(*rank) == node)
        .count();
    let nic = match (nic, registration) {
        (Some(nic), Some(guard)) => {
            let told = (calls, nics_on_node);
            Some(attach(device, nic, (guard, rung), theirs, told)?)
        }
        _ => None,
    };
    let several_nodes = (0..control.size()).any(|rank| control.node(rank) != node);
    let rounds = if any_observed && several_nodes {
        compare_clocks(control)?
    } else {
        Vec::new()
    };
    Ok(Met {
        own_bell: own,
        bells,
        nic,
        rounds,
    })
}

/// Takes the times around exchanges of all ranks. Collective.
fn compare_clocks(control: &dyn Control) -> Result<Vec<(u64, u64)>> {
    let round = |_| {
        let before = now();
        let packet = Packet {
            bytes: Vec::new(),
            handles: Vec::new(),
        };
        control.exchange("comparing clocks", packet)?;
        Ok((before, now()))
    };
    (0..ROUNDS).map(round).collect()
}

/// Connects the NIC with those of the other ranks.
fn attach<D: Device>(
    device: &D,
    nic: Arc<dyn Nic>,
    (guard, rung): (Keep, Arc<D::Block>),
    theirs: Vec<(Option<HelloNic>, Option<Handle>)>,
    ((failed, asks), ranks_on_node): (NicCalls, usize),
) -> Result<Attached<D>> {
    let bytes = size_of::<Bell>();
    for (rank, (said, _)) in theirs.iter().enumerate() {
        if let Some(said) = said
            && said.name != nic.name()
        {
            let (theirs, mine) = (said.name.clone(), nic.name().to_owned());
            return Err(Error::Meet(MeetError::OtherNic { rank, theirs, mine }));
        }
    }
    let address = |(said, _): &(Option<HelloNic>, _)| {
        said.as_ref()
            .map_or_else(Vec::new, |said| said.address.clone())
    };
    let doorbells = Arc::new(device.alloc(bytes, Sharing::Nics)?);
    doorbells.share_no_more();
    let connection = Connection {
        addresses: theirs.iter().map(address).collect(),
        bell: doorbells.base(),
        keep: doorbells.clone(),
        helped: device.helps(),
        polled: device.staged(),
        failed,
        asks,
        ranks_on_node,
    };
    // SAFETY: the block is kept, and zeroed memory is a bell.
    unsafe { nic.connect(connection) }?;
    let bells = theirs
        .into_iter()
        .enumerate()
        .map(|(rank, (said, handle))| {
            let key = said.map(|said| Key {
                bytes: said.bell.0,
                handle: handle.filter(|_| said.bell.1),
            });
            key.map(|key| nic.import(rank, key, bytes)).transpose()
        });
    let bells = bells.collect::<Result<_, _>>()?;
    Ok(Attached {
        nic,
        doorbells,
        rung,
        bells,
        arming: Default::default(),
        parting: Default::default(),
        _registration: guard,
        #[cfg(test)]
        ignore_tickets: Default::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Route, World, WorldOptions};
    use tidegate_host::Host;
    use tidegate_loopback::Loopback;

    /// Two ranks on one node, each with its options.
    fn join(options: [WorldOptions; 2]) -> Vec<Result<World<Host>>> {
        let controls = tidegate_boot::local(2).into_iter().zip(options);
        std::thread::scope(|scope| {
            let join = |control, options| {
                let device = Host::open_local(0).unwrap();
                // SAFETY: the control plane of `tidegate-boot` carries unchanged what it is given.
                unsafe { World::from_control_with(Arc::new(control), device, options) }
            };
            let ranks: Vec<_> = controls
                .map(|(control, options)| scope.spawn(move || join(control, options)))
                .collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    }

    #[test]
    fn a_nic_is_opened_only_if_it_is_needed() {
        let refuses = || Err::<Loopback, _>(NicError::GivenUp);
        let options = || WorldOptions::new().nic_when_needed(refuses);
        for route in [Route::Auto, Route::Mapped] {
            for world in join([(); 2].map(|()| options().route(route.clone()))) {
                assert!(world.unwrap().nic().is_none());
            }
        }
        // A NIC that the program brings has precedence, in whatever order the options are set.
        let brings = [
            options().nic(Loopback::default()),
            WorldOptions::new()
                .nic(Loopback::default())
                .nic_when_needed(refuses),
        ];
        for world in join(brings.map(|options| options.route(Route::Nic))) {
            assert!(world.unwrap().nic().is_some());
        }
    }

    #[test]
    fn a_rank_without_its_nic_is_named_on_all() {
        let opens = WorldOptions::new().nic_when_needed(|| Ok(Loopback::default()));
        let refuses = WorldOptions::new().nic_when_needed(|| Err::<Loopback, _>(NicError::GivenUp));
        for world in join([opens, refuses].map(|options| options.route(Route::Nic))) {
            let error = world.map(|_| ()).unwrap_err();
            assert!(
                matches!(error, Error::Meet(MeetError::NoNic { rank: 1, .. })),
                "{error}"
            );
        }
    }

    #[test]
    fn processes_on_one_piece_of_hardware_are_counted_once() {
        let user = |hardware: &[u8], process, portion: usize| (hardware.to_vec(), process, portion);
        let all = [
            user(b"a", 1, 100),
            user(b"a", 1, 100),
            user(b"a", 2, 50),
            user(b"a", 2, 50),
            user(b"b", 3, 0),
            user(b"a", 5, 70),
        ];
        assert_eq!(others_on_hardware(&all[0], &all), (2, 50));
        assert_eq!(others_on_hardware(&all[2], &all), (2, 50));
        assert_eq!(others_on_hardware(&all[4], &all), (0, 0));
        // A process that takes turns makes all others take turns.
        let turns = [user(b"a", 1, 100), user(b"a", 2, 0)];
        assert_eq!(others_on_hardware(&turns[0], &turns), (1, 0));
        assert_eq!(others_on_hardware(&turns[1], &turns), (1, 0));
        // It does not concern a process that names no hardware.
        assert_eq!(
            others_on_hardware(&user(b"", 1, 0), &[user(b"", 9, 0)]),
            (0, 0)
        );
        assert_eq!(process(), process());
    }
}
