#!/usr/bin/env bash
# Builds all peers that can be built into a folder: build.sh OUTDIR
#
# Looks for nvcc on the PATH, below CUDA_HOME, and in the Python package of the toolkit; for NVSHMEM and NCCL below
# NVSHMEM_HOME and NCCL_HOME and in their Python packages; for MPI by mpicxx, below MPI_HOME or on the PATH. ARCH is the GPU's
# (sm_90). Says what could not be built and why, and fails only if nothing could.
#
# With CARRY=yes the folder is for another machine: NVSHMEM's libraries lie beside the programs, for this ARCH alone and
# compressed. (NCCL's library is found by LD_LIBRARY_PATH: it is too large to go along with everything.)
set -u

if [ $# -ne 1 ]; then
    echo "usage: $0 OUTDIR" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
kernels=$(cd "$here/../../../kernels" && pwd)
mkdir -p "$1/logs" || exit 2
out=$(cd "$1" && pwd)
python=${PYTHON:-python3}
ARCH=${ARCH:-sm_90}

# Where a Python package keeps its files; nothing when it is not installed.
package() {
    "$python" - "$1" 2>/dev/null <<'END'
import importlib.util, sys
try:
    spec = importlib.util.find_spec(sys.argv[1])
except ImportError:
    spec = None
for place in (spec.submodule_search_locations if spec else None) or []:
    print(place)
    break
END
}

# The first argument that is a file.
first_file() {
    for file in "$@"; do
        if [ -e "$file" ]; then
            echo "$file"
            return
        fi
    done
}

toolkit=$(package nvidia.cu13)
nvcc=$(command -v nvcc || first_file "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" "$toolkit/bin/nvcc")
if [ -z "$nvcc" ]; then
    echo "nothing was built: there is no nvcc (set CUDA_HOME)" >&2
    exit 1
fi
root=$(cd "$(dirname "$(readlink -f "$nvcc")")/.." && pwd)
flags=(-std=c++17 -O3 "-arch=$ARCH" -lineinfo -Xcompiler "-Wall,-Wextra" "-I$here" "-I$kernels")
for dir in "$root/lib64" "$root/lib"; do
    if [ -e "$dir/libcudart_static.a" ]; then flags+=("-L$dir"); fi
done

# A library is looked for beside the program first (CARRY), then where it was found. Both go into the program, for the library
# itself and for what that loads.
with_library() {
    echo "-isystem $1/include -L$1/lib -Xlinker -rpath -Xlinker \$ORIGIN -Xlinker -rpath -Xlinker $1/lib -Xlinker --disable-new-dtags"
}

missing=()
pids=()
names=()
# build NAME FLAGS...
build() {
    local name=$1
    shift
    rm -f "$out/$name"
    "$nvcc" "${flags[@]}" "$here/$name.cu" -o "$out/$name" "$@" >"$out/logs/build-$name" 2>&1 &
    pids+=($!)
    names+=("$name")
}

build floor
build hostrma

nccl=${NCCL_HOME:-$(package nvidia.nccl)}
library=$(first_file "$nccl/lib/libnccl.so.2" "$nccl/lib/libnccl.so")
if [ -n "$library" ] && [ -e "$nccl/include/nccl.h" ]; then
    # shellcheck disable=SC2046
    build nccl $(with_library "$nccl") "-l:$(basename "$library")"
else
    missing+=("nccl: no NCCL found (set NCCL_HOME)")
fi

nvshmem=${NVSHMEM_HOME:-$(package nvidia.nvshmem)}
library=$(first_file "$nvshmem/lib/libnvshmem_host.so.3" "$nvshmem/lib/libnvshmem_host.so")
if [ -n "$library" ] && [ -e "$nvshmem/lib/libnvshmem_device.a" ]; then
    # shellcheck disable=SC2046
    build nvshmem -rdc=true $(with_library "$nvshmem") -lnvshmem_device "-l:$(basename "$library")"
else
    missing+=("nvshmem: no NVSHMEM found (set NVSHMEM_HOME)")
fi

mpicxx=$(command -v "${MPI_HOME:+$MPI_HOME/bin/}mpicxx")
if [ -n "$mpicxx" ]; then
    compile=$("$mpicxx" --showme:compile 2>/dev/null || "$mpicxx" -compile_info 2>/dev/null | cut -d' ' -f2-)
    link=$("$mpicxx" --showme:link 2>/dev/null || "$mpicxx" -link_info 2>/dev/null | cut -d' ' -f2-)
    mpi_flags=()
    for flag in $compile $link; do
        case $flag in
            -I*) mpi_flags+=(-isystem "${flag#-I}") ;;
            -L* | -l*) mpi_flags+=("$flag") ;;
            -Wl,*) mpi_flags+=(-Xlinker "${flag#-Wl,}") ;;
        esac
    done
    build mpi "${mpi_flags[@]}"
else
    missing+=("mpi: there is no mpicxx (set MPI_HOME)")
fi

if [ "${CARRY:-no}" = yes ] && [ -n "$library" ]; then
    # `library` is NVSHMEM's.
    for file in "$library" "$nvshmem"/lib/nvshmem_bootstrap_uid.so*; do
        "$python" "$here/../../../scripts/fatbin_slim.py" "$file" "$out/$(basename "$file")" "${ARCH#sm_}" >&2 && xz -9f "$out/$(basename "$file")"
    done
fi

built=0
for i in "${!pids[@]}"; do
    log=$out/logs/build-${names[$i]}
    if wait "${pids[$i]}"; then
        built=$((built + 1))
        echo "built ${names[$i]}"
        if [ -s "$log" ]; then sed 's/^/    /' "$log"; fi
    else
        missing+=("${names[$i]}: the compiler or the linker failed, see $log: $(grep -m1 -E 'error|undefined|cannot find' "$log")")
    fi
done
if [ "${CARRY:-no}" = yes ]; then
    for name in "${names[@]}"; do
        if [ -x "$out/$name" ]; then strip "$out/$name" && xz -9f "$out/$name"; fi
    done
fi
for line in ${missing[@]+"${missing[@]}"}; do echo "NOT BUILT $line"; done
[ "$built" -gt 0 ]
