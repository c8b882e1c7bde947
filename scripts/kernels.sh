# Part of scripts/gpu.sh (PART=device): puts, gets and signals inside kernels, between two GPUs. It uses what gpu.sh has set.
#
# Each program does the same work by a thread, a warp and a block, with 8 B to 4 MiB. It prints rows: ours in columns, the others
# as JSON objects. A row has the bytes, the scope, us, GB/s, and the blocks that do it, each of which has a multiprocessor of its
# own. Rows are verified.

kernels() {
    echo "== inside kernels"
    wait_for_build
    local peer
    if [ -x "$bin/inside" ]; then step device-tidegate 2 30 150 "$bin/inside"; fi
    for peer in ${peers//,/ }; do
        case $peer in nvshmem | nccl) ;; *) continue ;; esac
        if [ -x "$peers_at/$peer" ]; then
            step "device-$peer" 2 30 150 "$peers_at/$peer" --mode device --rounds 5 --limit 145
        else
            echo "$peer: NOT RUN: it was not built"
            note "device-$peer" 2 "not run" 0 "it was not built"
        fi
    done
    python3 scripts/kernels.py "$out" | tee "$out/tables.txt"
}
