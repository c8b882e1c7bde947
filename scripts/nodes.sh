#!/bin/bash
# Faces between nodes, which are network namespaces of this machine. It needs root (or user namespaces), iproute2 and libfabric.
#
#   scripts/nodes.sh [OUT]            builds, then measures (OUT: target/nodes)
#   scripts/nodes.sh --verify [OUT]   builds, then verifies every engine with every policy of throttling, without measuring
#                                     (OUT: target/nodes-verify; see below)
#
# All jobs run in turn, again and again while BUDGET lasts, so a disturbance hits all alike. It prints a table: us a share, the
# ratios of the host-synchronised forms and of separate batches to the merged, stream-triggered ones, and whether all was
# verified. It leaves OUT/results.json with every row, OUT/charts/nodes-*.svg, and OUT/logs with the output of each job.
#
# BUDGET (480)                       seconds for everything but building; a job for which no time is left does not run, and is
#                                    listed if it never ran
# LIMIT (60)                         seconds after which a job is ended
# PASSES (50)                        how often to run all jobs, at most
# NODES ("2x1 4x1 8x1 2x2 4x2")      nodes x ranks of each
# PROVIDERS ("tcp;ofi_rxm sockets")  providers of libfabric; all but the first have fewer shares, and no rows with compute
# VARIANTS                           variants of Faces (st,st-graph,st-separate,rma,p2p)
# DELAY (1ms)                        the delay one way of the last row, on the first NODES; none: no such row
# THROTTLING (2x4)                   the nodes of the table of trigger slots; none: no such table
# SIZE (3x3x3x4)                     the size of a block
# CHARTS (OUT/charts)                where the charts go
#
# The exit code is 1 if a job failed, if anything was not verified, or if a job was never run.
#
# --verify: the software engine over each provider, and the triggered one over sockets, on 2, 4 and 8 nodes of 1 to 4 ranks, on
# a plain wire and on one with 1 ms of delay and 1% of the packets lost. Each job has all policies with one trigger slot a rank
# and with four, in these variants. The threads of sockets spin, so with the software engine over sockets jobs with more than 8
# ranks have one slot, and `st` and `p2p` only. It prints a table of verified cases, which OUT/verified.md has too.
#
# NODES, PROVIDERS, LIMIT (400), SIZE (2x2x2x3)
# VARIANTS (st,st-graph,st-strided,st-separate,rma,p2p: st-strided-graph would add nothing)
# ENGINES ("software triggered")
# WIRES ("plain lossy")
# COUNTS (1,1,2)                     blocks, outer and inner iterations
set -u
cd "$(dirname "$0")/.." || exit 2

verify=
if [ "${1:-}" = --verify ]; then
    verify=yes
    shift
    : "${NODES:=2x1 2x2 2x3 2x4 4x1 4x2 4x3 4x4 8x1 8x2 8x3 8x4}" "${LIMIT:=400}" "${SIZE:=2x2x2x3}" "${VARIANTS:=st,st-graph,st-strided,st-separate,rma,p2p}"
fi
budget=${BUDGET:-480} limit=${LIMIT:-60} passes=${PASSES:-50} size=${SIZE:-3x3x3x4}
variants=${VARIANTS:-st,st-graph,st-separate,rma,p2p}
read -ra nodes <<<"${NODES:-2x1 4x1 8x1 2x2 4x2}"
read -ra engines <<<"${ENGINES:-software triggered}"
read -ra wires <<<"${WIRES:-plain lossy}"
counts=${COUNTS:-1,1,2}
read -ra providers <<<"${PROVIDERS:-tcp;ofi_rxm sockets}"
delay=${DELAY:-1ms} throttling=${THROTTLING:-2x4}
for shape in "${nodes[@]}" "$throttling"; do
    [[ $shape =~ ^[1-9][0-9]*x[1-9][0-9]*$ || $shape = none ]] || { echo "nodes.sh: $shape is nothing like 4x2" >&2; exit 2; }
done
for number in "$budget" "$limit" "$passes"; do
    [[ $number =~ ^[1-9][0-9]*$ ]] || { echo "nodes.sh: BUDGET, LIMIT and PASSES are whole numbers from 1, not $number" >&2; exit 2; }
done
if [ "${#nodes[@]}" = 0 ] || [ "${#providers[@]}" = 0 ]; then
    echo "nodes.sh: NODES or PROVIDERS has nothing" >&2
    exit 2
fi

for word in "${engines[@]}"; do
    [[ $word = software || $word = triggered ]] || { echo "nodes.sh: ENGINES are software and triggered, not $word" >&2; exit 2; }
done
for word in "${wires[@]}"; do
    [[ $word = plain || $word = lossy ]] || { echo "nodes.sh: WIRES are plain and lossy, not $word" >&2; exit 2; }
done

