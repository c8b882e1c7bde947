#!/usr/bin/env bash
# Runs all peers that were built, and collects their rows: run.sh OUTDIR NGPUS
#
# OUTDIR/peers.jsonl has one row a line, OUTDIR/logs what the programs said. Each program has a minute, and
# none is started after BUDGET seconds (240). A table comes last. Fails if a program or a row failed.
set -u

if [ $# -ne 2 ]; then
    echo "usage: $0 OUTDIR NGPUS" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
out=$(cd "$1" && pwd) || exit 2
gpus=$2
case $gpus in
    2) grid=2,1,1 ;;
    4) grid=2,2,1 ;;
    8) grid=2,2,2 ;;
    *)
        echo "2, 4 or 8 GPUs, not $gpus" >&2
        exit 2
        ;;
esac
mkdir -p "$out/logs"
rows=$out/peers.jsonl
: >"$rows"
# No multicast anywhere; one host, so no network is looked for.
export NCCL_NVLS_ENABLE=0 NVSHMEM_DISABLE_NVLS=1 NVSHMEM_DISABLE_NCCL=1 NVSHMEM_REMOTE_TRANSPORT=none
export CUDA_DEVICE_MAX_CONNECTIONS=32
failed=0
# Seconds after which no further program is started.
budget=${BUDGET:-240}

# run LABEL PROGRAM ARGUMENTS...: LABEL is PEER-MODE-WHAT. `launcher` starts the program, if it needs one.
launcher=()
run() {
    local label=$1 program=$2
    shift 2
    if [ ! -x "$out/$program" ]; then
        echo "not built: $program ($label)" >&2
        return
    fi
    if [ "$SECONDS" -gt "$budget" ]; then
        echo "no time left: $label" >&2
        printf '{"peer":"%s","row":"(%s)","mode":"program","ranks":%d,"us":null,"verified":false,"note":"not run: no time left"}\n' \
            "$program" "$label" "$gpus" >>"$rows"
        failed=1
        return
    fi
    local start=$SECONDS code=0
    timeout -k 5 60 ${launcher[@]+"${launcher[@]}"} "$out/$program" "$@" >"$out/logs/$label.jsonl" 2>"$out/logs/$label.log" || code=$?
    grep '^{' "$out/logs/$label.jsonl" >>"$rows"
    echo "$label: exit code $code, $((SECONDS - start)) s, $(grep -c '^{' "$out/logs/$label.jsonl") rows" >&2
    if [ "$code" -ne 0 ]; then
        failed=1
        tail -n 3 "$out/logs/$label.log" | sed 's/^/    /' >&2
        printf '{"peer":"%s","row":"(%s)","mode":"program","ranks":%d,"us":null,"verified":false,"note":"exit code %d"}\n' \
            "$program" "$label" "$gpus" "$code" >>"$rows"
    fi
}

run floor floor

for mode in exchange share; do
    arguments=(--mode "$mode" --grid "$grid")
    run "nvshmem-$mode-device" nvshmem "${arguments[@]}" --only device
    run "nccl-$mode" nccl "${arguments[@]}" --only send/recv
    # As many channels as it may have.
    export NCCL_MIN_P2P_NCHANNELS=32 NCCL_MAX_P2P_NCHANNELS=32
    run "nccl-$mode-channels" nccl "${arguments[@]}" --only send/recv --without 'host sync' --tag '32 channels'
    unset NCCL_MIN_P2P_NCHANNELS NCCL_MAX_P2P_NCHANNELS
    run "nccl-$mode-device" nccl "${arguments[@]}" --only device
    run "hostrma-$mode" hostrma "${arguments[@]}"
    if command -v mpirun >/dev/null; then
        launcher=(mpirun -n "$gpus")
        if mpirun --version 2>/dev/null | grep -q 'Open MPI'; then
            launcher=(mpirun --allow-run-as-root --bind-to none --oversubscribe -n "$gpus")
        fi
        run "mpi-$mode" mpi "${arguments[@]}"
        launcher=()
    fi
    # A failing call ends an NVSHMEM program: what may fail in a capture runs apart from what does not capture.
    run "nvshmem-$mode-stream" nvshmem "${arguments[@]}" --only on-stream --without graph
    run "nvshmem-$mode-barrier" nvshmem "${arguments[@]}" --only 'barrier_all, graph'
    run "nvshmem-$mode-graph" nvshmem "${arguments[@]}" --only 'wait each, graph'
    run "nvshmem-$mode-graph-all" nvshmem "${arguments[@]}" --only 'wait_until_all, graph'
done
# With the kernel that overlaps: the forms that matter.
run nvshmem-share-compute nvshmem --mode share --compute --grid "$grid" --only device --blocks 16 --threads 512
run nccl-share-compute nccl --mode share --compute --grid "$grid" --only registered --without 'host sync'
run hostrma-share-compute hostrma --mode share --compute --grid "$grid"
run nvshmem-pair nvshmem --mode pair --rounds 5
run nccl-pair nccl --mode pair --rounds 5

"${PYTHON:-python3}" "$here/table.py" "$rows" || failed=1
exit "$failed"
