// The generators of the probe loops.
#include "probes.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <stdexcept>
#include <sys/syscall.h>
#include <unistd.h>
#include <xbyak/xbyak.h>
#include <xbyak/xbyak_util.h>

namespace nybl::bench {
namespace {

using Xbyak::util::Cpu;

const Cpu &cpu() {
    static const Cpu instance;
    return instance;
}

bool amx_permitted() {
    constexpr long kRequestPermission = 0x1023, kTileData = 18;
    static const bool permitted = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
    return permitted;
}

} // namespace

class Probe : public Xbyak::CodeGenerator {
  public:
    Probe() : CodeGenerator(16384, Xbyak::DontSetProtectRWE) {}

    template <class Function>
    Function finish() {
        if (!setProtectModeRE(false))
            throw std::runtime_error(
                "the system refuses executable memory, so no limit can be measured here");
        return getCode<Function>();
    }

    // rdi: data, rsi: bytes per stream, rdx/rcx/r8: streams 1..3, rax: end of stream 0
    void read_loop(const ReaderShape &shape) {
        constexpr unsigned kUnroll = 256; // bytes of each stream per turn
        const Xbyak::Reg64 streams[] = {rdi, rdx, rcx, r8};
        shr(rsi, shape.streams == 4 ? 2 : shape.streams == 2 ? 1 : 0);
        for (unsigned s = 1; s < shape.streams; ++s)
            lea(streams[s], ptr[streams[s - 1] + rsi]);
        lea(rax, ptr[rdi + rsi]);
        Xbyak::Label loop;
        align(64);
        L(loop);
        int target = 0; // loads overwrite registers in turn: nothing waits for them
        for (unsigned offset = 0; offset < kUnroll; offset += 64)
            for (unsigned s = 0; s < shape.streams; ++s) {
                if (shape.prefetch != 0)
                    prefetcht0(ptr[streams[s] + offset + shape.prefetch]);
                for (unsigned part = 0; part < 64; part += shape.width) {
                    load(shape.width, target, streams[s], offset + part);
                    target = (target + 1) % 16;
                }
            }
        for (unsigned s = 0; s < shape.streams; ++s)
            add(streams[s], kUnroll);
        cmp(rdi, rax);
        jb(loop, T_NEAR);
        if (shape.width > 16)
            vzeroupper();
        ret();
    }

    // rdi: turns. Registers: 0..11 (or 0..23) accumulators, then temporaries and the two operands, so that
    // every instruction works on registers and enough chains are in flight. Returns operations per turn.
    double peak_loop(Peak peak) {
        switch (peak) {
        case Peak::kDot1:
            return dot1_loop();
        case Peak::kDot2:
            return dot2_loop();
        case Peak::kVnniYmm:
            return chain_loop(12, 64, [&](int i) {
                vpdpbusd(Xbyak::Ymm(i), ymm14, ymm15,
                         cpu().has(Cpu::tAVX_VNNI) ? Xbyak::VexEncoding : Xbyak::EvexEncoding);
            });
        case Peak::kVnniZmm:
            return chain_loop(24, 128, [&](int i) { vpdpbusd(Xbyak::Zmm(i), zmm30, zmm31); });
        case Peak::kVnniZmmLoads:
            return loaded_dots();
        case Peak::kFmaYmm:
            return chain_loop(12, 16, [&](int i) { vfmadd231ps(Xbyak::Ymm(i), ymm14, ymm15); });
        case Peak::kFmaZmm:
            return chain_loop(24, 32, [&](int i) { vfmadd231ps(Xbyak::Zmm(i), zmm30, zmm31); });
        case Peak::kAmx:
            return amx_loop();
        }
        return 0;
    }

  private:
    void load(unsigned width, int target, const Xbyak::Reg64 &base, unsigned offset) {
        if (width == 16)
            movdqu(Xbyak::Xmm(target), ptr[base + offset]);
        else if (width == 32)
            vmovdqu(Xbyak::Ymm(target), ptr[base + offset]);
        else
            vmovdqu64(Xbyak::Zmm(target), ptr[base + offset]);
    }

    template <class Body>
    void counted_loop(const Body &body) {
        Xbyak::Label loop;
        align(64);
        L(loop);
        body();
        dec(rdi);
        jnz(loop, T_NEAR);
    }

