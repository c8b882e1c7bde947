//! Tools over the events of ranks that are processes: the examples, counters, and ranges of profilers that are made here.

use std::path::{Path, PathBuf};
use std::process::Command;

use tidegate_cli::{Job, Output};

use crate::common::exposition;
use crate::common::skip::skipped;
use crate::common::waits::without_waits;
use crate::examples::{SIZES, outputs, program};

fn job(name: &str, ranks: usize) -> Job {
    Job::new(program(name), ranks)
}

/// The rows of a table of `traffic`, without its head.
fn rows(text: &str) -> Vec<&str> {
    assert!(
        text.starts_with("from    to  epochs       bytes  window\n"),
        "{text}"
    );
    text.lines().skip(1).collect()
}

#[test]
fn traffic() {
    for ranks in SIZES {
        let folder = tempfile::tempdir().unwrap();
        let job = job("traffic", ranks).env("TIDEGATE_TRACE", folder.path());
        let said = outputs("traffic", job);
        let live: Vec<_> = said.iter().flat_map(|text| rows(text)).collect();
        let expected = |rank: usize| {
            let (to, bytes) = ((rank + 1) % ranks, 8000 * (rank + 1));
            format!("{rank:>4}  {to:>4}  {:>6}  {bytes:>10}  ring", 10)
        };
        assert_eq!(live, (0..ranks).map(expected).collect::<Vec<_>>());
        let mut read = Command::new(program("traffic"));
        let read = read.arg(folder.path()).output().unwrap();
        assert!(read.status.success());
        assert_eq!(rows(std::str::from_utf8(&read.stdout).unwrap()), live);
    }
}

#[test]
fn flight() {
    for ranks in SIZES {
        for (rank, text) in outputs("flight", job("flight", ranks)).iter().enumerate() {
            let culprit = format!("rank {}", ranks - 1);
            assert!(text.starts_with(&format!("rank {rank}: ")), "{text}");
            assert!(
                text.contains("window `halo`: revoked: ") && text.contains(&culprit),
                "{text}"
            );
        }
    }
}

#[test]
fn counters() {
    let folder = tempfile::tempdir().unwrap();
    outputs(
        "traffic",
        job("traffic", 3).env("TIDEGATE_METRICS", folder.path()),
    );
    for rank in 0..3 {
        let file = folder.path().join(format!("tidegate-rank-{rank}.prom"));
        let samples = exposition::read(&std::fs::read_to_string(file).unwrap());
        let mut bytes = samples.iter().filter(|((name, labels), _)| {
            name == "tidegate_moved_bytes_total" && labels["peer"] == ((rank + 1) % 3).to_string()
        });
        assert_eq!(*bytes.next().unwrap().1, 8000.0 * (rank + 1) as f64);
    }
    let refused = job("traffic", 1).env("TIDEGATE_METRICS", "/dev/null/counters");
    let refused = refused.output(Output::Captured).run().unwrap();
    let errors = String::from_utf8_lossy(&refused.ranks[0].stderr);
    let why = "TIDEGATE_METRICS is `/dev/null/counters`, and that folder cannot be made";
    assert!(errors.contains(why), "{errors}");
}

/// A profiler for NVTX: it says which ranges of which domain begin and end.
const NVTX: &str = r#"
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
typedef void (*function)(void);
struct callbacks { size_t size; int (*module)(int, function ***, unsigned *); };
struct version { size_t size; uint32_t version, reserved; void (*set)(uint32_t); };
struct attributes {
    uint16_t version, size; uint32_t category; int32_t color_type; uint32_t color;
    int32_t payload_type, reserved; uint64_t payload; int32_t message_type; const char *message;
};
static void *create(const char *name) { return strdup(name); }
static __thread int depth;
static int push(void *domain, const struct attributes *a) {
    if (a->version != 3 || a->size != sizeof *a || a->message_type != 1) fprintf(stderr, "wrong\n");
    fprintf(stderr, "push %s: %s\n", (char *)domain, a->message);
    return depth++;
}
static int pop(void *domain) {
    if (depth == 0) fprintf(stderr, "wrong\n");
    fprintf(stderr, "pop %s\n", (char *)domain);
    return --depth;
}
int InitializeInjectionNvtx2(const void *(*table)(uint32_t)) {
    const struct callbacks *callbacks = table(1);
    const struct version *version = table(3);
    if (callbacks->size != sizeof *callbacks || version->version != 3) return 0;
    version->set(3);
    /* As profilers do, it looks at all modules. */
    for (int module = 1; module <= 6; module++) {
        function **slots; unsigned size;
        if (!callbacks->module(module, &slots, &size) || size < 7) return 0;
        if (slots[0] || slots[size]) return 0;
        if (module == 5) {
            *slots[4] = (function)push;
            *slots[5] = (function)pop;
            *slots[12] = (function)create;
        }
    }
    return 1;
}
"#;

