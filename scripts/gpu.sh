#!/bin/bash
# Runs everything on a GPU machine: checks, then measurements, then the same with other libraries. It prints a table last.
#
#   scripts/gpu.sh [OUT]              with Rust on the machine: builds, then runs
#   scripts/gpu.sh --pack DIR         builds the programs for such a machine, and puts them into DIR
#   scripts/gpu.sh --bin DIR [OUT]    without Rust: runs the packed programs (from a checkout, for the peers' sources)
#
# It leaves OUT/results.json with the machine, every step and every row; `cargo xtask charts OUT` draws it. OUT/logs has the
# output of each step.
#
# PART=checks|ours|peers|all (all)   the part to run, for a machine that is there for a short time (there are no peers for HIP)
# PART=collectives                   a part of its own, not in `all`: scripts/collectives.sh
# PART=device                        another one: puts, gets and signals inside kernels, beside NVSHMEM's and NCCL's
# PART=tools                         another one: trace, verify, doctor, and the examples, on 2 nodes as well
#                                    With --pack, a PART packs what that part needs and nothing else. Parts with peers take
#                                    their programs along, if there is an nvcc, and NCCL's library (NCCL=FILE, which may end in
#                                    .xz); collectives takes MPIS (openmpi,mpich: none).
# BUDGET (540)                       seconds for everything; a step for which no time is left is listed as not run
# SHARD=K/N                          of the checks, every N-th from the K-th on, where one call is too short for all of them;
#                                    with one OUT for all shards, results.json has the steps of all. Other parts ignore it
# GPUS                               use only so many
# RANKS                              more ranks than GPUs (2, 4, 8 or 16): they share the GPUs by MPS, which runs only meanwhile
# EPOCHS (1000000, on one GPU 20000), SCHEDULES (200)  numbers of the checks
# SANITIZE=no                        leaves compute-sanitizer out
# LARGE=no                           leaves the large size out
# PEERS (nvshmem,nccl,mpi,hostrma)   the other libraries; PEERS_AT (OUT/peers) is where their programs are, or are built
# NCCL_LIBRARY                       NCCL's library, where it is not in a pack and not installed
# SIZE (small)                       the size of a block
# DEVICE=hip                         the same steps on AMD GPUs (docs/first-run-on-amd.md); for --pack, too
# OVER_CUDA=yes                      with DEVICE=hip: the same steps on NVIDIA GPUs, by a HIP runtime that is made of CUDA
# DEVICE=host                        the same steps on streams of the host, without checks: to try this script
#
# If `cargo xtask test --only newer` has fetched a newer libfabric, it is packed too, and two nodes are also measured over its
# `tcp`.
#
# The exit code is 1 if a check or a row failed, or if a step was not run (those of other shards do not count). NVLink multicast
# is left off everywhere.
set -u
cd "$(dirname "$0")/.." || exit 2

device=${DEVICE:-cuda}
over_cuda=${OVER_CUDA:-no}
case $device in
    cuda | host) features=() examples=() tests=gpu ;;
    # The examples are for the first vendor that they are built with.
    hip) features=(--features tidegate/hip) examples=(--no-default-features --features hip,fabric) tests=gpu_hip ;;
    *) echo "gpu.sh: DEVICE is cuda, hip or host, not $device" >&2; exit 2 ;;
esac

built() { # bench|test NAME: the path of a program that cargo builds
    local kind=$1 name=$2
    if [ "$kind" = bench ]; then
        cargo bench -p tidegate "${features[@]}" --bench "$name" --no-run 2>&1
    else
        cargo test --release -p tidegate "${features[@]}" --test "$name" --no-run 2>&1
    fi | tee /dev/stderr | sed -n 's/^ *Executable .*(\(.*\))$/\1/p' | tail -n 1
}

# shellcheck source=scripts/collectives.sh
. scripts/collectives.sh
# shellcheck source=scripts/kernels.sh
. scripts/kernels.sh
# shellcheck source=scripts/tools.sh
. scripts/tools.sh

pack_bench() { # NAME DIR
    local program
    program=$(built bench "$1") && [ -n "$program" ] && cp "$program" "$2/$1" && strip "$2/$1" && xz -f "$2/$1" || exit 2
}

