// The batch kernel for a processor: compiled by the tests of `crates/gpu/src/lower/emulated`, with `-DTIDEGATE_BATCH="<path of batch.cu, with its parts>"` and the sizes of teams,
// and linked with the machine.

#include "hooks.hpp"
#include TIDEGATE_BATCH

const u64 machine::least_shared = sizeof(Stand) * 2 * WARPS;