/// roctx, with a profiler behind it.
const ROCTX: &str = r#"
#include <stdio.h>
static __thread int depth;
int roctxRangePushA(const char *text) { fprintf(stderr, "push tidegate: %s\n", text); return depth++; }
int roctxRangePop(void) {
    if (depth == 0) fprintf(stderr, "wrong\n");
    fprintf(stderr, "pop tidegate\n");
    return --depth;
}
"#;

/// Makes a library in a folder. `None` without a C compiler.
fn library(folder: &Path, source: &str, name: &str) -> Option<PathBuf> {
    let (input, output) = (folder.join("library.c"), folder.join(name));
    std::fs::write(&input, source).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-w"])
        .arg(format!("-Wl,-soname,{name}"));
    let Ok(made) = cc.arg("-o").args([&output, &input]).output() else {
        skipped("tools::library", "there is no C compiler (`cc`)");
        return None;
    };
    let errors = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{errors}");
    Some(output)
}

/// The ranges that each rank has shown, in order, with their ends, while it ran the example `ring`.
fn ranges(job: Job) -> Vec<Vec<String>> {
    let ranks = job.output(Output::Captured).run().unwrap().ranks;
    let shown = ranks.iter().map(|rank| {
        let errors = String::from_utf8_lossy(&rank.stderr);
        assert!(rank.status.success(), "{errors}");
        let lines = without_waits(&errors);
        lines.lines().map(str::to_owned).collect()
    });
    shown.collect()
}

/// Those of a rank whose profiler shows them.
fn are_shown(ranks: &[Vec<String>]) {
    for lines in ranks {
        let mut begun = Vec::new();
        for pair in lines.chunks(2) {
            let [push, pop] = pair else {
                panic!("one is open: {lines:?}")
            };
            assert_eq!(pop, "pop tidegate", "{lines:?}");
            begun.push(push.strip_prefix("push tidegate: ").expect(push));
        }
        let replay = begun
            .iter()
            .position(|text| text.starts_with("replay "))
            .unwrap();
        assert!(begun[replay].ends_with(" (1000 times)"));
        assert!(
            begun[replay + 2].starts_with("launch ring::increment"),
            "{begun:?}"
        );
        let rest = [replay + 1, replay + 3, replay + 4, replay + 6].map(|at| begun[at]);
        let expected = [
            "post ring (s)",
            "complete ring (s)",
            "wait ring (s)",
            "into_host (s)",
        ];
        assert_eq!(rest, expected);
    }
}

#[test]
fn nvtx_shows_each_call() {
    let folder = tempfile::tempdir().unwrap();
    let Some(path) = library(folder.path(), NVTX, "libprofiler.so") else {
        return;
    };
    let attached = || job("ring", 2).env("NVTX_INJECTION64_PATH", &path);
    are_shown(&ranges(attached()));
    are_shown(&ranges(attached().env("TIDEGATE_PROFILER", "nvtx")));
    let silent = ranges(attached().env("TIDEGATE_PROFILER", "no"));
    assert!(silent.iter().all(Vec::is_empty), "{silent:?}");
}

#[test]
fn roctx_shows_each_call() {
    let folder = tempfile::tempdir().unwrap();
    let name = "librocprofiler-sdk-roctx.so.1";
    let Some(path) = library(folder.path(), ROCTX, name) else {
        return;
    };
    // A profiler that has started the program has loaded the library before.
    are_shown(&ranges(job("ring", 2).env("LD_PRELOAD", &path)));
    let there = || job("ring", 2).env("LD_LIBRARY_PATH", folder.path());
    are_shown(&ranges(there().env("TIDEGATE_PROFILER", "roctx")));
    // If nobody asks for it, it is not loaded.
    let silent = ranges(there());
    assert!(silent.iter().all(Vec::is_empty), "{silent:?}");
}

/// A profiler is an aid. Without it the program runs as well. But a misspelt one is an error.
#[test]
fn without_a_profiler_programs_run() {
    let silent = ranges(job("ring", 1).env("NVTX_INJECTION64_PATH", "/no/such/library.so"));
    assert!(silent.iter().all(Vec::is_empty), "{silent:?}");
    let silent = ranges(job("ring", 1).env("TIDEGATE_PROFILER", "nvtx"));
    assert!(silent.iter().all(Vec::is_empty), "{silent:?}");
    let misspelt = job("ring", 1).env("TIDEGATE_PROFILER", "nvtv");
    let misspelt = misspelt.output(Output::Captured).run().unwrap();
    let errors = String::from_utf8_lossy(&misspelt.ranks[0].stderr);
    assert!(errors.contains("`nvtv` is no profiler"), "{errors}");
}
