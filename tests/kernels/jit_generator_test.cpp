// The generator base: frames under both conventions, constants, position independence, bad code as an error.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "cpu/isa.h"
#include "cpu/jit/executable_memory.h"
#include "cpu/jit/generator.h"
#include "kernels/canary.h"

using namespace nybl;
using namespace nybl::cpu::jit;

namespace {

constexpr KernelKey kKey{KernelKind::Test, NYBL_F32, NYBL_ISA_AVX2};

struct Args {
    const float *in; // 8 values
    float *out;      // 8 values
};

// A generator whose body is given by the test.
class Scripted : public Generator {
  public:
    explicit Scripted(std::function<void(Scripted &)> body) : Generator(kKey), body_(body) {}
    using Generator::args;
    using Generator::broadcast_16;
    using Generator::broadcast_f32;
    using Generator::broadcast_u16;
    using Generator::broadcast_u8;
    using Generator::close_frame;
    using Generator::open_frame;

  protected:
    void emit() override { body_(*this); }

  private:
    std::function<void(Scripted &)> body_;
};

// Overwrites every register and stack byte that the frame allows.
void overwrite_all(Scripted &g, const Frame &frame) {
    g.open_frame(frame);
    for (int i = 0; i < frame.vectors; ++i) {
        g.vpcmpeqd(Xbyak::Ymm(i), Xbyak::Ymm(i), Xbyak::Ymm(i));
    }
    for (uint32_t byte = 0; byte + 8 <= frame.stack; byte += 8) {
        g.mov(g.qword[g.rsp + static_cast<int>(byte)], -1);
    }
    const Xbyak::Reg64 saved[] = {g.rbx, g.r12, g.r13, g.r14, g.r15};
    for (int i = 0; i < frame.saved; ++i) {
        g.mov(saved[i], -1);
    }
    for (const Xbyak::Reg64 &free : {g.rax, g.rcx, g.rdx, g.rsi, g.rdi, g.r8, g.r9, g.r10, g.r11}) {
        g.mov(free, -1);
    }
    g.close_frame();
}

// out = in + 1.5, by way of a constant.
void add_constant(Scripted &g) {
    g.open_frame({.saved = 0, .vectors = 1, .stack = 0});
    g.mov(g.rax, g.ptr[g.args]);
    g.mov(g.rcx, g.ptr[g.args + 8]);
    g.vmovups(g.ymm0, g.ptr[g.rax]);
    g.vaddps(g.ymm0, g.ymm0, g.ptr[g.rip + g.broadcast_f32(1.5f)]);
    g.vmovups(g.ptr[g.rcx], g.ymm0);
    g.close_frame();
}

bool can_run() {
    return cpu::effective_isa(NYBL_ISA_AVX2) == NYBL_ISA_AVX2;
}

// A placed copy of generated code.
class Placed {
  public:
    explicit Placed(std::span<const uint8_t> code) : entry_(make_executable(code)), bytes_(code.size()) {}
    ~Placed() { release_executable(entry_, bytes_); }
    Placed(const Placed &) = delete;
    Placed &operator=(const Placed &) = delete;
    const void *entry() const { return entry_; }

  private:
    const void *entry_;
    size_t bytes_;
};

} // namespace

TEST_CASE("frames give back what each convention promises", "[jit]") {
    if (!can_run()) {
        SKIP("this machine or NYBL_MAX_ISA has no AVX2");
    }
    for (const Abi abi : {Abi::SystemV, Abi::Win64}) {
        for (const int saved : {0, 1, 2, 3, 4, 5}) {
            for (const int vectors : {1, 6, 7, 11, 16}) {
                for (const uint32_t stack : {0u, 8u, 64u, 1000u, kMaxStack}) {
                    const Frame frame{.saved = saved, .vectors = vectors, .stack = stack};
                    Scripted generator([&](Scripted &g) { overwrite_all(g, frame); });
                    const Placed placed(generator.finish(abi));
                    REQUIRE(placed.entry() != nullptr);
                    CAPTURE(abi == Abi::Win64, saved, vectors, stack);
                    REQUIRE(test::broken_by_call(placed.entry(), nullptr, abi) == "");
                }
            }
        }
    }
}

TEST_CASE("the canaries notice a kernel that breaks its promise", "[jit]") {
    if (!can_run()) {
        SKIP("this machine or NYBL_MAX_ISA has no AVX2");
    }
    Scripted rude([](Scripted &g) {
        g.xor_(g.rbx, g.rbx);
        g.xor_(g.r13, g.r13);
        g.vpcmpeqd(g.ymm7, g.ymm7, g.ymm7);
        g.vpcmpeqd(g.ymm15, g.ymm15, g.ymm15);
        g.std();
        g.ret();
    });
    const Placed placed(rude.finish());
    CHECK(test::broken_by_call(placed.entry(), nullptr, Abi::Win64) ==
          "rbx r13 xmm7 xmm15 upper-half-of-ymm7 upper-half-of-ymm15 direction-flag ");
    CHECK(test::broken_by_call(placed.entry(), nullptr, Abi::SystemV) ==
          "rbx r13 upper-half-of-ymm7 upper-half-of-ymm15 direction-flag ");
}

