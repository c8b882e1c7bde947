#!/bin/bash
# Everything on a GPU machine, in one command: checks first, then measurements, then a table and JSON.
#
#   scripts/gpu.sh [OUT]              with Rust on the machine: builds, then runs
#   scripts/gpu.sh --pack DIR         builds what the machine needs, and puts it into DIR
#   scripts/gpu.sh --bin DIR [OUT]    without Rust: runs what was packed (from a checkout, for the peers' sources)
#
# Environment: EPOCHS (1000000), SCHEDULES (200), PEERS=no (leave the other libraries out), BUDGET (240: seconds for the peers),
# SANITIZE=no. NVLink multicast is left off in all peers.
#
# A check that fails makes the exit code 1; what is measured is verified too, and a wrong row is a failure.
set -u
cd "$(dirname "$0")/.." || exit 2

built() { # bench|test NAME: the path of a program that cargo builds
    local kind=$1 name=$2
    if [ "$kind" = bench ]; then
        cargo bench -p tidegate --bench "$name" --no-run 2>&1
    else
        cargo test --release -p tidegate --test "$name" --no-run 2>&1
    fi | tee /dev/stderr | sed -n 's/^ *Executable .*(\(.*\))$/\1/p' | tail -n 1
}

pack() {
    mkdir -p "$1" || exit 2
    local faces gpu
    faces=$(built bench faces) && gpu=$(built test gpu) || exit 2
    [ -n "$faces" ] && [ -n "$gpu" ] || { echo "gpu.sh: the build failed" >&2; exit 2; }
    cp "$faces" "$1/faces" && cp "$gpu" "$1/gpu" || exit 2
    strip "$1/faces" "$1/gpu" 2>/dev/null
}

bin=
case ${1:-} in
    --pack) pack "${2:?a folder}"; exit ;;
    --bin) bin=${2:?a folder}; shift 2 ;;
esac
out=${1:-target/gpu}
mkdir -p "$out" || exit 2
if [ -z "$bin" ]; then
    bin=$out/bin
    pack "$bin"
fi
bin=$(cd "$bin" && pwd)

command -v nvidia-smi >/dev/null || { echo "gpu.sh: there is no nvidia-smi here: is this a GPU machine?" >&2; exit 2; }
gpus=$(nvidia-smi -L | wc -l)
nvidia-smi -L | head -n 1
echo "$gpus GPUs, driver $(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)"
case $gpus in
    0) exit 2 ;;
    1) grid=1x1x1 ;;
    2 | 3) grid=2x1x1 ;;
    4 | 5 | 6 | 7) grid=2x2x1 ;;
    *) grid=2x2x2 ;;
esac
ranks=1
for side in ${grid//x/ }; do ranks=$((ranks * side)); done

export CUDA_DEVICE_MAX_CONNECTIONS=32 CUDA_MODULE_LOADING=EAGER RUST_BACKTRACE=0
export NCCL_NVLS_ENABLE=0 NVSHMEM_DISABLE_NVLS=1 TORCH_SYMM_MEM_DISABLE_MULTICAST=1
export TIDEGATE_GPU_EPOCHS=${EPOCHS:-1000000} TIDEGATE_SCHEDULES=${SCHEDULES:-200}
failed=0

echo "== checks"
check() { # TEST [NAME=VALUE…]: runs it by itself: one that hangs does not take the others along, and a GPU context that is lost ends with its process.
    local test=$1 begin=$SECONDS code
    shift
    env "$@" timeout 180 "$bin/gpu" --ignored --exact "$test" --nocapture >"$out/check.log" 2>&1
    code=$?
    printf '%-70s %s %ds\n' "$test $*" "$([ $code = 0 ] && echo ok || echo "FAILED ($code)")" $((SECONDS - begin))
    if [ $code != 0 ]; then
        failed=1
        cp "$out/check.log" "$out/failed-${test//:/_}.log"
        grep -v '^$\|^running' "$out/check.log" | head -n 10 | sed 's/^/    /'
    fi
}
for test in $("$bin/gpu" --list --ignored 2>/dev/null | sed -n 's/: test$//p' | grep -v '::a_rank$'); do
    case $test in
        *schedules*) check "$test" TIDEGATE_CUDA_WAITING_STREAMS=24 ;;
        *) check "$test" ;;
    esac
    # Epochs and failures once more, as where processes share the GPU.
    case $test in *::epochs::* | *::failure::*) check "$test" TIDEGATE_CUDA_GATES=always ;; esac
done
if [ "${SANITIZE:-yes}" = yes ] && command -v compute-sanitizer >/dev/null; then
    for tool in memcheck initcheck synccheck; do
        timeout 120 compute-sanitizer --tool $tool "$bin/gpu" --ignored --exact gpu::epochs::ranges_are_got_and_put >"$out/$tool.log" 2>&1
        code=$?
        printf '%-70s %s %s\n' "compute-sanitizer $tool" "$([ $code = 0 ] && echo ok || echo "FAILED ($code)")" "$(grep 'ERROR SUMMARY' "$out/$tool.log")"
        [ $code = 0 ] || failed=1
    done
fi

echo "== measurements ($grid)"
measure() { # NAME ARGUMENTS…
    local name=$1
    shift
    echo "-- $name: faces $*"
    timeout 120 "$bin/faces" --device cuda --report "$out/report-$name" --json "$out/$name.json" "$@" || failed=1
}
small="--size small --counts 1,5,100 --rounds 3"
# shellcheck disable=SC2086 # words are meant
if [ "$ranks" -gt 1 ]; then
    measure exchange --exchange --grid $grid --size small --counts 1,5,200 --rounds 3 --unroll 20
    measure exchange-single --exchange --grid $grid --size small --counts 1,5,200 --rounds 3 --unroll 20 --buffers single
    for messages in 1 7 26; do
        measure "neighbours-$messages" --exchange --grid "${ranks}x1x1" --neighbours $messages --bytes 8192 --counts 1,3,200 --rounds 3 --unroll 20
    done
    measure pair --pair --rounds 2
    # By copy engines from 4 MiB on, and by multiprocessors.
    for bytes in 4194304 67108864; do
        measure "puts-$bytes" --pair --puts 16 --bytes $bytes --buffers single --counts 1,3,20 --rounds 2
        TIDEGATE_CUDA_COPY_ENGINE_FROM=never measure "puts-$bytes-blocks" --pair --puts 16 --bytes $bytes --buffers single --counts 1,3,20 --rounds 2
    done
fi
# shellcheck disable=SC2086
measure share --grid $grid $small --init global --variants st,st-graph,st-separate,st-strided,rma,p2p
# shellcheck disable=SC2086
measure compute --grid $grid $small --init global --compute --variants st,st-graph,rma,p2p

if [ "${PEERS:-yes}" = yes ] && [ "$ranks" -gt 1 ]; then
    echo "== peers"
    mkdir -p "$out/peers"
    crates/bench/peers/build.sh "$out/peers" >"$out/peers/build.log" 2>&1 || tail -n 5 "$out/peers/build.log"
    crates/bench/peers/run.sh "$out/peers" "$ranks" || failed=1
fi
echo "== results in $out"
exit $failed
