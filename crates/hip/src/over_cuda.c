// A HIP runtime made of a CUDA driver, so that the host's side of `tidegate-hip` can be tried without an AMD GPU: over
// NVIDIA's driver, or over the driver without a GPU (`cargo xtask fake-cuda`). In place of a code object it loads the PTX
// of the same source, from the folder that TIDEGATE_OVER_CUDA names. With TIDEGATE_OVER_CUDA_NAMED set, memory for peers
// is of the kind that has names. TIDEGATE_OVER_CUDA_ARCHITECTURE is the architecture that the devices claim to have.
//
// Both interfaces have the same calls, and mostly the same numbers; what differs stands here.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef int Error;
typedef void *Ptr;
typedef uint64_t Address;
typedef unsigned U;
enum { INVALID = 1, MISSING = 801, POSIX = 1, PINNED = 1, UNCACHED = 0x40000000 };

static Ptr find(const char *name) {
    static Ptr library;
    if (!library) library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    return library ? dlsym(library, name) : NULL;
}

// Calls a function of CUDA.
#define CUDA(name, types, arguments)                     \
    ({                                                   \
        static Error(*found) types;                      \
        if (!found) found = (Error(*) types)find(name);  \
        found ? found arguments : MISSING;               \
    })
// A call that is the same in both.
#define SAME(hip, cuda, types, arguments) \
    Error hip types { return CUDA(cuda, types, arguments); }

Error hipRuntimeGetVersion(int *version) { return *version = 60342134, 0; }
const char *hipGetErrorName(U code) {
    const char *name = NULL;
    return CUDA("cuGetErrorName", (U c, const char **n), (code, &name)), name;
}
const char *hipGetErrorString(U code) {
    const char *text = NULL;
    return CUDA("cuGetErrorString", (U c, const char **n), (code, &text)), text;
}
SAME(hipInit, "cuInit", (U flags), (flags))
SAME(hipGetDeviceCount, "cuDeviceGetCount", (int *count), (count))
static Error context(Ptr *made, int device) {
    return CUDA("cuDevicePrimaryCtxRetain", (Ptr * m, int d), (made, device));
}
static __thread int here;
Error hipSetDevice(int device) {
    Ptr made;
    Error error = context(&made, here = device);
    return error ? error : CUDA("cuCtxSetCurrent", (Ptr c), (made));
}
Error hipDeviceGetP2PAttribute(int *value, U attribute, int from, int to) {
    return CUDA("cuDeviceGetP2PAttribute", (int *v, U a, int f, int t), (value, attribute + 1, from, to));
}
Error hipDeviceEnablePeerAccess(int peer, U flags) {
    Ptr made;
    Error error = context(&made, peer);
    return error ? error : CUDA("cuCtxEnablePeerAccess", (Ptr c, U f), (made, 0));
}
Error hipGetDevicePropertiesR0600(char *properties, int device) {
    memset(properties, 0, 1472);
    Error error = CUDA("cuDeviceGetName", (char *n, int l, int d), (properties, 256, device));
    if (!error) error = CUDA("cuDeviceGetUuid_v2", (Ptr u, int d), (properties + 256, device));
    if (!error)
        error = CUDA("cuDeviceGetAttribute", (int *v, U a, int d), ((int *)(properties + 388), 16, device));
    int *wave = (int *)(properties + 308);
    if (!error) error = CUDA("cuDeviceGetAttribute", (int *v, U a, int d), (wave, 10, device));
    const char *own = getenv("TIDEGATE_OVER_CUDA_ARCHITECTURE");
    snprintf(properties + 1160, 256, "%s", own ? own : *wave == 64 ? "gfx942" : "gfx1100");
    return error;
}