out=${1:-target/nodes${verify:+-verify}}
mkdir -p "$out/logs" "$out/steps" && out=$(cd "$out" && pwd) || exit 2
# Files of an earlier run are not of this one.
rm -f "$out"/steps/*.json "$out"/logs/*.log
: >"$out/steps.tsv"

faces=$(cargo bench -p tidegate --bench faces --no-run 2>&1 | tee /dev/stderr | sed -n 's/^ *Executable .*(\(.*\))$/\1/p' | tail -n 1)
if [ -z "$faces" ] || ! cargo build --release -p tidegate-bench --bin nodes >&2; then
    echo "nodes.sh: the build failed" >&2
    exit 2
fi
# Relative to the benchmark, since cargo's folder may be anywhere.
summary=$(dirname "$faces")/../nodes
export RUST_BACKTRACE=0
began=$(date -u +%F)
SECONDS=0

# When this script ends, so does the job, and with it the namespaces: they have no names, and live as long as their processes. If
# this shell is killed, the kernel sends the job a signal.
job=
# shellcheck disable=SC2329 # called by the traps
end() {
    trap '' INT TERM HUP
    if [ -n "$job" ]; then
        kill -TERM "$job" 2>/dev/null
        wait "$job"
    fi
    echo "nodes.sh: ended; what was measured is in $out/steps" >&2
    exit "$1"
}
trap 'end 130' INT
trap 'end 143' TERM
trap 'end 129' HUP
with_us=()
if command -v setpriv >/dev/null; then with_us=(setpriv --pdeathsig TERM); fi

grid_of() { # RANKS
    case $1 in
        4) echo 2x2x1 ;;
        6) echo 3x2x1 ;;
        8) echo 2x2x2 ;;
        12) echo 3x2x2 ;;
        24) echo 4x3x2 ;;
        16) echo 4x2x2 ;;
        32) echo 4x4x2 ;;
        64) echo 4x4x4 ;;
        *) echo "$1x1x1" ;;
    esac
}

busy() { # per cent of the processors that others use, in a second
    local before after
    read -ra before </proc/stat
    sleep 1
    read -ra after </proc/stat
    local idle=$((after[4] + after[5] - before[4] - before[5])) all=0 k
    for k in 1 2 3 4 5 6 7 8; do all=$((all + after[k] - before[k])); done
    echo $((all > 0 ? 100 - 100 * idle / all : 0))
}

tab=$'\t'
declare -A took # seconds that a cell's last job took
note() { # NAME NODES PROVIDER WHAT STATUS SECONDS PASS COMMAND
    local IFS=$tab
    printf '%s\n' "$*" >>"$out/steps.tsv"
}

# measure PASS NODES PROVIDER WHAT ARGUMENTS...: one job, if enough time is left: one and a half times its last run.
measure() {
    local pass=$1 shape=$2 provider=$3 what=$4
    shift 4
    local cell="$shape-${provider//[^a-z0-9]/_}-${what// /_}"
    local name="$cell-$pass" left=$((budget - SECONDS)) begin=$SECONDS code=0 status=ok
    local ranks=$((${shape%x*} * ${shape#*x}))
    local command=("$faces" --grid "$(grid_of "$ranks")" --nodes "$shape" --netns --provider "$provider" --size "$size" --init global
        --report "$out/report/$cell" --json "$out/steps/$name.json" "$@")
    if [ "$left" -lt $((${took[$cell]:-3} * 3 / 2 + 2)) ]; then
        if [ "$pass" = 1 ]; then
            printf '%-40s NOT RUN: %d s are left\n' "$name" "$((left > 0 ? left : 0))"
            note "$name" "$shape" "$provider" "$what" "not run" 0 "$pass" "${command[*]}"
        fi
        return
    fi
    "${with_us[@]}" timeout -k 5 "$((left < limit ? left : limit))" "${command[@]}" >"$out/logs/$name.log" 2>&1 </dev/null &
    job=$!
    wait "$job" || code=$?
    job=
    case $code in
        0) ;;
        124 | 137) status="FAILED (no end after $((SECONDS - begin)) s)" ;;
        *) status="FAILED ($code)" ;;
    esac
    took[$cell]=$((SECONDS - begin))
    ran=$((ran + 1))
    if [ "$code" != 0 ]; then
        printf '%-40s %s\n' "$name" "$status"
        grep -v '^$\|^running' "$out/logs/$name.log" | tail -n 10 | sed 's/^/    /'
    fi
    note "$name" "$shape" "$provider" "$what" "$status" "$((SECONDS - begin))" "$pass" "${command[*]}"
}

# verified NODES PROVIDER ENGINE WIRE: one job; sets `cell`.
verified() {
    local shape=$1 provider=$2 engine=$3 wire=$4
    local name="$shape-${provider//[^a-z0-9]/_}-$engine-$wire" code=0 begin=$SECONDS each=${1#*x}
    local slow=() forms=$variants budgets="$each,$((4 * each))"
    if [ "$provider-$engine" = sockets-software ] && [ $((${shape%x*} * each)) -gt 8 ]; then
        forms=st,p2p budgets=$each
    fi
    if [ "$wire" = lossy ]; then slow=(--delay 1ms --loss 1%); fi
    local command=("$faces" --grid "$(grid_of $((${shape%x*} * each)))" --nodes "$shape" --netns "${slow[@]}" --provider "$provider" --engine "$engine"
        --size "$size" --init global --counts "$counts" --rounds 1 --variants "$forms" --throttling --budgets "$budgets"
        --report "$out/report/$name" --json "$out/steps/$name.json")
    "${with_us[@]}" timeout -k 5 "$limit" "${command[@]}" >"$out/logs/$name.log" 2>&1 </dev/null &
    job=$!
    wait "$job" || code=$?
    job=
    # Each row says whether it failed; a job that ended well has no failed row.
    local right wrong status=ok
    right=$(grep -c '"failed":false' "$out/steps/$name.json" 2>/dev/null)
    wrong=$(grep -c '"failed":true' "$out/steps/$name.json" 2>/dev/null)
    cell="${right:-0}"
    case $code in
        0) ;;
        124 | 137) status="FAILED (no end after $((SECONDS - begin)) s)" ;;
        *) status="FAILED ($code)" ;;
    esac
    if [ "$code" != 0 ] || [ "${wrong:-0}" != 0 ] || [ "${right:-0}" = 0 ]; then
        failures=$((failures + 1))
        cell="**${right:-0}, FAILED**"
        if [ "$status" = ok ]; then status=FAILED; fi
        grep -v '^$\|^running' "$out/logs/$name.log" | tail -n 10 | sed 's/^/    /'
    fi
    printf '%-40s %s, %d cases, %d s\n' "$name" "$status" "${right:-0}" "$((SECONDS - begin))"
    note "$name" "$shape" "$provider" "$engine, $wire" "$status" "$((SECONDS - begin))" 1 "${command[*]}"
}

if [ -n "$verify" ]; then
    failures=0 rows=()
    head="| nodes x ranks |" rule="|---|"
    for wire in "${wires[@]}"; do
        for provider in "${providers[@]}"; do
            for engine in "${engines[@]}"; do
                if [ "$engine" = triggered ] && [ "$provider" != sockets ]; then continue; fi
                suffix=
                if [ "$engine" = triggered ]; then suffix=", triggered"; fi
                if [ "$wire" = lossy ]; then suffix="$suffix, 1 ms, 1% lost"; fi
                head="$head $provider$suffix |" rule="$rule---|"
            done
        done
    done
    for shape in "${nodes[@]}"; do
        row="| ${shape/x/ x } |"
        for wire in "${wires[@]}"; do
            for provider in "${providers[@]}"; do
                for engine in "${engines[@]}"; do
                    # Without hardware, only sockets has deferred work.
                    if [ "$engine" = triggered ] && [ "$provider" != sockets ]; then continue; fi
                    verified "$shape" "$provider" "$engine" "$wire"
                    row="$row $cell |"
                done
            done
        done
        rows+=("$row")
    done
    printf '%s\n' "$head" "$rule" "${rows[@]}" | tee "$out/verified.md"
    echo "cases verified on every rank, $SECONDS s; $failures jobs failed"
    exit $((failures > 0))
fi

others=
for ((pass = 1; pass <= passes; pass++)); do
    ran=0
    others="$others $(busy)"
    for provider in "${providers[@]}"; do
        for shape in "${nodes[@]}"; do
            few=$((${shape%x*} * ${shape#*x} > 4))
            if [ "$provider" = "${providers[0]}" ]; then
                shares=1,1,$((few ? 50 : 100))
                measure "$pass" "$shape" "$provider" share --counts "$shares" --rounds 2 --variants "$variants"
                measure "$pass" "$shape" "$provider" compute --counts "$shares" --rounds 2 --variants "$variants" --compute
            else
                measure "$pass" "$shape" "$provider" share --counts "1,1,$((few ? 5 : 20))" --rounds 1 --variants "$variants"
            fi
        done
    done
    if [ "$throttling" != none ]; then
        measure "$pass" "$throttling" "${providers[0]}" throttling --counts 1,1,50 --rounds 1 --variants st --throttling
    fi
    if [ "$delay" != none ]; then
        measure "$pass" "${nodes[0]}" "${providers[0]}" "delay $delay" --counts 1,1,30 --rounds 1 --variants "$variants" --delay "$delay"
    fi
    if [ "$ran" = 0 ]; then break; fi
    echo "pass $pass: $ran jobs, $SECONDS s"
done

echo "other work used so much of the $(nproc) processors before each pass, per cent:$others"
commit=$(git rev-parse --short HEAD 2>/dev/null)
"$summary" "$out" date="$began" commit="${commit:-unknown}" seconds="$SECONDS" others="${others# }" --charts "${CHARTS:-$out/charts}"