pack() {
    mkdir -p "$1" || exit 2
    local part=${PART:-all} name
    [ -z "${NCCL:-}" ] || cp "$NCCL" "$1/libnccl.so.2$([ "${NCCL%.xz}" = "$NCCL" ] || echo .xz)" || exit 2
    case $part in
        collectives)
            pack_bench collectives "$1"
            for name in $(echo "${MPIS:-}" | tr , ' '); do pack_mpi "$name" "$1" || exit 2; done
            return
            ;;
        peers | device)
            if [ "$part" = peers ]; then pack_bench faces "$1"; else pack_bench inside "$1"; fi
            mkdir -p "$1/peers" && CARRY=yes crates/bench/peers/build.sh "$1/peers" | tee "$1/peers/build.txt" >&2 || exit 2
            return
            ;;
    esac
    local faces gpu
    faces=$(built bench faces) && gpu=$(built test "$tests") || exit 2
    [ -n "$faces" ] && [ -n "$gpu" ] || { echo "gpu.sh: the build failed" >&2; exit 2; }
    cargo build --release -p tidegate-cli --bins >&2 || exit 2
    cargo build --release -p tidegate "${examples[@]}" --examples >&2 || exit 2
    cp "$faces" "$1/faces" && cp "$gpu" "$1/gpu" || exit 2
    # Relative to the benchmark, since cargo's folder may be anywhere.
    cp "$(dirname "$faces")/../tidegate" "$(dirname "$faces")"/../examples/*_gpu "$1" || exit 2
    strip "$1"/{faces,gpu,tidegate,*_gpu} 2>/dev/null
    if [ "$over_cuda" = yes ]; then
        mkdir -p "$1/over-cuda" && cp kernels/*.ptx "$1/over-cuda" || exit 2
        cc -shared -fPIC -w -O1 crates/hip/src/over_cuda.c -o "$1/over-cuda/libamdhip64.so.7" || exit 2
    fi
    # The libfabric that `cargo xtask test --only newer` has fetched, if it has.
    local fabric
    fabric=$(find target/wheels -name libfabric.so.1 -not -path "*.part/*" 2>/dev/null | head -n 1)
    [ -z "$fabric" ] || cp "$fabric" "$1"
}

bin=
case ${1:-} in
    --pack) pack "${2:?a folder}"; exit ;;
    --bin) bin=${2:?a folder}; shift 2 ;;
esac
out=${1:-target/gpu}
part=${PART:-all}
case $part in
    checks | ours | peers | collectives | device | tools | all) ;;
    *) echo "gpu.sh: PART is checks, ours, peers, collectives, device, tools or all, not $part" >&2; exit 2 ;;
esac
shard=${SHARD:-1/1}
if ! [[ $shard =~ ^[1-9][0-9]*/[1-9][0-9]*$ ]] || [ "${shard%/*}" -gt "${shard#*/}" ]; then
    echo "gpu.sh: SHARD is K/N, from 1/N to N/N, not $shard" >&2
    exit 2
fi
mkdir -p "$out/logs" "$out/steps" || exit 2
if [ -z "$bin" ]; then
    bin=$out/bin
    pack "$bin"
    SECONDS=0 # building is not in the budget
fi
bin=$(cd "$bin" && pwd) && out=$(cd "$out" && pwd) || exit 2