TEST_CASE("stack space is aligned to 64 bytes", "[jit]") {
    if (!can_run()) {
        SKIP("this machine or NYBL_MAX_ISA has no AVX2");
    }
    for (const Abi abi : {Abi::SystemV, Abi::Win64}) {
        for (const int saved : {0, 1, 2}) {
            Scripted generator([&](Scripted &g) {
                g.open_frame({.saved = saved, .vectors = 8, .stack = 128});
                g.mov(g.ptr[g.args], g.rsp);
                g.close_frame();
            });
            const Placed placed(generator.finish(abi));
            uint64_t rsp = 1;
            CHECK(test::broken_by_call(placed.entry(), &rsp, abi) == "");
            CHECK(rsp % 64 == 0);
        }
    }
}

TEST_CASE("code runs wherever it is copied", "[jit]") {
    if (!can_run()) {
        SKIP("this machine or NYBL_MAX_ISA has no AVX2");
    }
    Scripted generator(add_constant);
    const std::span<const uint8_t> code = generator.finish();
    const std::vector<uint8_t> before(code.begin(), code.end());
    const Placed first(code);
    const Placed second(code);
    std::memset(const_cast<uint8_t *>(code.data()), 0, code.size()); // the scratch copy no longer matters
    for (const Placed *placed : {&first, &second}) {
        const float in[8] = {0, 1, 2, 3, 4, 5, 6, 7};
        float out[8] = {};
        Args args{in, out};
        reinterpret_cast<void (*)(const Args *)>(const_cast<void *>(placed->entry()))(&args);
        for (int i = 0; i < 8; ++i) {
            CHECK(out[i] == in[i] + 1.5f);
        }
        CHECK(std::memcmp(placed->entry(), before.data(), before.size()) == 0);
    }
}

TEST_CASE("kernels start with a branch target and end in aligned constants stored once", "[jit]") {
    const auto emit = [](Scripted &g) {
        g.open_frame({});
        g.vpand(g.ymm0, g.ymm0, g.ptr[g.rip + g.broadcast_u8(0x0F)]);
        g.vpand(g.ymm1, g.ymm1, g.ptr[g.rip + g.broadcast_u16(0x0F0F)]); // the same bytes
        g.vpand(g.ymm2, g.ymm2, g.ptr[g.rip + g.broadcast_u16(0x0102)]);
        g.close_frame();
    };
    Scripted generator(emit);
    const std::span<const uint8_t> code = generator.finish();
    const uint8_t endbr64[4] = {0xF3, 0x0F, 0x1E, 0xFA};
    CHECK(std::memcmp(code.data(), endbr64, 4) == 0);
    REQUIRE(code.size() % 64 == 0);
    REQUIRE(code.size() >= 192);
    const uint8_t *constants = code.data() + code.size() - 128;
    CHECK(std::all_of(constants, constants + 64, [](uint8_t byte) { return byte == 0x0F; }));
    for (int i = 0; i < 64; ++i) {
        CHECK(constants[64 + i] == (i % 2 == 0 ? 0x02 : 0x01));
    }
    Scripted again(emit);
    const std::span<const uint8_t> same = again.finish();
    CHECK(std::equal(code.begin(), code.end(), same.begin(), same.end()));
}

TEST_CASE("far forward jumps are encoded in full", "[jit]") {
    Scripted generator([](Scripted &g) {
        Xbyak::Label end;
        g.open_frame({});
        g.jmp(end);
        g.nop(1000);
        g.L(end);
        g.close_frame();
    });
    CHECK(generator.finish().size() > 1000);
}

TEST_CASE("what is no kernel throws and is not emitted", "[jit]") {
    Scripted dangling([](Scripted &g) {
        Xbyak::Label nowhere;
        g.open_frame({});
        g.jmp(nowhere);
        g.close_frame();
    });
    CHECK_THROWS_AS(dangling.finish(), Xbyak::Error);
    Scripted greedy([](Scripted &g) { g.open_frame({.saved = 0, .vectors = 0, .stack = kMaxStack + 1}); });
    CHECK_THROWS_AS(greedy.finish(), Xbyak::Error);
    Scripted endless([](Scripted &g) {
        for (;;) {
            g.nop();
        }
    });
    CHECK_THROWS_AS(endless.finish(), Xbyak::Error);
}

TEST_CASE("vpdpbusd is encoded for the kernel's instruction set", "[jit]") {
    class Dot : public Generator {
      public:
        explicit Dot(nybl_isa isa) : Generator({KernelKind::Test, NYBL_F32, isa}) {}

      protected:
        void emit() override { vpdpbusd(ymm0, ymm1, ymm2); }
    };
    CHECK(Dot(NYBL_ISA_AVX_VNNI).finish()[0] == 0xC4);    // VEX
    CHECK(Dot(NYBL_ISA_AVX512_VNNI).finish()[0] == 0x62); // EVEX
}
