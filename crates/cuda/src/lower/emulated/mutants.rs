//! Errors that somebody could make in the kernel: each is found by a test that is there for it.
//!
//! # Failure
//!
//! A kernel that is wrong may read and write anywhere, so each is run by a process of its own, which it may take down, or keep from ending.

use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::machine::{Machine, SMALL};
use super::protocol::Form;
use super::{failure, moves, order, protocol};

type Check = fn(&mut Machine) -> Result<(), String>;

const MOVES: Check = |machine| moves::check(machine, 0..400);
const PARITIES: Check = |machine| moves::check_parities(machine, 0..200);
const EPOCHS: Check = |machine| protocol::check(machine, Form::Whole, 0..60, 20);
const POISON: Check = |machine| failure::check_poison(machine, Form::Whole, 0..150);
const ABORT: Check = |machine| failure::check_abort(machine, Form::Whole, 0..100);
const FOLLOW: Check = |machine| failure::check_follow(machine, 0..500);
const REPORTS: Check = |machine| failure::check_reports(machine, 0..20);
const ORDER: Check = |machine| order::check(machine, 0..80);
const LOOKS: Check = |machine| order::check_looks(machine, 0..40);

/// What is found by what: `(check, before, after)`.
const MUTANTS: &[(Check, &str, &str)] = &[
    // The barrier before an add, and the one after a wait.
    (
        EPOCHS,
        "team.barrier();\n                if (team.rank() == 0) {\n                    // All",
        "if (team.rank() == 0) {\n                    // All",
    ),
    (
        EPOCHS,
        "    team.barrier();\n    return !stand->failed;",
        "    return !stand->failed;",
    ),
    // One stand for all waits of a team.
    (
        PARITIES,
        "stand = stand == stands ? stands + 1 : stands;",
        "stand = stands;",
    ),
    // Every block advances the operand; the first does; none does; so do tickets.
    (
        EPOCHS,
        "if (before == count - 1 || !wait->arrivals) {",
        "if (true) {",
    ),
    (
        EPOCHS,
        "if (before == count - 1 || !wait->arrivals) {",
        "if (before == 0) {",
    ),
    (
        EPOCHS,
        "if (before == count - 1 || !wait->arrivals) {",
        "if (!wait->arrivals) {",
    ),
    // The counter does not begin again where it should.
    (
        EPOCHS,
        "count_to(wait->arrivals, count - 1 + (u32)(from >> 63))",
        "count_to(wait->arrivals, count + (u32)(from >> 63))",
    ),
    // The parts of an add are more than it, or less; all are in the first.
    (
        EPOCHS,
        "index == 0 ? add->value - (count - 1) : 1",
        "index == 0 ? add->value : 1",
    ),
    (
        EPOCHS,
        "index == 0 ? add->value - (count - 1) : 1",
        "index == 0 ? add->value - count : 1",
    ),
    (
        EPOCHS,
        "index == 0 ? add->value - (count - 1) : 1",
        "index == 0 ? add->value : 0",
    ),
    // Waits that are too long, or too short, or that read poison as a count.
    (EPOCHS, ">= (i64)quantum;", "> (i64)quantum;"),
    (EPOCHS, ">= (i64)quantum;", ">= (i64)quantum - 200;"),
    (
        POISON,
        "(i64)((value & ~POISON) - from)",
        "(i64)(value - from)",
    ),
    // The wrong buffers.
    (EPOCHS, "return epoch & 1;", "return !(epoch & 1);"),
    (
        EPOCHS,
        "if (is_odd(move, stand->epoch)) dst.base += move->dst_flip;",
        "",
    ),
    (
        PARITIES,
        "load_relaxed(move->parity) >> QUANTUM_BITS) - 1)",
        "load_relaxed(move->parity) >> QUANTUM_BITS))",
    ),
    // Failure that goes no further, or too far.
    (POISON, "if (value & POISON) {", "if (false) {"),
    (
        POISON,
        "or_release(((const AddStep *)step)->word, POISON);",
        "(void)0;",
    ),
    (
        FOLLOW,
        "step->kind == STEP_ADD && (step->flags & ADD_HAS_WAITER)",
        "step->kind == STEP_ADD",
    ),
    (
        POISON,
        "if (team.rank() == 0) poison_rest(next);",
        "(void)0;",
    ),
    (
        ABORT,
        "    if (or_fetch32(&launch.state->stop, 1) & 1) return;  // another team was first\n",
        "    or_fetch32(&launch.state->stop, 1);\n",
    ),
    // Who does not ask how the stream stands, does not hear the answer, or asks again and again.
    (
        FOLLOW,
        "if (team.rank() == 0) stand->failed = has_failed(launch);",
        "if (team.rank() == 0) stand->failed = false;",
    ),
    (
        POISON,
        "        if (stand->failed) {\n            if (team.rank() == 0) poison_rest(steps);",
        "        if (stand->failed) {",
    ),
    (
        POISON,
        "    if (!(first && (stop || launch.follow[0]) && has_failed(launch))) {",
        "    if (true) {",
    ),
    (
        FOLLOW,
        "for (int i = 0; i < 2; i++) {\n        State *other",
        "for (int i = 0; i < 1; i++) {\n        State *other",
    ),
    (LOOKS, "                first = false;\n", ""),
    (LOOKS, "(first && (stop || launch.follow[0])", "(first"),
    (
        POISON,
        "u64 epoch = from >> QUANTUM_BITS;",
        "u64 epoch = (from >> QUANTUM_BITS) + 7;",
    ),
    (
        FOLLOW,
        "if (looks % 16 == 0 && has_failed(launch)) break;",
        "",
    ),
    (ABORT, "if (stop && !(stop & 1)) {", "if (false) {"),
    (FOLLOW, "if (theirs && !stop) {", "if (false) {"),
    (
        FOLLOW,
        "while (!(or_fetch32(&other->stop, 0) & 2)) pause(50);",
        "",
    ),
    // Reports that stay, or never come.
    (
        REPORTS,
        "if (reported) store_release32(&blocked->active, 0);",
        "",
    ),
    (REPORTS, "looks == 4096", "looks == 1u << 30"),
    (REPORTS, "if (wait->quantum == 0 && epoch) epoch--;", ""),
    // Moves.
    (
        MOVES,
        "at += (i64)(i - next * shape->count[d]) * shape->stride[d];",
        "at += (i64)(i - next * shape->count[d]) * (u32)shape->stride[d];",
    ),
    (
        MOVES,
        "DEV u64 update(u64 at, u32 bytes, Next next) {",
        "DEV u64 update(u64 at, u32 bytes, Next next) {\n    if (bytes < 4) bytes = 4, at &= ~3ull;",
    ),
    (
        MOVES,
        "team.rank(), stride = (u64)count * Team::size;\n    if (move->action",
        "team.rank(), stride = Team::size;\n    if (move->action",
    ),
    (
        MOVES,
        "case OP_MIN: return (b != b || a < b) ? a : b;",
        "case OP_MIN: return a < b ? a : b;",
    ),
    (
        MOVES,
        "was == compare ? value : was",
        "was == value ? compare : was",
    ),
    // Two waits count together.
    (
        EPOCHS,
        "count_to(wait->arrivals,",
        "count_to(wait->arrivals & ~128ull,",
    ),
    // Barriers of lanes in short.
    (
        EPOCHS,
        "    team.barrier();\n    if (stand->failed == SHORT_NOT_YET) {",
        "    if (stand->failed == SHORT_NOT_YET) {",
    ),
    (
        EPOCHS,
        "if (lane.kind & LANE_ADDS) {\n        team.barrier();",
        "if (lane.kind & LANE_ADDS) {",
    ),
    (
        EPOCHS,
        "stand[1].failed = !ok;\n    }\n    team.barrier();",
        "stand[1].failed = !ok;\n    }",
    ),
    // A stand that is written while some have not read it.
    (
        EPOCHS,
        "stand[1].failed = !ok;\n    }\n    team.barrier();\n    if (stand[1].failed) {",
        "stand->failed = !ok;\n    }\n    team.barrier();\n    if (stand->failed) {",
    ),
    // Their operands, counters, and parts of adds.
    (EPOCHS, "(before == count - 1 || !lane.arrivals)", "true"),
    (
        EPOCHS,
        "(before == count - 1 || !lane.arrivals)",
        "before == 0",
    ),
    (
        EPOCHS,
        "(before == count - 1 || !lane.arrivals)",
        "!lane.arrivals",
    ),
    (
        EPOCHS,
        "store_relaxed(lane.operand, from + lane.quantum)",
        "store_relaxed(lane.operand, from)",
    ),
    (
        EPOCHS,
        "count_to(lane.arrivals, count - 1 + (u32)(from >> 63))",
        "count_to(lane.arrivals, count + (u32)(from >> 63))",
    ),
    (
        EPOCHS,
        "count_to(lane.arrivals, count - 1 + (u32)(from >> 63))",
        "count_to(lane.arrivals & ~128ull, count - 1 + (u32)(from >> 63))",
    ),
    (
        EPOCHS,
        "index == 0 ? lane.value - (count - 1) : 1",
        "index == 0 ? lane.value : 1",
    ),
    (
        EPOCHS,
        "index == 0 ? lane.value - (count - 1) : 1",
        "index == 0 ? lane.value - count : 1",
    ),
    (
        EPOCHS,
        "index == 0 ? lane.value - (count - 1) : 1",
        "index == 0 ? lane.value : 0",
    ),
    // Their buffers.
    (
        EPOCHS,
        "stand->epoch = ((from + lane.quantum) >> QUANTUM_BITS) - 1;",
        "stand->epoch = (from + lane.quantum) >> QUANTUM_BITS;",
    ),
    (
        EPOCHS,
        "u64 dst = lane.dst + (stand->epoch & 1 ? lane.flip : 0);\n#pragma",
        "u64 dst = lane.dst;\n#pragma",
    ),
    (
        MOVES,
        "dst = lane.dst + (stand->epoch & 1 ? lane.flip : 0);\n    copy",
        "dst = lane.dst;\n    copy",
    ),
    // What they copy: the units, and the tail.
    (MOVES, "if (first < lane.tail) put(dst + end, tail);", ""),
    (
        MOVES,
        "if (first < lane.tail) fetch(tail, lane.src + end);",
        "fetch(tail, lane.src + end);",
    ),
    (
        MOVES,
        "u64 end = lane.count * sizeof(Unit) + first;\n    if (first < lane.tail) fetch",
        "u64 end = first;\n    if (first < lane.tail) fetch",
    ),
    (
        MOVES,
        "u64 end = lane.count * sizeof(Unit) + first;\n    if (first < lane.tail) {",
        "u64 end = first;\n    if (first < lane.tail) {",
    ),
    (
        MOVES,
        "u64 end = lane.count * sizeof(Unit) + first;\n    if (first < lane.tail) {",
        "u64 end = lane.count * sizeof(Unit) + first;\n    if (first + 1 < lane.tail) {",
    ),
    (
        MOVES,
        "first + DEPTH * stride, stride, lane.count);",
        "first + (DEPTH - 1) * stride, 2 * stride, lane.count);",
    ),
    (
        MOVES,
        "copy_sides<Unit>(src, dst, first + DEPTH * stride, stride, move->count);",
        "copy_sides<Unit>(src, dst, first + (DEPTH - 1) * stride, 2 * stride, move->count);",
    ),
    (
        MOVES,
        "return dst + i * sizeof(Unit); }, first, stride, lane.count);",
        "return dst + i * sizeof(Unit); }, first + stride, stride, lane.count);",
    ),
    (
        MOVES,
        "if (first + k * stride < lane.count) put(",
        "if (first + k * stride <= lane.count) put(",
    ),
    // How their streams stand, and what they wait for when it takes long.
    (
        ABORT,
        "stop || launch.follow[0] || !ok ? SHORT",
        "launch.follow[0] || !ok ? SHORT",
    ),
    (
        FOLLOW,
        "stop || launch.follow[0] || !ok ? SHORT",
        "stop || !ok ? SHORT",
    ),
    (
        EPOCHS,
        "stop || launch.follow[0] || !ok ? SHORT",
        "stop || launch.follow[0] ? SHORT",
    ),
    (FOLLOW, "bool ok = !has_failed(launch);", "bool ok = true;"),
    (
        EPOCHS,
        "if (ok && (lane.kind & LANE_WAITS)) ok = wait_long(",
        "if (false) ok = wait_long(",
    ),
    (
        POISON,
        "if (team.rank() == 0) give_up(launch, lane.steps, lane.kind & LANE_WAITS);",
        "",
    ),
    (
        POISON,
        "if (stand[1].failed) {\n        if (team.rank() == 0) give_up(launch, lane.steps, lane.kind & LANE_WAITS);\n        return;",
        "if (stand[1].failed) {\n        if (team.rank() == 0) give_up(launch, lane.steps, lane.kind & LANE_WAITS);",
    ),
    (
        POISON,
        "launch.program + 16ull * steps;\n",
        "launch.program + 16ull * steps + 64;\n",
    ),
    (
        REPORTS,
        "from, index == 0);\n        stand[1]",
        "from, false);\n        stand[1]",
    ),
    (
        REPORTS,
        "ok = wait_long(launch, wait, from, index == 0);",
        "ok = wait_long(launch, wait, from, false);",
    ),
    // Posts: without a fence, or with it at the wrong time; of a failed stream; by every thread.
    (EPOCHS, "    fence();\n    if ((stop", "    if ((stop"),
    (
        EPOCHS,
        "u32 steps = at->steps;\n    wait_for_previous();\n    if (launch.flags & LAUNCH_NEXT) let_next_come();\n    u32 stop = load_relaxed32(&launch.state->stop);\n    fence();",
        "u32 steps = at->steps;\n    fence();\n    wait_for_previous();\n    if (launch.flags & LAUNCH_NEXT) let_next_come();\n    u32 stop = load_relaxed32(&launch.state->stop);\n",
    ),
    (
        FOLLOW,
        "if ((stop || launch.follow[0]) && has_failed(launch)) give_up",
        "if (stop && has_failed(launch)) give_up",
    ),
    (
        FOLLOW,
        "if ((stop || launch.follow[0]) && has_failed(launch)) give_up",
        "if (false) give_up",
    ),
    (
        FOLLOW,
        "give_up(launch, steps, false);\n    else add",
        "give_up(launch, steps, false);\n    add",
    ),
    (
        FOLLOW,
        "has_failed(launch)) give_up(launch, steps, false);",
        "has_failed(launch)) (void)0;",
    ),
    (EPOCHS, "if (threadIdx.x % WARP == 0) run_post", "run_post"),
    // Lanes that are taken for others.
    (
        EPOCHS,
        "} else if (kind == LANE_ADDS) {",
        "} else if (kind & LANE_ADDS) {",
    ),
    (MOVES, "} else if (!(kind & LANE_STEPS)) {", "} else {"),
    // Blocks that find the wrong work: another's; lanes that are looked for where they are not.
    (
        MOVES,
        "launch.program + (u64)blockIdx.x * launch.stride;",
        "launch.program + (u64)blockIdx.x / 2 * launch.stride;",
    ),
    (
        MOVES,
        "(own + sizeof(Record)) + member;",
        "(own + sizeof(Record));",
    ),
    (
        MOVES,
        "launch.program + 16ull * lane->steps;\n    u64 length",
        "launch.program + 8ull * lane->steps;\n    u64 length",
    ),
    // More warps than lanes, or fewer; who is which.
    (
        EPOCHS,
        "if (member >= record.lanes) return;",
        "if (member >= record.lanes) member = 0;",
    ),
    (
        MOVES,
        "if (member >= record.lanes) return;",
        "if (member > record.lanes) return;",
    ),
    (
        MOVES,
        "if (member >= record.lanes) return;",
        "if (member + 1 >= record.lanes && member) return;",
    ),
    (
        EPOCHS,
        "record.team == TEAM_BLOCKS ? 0 : threadIdx.x / WARP;",
        "0;",
    ),
    (
        EPOCHS,
        "run_short<Warp, V16>(launch, Warp(), stands[member], lane, 0, 1);",
        "run_short<Warp, V16>(launch, Warp(), stands[0], lane, 0, 1);",
    ),
    (
        MOVES,
        "run_short<Warp, V16>(launch, Warp(), stands[member], lane, 0, 1);",
        "run_short<Warp, V16>(launch, Warp(), stands[member], lane, member, 1);",
    ),
    (
        PARITIES,
        "run_steps(launch, Warp(), stands[member], lane",
        "run_steps(launch, Warp(), stands[0], lane",
    ),
    (
        MOVES,
        "run_steps(launch, Warp(), stands[member], lane, 0, 1);",
        "run_steps(launch, Warp(), stands[member], lane, member, 1);",
    ),
    (
        EPOCHS,
        "run_steps(launch, Large(), stands[0], lane, record.index, record.count);",
        "run_steps(launch, Large(), stands[0], lane, 0, record.count);",
    ),
    (
        EPOCHS,
        "run_steps(launch, Large(), stands[0], lane, record.index, record.count);",
        "run_steps(launch, Large(), stands[0], lane, record.index, record.count + 1);",
    ),
    (
        EPOCHS,
        "run_short<Large, V16>(launch, Large(), stands[0], lane, record.index, record.count);",
        "run_short<Large, V16>(launch, Large(), stands[0], lane, 0, record.count);",
    ),
    (
        EPOCHS,
        "run_short<Large, V16>(launch, Large(), stands[0], lane, record.index, record.count);",
        "run_short<Large, V16>(launch, Large(), stands[0], lane, record.index, record.count + 1);",
    ),
    // Who goes on before the batch before is over, or makes room for a third.
    (
        ORDER,
        "const Lane lane = *at;\n    wait_for_previous();\n    if (launch.flags & LAUNCH_NEXT) let_next_come();\n",
        "const Lane lane = *at;\n    if (launch.flags & LAUNCH_NEXT) let_next_come();\n",
    ),
    (
        ORDER,
        "const Lane lane = *at;\n    wait_for_previous();\n    if (launch.flags & LAUNCH_NEXT) let_next_come();\n",
        "const Lane lane = *at;\n    if (launch.flags & LAUNCH_NEXT) wait_for_previous(), let_next_come();\n",
    ),
    (
        ORDER,
        "const Lane lane = *at;\n    wait_for_previous();\n    if (launch.flags & LAUNCH_NEXT) let_next_come();\n",
        "const Lane lane = *at;\n    if (launch.flags & LAUNCH_NEXT) let_next_come();\n    wait_for_previous();\n",
    ),
    (
        ORDER,
        "const Lane lane = *at;\n    wait_for_previous();\n    if (launch.flags & LAUNCH_NEXT) let_next_come();\n",
        "const Lane lane = *at;\n    wait_for_previous();\n    let_next_come();\n",
    ),
    (
        ORDER,
        "u32 steps = at->steps;\n    wait_for_previous();\n    if (launch.flags & LAUNCH_NEXT) let_next_come();\n",
        "u32 steps = at->steps;\n    if (launch.flags & LAUNCH_NEXT) let_next_come();\n",
    ),
    (
        ORDER,
        "u32 steps = at->steps;\n    wait_for_previous();\n    if (launch.flags & LAUNCH_NEXT) let_next_come();\n",
        "u32 steps = at->steps;\n    if (launch.flags & LAUNCH_NEXT) wait_for_previous(), let_next_come();\n",
    ),
    (
        ORDER,
        "u32 steps = at->steps;\n    wait_for_previous();\n    if (launch.flags & LAUNCH_NEXT) let_next_come();\n",
        "u32 steps = at->steps;\n    if (launch.flags & LAUNCH_NEXT) let_next_come();\n    wait_for_previous();\n",
    ),
    (
        ORDER,
        "u32 steps = at->steps;\n    wait_for_previous();\n    if (launch.flags & LAUNCH_NEXT) let_next_come();\n",
        "u32 steps = at->steps;\n    wait_for_previous();\n    let_next_come();\n",
    ),
    (
        ORDER,
        "        return;\n    }\n    wait_for_previous();\n    if (launch.flags & LAUNCH_NEXT) let_next_come();\n",
        "        return;\n    }\n    if (launch.flags & LAUNCH_NEXT) let_next_come();\n",
    ),
    (
        ORDER,
        "        return;\n    }\n    wait_for_previous();\n    if (launch.flags & LAUNCH_NEXT) let_next_come();\n",
        "        return;\n    }\n    if (launch.flags & LAUNCH_NEXT) wait_for_previous(), let_next_come();\n",
    ),
    (
        ORDER,
        "        return;\n    }\n    wait_for_previous();\n    if (launch.flags & LAUNCH_NEXT) let_next_come();\n",
        "        return;\n    }\n    if (launch.flags & LAUNCH_NEXT) let_next_come();\n    wait_for_previous();\n",
    ),
    (
        ORDER,
        "        return;\n    }\n    wait_for_previous();\n    if (launch.flags & LAUNCH_NEXT) let_next_come();\n",
        "        return;\n    }\n    wait_for_previous();\n    let_next_come();\n",
    ),
];

