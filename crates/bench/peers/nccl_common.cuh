// NCCL: errors, memory, and which parts of the library there are.
#pragma once

#include "harness.cuh"

#include <nccl.h>
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
#define PEER_NCCL_DEVICE 1
#include <nccl_device.h>
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 0)
#define PEER_NCCL_PUTS 1
#endif

inline void nccl_check(ncclResult_t code, const char* what, const char* file, int line) {
    if (code == ncclSuccess) return;
    throw std::runtime_error(std::string(file) + ":" + std::to_string(line) + ": " + what + ": " + ncclGetErrorString(code) +
                             ": " + ncclGetLastError(nullptr));
}
#define NCCL(call) nccl_check((call), #call, __FILE__, __LINE__)

// Memory from NCCL's allocator, so that it can be registered and mapped by the others. All of it is kept until `finish`, and
// used again. NCCL knows registered memory by its address. It registers what a graph uses by itself, and forgets that in a
// later call, some time after the graph's end. Were the memory freed before that, what comes to lie at the same address would
// count as registered already, and the others would write to what was there before. (With 2.32.3 wrong data came where
// memory had been freed.)
class NcclMemory {
  public:
    NcclMemory(ncclComm_t comm, size_t bytes, bool registered) {
        auto& all = kept();
        const auto fits = [&](const Buffer& b) { return !b.used && b.bytes == bytes && b.registered == registered; };
        which_ = static_cast<size_t>(std::find_if(all.begin(), all.end(), fits) - all.begin());
        if (which_ == all.size()) {
            Buffer made{nullptr, nullptr, bytes, registered, false};
            NCCL(ncclMemAlloc(&made.at, bytes));
            if (registered) NCCL(ncclCommRegister(comm, made.at, bytes, &made.handle));
            all.push_back(made);
        }
        CUDA(cudaMemset(all[which_].at, 0, bytes));
        all[which_].used = true;
    }
    NcclMemory(const NcclMemory&) = delete;
    ~NcclMemory() { kept()[which_].used = false; }
    double* values() const { return static_cast<double*>(kept()[which_].at); }

    // Ends the communicator, once no rank has work under way. We deregister first: what is left, `ncclCommDestroy` (of 2.30.7
    // and 2.32.3) deregisters by means that it has freed already.
    static void finish(ncclComm_t comm) {
        for (auto& buffer : kept()) {
            if (buffer.registered) NCCL(ncclCommDeregister(comm, buffer.handle));
        }
        NCCL(ncclCommDestroy(comm));
        for (auto& buffer : kept()) NCCL(ncclMemFree(buffer.at));
        kept().clear();
    }

  private:
    struct Buffer {
        void* at;
        void* handle;
        size_t bytes;
        bool registered, used;
    };
    size_t which_ = 0;

    // There is one communicator.
    static std::vector<Buffer>& kept() {
        static std::vector<Buffer> all;
        return all;
    }
};

#ifdef PEER_NCCL_PUTS
// A window of all ranks, and one-sided calls to it: the data goes by copy engines, and its signal behind it.
class PutWindow {
  public:
    PutWindow(ncclComm_t comm, size_t bytes) : comm_(comm), memory_(comm, bytes, false) {
        NCCL(ncclCommWindowRegister(comm, memory_.values(), bytes, &window_, NCCL_WIN_COLL_SYMMETRIC));
        if (window_ == nullptr) throw std::runtime_error("NCCL has no symmetric windows here");
    }
    PutWindow(const PutWindow&) = delete;
    ~PutWindow() { ncclCommWindowDeregister(comm_, window_); }
    double* values() const { return memory_.values(); }
    void put(const void* from, size_t bytes, int rank, size_t to, cudaStream_t stream) const {
        NCCL(ncclPutSignal(from, bytes, ncclChar, rank, window_, to, 0, 0, 0, comm_, stream));
    }
    void wait(std::vector<ncclWaitSignalDesc_t>& signals, cudaStream_t stream) const {
        NCCL(ncclWaitSignal(static_cast<int>(signals.size()), signals.data(), comm_, stream));
    }

  private:
    ncclComm_t comm_;
    NcclMemory memory_;
    ncclWindow_t window_ = nullptr;
};
#endif
