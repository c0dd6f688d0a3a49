// The table of generated kernels: lock-free to read, one generator at a time.
#include "cpu/jit/code_cache.h"

#include <atomic>
#include <cctype>
#include <cstdio>
#include <exception>
#include <mutex>
#include <new>

#include "base/fork.h"
#include "base/status.h"
#include "cpu/isa.h"
#include "cpu/jit/executable_memory.h"
#include "cpu/jit/generator.h"
#include "cpu/jit/place.h"
#include "quant/format.h"

namespace nybl::cpu::jit {
namespace {

// Open addressing. A slot is filled once: `entry` first, then `key` with release, so a reader that sees the
// key sees the entry. A key whose generator failed for good stays with a NULL entry.
struct Slot {
    std::atomic<uint64_t> key{0};
    const void *entry = nullptr;
};
// Kernels are bounded by kinds x formats x instruction sets x tiles: some hundreds of one instruction set,
// thousands of all.
constexpr unsigned kSlotBits = 13;
constexpr size_t kSlots = size_t{1} << kSlotBits;
constexpr size_t kMaxKernels = kSlots / 2;
Slot g_slots[kSlots];
std::atomic<size_t> g_kernels{0};
// A child that was forked in the middle of a generation takes the lock over: a slot without its key is empty.
ForkLock g_generating;

// Never 0, since kinds start at 1. Formats of this library's own have GGUF-sized numbers beside bits from 16
// up.
uint64_t pack(const KernelKey &key) noexcept {
    return static_cast<uint64_t>(key.kind) | static_cast<uint64_t>(key.format & 0xFF) << 8 |
           static_cast<uint64_t>(key.isa & 0xFF) << 16 | static_cast<uint64_t>(key.rows) << 24 |
           static_cast<uint64_t>(key.tokens) << 32 | static_cast<uint64_t>(key.variant) << 40 |
           static_cast<uint64_t>(key.format >> 16 & 0xFF) << 56;
}

// The slot that holds the key, or the empty one where it belongs.
Slot &probe(uint64_t key) noexcept {
    size_t i = static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> (64 - kSlotBits));
    for (;; i = (i + 1) % kSlots) {
        const uint64_t held = g_slots[i].key.load(std::memory_order_acquire);
        if (held == key || held == 0) {
            return g_slots[i];
        }
    }
}

const void *entry_or_sentence(const Slot &slot, const KernelKey &key) noexcept {
    if (slot.entry == nullptr) {
        fail(NYBL_JIT_FAILURE, "kernel %s could not be generated", kernel_name(key).text);
    }
    return slot.entry;
}

// Generates, places and announces. *lasting: a failure that the next try would meet again.
const void *generate(const KernelKey &key, GeneratorFactory factory, bool *lasting) noexcept {
    const KernelName name = kernel_name(key);
    *lasting = false;
    try {
        const std::unique_ptr<Generator> generator = factory(key);
        return place_kernel(*generator, name.text);
    } catch (const std::bad_alloc &) {
        fail(NYBL_OUT_OF_MEMORY, "no memory to generate kernel %s", name.text);
    } catch (const std::exception &error) {
        *lasting = true;
        fail(NYBL_JIT_FAILURE, "kernel %s could not be generated: %s", name.text, error.what());
    }
    return nullptr;
}

const char *kind_name(KernelKind kind) noexcept {
    switch (kind) {
    case KernelKind::Decode:
        return "decode";
    case KernelKind::Prefill:
        return "prefill";
    case KernelKind::DecodeOriginal:
        return "decode_original";
    case KernelKind::Unpack:
        return "unpack";
    case KernelKind::Gather:
        return "gather";
    case KernelKind::Quantize:
        return "quantize";
    case KernelKind::VecDot:
        return "vec_dot";
    case KernelKind::Dequantize:
        return "dequantize";
    case KernelKind::F32:
        return "f32";
    case KernelKind::Test:
        return "test";
    }
    return "unknown";
}

const char *format_name(nybl_format format) noexcept {
    switch (format) {
    case NYBL_F32:
        return "f32";
    case NYBL_F16:
        return "f16";
    case NYBL_BF16:
        return "bf16";
    default:
        break;
    }
    const quant::Format *found = quant::find_format(format);
    return found != nullptr ? found->name : "unknown";
}

} // namespace

KernelName kernel_name(const KernelKey &key) noexcept {
    KernelName name;
    const int length =
        std::snprintf(name.text, sizeof name.text, "%s_%s_%ux%u_%s", kind_name(key.kind),
                      format_name(key.format), unsigned{key.rows}, unsigned{key.tokens}, isa_name(key.isa));
    if (key.variant != 0) {
        std::snprintf(name.text + length, sizeof name.text - static_cast<size_t>(length), "_v%u",
                      unsigned{key.variant});
    }
    for (char *c = name.text; *c != '\0'; ++c) {
        *c = static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
    }
    return name;
}

const void *find_or_generate(const KernelKey &key, GeneratorFactory factory) noexcept {
    const uint64_t packed = pack(key);
    const Slot &found = probe(packed);
    if (found.key.load(std::memory_order_acquire) == packed) {
        return entry_or_sentence(found, key);
    }
    if (const char *refusal = jit_refusal()) {
        fail(NYBL_JIT_FAILURE, "kernel %s: %s", kernel_name(key).text, refusal);
        return nullptr;
    }
    const std::lock_guard lock(g_generating);
    Slot &slot = probe(packed); // again: another thread may have been first
    if (slot.key.load(std::memory_order_relaxed) == packed) {
        return entry_or_sentence(slot, key);
    }
    if (g_kernels.load(std::memory_order_relaxed) >= kMaxKernels) {
        fail(NYBL_JIT_FAILURE, "kernel %s: the table of %zu kernels is full", kernel_name(key).text,
             kMaxKernels);
        return nullptr;
    }
    bool lasting = false;
    const void *entry = generate(key, factory, &lasting);
    if (entry != nullptr || lasting) {
        slot.entry = entry;
        slot.key.store(packed, std::memory_order_release);
        g_kernels.fetch_add(1, std::memory_order_relaxed);
    }
    return entry;
}

size_t kernel_count() noexcept {
    return g_kernels.load(std::memory_order_relaxed);
}

} // namespace nybl::cpu::jit
