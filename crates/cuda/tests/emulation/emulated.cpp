// The batch kernel for a processor: compiled by the tests of `crates/cuda/src/lower/emulated`, with `-DTIDEGATE_BATCH="<path of batch.cu, with its parts>"` and the sizes of teams.

#define TIDEGATE_EMULATED
// Before the shim: it redefines words that these headers use.
#include <link.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <vector>

#include "shim.hpp"
#include TIDEGATE_BATCH
#include "machine.hpp"