Error hipExtStreamCreateWithCUMask(Ptr *stream, uint32_t words, const uint32_t *mask) {
    return words && mask[0] ? CUDA("cuStreamCreateWithPriority", (Ptr * s, U f, int p), (stream, 1, 0)) : INVALID;
}
SAME(hipStreamDestroy, "cuStreamDestroy_v2", (Ptr stream), (stream))
SAME(hipStreamSynchronize, "cuStreamSynchronize", (Ptr stream), (stream))
SAME(hipStreamQuery, "cuStreamQuery", (Ptr stream), (stream))
SAME(hipStreamWaitEvent, "cuStreamWaitEvent", (Ptr stream, Ptr event, U flags), (stream, event, flags))
SAME(hipLaunchHostFunc, "cuLaunchHostFunc", (Ptr stream, Ptr function, Ptr data), (stream, function, data))
SAME(hipStreamBeginCapture, "cuStreamBeginCapture_v2", (Ptr stream, U mode), (stream, mode))
SAME(hipStreamEndCapture, "cuStreamEndCapture", (Ptr stream, Ptr *graph), (stream, graph))
SAME(hipStreamGetCaptureInfo_v2, "cuStreamGetCaptureInfo_v2",
     (Ptr stream, U *status, Address *id, Ptr *graph, Ptr **nodes, size_t *count),
     (stream, status, id, graph, nodes, count))
SAME(hipEventCreateWithFlags, "cuEventCreate", (Ptr *event, U flags), (event, flags))
SAME(hipEventDestroy, "cuEventDestroy_v2", (Ptr event), (event))
SAME(hipEventRecord, "cuEventRecord", (Ptr event, Ptr stream), (event, stream))
SAME(hipEventRecordWithFlags, "cuEventRecordWithFlags", (Ptr event, Ptr stream, U flags), (event, stream, flags))
SAME(hipEventQuery, "cuEventQuery", (Ptr event), (event))
SAME(hipEventElapsedTime, "cuEventElapsedTime", (float *ms, Ptr from, Ptr to), (ms, from, to))

SAME(hipGraphCreate, "cuGraphCreate", (Ptr *graph, U flags), (graph, flags))
SAME(hipGraphDestroy, "cuGraphDestroy", (Ptr graph), (graph))
SAME(hipGraphGetNodes, "cuGraphGetNodes", (Ptr graph, Ptr *nodes, size_t *count), (graph, nodes, count))
SAME(hipGraphAddChildGraphNode, "cuGraphAddChildGraphNode",
     (Ptr *node, Ptr graph, const Ptr *behind, size_t count, Ptr child), (node, graph, behind, count, child))
SAME(hipGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags", (Ptr *exec, Ptr graph, Address flags),
     (exec, graph, flags))
SAME(hipGraphUpload, "cuGraphUpload", (Ptr exec, Ptr stream), (exec, stream))
SAME(hipGraphLaunch, "cuGraphLaunch", (Ptr exec, Ptr stream), (exec, stream))
SAME(hipGraphExecDestroy, "cuGraphExecDestroy", (Ptr exec), (exec))

SAME(hipMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", (Address to, const void *from, size_t n, Ptr stream),
     (to, from, n, stream))