    template <class Step>
    double chain_loop(int chains, double operations_each, const Step &step) {
        vpxor(xmm14, xmm14, xmm14);
        vpxor(xmm15, xmm15, xmm15);
        for (int i = 0; i < chains && i < 16; ++i)
            vpxor(Xbyak::Xmm(i), Xbyak::Xmm(i), Xbyak::Xmm(i));
        for (int i = 16; i < 32 && chains > 16; ++i)
            vpxord(Xbyak::Zmm(i), Xbyak::Zmm(i), Xbyak::Zmm(i));
        constexpr int kRepeats = 4;
        counted_loop([&] {
            for (int repeat = 0; repeat < kRepeats; ++repeat)
                for (int i = 0; i < chains; ++i)
                    step(i);
        });
        vzeroupper();
        ret();
        return kRepeats * chains * operations_each;
    }

    // rax: bytes that are no zeros. As in a tile of 48 rows and 8 tokens, three vectors are loaded for every
    // 24 dot products, each of which broadcasts a dword.
    double loaded_dots() {
        constexpr int kSteps = 8, kTokens = 8, kVectors = 3;
        Xbyak::Label data;
        lea(rax, ptr[rip + data]);
        for (int i = 0; i < kTokens * kVectors; ++i)
            vpxord(Xbyak::Zmm(i), Xbyak::Zmm(i), Xbyak::Zmm(i));
        counted_loop([&] {
            for (int step = 0; step < kSteps; ++step) {
                for (int v = 0; v < kVectors; ++v)
                    vmovdqu64(Xbyak::Zmm(24 + v), ptr[rax + 64 * (kVectors * step + v)]);
                for (int i = 0; i < kTokens * kVectors; ++i)
                    vpdpbusd(Xbyak::Zmm(i), Xbyak::Zmm(24 + i % kVectors),
                             ptr_b[rax + 4 * (kTokens * step + i / kVectors)]);
            }
        });
        vzeroupper();
        ret();
        align(64);
        L(data);
        for (uint32_t i = 0, value = 1; i < 64 * kVectors * kSteps; ++i)
            db((value = value * 1664525 + 1013904223) >> 24);
        return kSteps * kTokens * kVectors * 128.0;
    }

    // ymm15, ymm14: operands; ymm13: ones; ymm8..12: temporaries in turn; ymm0..7: accumulators
    void dot_operands() {
        for (int i = 0; i < 16; ++i)
            vpxor(Xbyak::Ymm(i), Xbyak::Ymm(i), Xbyak::Ymm(i));
        vpcmpeqd(ymm13, ymm13, ymm13);
        vpabsw(ymm13, ymm13);
    }

    double dot1_loop() {
        constexpr int kSteps = 40;
        dot_operands();
        counted_loop([&] {
            for (int i = 0; i < kSteps; ++i) {
                const Xbyak::Ymm product(8 + i % 5), sum(i % 8);
                vpmaddubsw(product, ymm15, ymm14);
                vpmaddwd(product, product, ymm13);
                vpaddd(sum, sum, product);
            }
        });
        vzeroupper();
        ret();
        return kSteps * 64.0;
    }

    double dot2_loop() {
        constexpr int kSteps = 32;
        dot_operands();
        counted_loop([&] {
            for (int i = 0; i < kSteps; ++i) {
                const Xbyak::Ymm first(8 + 2 * (i % 2)), second(9 + 2 * (i % 2)), sum(i % 8);
                vpmaddubsw(first, ymm15, ymm14);
                vpmaddubsw(second, ymm15, ymm14);
                vpaddw(first, first, second);
                vpmaddwd(first, first, ymm13);
                vpaddd(sum, sum, first);
            }
        });
        vzeroupper();
        ret();
        return kSteps * 128.0;
    }

