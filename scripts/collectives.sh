# Part of scripts/gpu.sh (PART=collectives): all collectives, beside NCCL on GPUs and beside MPIs on the host. It checks first,
# then measures, and prints a short table last. It uses what gpu.sh has set.

# An MPI with all that it loads, for a machine that has none: one archive, with the benchmark that was built for it.
pack_mpi() { # NAME DIR: openmpi or mpich
    local name=$1 to file
    to=$(mktemp -d) && mkdir -p "$to/bin" "$to/lib" || return 2
    file=$(MPICC=mpicc.$name cargo bench -p tidegate --features mpi --bench collectives --no-run --target-dir "target/$name" 2>&1 |
        tee /dev/stderr | sed -n 's/^ *Executable .*(\(.*\))$/\1/p' | tail -n 1)
    [ -n "$file" ] || return 2
    cp "$file" "$to/bin/collectives"
    local parts=() libs=/usr/lib/x86_64-linux-gnu
    case $name in
        openmpi)
            cp "$(readlink -f "$(command -v mpirun.openmpi)")" "$to/bin/mpirun" && cp /usr/bin/orted "$to/bin"
            mkdir -p "$to/share" && cp -rL $libs/openmpi/lib/openmpi3 "$to/lib/components" && cp -rL /usr/share/openmpi "$to/share"
            find "$to/lib/components" -name '*.la' -delete
            # On one node, without a network and a queue of jobs.
            rm -f "$to"/lib/components/mca_{btl_openib,btl_usnic,mtl,osc_ucx,pml_ucx,spml,plm_slurm,ras_slurm,ess_slurm}*.so
            parts=("$to"/lib/components/*.so)
            ;;
        mpich)
            cp /usr/bin/mpiexec.hydra "$to/bin/mpirun" && cp /usr/bin/hydra_pmi_proxy "$to/bin"
            cp -rL $libs/ucx "$to/lib/ucx" && parts=("$to"/lib/ucx/*.so)
            ;;
    esac
    # The machine brings the C library.
    for file in $(ldd "$to"/bin/* "${parts[@]}" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | sort -u); do
        case ${file##*/} in
            libc.so* | libm.so* | libpthread* | libdl.so* | librt.so* | libresolv* | ld-linux*) ;;
            *) cp -L "$file" "$to/lib/${file##*/}" ;;
        esac
    done
    strip "$to"/bin/* "$to"/lib/*.so* "${parts[@]}" 2>/dev/null
    tar -C "$to" -cJf "$2/mpi-$name.tar.xz" . && rm -rf "$to"
}

# Starts `collectives` with a packed MPI.
with_mpi() { # NAME RANKS ARGUMENTS...
    local name=$1 on=$2 at=$out/mpi-$1 each
    shift 2
    # Two processors a rank where there are so many, so that a stream's thread has its own.
    each=$(($(nproc) / on)) && each=$((each > 2 ? 2 : each < 1 ? 1 : each))
    [ -d "$at" ] || { mkdir -p "$at" && tar -C "$at" -xJf "$bin/mpi-$name.tar.xz"; } || return 2
    local start=(env "LD_LIBRARY_PATH=$at/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "PATH=$at/bin:$PATH")
    case $name in
        openmpi)
            start+=(OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "OPAL_PREFIX=$at" "OPAL_LIBDIR=$at/lib"
                "OPAL_PKGLIBDIR=$at/lib/components" "OMPI_MCA_mca_base_component_path=$at/lib/components"
                "OPAL_PKGDATADIR=$at/share/openmpi" "OPAL_DATADIR=$at/share")
            "${start[@]}" "$at/bin/collectives" --mpirun "$at/bin/mpirun --map-by slot:PE=$each --bind-to core --mca plm isolated" "$@"
            ;;
        mpich)
            "${start[@]}" "$at/bin/collectives" --mpirun "$at/bin/mpirun -bind-to core:$each -launcher fork" "$@"
            ;;
    esac
}

# Scans to all higher ranks, and from rank to rank: many calls, and one at a time. Two ranks have one way.
collectives_scans() { # RANKS COMMAND...
    local on=$1 scan
    shift
    [ "$on" -gt 2 ] || return 0
    for scan in 1 64; do
        step "collectives-scan-$scan" "$on" 5 40 "$@" --brief --ways st,st-graph --kinds scan --sizes 8,512,4096,16384 --rounds 5 --short 1048576 --scan $scan
        step "collectives-scan-$scan-single" "$on" 5 40 "$@" --brief --ways st --kinds scan --sizes 8,512,4096,16384 --iterations 1 --unroll 1 --rounds 301 --short 1048576 --scan $scan
    done
}

collectives_on_gpus() {
    local sizes=8,512,4096,32768,262144,1048576,4194304,16777216,67108864
    local run=("${mps[@]}" "$bin/collectives" --device "$device" --ranks "$ranks")
    step collectives-check "$ranks" 10 60 "${run[@]}" --ways st,st-graph --sizes 8,5000,1000000 --iterations 50 --rounds 1
    step collectives-sent "$ranks" 5 40 "${run[@]}" --observe --sizes 8,4096,65536,1048576,16777216
    local peers=()
    if [ "$device" = cuda ] && [ "$ranks" -le "$gpus" ]; then peers=(--peers nccl); fi
    step collectives "$ranks" 20 240 "${run[@]}" "${peers[@]}" --kinds all-reduce,all-gather,all-to-all,reduce-scatter,broadcast --sizes $sizes --rounds 3 --json "$out/steps/collectives.rows"
    # Rows of a mixture of experts, there and back: as many as only the stream knows.
    step collectives-experts "$ranks" 10 60 "${run[@]}" "${peers[@]}" --kinds dispatch-combine --sizes 512,4096,32768,262144,1048576,4194304,16777216 --rounds 3
    if [ "$ranks" -ge 4 ]; then
        step collectives-teams "$ranks" 10 60 "${run[@]}" --teams 2 "${peers[@]}" --kinds all-reduce,all-gather,all-to-all,dispatch-combine --sizes 8,4096,262144,4194304 --rounds 3
    fi
    step collectives-others "$ranks" 10 60 "${run[@]}" "${peers[@]}" --kinds barrier,reduce,gather,scatter,scan --sizes 8,4096,262144,1048576,16777216 --rounds 3
    collectives_scans "$ranks" "${run[@]}"
    # Where short ends, and how long pieces are best.
    for short in 1 1073741824; do
        step "collectives-short-$short" "$ranks" 5 40 "${run[@]}" --brief --ways st-graph --kinds broadcast,all-reduce,reduce,scan --sizes 16384,65536,131072,262144,524288,1048576,4194304 --rounds 3 --short $short
    done
    for piece in 1048576 2097152 4194304; do
        step "collectives-piece-$piece" "$ranks" 5 60 "${run[@]}" --brief --ways st-graph --kinds all-reduce,reduce,all-gather,all-to-all,broadcast --sizes 1048576,4194304,16777216,67108864 --rounds 3 --piece $piece
    done
}

collectives_on_host() {
    local on=$ranks archive short few piece
    local run=("$bin/collectives" --ranks "$on")
    step collectives-check "$on" 10 60 "${run[@]}" --sizes 8,5000,300000 --iterations 50 --rounds 1
    step collectives-sent "$on" 5 40 "${run[@]}" --observe --sizes 8,4096,65536,1048576
    for archive in "$bin"/mpi-*.tar.xz; do
        [ -e "$archive" ] || continue
        local name=${archive##*/mpi-}
        name=${name%.tar.xz}
        step "collectives-$name" "$on" 15 100 env bin="$bin" out="$out" bash scripts/collectives.sh "$name" "$on" --ranks "$on" --transport shm --ways st,st-graph,mpi --sizes 8,4096,1048576 --rounds 5
        [ "$name" = mpich ] || continue
        # Collectives over shared memory, which MPICH has and does not take by itself.
        export MPIR_CVAR_{BCAST,REDUCE,ALLREDUCE,BARRIER}_POSIX_INTRA_ALGORITHM=release_gather
        step "collectives-$name-release" "$on" 15 100 env bin="$bin" out="$out" bash scripts/collectives.sh "$name" "$on" --ranks "$on" --transport shm --ways st,mpi --kinds barrier,broadcast,reduce,all-reduce --sizes 8,4096,1048576 --rounds 5
        unset MPIR_CVAR_{BCAST,REDUCE,ALLREDUCE,BARRIER}_POSIX_INTRA_ALGORITHM
    done
    for short in 1 1048576; do
        step "collectives-short-$short" "$on" 5 40 "${run[@]}" --brief --ways st-graph --kinds broadcast,all-reduce,reduce --sizes 512,1024,4096,16384,32768,65536,131072,262144 --rounds 3 --short $short
    done
    # From how many ranks on they gather in rounds.
    for few in 1 64; do
        step "collectives-few-$few" "$on" 5 40 "${run[@]}" --brief --ways st-graph --kinds all-reduce,all-gather --sizes 8,512,4096,16384 --rounds 5 --few $few
    done
    collectives_scans "$on" "${run[@]}"
    for piece in 65536 524288 1048576; do
        step "collectives-piece-$piece" "$on" 5 40 "${run[@]}" --brief --ways st-graph --kinds broadcast,all-reduce,all-gather,all-to-all,gather,scatter --sizes 1048576 --rounds 3 --piece $piece
    done
}

collectives() {
    echo "== collectives"
    case $device in
        host) collectives_on_host ;;
        *) collectives_on_gpus ;;
    esac
    local log
    for log in "$out"/logs/collectives*.log; do
        echo "== ${log##*/}"
        # The table of ratios is last.
        awk '/^collective /{text=""} {text=text $0 "\n"} END{printf "%s", text}' "$log"
    done | tee "$out/tables.txt"
}

# By itself: a benchmark with a packed MPI, within a limit of gpu.sh's.
if [ "${BASH_SOURCE[0]}" = "$0" ]; then with_mpi "$@"; fi