/// Names the error for a process that is to look for it.
const WHICH: &str = "TIDEGATE_MUTANT";
const BUILT: &str = "the kernel with the error is built";
const PASSED: &str = "the kernel with the error has passed";

/// Whether the check of an error finds it.
fn is_found(number: usize) -> Result<(), String> {
    let name = concat!(module_path!(), "::one_error");
    let name = name
        .split_once("::")
        .expect("the crate's name comes first")
        .1;
    let mut child = Command::new(std::env::current_exe().expect("the test has a name"))
        .args(["--exact", name, "--ignored", "--nocapture"])
        .env(WHICH, number.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the test can be run");
    let begun = Instant::now();
    while child.try_wait().expect("it is a child").is_none() {
        // In circles.
        if begun.elapsed() > Duration::from_secs(60) {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let said = child.wait_with_output().expect("it is a child").stdout;
    let said = String::from_utf8_lossy(&said);
    match (said.contains(BUILT), said.contains(PASSED)) {
        (true, false) => Ok(()),
        (true, true) => Err("is not found".into()),
        (false, _) => Err(format!("was not built: {said}")),
    }
}

#[test]
fn errors_in_the_kernel_are_found() {
    // Without a compiler there is nothing to look for.
    if Machine::new(SMALL, &[]).is_none() {
        return;
    }
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some((_, before, after)) = MUTANTS.get(number) else {
                return;
            };
            if let Err(why) = is_found(number) {
                let error = format!("{number}: `{before}` as `{after}` {why}");
                missed.lock().expect("nobody panics").push(error);
            }
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers.min(8) {
            scope.spawn(work);
        }
    });
    let missed = missed.into_inner().expect("nobody panics");
    assert!(missed.is_empty(), "{missed:#?}");
}

/// What a process of its own does.
#[test]
#[ignore = "run by the other test"]
fn one_error() {
    let Some(number) = std::env::var_os(WHICH) else {
        return;
    };
    let number: usize = number.to_string_lossy().parse().expect("a number");
    let (check, before, after) = MUTANTS[number];
    let mut machine = Machine::new(SMALL, &[(before, after)]).expect("there is a compiler");
    println!("{BUILT}");
    match check(&mut machine) {
        Ok(()) => println!("{PASSED}"),
        Err(why) => println!("{why}"),
    }
}