# AMD's driver lists GPUs and processors. A processor has the number 0; the number of a GPU that is hidden cannot be read.
amd_gpus() { # the name of each GPU, a line each
    local node
    for node in /sys/class/kfd/kfd/topology/nodes/*; do
        if [ "$(cat "$node/gpu_id" 2>/dev/null || echo 0)" != 0 ]; then cat "$node/name"; fi
    done
}
# All that a reader of the results must know of a machine that nobody has seen.
describe_amd() {
    uname -a
    cat /etc/os-release /opt/rocm/.info/version /sys/module/amdgpu/version 2>/dev/null
    ldconfig -p | grep 'amdhip64\|hiprtc'
    env | grep '^HIP\|^ROCR\|^HSA\|^GPU_'
    local question
    for question in rocminfo 'rocm-smi --showtopo' 'amd-smi topology' 'amd-smi version'; do
        echo "== $question"
        # shellcheck disable=SC2086 # words are meant
        timeout 30 $question 2>&1
    done
}
if [ "$device" = host ]; then
    machine="host streams, $(nproc) processors" driver=none gpus=${GPUS:-2}
elif [ "$device" = hip ] && [ "$over_cuda" != yes ]; then
    machine=$(amd_gpus | head -n 1)
    gpus=$(amd_gpus | wc -l)
    [ "$gpus" -gt 0 ] || { echo "gpu.sh: the kernel's driver lists no AMD GPU (/sys/class/kfd): is this a GPU machine, and may this user open /dev/kfd?" >&2; exit 2; }
    driver="ROCm $(cat /opt/rocm/.info/version 2>/dev/null || echo unknown), Linux $(uname -r)"
    describe_amd >"$out/machine.txt"
else
    command -v nvidia-smi >/dev/null || { echo "gpu.sh: there is no nvidia-smi here: is this a GPU machine?" >&2; exit 2; }
    machine=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)
    driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)
    gpus=$(nvidia-smi -L | wc -l)
fi
if [ "$over_cuda" = yes ]; then
    machine="$machine, HIP made of CUDA"
    export TIDEGATE_OVER_CUDA=$bin/over-cuda LD_LIBRARY_PATH=$bin/over-cuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
if [ "${GPUS:-$gpus}" -lt "$gpus" ]; then gpus=$GPUS; fi
[ "$gpus" -gt 0 ] || { echo "gpu.sh: there is no GPU" >&2; exit 2; }
grid_of() { # RANKS
    case $1 in
        1) echo 1x1x1 ;;
        2) echo 2x1x1 ;;
        4) echo 2x2x1 ;;
        8) echo 2x2x2 ;;
        16) echo 4x2x2 ;;
    esac
}
case ${RANKS:-1} in
    1 | 2 | 4 | 8 | 16) ;;
    *) echo "gpu.sh: RANKS is 1, 2, 4, 8 or 16, not $RANKS" >&2; exit 2 ;;
esac
counts=
for n in 1 2 4 8 16; do
    if [ "$n" -le "${RANKS:-$gpus}" ]; then counts="$counts $n"; ranks=$n; fi
done
grid=$(grid_of "$ranks")
peers=${PEERS:-nvshmem,nccl,mpi,hostrma}

# The prefix of a program that uses MPS; empty if there are enough GPUs. (Tests start an MPS of their own, or none.)
mps=()
start_mps() {
    # The server numbers the GPUs that it may use from 0 on.
    "${mps[@]}" CUDA_VISIBLE_DEVICES="$visible" nvidia-cuda-mps-control -d </dev/null >>"$out/logs/mps/start.log" 2>&1
}
end_mps() {
    echo quit -t 10 | timeout -k 5 60 "${mps[@]}" nvidia-cuda-mps-control >>"$out/logs/mps/quit.log" 2>&1
}
if [ "$device" = hip ] && [ "$ranks" -gt "$gpus" ]; then
    echo "gpu.sh: on AMD GPUs each rank needs a GPU of its own, and there are $gpus for $ranks" >&2
    exit 2
elif [ "$device" = cuda ] && [ "$ranks" -gt "$gpus" ]; then
    command -v nvidia-cuda-mps-control >/dev/null || { echo "gpu.sh: RANKS=$RANKS on $gpus takes MPS, and there is no nvidia-cuda-mps-control on the PATH" >&2; exit 2; }
    numbers=$(seq -s, 0 $((gpus - 1)))
    visible=${CUDA_VISIBLE_DEVICES:-$numbers}
    # MPS has 96 connections for all ranks of a GPU (newer drivers: 120).
    connections=$((96 / ((ranks + gpus - 1) / gpus)))
    # The folder has sockets, whose paths must be short.
    pipes=$(mktemp -d /tmp/tg-mps.XXXXXX) && mkdir -p "$out/logs/mps" || exit 2
    mps=(env CUDA_MPS_PIPE_DIRECTORY="$pipes" CUDA_MPS_LOG_DIRECTORY="$out/logs/mps" CUDA_VISIBLE_DEVICES="$numbers" CUDA_DEVICE_MAX_CONNECTIONS=$((connections < 32 ? connections : 32)))
    trap 'end_mps && rm -rf "$pipes" || echo "gpu.sh: MPS has not ended: its pipes are in $pipes" >&2' EXIT
    start_mps || { echo "gpu.sh: MPS does not start: $out/logs/mps" >&2; exit 2; }
    machine="$machine, $ranks ranks by MPS"
    peers=${PEERS:-nvshmem,mpi,hostrma} # NCCL takes no two ranks on one GPU
fi
echo "$gpus x $machine, driver $driver; using $ranks"

export CUDA_DEVICE_MAX_CONNECTIONS=32 CUDA_MODULE_LOADING=EAGER RUST_BACKTRACE=0
export NCCL_NVLS_ENABLE=0 NVSHMEM_DISABLE_NVLS=1 TORCH_SYMM_MEM_DISABLE_MULTICAST=1
# Ranks that share a GPU without MPS get slices of its time: a million epochs did not end in three minutes.
if [ "$gpus" -gt 1 ]; then epochs=1000000; else epochs=20000; fi
export TIDEGATE_GPU_EPOCHS=${EPOCHS:-$epochs} TIDEGATE_SCHEDULES=${SCHEDULES:-200}
budget=${BUDGET:-540}
size=${SIZE:-small}
peers_at=${PEERS_AT:-$out/peers}
failed=0
turn= # while steps are divided among calls: the number of the last one
tab=$'\t'

# A step of this run replaces what an earlier one left.
note() { # NAME RANKS STATUS SECONDS COMMAND
    touch "$out/steps.tsv"
    grep -v "^$1$tab" "$out/steps.tsv" >"$out/steps.new"
    printf '%s\t%s\t%s\t%s\t%s\n' "$@" >>"$out/steps.new"
    mv "$out/steps.new" "$out/steps.tsv"
    [ "$3" = ok ] || failed=1
}

# step NAME RANKS NEEDS LIMIT COMMAND...: runs a step, unless fewer seconds than it NEEDS are left. After LIMIT seconds it is
# ended, with the processes that it has started.
step() {
    local name=$1 on=$2 needs=$3 limit=$4
    shift 4
    local left=$((budget - SECONDS)) begin=$SECONDS code=0 status=ok
    if [ -n "$turn" ]; then
        turn=$((turn + 1))
        if [ $(((turn - ${shard%/*}) % ${shard#*/})) != 0 ]; then return; fi
    fi
    if [ "$left" -lt "$needs" ]; then
        printf '%-64s NOT RUN: it needs %d s, and %d are left\n' "$name" "$needs" "$((left > 0 ? left : 0))"
        note "$name" "$on" "not run" 0 "$*"
        return
    fi
    if [ "$left" -lt "$limit" ]; then limit=$left; fi
    rm -f "$out/steps/$name.json" "$out/steps/$name.rows"
    timeout -k 10 "$limit" "$@" >"$out/logs/$name.log" 2>&1 </dev/null || code=$?
    case $code in
        0) ;;
        124 | 137) status="FAILED (no end after $limit s)" ;;
        *) status="FAILED ($code)" ;;
    esac
    printf '%-64s %s, %d s\n' "$name" "$status" $((SECONDS - begin))
    if [ "$code" != 0 ]; then grep -v '^$\|^running' "$out/logs/$name.log" | tail -n 10 | sed 's/^/    /'; fi
    note "$name" "$on" "$status" $((SECONDS - begin)) "$*"
    # After a client that was killed, MPS has no room for others for a while.
    if [ "$code" != 0 ] && [ "${#mps[@]}" != 0 ]; then end_mps; start_mps; fi
}

