//! Compares the results with those that must come out, or may.

use std::collections::{HashMap, HashSet};

use super::job::{Job, locked, log, tickets};
use super::oracle::{Fetched, Outcome, Tag, Truth};

impl Truth {
    /// Compares the results with those that must come out, or may. Returns the first difference.
    pub(crate) fn judge(&self, job: &Job, real: &[Outcome]) -> Result<(), String> {
        for (rank, (must, is)) in self.outcomes.iter().zip(real).enumerate() {
            let pairs = must.reads.iter().zip(&is.reads).enumerate();
            for (index, (must, is)) in pairs {
                if must != is {
                    return Err(format!(
                        "rank {rank}, host read {index}: {is:x}, not {must:x}"
                    ));
                }
            }
            for (window, (must, is)) in must.windows.iter().zip(&is.windows).enumerate() {
                // The holder of a lock is not certain.
                let win = &job.windows[window];
                let certain = |index: usize| !win.locks().contains(&index);
                for (slot, (must, is)) in must.iter().zip(is).enumerate() {
                    if let Some(what) = differ(must, is, certain) {
                        return Err(format!("rank {rank}, window {window}, slot {slot}: {what}"));
                    }
                }
            }
            for (id, (must, is)) in must.regions.iter().zip(&is.regions).enumerate() {
                let uncertain = (0..job.windows.len())
                    .any(|window| [log(window), tickets(window), locked(window)].contains(&id));
                if let Some(what) = differ(must, is, |_| !uncertain) {
                    return Err(format!("rank {rank}, region {id}: {what}"));
                }
            }
        }
        self.judge_logs(job, real)
    }

    fn judge_logs(&self, job: &Job, real: &[Outcome]) -> Result<(), String> {
        let mut sets: HashMap<Tag, (Vec<u64>, Vec<u64>)> = HashMap::new();
        for (rank, real) in real.iter().enumerate() {
            for window in 0..job.windows.len() {
                let (must, is) = (
                    &self.outcomes[rank].regions[log(window)],
                    &real.regions[log(window)],
                );
                if must[0] != is[0] {
                    return Err(format!(
                        "rank {rank}, window {window}: {} fetched, not {}",
                        is[0], must[0]
                    ));
                }
                for (index, tag) in self.tags[rank][window].iter().enumerate() {
                    let (musts, ares) = sets.entry(*tag).or_default();
                    musts.push(must[index + 1]);
                    ares.push(is[index + 1]);
                }
            }
        }
        for (tag, (must, is)) in &sets {
            match tag.kind {
                Fetched::Stale => {}
                // Each ticket was drawn once.
                Fetched::Ticket => {
                    let (mut a, mut b) = (must.clone(), is.clone());
                    a.sort_unstable();
                    b.sort_unstable();
                    if a != b {
                        return Err(format!(
                            "tickets of {tag:?}: {is:?}, which should be {must:?}"
                        ));
                    }
                }
                // One origin found it free, and all others found that origin.
                Fetched::Lock => {
                    let holder = Tag {
                        kind: Fetched::Holder,
                        ..*tag
                    };
                    let found: HashSet<_> = is.iter().filter(|value| **value != 0).collect();
                    let free = is.iter().filter(|value| **value == 0).count();
                    let end = sets.get(&holder).map(|(_, is)| is[0]);
                    let agree = found.len() <= 1
                        && end.is_none_or(|end| found.iter().all(|value| **value == end));
                    if free != must.iter().filter(|value| **value == 0).count() || !agree {
                        return Err(format!("locks of {tag:?}: {is:?}, in the end {end:?}"));
                    }
                }
                Fetched::Holder => {
                    // It is certain whether it is free. The holder is certain, too, if only one origin tried.
                    let tries = sets.get(&Tag {
                        kind: Fetched::Lock,
                        ..*tag
                    });
                    let sole = tries.is_none_or(|(must, _)| must.len() == 1);
                    if (must[0] == 0) != (is[0] == 0) || sole && must != is {
                        return Err(format!("holder of {tag:?}: {is:?}, not {must:?}"));
                    }
                }
            }
        }
        Ok(())
    }
}

fn differ(must: &[u64], is: &[u64], certain: impl Fn(usize) -> bool) -> Option<String> {
    if must.len() != is.len() {
        return Some(format!("{} elements, not {}", is.len(), must.len()));
    }
    let wrong = |index: &usize| certain(*index) && must[*index] != is[*index];
    let index = (0..must.len()).find(wrong)?;
    Some(format!(
        "element {index} of {} is {:x}, not {:x}",
        must.len(),
        is[index],
        must[index]
    ))
}