SAME(hipMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", (Ptr to, Address from, size_t n, Ptr stream), (to, from, n, stream))
SAME(hipMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", (Address to, Address from, size_t n, Ptr stream),
     (to, from, n, stream))
SAME(hipMemsetD8Async, "cuMemsetD8Async", (Address to, unsigned char value, size_t n, Ptr stream),
     (to, value, n, stream))
Error hipHostMalloc(Ptr *address, size_t n, U flags) {
    return CUDA("cuMemHostAlloc", (Ptr * a, size_t n, U f), (address, n, flags & 3));
}
SAME(hipHostRegister, "cuMemHostRegister_v2", (Ptr address, size_t n, U flags), (address, n, flags))
SAME(hipHostUnregister, "cuMemHostUnregister", (Ptr address), (address))
SAME(hipHostGetDevicePointer, "cuMemHostGetDevicePointer_v2", (Address * device, Ptr host, U flags),
     (device, host, flags))
SAME(hipPointerGetAttribute, "cuPointerGetAttribute", (Ptr value, U attribute, Address at), (value, attribute, at))
SAME(hipMallocFromPoolAsync, "cuMemAllocFromPoolAsync", (Address * at, size_t n, Ptr pool, Ptr stream),
     (at, n, pool, stream))
SAME(hipFreeAsync, "cuMemFreeAsync", (Address at, Ptr stream), (at, stream))
SAME(hipMemPoolCreate, "cuMemPoolCreate", (Ptr *pool, const void *properties), (pool, properties))
SAME(hipMemPoolSetAttribute, "cuMemPoolSetAttribute", (Ptr pool, U attribute, Ptr value), (pool, attribute, value))

// Whole memory. CUDA has no kind of it that is not cached.
typedef struct {
    U type, handles, location, device;
    Ptr security;
    unsigned char flags[4], reserved[4];
} Properties;
// HIP has no reserved bytes: there they are padding, which a program may leave as it was. CUDA refuses other values than 0.
static Properties pinned(Properties properties) {
    properties.type = PINNED;
    memset(properties.reserved, 0, sizeof properties.reserved);
    return properties;
}
Error hipMemGetAllocationGranularity(size_t *n, const Properties *wanted, U option) {
    if (wanted->type == UNCACHED && getenv("TIDEGATE_OVER_CUDA_NAMED")) return INVALID;
    Properties made = pinned(*wanted);
    return CUDA("cuMemGetAllocationGranularity", (size_t * n, Ptr p, U o), (n, &made, option));
}
Error hipMemCreate(Address *handle, size_t n, const Properties *wanted, Address flags) {
    Properties made = pinned(*wanted);
    return CUDA("cuMemCreate", (Address * h, size_t n, Ptr p, Address f), (handle, n, &made, flags));
}
SAME(hipMemRelease, "cuMemRelease", (Address handle), (handle))
SAME(hipMemAddressReserve, "cuMemAddressReserve", (Address * at, size_t n, size_t align, Address hint, Address flags),
     (at, n, align, hint, flags))
SAME(hipMemAddressFree, "cuMemAddressFree", (Address at, size_t n), (at, n))
SAME(hipMemMap, "cuMemMap", (Address at, size_t n, size_t offset, Address handle, Address flags),
     (at, n, offset, handle, flags))
SAME(hipMemUnmap, "cuMemUnmap", (Address at, size_t n), (at, n))
SAME(hipMemSetAccess, "cuMemSetAccess", (Address at, size_t n, const void *access, size_t count),
     (at, n, access, count))
SAME(hipMemExportToShareableHandle, "cuMemExportToShareableHandle", (Ptr fd, Address handle, U kind, Address flags),
     (fd, handle, kind, flags))
SAME(hipMemImportFromShareableHandle, "cuMemImportFromShareableHandle", (Address * handle, Ptr fd, U kind),
     (handle, fd, kind))

// Named memory is whole memory, too. Its name is a descriptor of the process that has it.
enum { PIECES = 4096 };
static struct Piece {
    Address at, handle;
    size_t n;
} pieces[PIECES];
static struct Piece *piece(Address at) {
    for (int i = 0; i < PIECES; i++)
        if (pieces[i].at == at) return &pieces[i];
    return NULL;
}
static Error map(Address *at, Address handle, size_t n) {
    U access[3] = {1, here, 3};
    Error error = hipMemAddressReserve(at, n, 0, 0, 0);
    if (!error) error = hipMemMap(*at, n, 0, handle, 0);
    if (!error) error = hipMemSetAccess(*at, n, access, 1);
    struct Piece *free = piece(0);
    if (!error && !free) abort();
    if (!error) *free = (struct Piece){*at, handle, n};
    return error;
}
Error hipFree(Address at) {
    struct Piece *old = piece(at);
    if (!old || !at) return INVALID;
    struct Piece gone = *old;
    *old = (struct Piece){0};
    hipMemUnmap(gone.at, gone.n);
    hipMemAddressFree(gone.at, gone.n);
    return hipMemRelease(gone.handle);
}
Error hipExtMallocWithFlags(Address *at, size_t n, U flags) {
    Properties made = {.type = PINNED, .handles = POSIX, .location = 1, .device = here};
    Address handle;
    size_t unit = 0;
    Error error = hipMemGetAllocationGranularity(&unit, &made, 1);
    if (!error) error = hipMemCreate(&handle, n = (n + unit - 1) / unit * unit, &made, 0);
    return error ? error : map(at, handle, n);
}
Error hipMemGetAddressRange(Address *base, size_t *n, Address at) {
    struct Piece *of = piece(at);
    return of ? (*base = of->at, *n = of->n, 0) : INVALID;
}
typedef struct {
    int pid, fd;
    size_t n;
    char rest[48];
} Name;
Error hipIpcGetMemHandle(Name *name, Address at) {
    struct Piece *of = piece(at);
    if (!of) return INVALID;
    *name = (Name){.pid = getpid(), .n = of->n};
    return hipMemExportToShareableHandle(&name->fd, of->handle, POSIX, 0);
}
Error hipIpcOpenMemHandle(Address *at, Name name, U flags) {
    if (flags != 1 || name.pid == getpid()) return INVALID;
    int process = syscall(SYS_pidfd_open, name.pid, 0);
    int fd = syscall(SYS_pidfd_getfd, process, name.fd, 0);
    close(process);
    if (fd < 0) return INVALID;
    Address handle;
    Error error = hipMemImportFromShareableHandle(&handle, (Ptr)(intptr_t)fd, POSIX);
    close(fd);
    return error ? error : map(at, handle, name.n);
}
Error hipIpcCloseMemHandle(Address at) { return hipFree(at); }

// The source of a code object, by a kernel of it.
static const char *const SOURCES[][2] = {
    {"tidegate_clock", "stamped.ptx"},
    {"tidegate_batch", "batch.ptx"},       {"faces_pack", "faces.ptx"},   {"take_foreign", "examples.ptx"},
    {"change_part_u64", "schedules.ptx"}, {"tick_early", "samples.ptx"}, {"bench_gather", "bench.ptx"},
    {"put_checked", "checked.ptx"}};
Error hipModuleLoadData(Ptr *module, const Elf64_Ehdr *image) {
    size_t size = image->e_shoff + (size_t)image->e_shnum * image->e_shentsize;
    for (size_t i = 0; i < sizeof SOURCES / sizeof *SOURCES; i++) {
        if (!memmem(image, size, SOURCES[i][0], strlen(SOURCES[i][0]))) continue;
        char path[4096], *text = calloc(1, 1 << 24);
        snprintf(path, sizeof path, "%s/%s", getenv("TIDEGATE_OVER_CUDA"), SOURCES[i][1]);
        int file = open(path, O_RDONLY);
        if (file < 0 || read(file, text, (1 << 24) - 1) <= 0) return INVALID;
        close(file);
        Error error = CUDA("cuModuleLoadData", (Ptr * m, const char *t), (module, text));
        return free(text), error;
    }
    return 209;
}
SAME(hipModuleGetFunction, "cuModuleGetFunction", (Ptr *function, Ptr module, const char *name),
     (function, module, name))
SAME(hipModuleOccupancyMaxActiveBlocksPerMultiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor",
     (int *blocks, Ptr function, int threads, size_t shared), (blocks, function, threads, shared))
SAME(hipModuleLaunchKernel, "cuLaunchKernel",
     (Ptr f, U a, U b, U c, U d, U e, U g, U shared, Ptr stream, Ptr *arguments, Ptr *extra),
     (f, a, b, c, d, e, g, shared, stream, arguments, extra))
