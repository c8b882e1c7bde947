// A HIP runtime without a GPU, for the tests of peers.rs: memory of the device is memory of the host, and each call
// that matters is counted. An opened name is the owner's address, since both are one process here.
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef unsigned Error;
enum { SUCCESS = 0, INVALID = 1, NO_DEVICE = 100, UNCACHED = 3, FINE = 1 };

// What a test sets, and what it reads.
int tidegate_refuses_uncached, tidegate_atomics = 1;
int tidegate_frees, tidegate_closes, tidegate_unmaps, tidegate_copies, tidegate_flags, tidegate_flush, tidegate_peers;

Error hipRuntimeGetVersion(int *version) { return *version = 60342134, SUCCESS; }
const char *hipGetErrorName(Error code) { return code == INVALID ? "hipErrorInvalidValue" : "hipErrorOther"; }
const char *hipGetErrorString(Error code) { return "as the test wants it"; }
Error hipSetDevice(int device) { return SUCCESS; }
Error hipDeviceGetP2PAttribute(int *value, unsigned attribute, int from, int to) {
    return *value = tidegate_atomics, SUCCESS;
}
Error hipDeviceEnablePeerAccess(int peer, unsigned flags) { return tidegate_peers++ ? 704 : SUCCESS; }

Error hipExtMallocWithFlags(void **address, size_t bytes, unsigned flags) {
    if (flags == UNCACHED && tidegate_refuses_uncached) return INVALID;
    tidegate_flags = flags;
    *address = calloc(1, bytes);
    return SUCCESS;
}
Error hipFree(void *address) { return free(address), tidegate_frees++, SUCCESS; }
Error hipMemGetAddressRange(void **base, size_t *bytes, void *address) {
    // The memory is a part of an allocation that begins 256 bytes before it.
    return *base = (char *)address - 256, *bytes = 1 << 20, SUCCESS;
}
typedef struct { char bytes[64]; } Name;
Error hipIpcGetMemHandle(Name *name, void *address) {
    address = (char *)address - 256;
    memset(name, 7, sizeof *name);
    return memcpy(name, &address, sizeof address), SUCCESS;
}
Error hipIpcOpenMemHandle(void **address, Name name, unsigned flags) {
    if (flags != 1 || name.bytes[63] != 7) return INVALID;
    return memcpy(address, &name, sizeof *address), SUCCESS;
}
Error hipIpcCloseMemHandle(void *address) { return tidegate_closes++, SUCCESS; }

Error hipMemcpyHtoDAsync(void *to, const void *from, size_t bytes, void *stream) {
    return memcpy(to, from, bytes), tidegate_copies++, SUCCESS;
}
Error hipStreamSynchronize(void *stream) { return SUCCESS; }

// Whole memory is a pipe's end, whatever is behind it.
Error hipMemGetAllocationGranularity(size_t *bytes, const void *properties, unsigned option) {
    return *bytes = 65536, SUCCESS;
}
Error hipMemCreate(void **handle, size_t bytes, const unsigned *properties, unsigned long long flags) {
    if (properties[0] != 0x40000000 || properties[1] != 1 || properties[2] != 1) return INVALID;
    return *handle = malloc(1), SUCCESS;
}
Error hipMemRelease(void *handle) { return free(handle), SUCCESS; }
Error hipMemAddressReserve(void **address, size_t bytes, size_t alignment, void *hint, unsigned long long flags) {
    *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return SUCCESS;
}
Error hipMemAddressFree(void *address, size_t bytes) { return munmap(address, bytes), SUCCESS; }
Error hipMemMap(void *address, size_t bytes, size_t offset, void *handle, unsigned long long flags) {
    return offset ? INVALID : SUCCESS;
}
Error hipMemUnmap(void *address, size_t bytes) { return tidegate_unmaps++, SUCCESS; }
Error hipMemSetAccess(void *address, size_t bytes, const unsigned *access, size_t count) {
    return access[0] == 1 && access[2] == 3 && count == 1 ? SUCCESS : INVALID;
}
Error hipMemExportToShareableHandle(int *fd, void *handle, unsigned kind, unsigned long long flags) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) return INVALID;
    close(ends[1]);
    return *fd = ends[0], SUCCESS;
}
Error hipMemImportFromShareableHandle(void **handle, void *fd, unsigned kind) {
    if (fcntl((int)(intptr_t)fd, F_GETFD) < 0 || kind != 1) return INVALID;
    return *handle = malloc(1), SUCCESS;
}
Error hipPointerGetAttribute(int *value, unsigned attribute, void *address) { return *value = 1, SUCCESS; }