measure() { # NAME RANKS NEEDS LIMIT ARGUMENTS...: rows are left in steps/NAME.json
    local name=$1 on=$2 needs=$3 limit=$4
    shift 4
    step "$name" "$on" "$needs" "$limit" "${mps[@]}" "$bin/faces" --device "$device" --report "$out/report/$name" --json "$out/steps/$name.json" "$@"
}

wanted() {
    if [ "$1" = peers ] && [ "$device" = hip ]; then return 1; fi
    [ "$part" = all ] || [ "$part" = "$1" ]
}

# A pack may be compressed, and lie in a folder that cannot be written. What it holds is no result.
unpacked=
if [ -n "$(find "$bin" -maxdepth 2 -name '*.xz' -print -quit)" ]; then
    unpacked=$(mktemp -d) && mkdir "$unpacked/peers" || exit 2
    for file in "$bin"/* "$bin"/peers/*; do
        [ -e "$file" ] || continue
        to=$unpacked${file#"$bin"}
        case $file in
            */peers) ;;
            *.tar.xz) ln -s "$file" "$to" ;;
            *.xz) xz -dc "$file" >"${to%.xz}" && chmod +x "${to%.xz}" || exit 2 ;;
            *) ln -s "$file" "$to" ;;
        esac
    done
    bin=$unpacked
