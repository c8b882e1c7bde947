// The language of the kernels, over the machine of this folder.
#pragma once

#include "hooks.hpp"

struct Index {
    u32 x, y, z;
};
extern Index threadIdx, blockIdx, blockDim, gridDim;

#include "../../../kernels/machine.cuh"
