# Part of scripts/gpu.sh (PART=tools): what tells of a job, on all GPUs. It uses what gpu.sh has set.

tools() {
    echo "== tools"
    mkdir -p "$out/report"
    local example nodes="2x$((ranks / 2))" traces
    local faces=("${mps[@]}" "$bin/faces" --device "$device" --grid "$grid" --size "$size" --init global --counts 1,1,100 --rounds 1)
    # A finding is an error of this step, too: its page says what to do.
    step tools-doctor "$ranks" 12 40 "${mps[@]}" "$bin/tidegate" doctor -n "$ranks" --device "$device" --html "$out/report/doctor.html"
    if [ "$ranks" -gt 1 ]; then
        step tools-doctor-nodes "$ranks" 12 40 "${mps[@]}" "$bin/tidegate" doctor --nodes "$nodes" --device "$device" --html "$out/report/doctor-nodes.html"
    fi
    # Faces with compute, traced: on the stream and in a graph. The files are large, and only the pages are results.
    local variant
    for variant in st st-graph; do
        traces=$(mktemp -d) || return
        step "tools-traced-$variant" "$ranks" 10 60 env TIDEGATE_TRACE="$traces" "${faces[@]}" --compute --variants "$variant" --report "$out/report/traced-$variant"
        step "tools-trace-$variant" "$ranks" 5 60 "$bin/tidegate" trace "$traces" --html "$out/report/trace-$variant.html"
        rm -rf "$traces"
    done
    # `ring_gpu` proves by `verify` that its graph can be replayed; all examples compare their results.
    for example in "$bin"/*_gpu; do
        [ -x "$example" ] || continue
        step "tools-$(basename "$example")" "$ranks" 5 60 "${mps[@]}" "$bin/tidegate" run -n "$ranks" "$example"
    done
}
