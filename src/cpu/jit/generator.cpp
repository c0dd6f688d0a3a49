// Frames for both x86-64 calling conventions, and the constants behind a kernel's code.
#include "cpu/jit/generator.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

namespace nybl::cpu::jit {
namespace {

constexpr size_t kScratchBytes = 256 * 1024; // the largest kernel by far; untouched pages cost nothing
constexpr uint32_t kPage = 4096;
constexpr int kFirstKeptVector = 6; // Win64 callees keep xmm6 .. xmm15
constexpr int kVectors = 16;

// Ordinary memory: the code is copied to executable pages once it is complete.
class HeapAllocator : public Xbyak::Allocator {
  public:
    uint8_t *alloc(size_t bytes) override {
        uint8_t *memory = Xbyak::Allocator::alloc(bytes);
        if (memory == nullptr) {
            throw std::bad_alloc();
        }
        return memory;
    }
    bool useProtect() const override { return false; }
};

Xbyak::Allocator *heap() {
    static HeapAllocator allocator;
    return &allocator;
}

int kept_vectors(Abi abi, const Frame &frame) {
    return abi == Abi::Win64 ? std::max(0, std::min(frame.vectors, kVectors) - kFirstKeptVector) : 0;
}

} // namespace

Generator::Generator(const KernelKey &key)
    : Xbyak::CodeGenerator(kScratchBytes, Xbyak::DontSetProtectRWE, heap()), key_(key) {
    setDefaultJmpNEAR(true); // a forward jump may cross an unrolled body
    // vpdpbusd exists twice: only the VEX form runs on machines without AVX-512.
    setDefaultEncoding(key.isa >= NYBL_ISA_AVX512_VNNI ? Xbyak::EvexEncoding : Xbyak::VexEncoding);
}

std::span<const uint8_t> Generator::finish(Abi abi) {
    abi_ = abi;
    emit();
    emit_constants();
    ready(); // throws where a label was never placed
    return {getCode(), getSize()};
}

//   rbp + 8   return address
//   rbp       caller's rbp
//   below     rdi, rsi (Win64), then the first `saved` of rbx, r12 .. r15
//   rsp + stack + 16 i   xmm(6 + i) (Win64)
//   rsp       `stack` bytes, 64-byte aligned
void Generator::open_frame(const Frame &frame) {
    if (frame.stack > kMaxStack || frame.saved < 0 || frame.saved > 5) {
        throw Xbyak::Error(Xbyak::ERR_BAD_PARAMETER);
    }
    frame_ = frame;
    endbr64();
    push(rbp);
    mov(rbp, rsp);
    if (abi_ == Abi::Win64) {
        push(rdi);
        push(rsi);
        mov(rdi, rcx);
    }
    const Xbyak::Reg64 saved[] = {rbx, r12, r13, r14, r15};
    for (int i = 0; i < frame.saved; ++i) {
        push(saved[i]);
    }
    const int kept = kept_vectors(abi_, frame);
    const uint32_t stack = (frame.stack + 15) / 16 * 16;
    if (stack + kept > 0) {
        if (stack > kPage - 64) // no page is passed over untouched: the one below may be the stack's guard
            mov(qword[rsp - int(kPage)], 0);
        sub(rsp, stack + 16 * static_cast<uint32_t>(kept));
        and_(rsp, -64);
    }
    for (int i = 0; i < kept; ++i) {
        vmovups(ptr[rsp + static_cast<int>(stack) + 16 * i], Xbyak::Xmm(kFirstKeptVector + i));
    }
}

void Generator::close_frame() {
    const int kept = kept_vectors(abi_, frame_);
    const uint32_t stack = (frame_.stack + 15) / 16 * 16;
    for (int i = 0; i < kept; ++i) {
        vmovups(Xbyak::Xmm(kFirstKeptVector + i), ptr[rsp + static_cast<int>(stack) + 16 * i]);
    }
    // Ordinary code runs SSE: dirty upper halves would slow every instruction of it down.
    vzeroupper();
    const int pushed = frame_.saved + (abi_ == Abi::Win64 ? 2 : 0);
    if (pushed > 0) {
        lea(rsp, ptr[rbp - 8 * pushed]);
        const Xbyak::Reg64 saved[] = {rbx, r12, r13, r14, r15};
        for (int i = frame_.saved; i-- > 0;) {
            pop(saved[i]);
        }
        if (abi_ == Abi::Win64) {
            pop(rsi);
            pop(rdi);
        }
    } else {
        mov(rsp, rbp);
    }
    pop(rbp);
    ret();
}

const Xbyak::Label &Generator::constant(const uint8_t (&bytes)[64]) {
    for (const Constant &held : constants_) {
        if (std::memcmp(held.bytes, bytes, sizeof bytes) == 0) {
            return held.label;
        }
    }
    Constant &added = constants_.emplace_back();
    std::memcpy(added.bytes, bytes, sizeof bytes);
    return added.label;
}

const Xbyak::Label &Generator::broadcast_u8(uint8_t value) {
    return broadcast_u32(value * 0x01010101u);
}

const Xbyak::Label &Generator::broadcast_u16(uint16_t value) {
    return broadcast_u32(value * 0x00010001u);
}

const Xbyak::Label &Generator::broadcast_u32(uint32_t value) {
    uint8_t bytes[64];
    for (size_t i = 0; i < sizeof bytes; ++i) {
        bytes[i] = static_cast<uint8_t>(value >> (8 * (i % 4)));
    }
    return constant(bytes);
}

const Xbyak::Label &Generator::broadcast_f32(float value) {
    return broadcast_u32(std::bit_cast<uint32_t>(value));
}

const Xbyak::Label &Generator::broadcast_16(const uint8_t (&table)[16]) {
    uint8_t bytes[64];
    for (size_t i = 0; i < sizeof bytes; ++i) {
        bytes[i] = table[i % 16];
    }
    return constant(bytes);
}

void Generator::emit_constants() {
    if (constants_.empty()) {
        return;
    }
    align(64);
    for (Constant &held : constants_) {
        L(held.label);
        db(held.bytes, sizeof held.bytes);
    }
}

} // namespace nybl::cpu::jit
