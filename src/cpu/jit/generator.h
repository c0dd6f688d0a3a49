// The base of every kernel generator: frame, constants, and code that runs wherever it is copied.
//
// A kernel derives from it, draws its register map above emit(), and takes one pointer to a plain struct of
// arguments. docs/adding-a-kernel.md walks through one.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>

#include "cpu/jit/code_cache.h"
#include "cpu/jit/xbyak.h"

namespace nybl::cpu::jit {

// Calling conventions. Either can be generated anywhere, so that tests run both on one machine.
enum class Abi : uint8_t { SystemV, Win64 };
#ifdef _WIN32
constexpr Abi kHostAbi = Abi::Win64;
#else
constexpr Abi kHostAbi = Abi::SystemV;
#endif

// What a kernel needs of its frame, whichever the convention.
struct Frame {
    int saved = 0;      // how many of rbx, r12, r13, r14, r15 it uses, in that order
    int vectors = 16;   // it writes xmm0 .. xmm(vectors-1) of the first sixteen
    uint32_t stack = 0; // bytes at rsp for its own use, 64-byte aligned; at most kMaxStack
};
constexpr uint32_t kMaxStack = 8128; // below two pages: one probe

class Generator : public Xbyak::CodeGenerator {
  public:
    ~Generator() override = default;
    Generator(const Generator &) = delete;
    Generator &operator=(const Generator &) = delete;

    // Emits the kernel and its constants for callers of that convention; call once. The bytes may be copied
    // to any 64-byte aligned address and live as long as this object. Throws Xbyak::Error where the kernel is
    // not valid code.
    std::span<const uint8_t> finish(Abi abi = kHostAbi);

    const KernelKey &key() const noexcept { return key_; }

  protected:
    explicit Generator(const KernelKey &key);

    // Emits from open_frame to close_frame.
    virtual void emit() = 0;

    // Entry and exit of the kernel. Between them the pointer argument is in `args` (rdi); rax, rcx, rdx, rsi
    // and r8 .. r11 are free, as are the registers named in the frame; rbp is taken. All of zmm16 .. zmm31
    // are free.
    void open_frame(const Frame &frame);
    void close_frame();
    const Xbyak::Reg64 args = rdi;

    // 64 bytes of constants, to be addressed as ptr[rip + broadcast_u8(15)]; equal ones are stored once.
    const Xbyak::Label &broadcast_u8(uint8_t value);
    const Xbyak::Label &broadcast_u16(uint16_t value);
    const Xbyak::Label &broadcast_u32(uint32_t value);
    const Xbyak::Label &broadcast_f32(float value);
    const Xbyak::Label &broadcast_16(const uint8_t (&table)[16]); // four times, for pshufb within lanes
    const Xbyak::Label &constant(const uint8_t (&bytes)[64]);

  private:
    struct Constant {
        Xbyak::Label label;
        uint8_t bytes[64];
    };
    void emit_constants();

    const KernelKey key_;
    Abi abi_ = kHostAbi;
    Frame frame_;
    std::deque<Constant> constants_; // a deque: labels must not move
};

// The factory of a kernel class that is constructed from its key.
template <class Kernel>
std::unique_ptr<Generator> make_generator(const KernelKey &key) {
    return std::make_unique<Kernel>(key);
}

} // namespace nybl::cpu::jit
