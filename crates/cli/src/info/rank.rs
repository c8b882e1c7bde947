//! A rank that joins its job, and tells where it is and how it reaches the others.

use super::device::{Described, DeviceChoice, OnDevice};
use super::told::{NicTold, Place, Told, Way, runs};
use super::{machine, report};
use crate::say::{print, say};
use std::io;
use std::sync::{Arc, OnceLock};
use tidegate_core::{Error, Route, World, WorldOptions};
use tidegate_fabric::wire::libfabric::{Choice, EngineChoice, FabricWire, OpenError};
use tidegate_fabric::{Fabric, Options};
use tidegate_hal::nic::NicError;
use tidegate_hal::variables::{ALL, ROUTE, SECRET};

/// Is a rank, and returns its exit code. On rank 0, `before` writes what comes before the report.
pub(super) fn run(device: DeviceChoice, before: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> u8 {
    match device.run(Informed(before)) {
        Ok(()) => 0,
        Err(error) => {
            say(format_args!("{error}"));
            1
        }
    }
}

/// A rank that tells, on any device.
struct Informed<B>(B);

impl<B: FnOnce(&mut Vec<u8>) -> io::Result<()>> OnDevice for Informed<B> {
    type Out = Result<(), Error>;

    fn run<D: Described>(self) -> Self::Out {
        join::<D>(self.0)
    }
}

/// Options of a world that opens the NIC as `World::init` does, and notes which it is.
pub(crate) fn options(noted: &Arc<OnceLock<(String, String)>>) -> WorldOptions {
    let noted = noted.clone();
    WorldOptions::new().nic_when_needed(move || {
        open(&noted).map_err(|error| NicError::System {
            what: "opening libfabric",
            detail: error.to_string(),
        })
    })
}

fn open(noted: &OnceLock<(String, String)>) -> Result<Fabric<FabricWire>, OpenError> {
    let options = Options::default().rails_from_env()?.silence_from_env();
    let wire = FabricWire::open(&Choice::from_env()?)?;
    let said = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let provider = match said(Choice::PROVIDER) {
        Some(_) => format!("{} names the provider", Choice::PROVIDER),
        None => "the first provider that has what is needed".to_owned(),
    };
    let engine = match (said(EngineChoice::VARIABLE), wire.triggered()) {
        (Some(value), _) if value != EngineChoice::Auto.name() => {
            format!("{}={value} chooses the engine", EngineChoice::VARIABLE)
        }
        (_, Some(_)) => "its hardware starts transfers".to_owned(),
        (_, None) => "no hardware starts transfers".to_owned(),
    };
    let _ = noted.set((machine::engine(&wire), format!("{provider}; {engine}")));
    Ok(Fabric::over(wire, options))
}

fn join<D: Described>(before: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> Result<(), Error> {
    let noted = Arc::new(OnceLock::new());
    let world = World::<D>::join(options(&noted))?;
    let told = tell(&world, noted.get())?;
    let bytes = postcard::to_stdvec(&told).expect("plain data can be encoded");
    let all = world.all_gather("tidegate info", bytes)?;
    if world.rank() > 0 {
        return Ok(());
    }
    let mut told = Vec::new();
    for bytes in &all {
        match postcard::from_bytes::<Told>(bytes) {
            Ok(each) => told.push(each),
            Err(error) => {
                let rank = told.len();
                say(format_args!(
                    "rank {rank} is no rank of this version of tidegate: {error}"
                ));
                return Ok(());
            }
        }
    }
    let nodes = (0..world.size()).map(|rank| world.node(rank));
    let nodes = nodes.collect::<Result<Vec<_>, _>>()?;
    let mut text = Vec::new();
    let written = before(&mut text).and_then(|()| report::write(&told, &nodes, &mut text));
    written.expect("memory takes all");
    print(&text);
    Ok(())
}

/// What this rank tells the others.
pub(crate) fn tell<D: Described>(
    world: &World<D>,
    nic: Option<&(String, String)>,
) -> Result<Told, Error> {
    let route = std::env::var(ROUTE.name);
    let route = route.unwrap_or_else(|_| "auto".to_owned());
    let asked = Route::parse(&route)?;
    let asks = |peer: usize| match &asked {
        Route::Nic => true,
        Route::NicTo(ranks) => ranks.contains(&peer),
        Route::Auto | Route::Mapped => false,
    };
    let own = world.node(world.rank())?;
    let way = |peer: usize| -> Result<Way, Error> {
        let near = world.node(peer)? == own;
        Ok(match (world.reaches_by_nic(peer)?, near) {
            (false, true) => Way::Mapped,
            (false, false) => Way::Refused,
            (true, false) => Way::OtherNode,
            (true, true) if asks(peer) => Way::Asked,
            (true, true) => Way::Unmappable,
        })
    };
    let ways = (0..world.size()).map(way).collect::<Result<Vec<_>, _>>()?;
    let (processors, memory) = machine::place();
    // Ranks may see different GPUs, so only the variables of tidegate count.
    let shared = ALL.iter().filter(|each| {
        let is_ours = each.name.starts_with("TIDEGATE_") && each.name != SECRET.name;
        is_ours && !each.is_own() && !each.default.is_empty()
    });
    let value = |name| Some(std::env::var_os(name)?.to_string_lossy().into_owned());
    Ok(Told {
        place: Place {
            host: machine::host(),
            device: world.device().words(),
            processors,
            memory,
        },
        ways: runs(ways),
        staged: world.device().staged(),
        route,
        nic: nic.map(|(name, why)| NicTold {
            name: name.clone(),
            why: why.clone(),
            slots: world.nic_slots().map_or(0, |(all, _)| all),
        }),
        settings: shared
            .filter_map(|each| Some((each.name.to_owned(), value(each.name)?)))
            .collect(),
    })
}
