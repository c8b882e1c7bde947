// NCCL: errors, memory, and which parts of the library there are.
#pragma once

#include <map>

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

// Memory from NCCL's allocator, so that it can be registered and mapped by the others. What was registered once is kept, and
// used again: with 2.32.3 wrong data came where memory had been freed and registered anew, perhaps at the same address.
class NcclMemory {
  public:
    NcclMemory(ncclComm_t comm, size_t bytes, bool registered) : bytes_(bytes), registered_(registered) {
        auto& free = kept();
        const auto found = registered ? free.find(bytes) : free.end();
        if (found != free.end()) {
            at_ = found->second;
            free.erase(found);
        } else {
            NCCL(ncclMemAlloc(&at_, bytes));
            void* handle = nullptr;
            if (registered) NCCL(ncclCommRegister(comm, at_, bytes, &handle));
        }
        CUDA(cudaMemset(at_, 0, bytes));
    }
    NcclMemory(const NcclMemory&) = delete;
    ~NcclMemory() {
        if (registered_) kept().emplace(bytes_, at_);
        else ncclMemFree(at_);
    }
    double* values() const { return static_cast<double*>(at_); }

  private:
    size_t bytes_;
    bool registered_;
    void* at_ = nullptr;

    // By size. There is one communicator.
    static std::multimap<size_t, void*>& kept() {
        static std::multimap<size_t, void*> all;
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
