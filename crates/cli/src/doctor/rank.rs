//! A rank of the job that `tidegate doctor` looks at.

use super::facts::{Call, Here, Joined};
use super::figures::Figures;
use super::finding::{Finding, Who};
use super::judge::{self, Routes};
use super::reach::{self, Door};
use super::report::Report;
use super::{html, pairs, patience};
use crate::info::{self, Described, DeviceChoice, OnDevice};
use crate::say::{print, say};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tidegate_boot::TcpControl;
use tidegate_core::{Error, World};
use tidegate_hal::control::Control;

/// No job has as many ranks: see [`alone`].
const MOST_RANKS: usize = 1 << 16;

/// Is a rank, and returns its exit code. Rank 0 writes the report.
pub(super) fn run(device: DeviceChoice, limit: Duration, html: Option<&Path>) -> u8 {
    let here = Here::look();
    let host = info::host();
    let control = match TcpControl::from_env() {
        Ok(control) => Arc::new(control),
        Err(error) => return alone(here, host, error.to_string()),
    };
    let rank = control.rank();
    let known = Arc::new(Mutex::new(Report::default()));
    let watched = patience::watch(Who::one(rank, control.node(rank)), {
        let known = known.clone();
        move |finding| {
            let mut report = locked(&known).clone();
            report.findings.push(finding);
            // All ranks may be stuck, and those of one report say the same.
            match rank {
                0 => write(&report, None),
                _ => report
                    .findings
                    .iter()
                    .for_each(|each| say(format_args!("{}", each.what()))),
            }
        }
    });
    if let Err(error) = watched {
        say(format_args!("starting a thread: {error}"));
    }
    let examined = examine(&control, here, host, device, limit, &known);
    patience::end();
    // A second call has no effect, if the world has left the job already.
    control.leave();
    if let Err(error) = examined {
        let doing = "talking to the other ranks";
        let error = error.to_string();
        locked(&known)
            .findings
            .push(Finding::Failed { doing, error });
    }
    let report = locked(&known).clone();
    if rank > 0 {
        return 0;
    }
    write(&report, html);
    report.has_failed().into()
}

fn locked(report: &Mutex<Report>) -> std::sync::MutexGuard<'_, Report> {
    report
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A rank that does not join its job tells what it knows. Its launcher may have told it its number.
fn alone(here: Here, host: String, error: String) -> u8 {
    let number = [
        "RANK",
        "OMPI_COMM_WORLD_RANK",
        "PMIX_RANK",
        "PMI_RANK",
        "SLURM_PROCID",
    ];
    let number = number
        .iter()
        .find_map(|name| std::env::var(name).ok()?.parse().ok());
    let rank = number.unwrap_or(0).min(MOST_RANKS);
    // Nothing is known of the ranks before it, which count as ranks of another node.
    let mut all = vec![Here::default(); rank];
    let mut nodes = vec![1; rank];
    all.push(here);
    nodes.push(0);
    let hosts = vec![host; rank + 1];
    let mut findings = judge::before(&all, &hosts, &nodes);
    findings.extend(judge::of_locked(&all, None, &nodes));
    let who = Who::one(rank, 0);
    findings.push(Finding::NotMet { who, error });
    let report = Report {
        findings,
        ..Report::default()
    };
    write(&report, None);
    1
}

/// Writes the report to standard output, and as a page.
fn write(report: &Report, html: Option<&Path>) {
    let mut text = Vec::new();
    let written = report.write(&mut text);
    written.expect("memory takes all");
    print(&text);
    if let Some(path) = html
        && let Err(error) = std::fs::write(path, html::page(report))
    {
        say(format_args!("writing {}: {error}", path.display()));
    }
}

/// Tells each rank what all say.
fn exchange<T: Serialize + DeserializeOwned>(
    control: &TcpControl,
    label: &str,
    said: &T,
) -> Result<Vec<T>, Error> {
    let bytes = postcard::to_stdvec(said).expect("plain data can be encoded");
    let all = control.exchange(label, bytes)?;
    let read = |bytes: &Vec<u8>| postcard::from_bytes(bytes).map_err(Error::other);
    all.iter().map(read).collect()
}

