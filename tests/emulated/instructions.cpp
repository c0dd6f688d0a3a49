// Dot products, half conversion and fused multiply-add of the CPU against plain arithmetic.
#include <cmath>
#include <cstring>
#include <immintrin.h>

#include "cpu/isa.h"
#include "report.h"

namespace nybl::emulated {
namespace {

constexpr int kRounds = 100;

struct DotOperands {
    alignas(64) uint8_t a[64];
    alignas(64) int8_t b[64];
    alignas(64) int32_t c[16];
    alignas(64) int32_t got[16];

    explicit DotOperands(Random &random) {
        for (int i = 0; i < 64; ++i) {
            a[i] = static_cast<uint8_t>(random.next());
            b[i] = static_cast<int8_t>(random.next());
        }
        for (int32_t &value : c)
            value = static_cast<int32_t>(random.next());
    }
    bool right(int lanes) const {
        for (int i = 0; i < lanes; ++i) {
            auto sum = static_cast<uint32_t>(c[i]); // wraps
            for (int k = 4 * i; k < 4 * i + 4; ++k)
                sum += static_cast<uint32_t>(a[k] * b[k]);
            if (got[i] != static_cast<int32_t>(sum))
                return false;
        }
        return true;
    }
};

template <class Operation>
bool check_dot(int lanes, const Operation &operation) {
    Random random;
    bool right = true;
    for (int round = 0; round < kRounds; ++round) {
        DotOperands operands(random);
        operation(operands);
        right &= operands.right(lanes);
    }
    return right;
}

__attribute__((target("avx512f,avx512vnni"))) void dot_evex(DotOperands &o) {
    _mm512_store_si512(
        o.got, _mm512_dpbusd_epi32(_mm512_load_si512(o.c), _mm512_load_si512(o.a), _mm512_load_si512(o.b)));
}

__attribute__((target("avx2"))) void dot_vex(DotOperands &o) { // as bytes: not every assembler knows the form
    __asm__ volatile("vmovdqa (%0), %%ymm0\n\tvmovdqa (%1), %%ymm1\n\tvmovdqa (%2), %%ymm2\n\t"
                     ".byte 0xc4, 0xe2, 0x75, 0x50, 0xc2\n\t" // vpdpbusd ymm0, ymm1, ymm2
                     "vmovdqa %%ymm0, (%3)\n\tvzeroupper"
                     :
                     : "r"(o.c), "r"(o.a), "r"(o.b), "r"(o.got)
                     : "xmm0", "xmm1", "xmm2", "memory");
}

// Pairs of products saturate to 16 bits, then add up to 32.
__attribute__((target("avx2"))) bool check_madd() {
    Random random;
    for (int round = 0; round < kRounds; ++round) {
        DotOperands o(random);
        const __m256i pairs = _mm256_maddubs_epi16(_mm256_load_si256(reinterpret_cast<const __m256i *>(o.a)),
                                                   _mm256_load_si256(reinterpret_cast<const __m256i *>(o.b)));
        _mm256_store_si256(reinterpret_cast<__m256i *>(o.got),
                           _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
        for (int i = 0; i < 8; ++i) {
            int sum = 0;
            for (int k = 4 * i; k < 4 * i + 4; k += 2) {
                const int pair = o.a[k] * o.b[k] + o.a[k + 1] * o.b[k + 1];
                sum += pair > 32767 ? 32767 : pair < -32768 ? -32768 : pair;
            }
            if (o.got[i] != sum)
                return false;
        }
    }
    return true;
}

float half_value(uint16_t half) {
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    float value = exponent ? std::ldexp(static_cast<float>(1024 + fraction), exponent - 25)
                           : std::ldexp(static_cast<float>(fraction), -24);
    if (exponent == 31)
        value = fraction ? NAN : INFINITY;
    return half & 0x8000 ? -value : value;
}

__attribute__((target("avx2,f16c"))) bool check_half() {
    for (uint32_t first = 0; first < 0x10000; first += 8 * 7) { // every seventh run of eight
        alignas(16) uint16_t in[8];
        alignas(32) float out[8];
        for (uint32_t i = 0; i < 8; ++i)
            in[i] = static_cast<uint16_t>(first + i);
        _mm256_store_ps(out, _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i *>(in))));
        for (int i = 0; i < 8; ++i) {
            const float want = half_value(in[i]);
            if (!(std::isnan(want) ? std::isnan(out[i]) : std::memcmp(&want, &out[i], 4) == 0))
                return false;
        }
    }
    return true;
}

__attribute__((target("avx2,fma"))) bool check_fma() {
    Random random;
    for (int round = 0; round < kRounds; ++round) {
        alignas(32) float a[8], b[8], c[8], got[8];
        for (int i = 0; i < 8; ++i) {
            a[i] = random.uniform();
            b[i] = random.uniform();
            c[i] = i < 4 ? -a[i] * b[i] : random.uniform() * 0x1p-130f; // cancellation; subnormals
            if (i >= 4)
                a[i] *= 0x1p-126f;
        }
        _mm256_store_ps(got, _mm256_fmadd_ps(_mm256_load_ps(a), _mm256_load_ps(b), _mm256_load_ps(c)));
        for (int i = 0; i < 8; ++i) {
            const float want = std::fma(a[i], b[i], c[i]);
            if (std::memcmp(&want, &got[i], 4) != 0)
                return false;
        }
    }
    return true;
}

struct TileConfig {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t column_bytes[16] = {};
    uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

// got += a * b on tiles of M x 4K bytes and K x 4N bytes: signed activations, codes of either kind. The
// configuration is stored as it was loaded.
template <bool kSignedB>
bool check_tiles() {
    Random random;
    for (int round = 0; round < 60; ++round) {
        const int m = 1 + random.below(16), n = 1 + random.below(16), k = 1 + random.below(16);
        alignas(64) int8_t a[16][64];
        alignas(64) uint8_t b[16][64];
        alignas(64) int32_t c[16][16], want[16][16];
        for (int i = 0; i < 16; ++i)
            for (int j = 0; j < 64; ++j) {
                a[i][j] = static_cast<int8_t>(random.next());
                b[i][j] = static_cast<uint8_t>(random.next());
                c[i][j / 4] = want[i][j / 4] = static_cast<int32_t>(random.next() >> 4);
            }
        for (int i = 0; i < m; ++i)
            for (int j = 0; j < n; ++j)
                for (int e = 0; e < 4 * k; ++e)
                    want[i][j] += a[i][e] * (kSignedB ? static_cast<int8_t>(b[e / 4][4 * j + e % 4])
                                                      : b[e / 4][4 * j + e % 4]);
        TileConfig config, stored;
        const int tile_rows[] = {m, m, k}, tile_columns[] = {4 * n, 4 * k, 4 * n};
        for (int t = 0; t < 3; ++t) {
            config.rows[t] = static_cast<uint8_t>(tile_rows[t]);
            config.column_bytes[t] = static_cast<uint16_t>(tile_columns[t]);
        }
        __asm__ volatile(
            "ldtilecfg %1\n\tsttilecfg %0\n\ttileloadd (%2,%5,1), %%tmm0\n\ttileloadd (%3,%5,1), %%tmm1\n\t"
            "tileloadd (%4,%5,1), %%tmm2"
            : "=m"(stored)
            : "m"(config), "r"(c), "r"(a), "r"(b), "r"(64L)
            : "memory");
        if (kSignedB)
            __asm__ volatile("tdpbssd %tmm2, %tmm1, %tmm0");
        else
            __asm__ volatile("tdpbsud %tmm2, %tmm1, %tmm0");
        __asm__ volatile("tilestored %%tmm0, (%0,%1,1)\n\ttilerelease" : : "r"(c), "r"(64L) : "memory");
        if (std::memcmp(c, want, sizeof c) != 0 || std::memcmp(&stored, &config, sizeof config) != 0)
            return false;
    }
    return true;
}

} // namespace

void check_instructions(Report &report) {
    const cpu::CpuRegisters registers = cpu::read_cpu_registers();
    const char *why = "differs from plain arithmetic";
    if (cpu::isa_available(registers, NYBL_ISA_AVX2)) {
        report.check("vpmaddubsw and vpmaddwd", check_madd(), why);
        report.check("vcvtph2ps", check_half(), why);
        report.check("vfmadd231ps", check_fma(), why);
    }
    if (cpu::isa_available(registers, NYBL_ISA_AVX_VNNI))
        report.check("vpdpbusd ymm (VEX)", check_dot(8, dot_vex), why);
    if (cpu::isa_available(registers, NYBL_ISA_AVX512_VNNI))
        report.check("vpdpbusd zmm (EVEX)", check_dot(16, dot_evex), why);
    if (cpu::isa_available(registers, NYBL_ISA_AMX)) {
        report.check("tdpbsud", check_tiles<false>(), why);
        report.check("tdpbssd", check_tiles<true>(), why);
    }
}

} // namespace nybl::emulated
