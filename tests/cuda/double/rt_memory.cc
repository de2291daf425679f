/* rt_memory.cc - device memory, pinned memory and copies of the runtime's double.
 *
 * Device memory comes from one large protected address range that is never reused. Allocations are 256-byte aligned, no more, and
 * end (rounded up to that) at a protected page; the bytes in between are poisoned for AddressSanitizer. New memory is filled with
 * 0xFF. Memory is accessible only while an Opened object exists. */
#include "tests/cuda/double/rt.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

namespace rt {

enum : size_t {
    RANGE = size_t(1) << 38,
    ALIGNMENT = 256,
    PAGE = 4096,
    POISON = size_t(16) << 20, /* a multiple of the page size */
    DEFAULT_CAPACITY = size_t(4) << 30
};

struct Block {
    size_t size;
    char *pages; /* containing the block, without the protected pages around them */
    size_t page_bytes;
    int opened; /* how often */
};

static char *range;       /* of device addresses */
static size_t range_used;
static size_t capacity = DEFAULT_CAPACITY, used;
static std::map<char *, Block> blocks;       /* device memory */
static std::map<char *, size_t> pinned;

static char *reserve(size_t bytes)
{
    if (!range) {
        void *p = mmap(nullptr, RANGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) return nullptr;
        range = static_cast<char *>(p);
    }
    if (bytes > RANGE - range_used) return nullptr;
    char *p = range + range_used;
    range_used += bytes;
    return p;
}

/* A file of 0xff: new memory maps it privately, so pages that are never written consume no memory. */
static int poison_file()
{
    static int file = -1;
    if (file >= 0) return file;
    file = memfd_create("device memory", MFD_CLOEXEC);
    std::vector<char> bytes(POISON, char(0xff));
    if (file >= 0 && write(file, bytes.data(), bytes.size()) != ssize_t(POISON)) {
        close(file);
        file = -1;
    }
    return file;
}

static bool fill_fresh(const Block &block)
{
    const int file = poison_file();
    for (size_t at = 0; at < block.page_bytes; at += POISON) {
        size_t bytes = block.page_bytes - at < POISON ? block.page_bytes - at : size_t(POISON);
        if (mmap(block.pages + at, bytes, PROT_NONE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file, 0) == MAP_FAILED)
            return false;
    }
    return true;
}

static void protect(const Block &block, int protection) { mprotect(block.pages, block.page_bytes, protection); }

/* Returns the block or pinned allocation that contains p. */
template <class M> static auto holder(M &map, const void *p)
{
    auto after = map.upper_bound(static_cast<char *>(const_cast<void *>(p)));
    return after == map.begin() ? map.end() : std::prev(after);
}

/* Makes blocks accessible (+1) or protects them again (-1), counting nested calls; no addresses: all blocks. */
static void open_blocks(const std::vector<void *> &touches, int change)
{
    const int before = change > 0 ? 0 : 1;
    auto open_one = [=](Block &block) {
        if (block.opened == before) protect(block, change > 0 ? PROT_READ | PROT_WRITE : PROT_NONE);
        block.opened += change;
    };
    if (touches.empty())
        for (auto &entry : blocks) open_one(entry.second);
    for (void *p : touches) {
        auto block = holder(blocks, p);
        if (block != blocks.end()) open_one(block->second);
    }
}

Opened::Opened(const std::vector<void *> &addresses) : touches(addresses) { open_blocks(touches, 1); }
Opened::~Opened() { open_blocks(touches, -1); }

static bool fits(const char *base, size_t size, const void *p, size_t bytes)
{
    size_t offset = static_cast<size_t>(static_cast<const char *>(p) - base);
    return offset <= size && bytes <= size - offset;
}

Side side_of(const void *p, size_t bytes)
{
    const char *at = static_cast<const char *>(p);
    if (range && at >= range && at < range + RANGE) {
        auto block = holder(blocks, p);
        return block != blocks.end() && fits(block->first, block->second.size, p, bytes) ? Side::device : Side::broken;
    }
    auto piece = holder(pinned, p);
    if (piece == pinned.end() || !fits(piece->first, piece->second, p, 1)) return Side::host;
    return fits(piece->first, piece->second, p, bytes) ? Side::pinned : Side::broken;
}

static void drop_block(std::map<char *, Block>::iterator block)
{
    const Block &b = block->second;
    ASAN_UNPOISON_MEMORY_REGION(b.pages, b.page_bytes);
    mmap(b.pages, b.page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    used -= b.size;
    leave(block->first);
    blocks.erase(block);
}

void forget_memory()
{
    while (!blocks.empty()) drop_block(blocks.begin());
    for (auto &piece : pinned) {
        leave(piece.first);
        free(piece.first);
    }
    pinned.clear();
    capacity = DEFAULT_CAPACITY;
}

/* Checks a copy: each side must be where its kind says, with all its bytes inside one allocation. */
static cudaError_t check_copy(const void *dst, const void *src, size_t bytes, cudaMemcpyKind kind)
{
    const Side to = side_of(dst, bytes), from = side_of(src, bytes);
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (kind != cudaMemcpyHostToDevice && kind != cudaMemcpyDeviceToHost && kind != cudaMemcpyDeviceToDevice)
        return refuse(cudaErrorNotSupported, "the double does not know copies of kind %d", kind);
    if (to == Side::broken || from == Side::broken)
        return refuse(cudaErrorInvalidValue, "%zu bytes reach beyond the %s memory or it is not there", bytes,
                      to == Side::broken ? "target's" : "source's");
    if ((to == Side::device) != to_device || (from == Side::device) != from_device)
        return refuse(cudaErrorInvalidValue, "the %s of the copy is not where its kind says",
                      (to == Side::device) != to_device ? "target" : "source");
    return cudaSuccess;
}

static cudaError_t move(void *dst, const void *src, size_t bytes)
{
    memcpy(dst, src, bytes);
    return cudaSuccess;
}

/* Copies pageable memory: a copy to the device has read its source, and a copy from the device is complete, when the call returns.
 * Neither is allowed in a graph. */
static cudaError_t copy_pageable(void *dst, const void *src, size_t bytes, bool to_device, cudaStream_t stream)
{
    if (stream->capture)
        return invalidate(*stream->capture, refuse(cudaErrorStreamCaptureUnsupported,
                                                   "a copy of pageable memory while capturing"));
    if (to_device) {
        const char *from = static_cast<const char *>(src);
        auto staged = std::make_shared<std::vector<char>>(from, from + bytes);
        return submit(stream, "copy", [=] { return move(dst, staged->data(), bytes); }, {dst});
    }
    cudaError_t e = submit(stream, "copy", [=] { return move(dst, src, bytes); }, {const_cast<void *>(src)});
    wait_stream(stream);
    return e ? e : fault;
}

} // namespace rt

using namespace rt;

void double_memory(size_t bytes) { capacity = bytes; }
bool double_on_device(const void *p, size_t bytes) { return side_of(p, bytes) == Side::device; }

namespace own {

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    *total = capacity;
    *available = capacity - used;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    if (cudaError_t e = unsafe("cudaMalloc")) return e;
    *out = nullptr;
    if (bytes == 0) return cudaSuccess;
    if (bytes > capacity - used)
        return refuse(cudaErrorMemoryAllocation, "%zu bytes of %zu are free", capacity - used, capacity);
    size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    size_t page_bytes = (rounded + PAGE - 1) / PAGE * PAGE;
    char *closed = reserve(page_bytes + PAGE);
    if (!closed) return refuse(cudaErrorMemoryAllocation, "no device addresses are left");
    Block block = {bytes, closed + PAGE, page_bytes, 0};
    char *base = block.pages + page_bytes - rounded;
    if (!fill_fresh(block)) return refuse(cudaErrorMemoryAllocation, "the host has no memory for it");
    ASAN_POISON_MEMORY_REGION(block.pages, static_cast<size_t>(base - block.pages));
    ASAN_POISON_MEMORY_REGION(base + bytes, rounded - bytes);
    blocks[base] = block;
    used += bytes;
    enter(base, "device memory", nullptr);
    *out = base;
    return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
    if (!p) return cudaSuccess;
    if (cudaError_t e = unsafe("cudaFree")) return e;
    auto block = blocks.find(static_cast<char *>(p));
    if (block == blocks.end()) return refuse(cudaErrorInvalidValue, "not the address of an allocation");
    wait_all();
    drop_block(block);
    return fault;
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    if (cudaError_t e = unsafe("cudaMallocHost")) return e;
    *out = nullptr;
    if (bytes == 0) return cudaSuccess;
    if (posix_memalign(out, PAGE, bytes)) return refuse(cudaErrorMemoryAllocation, "no host memory");
    memset(*out, 0xff, bytes);
    pinned[static_cast<char *>(*out)] = bytes;
    enter(*out, "pinned memory", nullptr);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p)
{
    if (!p) return cudaSuccess;
    if (cudaError_t e = unsafe("cudaFreeHost")) return e;
    if (!pinned.erase(static_cast<char *>(p))) return refuse(cudaErrorInvalidValue, "this memory was not pinned");
    wait_all();
    leave(p);
    free(p);
    return fault;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream)
{
    double_note(kind == cudaMemcpyHostToDevice ? "H2D" : kind == cudaMemcpyDeviceToHost ? "D2H" : "D2D");
    if (cudaError_t e = check_stream(stream)) return e;
    if (bytes == 0) return cudaSuccess;
    if (cudaError_t e = check_copy(dst, src, bytes, kind)) return e;
    if (side_of(src, bytes) == Side::host || side_of(dst, bytes) == Side::host)
        return copy_pageable(dst, src, bytes, kind == cudaMemcpyHostToDevice, stream);
    return submit(stream, "copy", [=] { return move(dst, src, bytes); }, {dst, const_cast<void *>(src)});
}

cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t stream)
{
    if (cudaError_t e = check_stream(stream)) return e;
    if (bytes == 0) return cudaSuccess;
    if (side_of(dst, bytes) != Side::device)
        return refuse(cudaErrorInvalidValue, "these %zu bytes are not on the device", bytes);
    auto fill = [=] {
        memset(dst, value, bytes);
        return cudaSuccess;
    };
    return submit(stream, "memset", fill, {dst});
}

} // namespace own