fi
if [ -e "$bin/peers/build.txt" ]; then peers_at=${PEERS_AT:-$bin/peers}; fi
if [ -e "$bin/libnccl.so.2" ]; then export NCCL_LIBRARY=$bin/libnccl.so.2; fi
if [ -n "${NCCL_LIBRARY:-}" ]; then
    export LD_LIBRARY_PATH=$(dirname "$NCCL_LIBRARY")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi

# Compilers work while the checks run, and before anything is measured.
building=
lacking=
for peer in ${peers//,/ } floor; do
    if [ ! -x "$peers_at/$peer" ]; then lacking="$lacking $peer"; fi
done
if { wanted peers || [ "$part" = device ]; } && [ "$ranks" -gt 1 ] && [ -n "$lacking" ] && [ ! -e "$peers_at/build.txt" ]; then
    mkdir -p "$peers_at"
    timeout -k 5 240 crates/bench/peers/build.sh "$peers_at" >"$peers_at/build.new" 2>&1 &
    building=$!
fi
wait_for_build() {
    if [ -n "$building" ]; then
        wait "$building"
        mv "$peers_at/build.new" "$peers_at/build.txt"
        grep 'built\|BUILT' "$peers_at/build.txt"
        building=
    fi
}

if wanted checks && [ "$device" != host ]; then
    echo "== checks${SHARD:+, $SHARD}"
    turn=0
    # Each test is a process of its own, so one that hangs does not stop the others, and a lost GPU context ends with it.
    # The tests `refused` need a driver that refuses calls, and no driver of a GPU does.
    for test in $(timeout 60 "$bin/gpu" --list --ignored 2>/dev/null | sed -n 's/: test$//p' | grep -v '::a_rank$\|::refused::'); do
        extra=()
        case $test in
            *schedules*) extra=(TIDEGATE_GPU_WAITING_STREAMS=24) ;;
        esac
        step "check-${test//:/_}" "$ranks" 5 180 env ${extra[@]+"${extra[@]}"} "$bin/gpu" --ignored --exact "$test" --nocapture
        # Epochs and failures once more with gates, which processes use that share a GPU. They may not share one of AMD's.
        [ "$device" = cuda ] || continue
        case $test in
            *::epochs::* | *::failure::*)
                step "check-gates-${test//:/_}" "$ranks" 5 180 env TIDEGATE_GPU_GATES=always "$bin/gpu" --ignored --exact "$test" --nocapture
                ;;
            *::processes::many_epochs*)
                if [ "${#mps[@]}" != 0 ]; then
                    step "check-mps-${test//:/_}" "$ranks" 5 180 "${mps[@]}" TIDEGATE_GPU_RANKS="$ranks" "$bin/gpu" --ignored --exact "$test" --nocapture
                fi
                ;;
        esac
    done
    if [ "$ranks" -gt 1 ]; then
        for provider in 'tcp;ofi_rxm' sockets; do
            step "check-nodes-${provider%;*}" "$ranks" 5 60 "${mps[@]}" "$bin/faces" --device "$device" --nodes "2x$((ranks / 2))" --grid "$grid" --size 3x4x5x4 --init global --counts 3,1,5 --rounds 1 \
                --provider "$provider" --report "$out/report/nodes-${provider%;*}" --variants st,st-graph,st-separate,st-strided,st-strided-graph,rma,p2p
        done
        # Messages that are long enough to go by several rails.
        TIDEGATE_RAILS=4 step "check-nodes-rails" "$ranks" 5 60 "${mps[@]}" "$bin/faces" --device "$device" --nodes "2x$((ranks / 2))" --grid "$grid" --size "$size" --init global --counts 2,1,10 --rounds 1 \
            --provider 'tcp;ofi_rxm' --report "$out/report/nodes-rails" --variants st,st-graph,st-separate,st-strided,st-strided-graph,rma,p2p
    fi
    for n in $counts; do
        for example in "$bin"/*_gpu; do
            step "example-$(basename "$example")-$n" "$n" 5 60 "${mps[@]}" "$bin/tidegate" run -n "$n" "$example"
        done
    done
    if [ "$device" != cuda ]; then
        : # compute-sanitizer is NVIDIA's.
    elif [ "${SANITIZE:-yes}" = yes ] && command -v compute-sanitizer >/dev/null; then
        # One process a rank, each on a GPU of its own: under the tools the launches of a process run one after the other, so no
        # launch may wait for a later one of the same process. The error of asking for a kernel's parameters is expected.
        for tool in memcheck initcheck synccheck; do
            step "sanitizer-$tool" "$ranks" 20 90 \
                compute-sanitizer --tool "$tool" --target-processes all --report-api-errors no --error-exitcode 9 \
                "$bin/faces" --device "$device" --grid "$(grid_of $((gpus > 1 ? 2 : 1)))" --size 3x3x3x4 --counts 1,1,4 --rounds 1 --init global \
                --report "$out/report/$tool" --variants st,st-graph,st-separate,st-strided,st-strided-graph,device,device-persistent,rma,p2p
        done
    elif [ "${SANITIZE:-yes}" = yes ]; then
        echo "compute-sanitizer: NOT RUN: there is none"
        note sanitizer "$ranks" "not run" 0 "there is no compute-sanitizer on the PATH"
    fi
fi

turn=
wait_for_build

if wanted ours; then
    echo "== measurements"
    shares=st,st-graph,st-separate,st-strided,st-strided-graph,device,device-graph,device-persistent,rma,p2p
    for n in $counts; do
        measure "share-$n" "$n" 10 60 --grid "$(grid_of "$n")" --size "$size" --counts 1,3,100 --rounds 3 --init global --variants $shares
        if [ "$n" -gt 1 ]; then
            measure "exchange-$n" "$n" 6 40 --exchange --grid "$(grid_of "$n")" --size "$size" --counts 1,5,200 --rounds 3 --unroll 20
        fi
    done
    measure "compute-$ranks" "$ranks" 8 60 --grid "$grid" --size "$size" --counts 1,3,100 --rounds 3 --init global --compute --variants st,st-graph,st-strided,st-strided-graph,rma,p2p
    step timeline "$ranks" 5 40 "${mps[@]}" "$bin/faces" --device "$device" --grid "$grid" --size "$size" --init global --compute --variants st,st-graph,rma --timeline "$out/steps/timeline.json"
    if [ "$ranks" -gt 1 ]; then
        measure "exchange-single-$ranks" "$ranks" 6 40 --exchange --grid "$grid" --size "$size" --counts 1,5,200 --rounds 3 --unroll 20 --buffers single
        for messages in 1 2 4 7 13 26; do
            measure "neighbours-$messages" "$ranks" 5 30 --exchange --grid "${ranks}x1x1" --neighbours $messages --bytes 8192 --counts 1,3,200 --rounds 3 --unroll 20
        done
        # Copies of 256 MiB take long on a host.
        measure pair 2 10 $([ "$device" = host ] && echo 240 || echo 60) --pair --rounds 2
        if [ "$device" = cuda ]; then
            # By copy engines from 4 MiB on, and by multiprocessors.
            for bytes in 4194304 16777216; do
                puts="--pair --puts 16 --bytes $bytes --buffers single --counts 1,3,20 --rounds 2"
                # shellcheck disable=SC2086 # words are meant
                measure "puts-$bytes" 2 5 90 $puts
                # shellcheck disable=SC2086
                TIDEGATE_GPU_COPY_ENGINE_FROM=never measure "puts-$bytes-blocks" 2 5 90 $puts
            done
        fi
    fi
    if [ "$ranks" -gt 1 ]; then
        # This machine acts as two nodes: memory is mapped within them, and libfabric goes over loopback between them.
        nodes="--nodes 2x$((ranks / 2)) --grid $grid --size $size --init global --variants st,st-graph,rma,p2p"
        # shellcheck disable=SC2086 # words are meant
        measure "nodes-tcp-$ranks" "$ranks" 8 60 $nodes --provider 'tcp;ofi_rxm' --counts 1,3,50 --rounds 5
        # By one endpoint, as on machines with few processors.
        # shellcheck disable=SC2086
        TIDEGATE_RAILS=1 measure "nodes-tcp-rail-$ranks" "$ranks" 8 60 $nodes --provider 'tcp;ofi_rxm' --counts 1,3,50 --rounds 5
        # shellcheck disable=SC2086
        measure "nodes-tcp-compute-$ranks" "$ranks" 8 60 $nodes --provider 'tcp;ofi_rxm' --counts 1,3,50 --rounds 5 --compute
        if [ -e "$bin/libfabric.so.1" ]; then
            # The machine's own libfabric may be too old for `tcp` without `ofi_rxm`.
            # shellcheck disable=SC2086
            TIDEGATE_LIBFABRIC=$bin/libfabric.so.1 measure "nodes-newer-$ranks" "$ranks" 8 60 $nodes --provider tcp --counts 1,3,50 --rounds 5
            # shellcheck disable=SC2086
            TIDEGATE_LIBFABRIC=$bin/libfabric.so.1 measure "nodes-newer-compute-$ranks" "$ranks" 8 60 $nodes --provider tcp --counts 1,3,50 --rounds 5 --compute
        fi
        # shellcheck disable=SC2086
        measure "nodes-sockets-$ranks" "$ranks" 8 60 $nodes --provider sockets --counts 1,2,10 --rounds 2
        # All sizes would take two minutes: a message of 256 MiB is slow over loopback.
        for bytes in 8 4096 262144 2097152 16777216; do
            measure "nodes-pair-$bytes" 2 5 30 --nodes 2x1 --provider 'tcp;ofi_rxm' --pair --bytes "$bytes" --rounds 2
        done
        for chunk in 131072 262144 524288; do
            TIDEGATE_CHUNKS=$chunk measure "nodes-pair-chunks-$chunk" 2 5 30 --nodes 2x1 --provider 'tcp;ofi_rxm' --pair --bytes 4194304 --rounds 2
        done
    fi
    if [ "${LARGE:-yes}" = yes ]; then
        measure "large-$ranks" "$ranks" 60 150 --grid "$grid" --size large --counts 1,1,10 --rounds 1 --init global --variants st,st-graph,rma
    fi
fi

if wanted peers && [ "$ranks" -gt 1 ]; then
    echo "== with other libraries"
    with() { # NAME NEEDS SHARE ARGUMENTS...: the programs may use a SHARE of a hundred of the time that is left
        local name=$1 needs=$2 share=$3
        shift 3
        local left=$((budget - SECONDS))
        local most=$(((left > 0 ? left : 0) * share / 100))
        # The last program that starts within its budget may run for its own limit beyond it.
        measure "$name" "$ranks" "$needs" $((most + 75)) "$@" --peers-at "$peers_at" --peers-budget "$most" --peers-limit 50
    }
    with peers-exchange 30 35 --exchange --grid "$grid" --size "$size" --counts 1,5,200 --rounds 3 --unroll 20 --peers "$peers"
    with peers-share 30 50 --grid "$grid" --size "$size" --counts 1,3,100 --rounds 3 --init global --variants st,st-graph,st-strided,st-strided-graph,device,device-graph,device-persistent,rma,p2p --peers "$peers"
    # Benchmarks of two ranks.
    pairs=floor
    for peer in ${peers//,/ }; do
        case $peer in nvshmem | nccl) pairs=$pairs,$peer ;; esac
    done
    with peers-pair 30 40 --pair --rounds 2 --peers "$pairs"
    with peers-compute 30 90 --grid "$grid" --size "$size" --counts 1,3,100 --rounds 3 --init global --compute --variants st,st-graph,st-strided,st-strided-graph,rma,p2p --peers "$peers"
fi

if [ "$part" = collectives ]; then collectives; fi
if [ "$part" = device ]; then kernels; fi
if [ "$part" = tools ]; then tools; fi

if [ -n "$unpacked" ]; then
    if [ -d "$peers_at/logs" ] && [ "$peers_at" != "$out/peers" ]; then cp -rL "$peers_at/logs" "$out/logs/peers"; fi
    rm -rf "$unpacked"
fi
echo "== results in $out, after $SECONDS s"
commit=$(git rev-parse --short HEAD 2>/dev/null)
python3 scripts/results.py "$out" machine="$machine" driver="$driver" gpus="$gpus" date="$(date -u +%F)" commit="${commit:-unknown}" device="$device" || failed=1
exit $failed