    // tmm0..3: accumulators; tmm4, tmm5: activations; tmm6, tmm7: weights, as a 2x2 micro-kernel would have
    // them
    double amx_loop() {
        Xbyak::Label config;
        sttilecfg(ptr[rsp - 64]); // a peer's, who would miss it
        ldtilecfg(ptr[rip + config]);
        for (int i = 0; i < 8; ++i)
            tilezero(Xbyak::Tmm(i));
        counted_loop([&] {
            for (int repeat = 0; repeat < 4; ++repeat)
                for (int i = 0; i < 4; ++i)
                    tdpbusd(Xbyak::Tmm(i), Xbyak::Tmm(4 + i / 2), Xbyak::Tmm(6 + i % 2));
        });
        ldtilecfg(ptr[rsp - 64]);
        ret();
        align(64);
        L(config);
        uint8_t bytes[64] = {1}; // palette 1
        for (int i = 0; i < 8; ++i) {
            bytes[16 + 2 * i] = 64; // bytes per row
            bytes[48 + i] = 16;     // rows
        }
        db(bytes, sizeof bytes);
        return 16 * 2.0 * 16 * 16 * 64;
    }
};

std::string ReaderShape::describe() const {
    const std::string ahead =
        prefetch == 0 ? "no prefetch" : fmt::format("prefetch {} bytes ahead", prefetch);
    return fmt::format("{} stream{} of {}-byte loads, {}", streams, streams == 1 ? "" : "s", width, ahead);
}

std::vector<ReaderShape> reader_shapes() {
    std::vector<ReaderShape> shapes;
    for (const unsigned streams : {1u, 2u, 4u})
        for (const unsigned width : {16u, 32u, 64u}) {
            if ((width == 32 && !cpu().has(Cpu::tAVX)) || (width == 64 && !cpu().has(Cpu::tAVX512F)))
                continue;
            for (const unsigned prefetch : {0u, 1024u, 2048u, 4096u})
                shapes.push_back({streams, width, prefetch});
        }
    return shapes;
}

namespace {
struct PeakText {
    Peak peak;
    const char *key, *name;
};
constexpr PeakText kPeakTexts[] = {
    {Peak::kDot1, "dot1", "dot1 (vpmaddubsw, vpmaddwd, vpaddd)"},
    {Peak::kDot2, "dot2", "dot2 (2 vpmaddubsw, vpaddw, vpmaddwd, vpaddd)"},
    {Peak::kVnniYmm, "vpdpbusd_ymm", "vpdpbusd ymm"},
    {Peak::kVnniZmm, "vpdpbusd_zmm", "vpdpbusd zmm"},
    {Peak::kVnniZmmLoads, "vpdpbusd_zmm_loads", "vpdpbusd zmm, operands loaded"},
    {Peak::kAmx, "tdpbusd", "tdpbusd"},
    {Peak::kFmaYmm, "fma_ymm", "f32 fma ymm"},
    {Peak::kFmaZmm, "fma_zmm", "f32 fma zmm"},
};
const PeakText &text_of(Peak peak) {
    return *std::find_if(std::begin(kPeakTexts), std::end(kPeakTexts),
                         [&](const PeakText &text) { return text.peak == peak; });
}
} // namespace

const char *peak_key(Peak peak) {
    return text_of(peak).key;
}
const char *peak_name(Peak peak) {
    return text_of(peak).name;
}

bool peak_available(Peak peak) {
    switch (peak) {
    case Peak::kDot1:
    case Peak::kDot2:
        return cpu().has(Cpu::tAVX2);
    case Peak::kVnniYmm:
        return cpu().has(Cpu::tAVX_VNNI) || (cpu().has(Cpu::tAVX512_VNNI) && cpu().has(Cpu::tAVX512VL));
    case Peak::kVnniZmm:
    case Peak::kVnniZmmLoads:
        return cpu().has(Cpu::tAVX512_VNNI);
    case Peak::kAmx:
        return cpu().has(Cpu::tAMX_INT8) && amx_permitted();
    case Peak::kFmaYmm:
        return cpu().has(Cpu::tFMA);
    case Peak::kFmaZmm:
        return cpu().has(Cpu::tAVX512F);
    }
    return false;
}

Reader::Reader(const ReaderShape &shape) : code_(std::make_unique<Probe>()) {
    code_->read_loop(shape);
    run_ = code_->finish<void (*)(const void *, size_t)>();
}
Reader::~Reader() = default;

PeakLoop::PeakLoop(Peak peak) : code_(std::make_unique<Probe>()) {
    operations_ = code_->peak_loop(peak);
    run_ = code_->finish<void (*)(uint64_t)>();
}
PeakLoop::~PeakLoop() = default;

} // namespace nybl::bench