/// Looks at everything. Findings go to `known` as soon as they are there.
fn examine(
    control: &Arc<TcpControl>,
    here: Here,
    host: String,
    device: DeviceChoice,
    limit: Duration,
    known: &Mutex<Report>,
) -> Result<(), Error> {
    patience::begin("waiting for the facts of the other ranks");
    let size = control.size();
    let nodes: Vec<usize> = (0..size).map(|rank| control.node(rank)).collect();
    let all = exchange(control, "tidegate doctor: facts", &(here, host))?;
    let (here, hosts): (Vec<Here>, Vec<String>) = all.into_iter().unzip();
    let mut findings = judge::before(&here, &hosts, &nodes);
    {
        let mut report = locked(known);
        (report.nodes, report.hosts) = (nodes.clone(), hosts);
        report.findings = findings.clone();
    }
    let mut has_calls = true;
    if nodes.iter().any(|node| *node != nodes[0]) {
        patience::begin("calling the other nodes");
        let calls = call(control, &here, &nodes)?;
        let is_foreign = |each: &Finding| matches!(each, Finding::ForeignAddress { .. });
        has_calls =
            calls.iter().all(|call| call.answer.is_ok()) && !findings.iter().any(is_foreign);
        findings.extend(judge::of_calls(&calls, &here, &nodes));
    }
    if !has_calls {
        // A NIC would wait long for what cannot be reached.
        findings.extend(judge::of_locked(&here, None, &nodes));
        locked(known).findings = findings;
        return Ok(());
    }
    locked(known).findings = findings.clone();
    let measured = device.run(Measured {
        control,
        limit,
        nodes: &nodes,
    });
    findings.extend(judge::of_locked(&here, measured.joined.as_deref(), &nodes));
    if let Some(joined) = measured.joined {
        let routes = Routes::of(&joined);
        findings.extend(judge::after(&joined, &routes, &nodes));
        if let Some(figures) = &measured.figures {
            let slow = routes.slow(figures, &nodes);
            findings.extend(slow.into_iter().map(|(_, finding)| finding));
        }
        let mut report = locked(known);
        report.devices = joined
            .into_iter()
            .map(|each| each.told.place.device)
            .collect();
        report.routes = Some(Arc::new(routes));
        report.figures = measured.figures.map(Arc::new);
    }
    if let Some((doing, error)) = measured.failed {
        // The others see the end of this rank only.
        if control.rank() > 0 {
            say(format_args!(
                "rank {}: {doing} fails: {error}",
                control.rank()
            ));
        }
        findings.push(Finding::Failed { doing, error });
    }
    locked(known).findings = findings;
    Ok(())
}

/// The first rank of each node calls the addresses of the other nodes.
fn call(control: &TcpControl, here: &[Here], nodes: &[usize]) -> Result<Vec<Call>, Error> {
    let rank = control.rank();
    let (mut seen, mut leaders) = (BTreeSet::new(), BTreeSet::new());
    let is_first = |rank: &usize| seen.insert((nodes[*rank], here[*rank].ip()));
    let doors: BTreeSet<usize> = (0..nodes.len()).filter(is_first).collect();
    let is_leader = (0..=rank)
        .filter(|rank| leaders.insert(nodes[*rank]))
        .any(|each| each == rank);
    let door = match doors.contains(&rank) {
        // If there is no door, `judge::before` says why.
        true => Door::open(here[rank].ip()).ok(),
        false => None,
    };
    let place = door.as_ref().map(|door| (door.port, door.number));
    let places = exchange(control, "tidegate doctor: doors", &place)?;
    let mut calls = Vec::new();
    if is_leader {
        let far = doors.iter().filter(|peer| nodes[**peer] != nodes[rank]);
        for &to in far {
            let Some((port, number)) = places[to] else {
                continue;
            };
            let answer = reach::call((here[to].ip(), port).into(), number);
            let has_failed = answer.is_err();
            calls.push(Call {
                from: rank,
                to,
                answer,
            });
            // A few are enough to see what is wrong, and each takes its time.
            if has_failed && calls.iter().filter(|call| call.answer.is_err()).count() == 3 {
                break;
            }
        }
    }
    let all = exchange(control, "tidegate doctor: calls", &calls)?;
    drop(door);
    Ok(all.concat())
}

/// The part of the examination that needs a device.
struct Measured<'a> {
    control: &'a Arc<TcpControl>,
    limit: Duration,
    nodes: &'a [usize],
}

/// What came of it.
#[derive(Default)]
struct Outcome {
    joined: Option<Vec<Joined>>,
    figures: Option<Figures>,
    failed: Option<(&'static str, String)>,
}

impl OnDevice for Measured<'_> {
    type Out = Outcome;

    fn run<D: Described>(self) -> Outcome {
        let mut outcome = Outcome::default();
        let mut doing = "opening devices and NICs";
        if let Err(error) = self.measure::<D>(&mut outcome, &mut doing) {
            outcome.failed = Some((doing, error.to_string()));
        }
        outcome
    }
}

impl Measured<'_> {
    fn measure<D: Described>(
        self,
        outcome: &mut Outcome,
        doing: &mut &'static str,
    ) -> Result<(), Error> {
        patience::begin(doing);
        let noted = Arc::new(OnceLock::new());
        // SAFETY: the control plane of `tidegate-boot` carries unchanged what it is given, and no other world is made
        // of it.
        let world = unsafe { World::<D>::join_with(self.control.clone(), info::options(&noted)) }?;
        *doing = "comparing devices and routes";
        patience::begin(doing);
        let joined = Joined {
            told: info::tell(&world, noted.get())?,
            gpu: world.device().shared(),
        };
        let bytes = postcard::to_stdvec(&joined).expect("plain data can be encoded");
        let all = world.all_gather("tidegate doctor: devices", bytes)?;
        let read = |bytes: &Vec<u8>| postcard::from_bytes(bytes).map_err(Error::other);
        let joined: Vec<Joined> = all.iter().map(read).collect::<Result<_, _>>()?;
        let routes = Routes::of(&joined);
        outcome.joined = Some(joined);
        *doing = "measuring the pairs of ranks";
        patience::begin(doing);
        let may = |a: usize, b: usize| routes.joins(a, b);
        let again = |figures: &Figures| {
            let slow = routes.slow(figures, self.nodes).into_iter();
            let pairs: BTreeSet<_> = slow.map(|(pair, _)| pair).collect();
            pairs.into_iter().collect()
        };
        outcome.figures = Some(pairs::measure(&world, self.limit, may, again)?);
        *doing = "leaving the job";
        patience::begin(doing);
        drop(world);
        Ok(())
    }
}
