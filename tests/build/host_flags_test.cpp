// The library's own flags win over the host's: codecs configured with -Ofast still give the bytes of the
// plain build.
#include "quant/block_kernels.h"
#include "quant/format.h"

#include <catch2/catch_test_macros.hpp>

#include <cstdint>

// A block maximum m and a value x so near to the boundary of two codes that a fused multiply-add gives 12.
TEST_CASE("C4: host flags: a Q4_0 tie is rounded as without fusing") {
    float weights[32] = {0x1.b1a448p+0f, -0x1.e7d8cep-1f};
    uint8_t block[18] = {};
    const nybl::quant::Format *format = nybl::quant::find_format(NYBL_Q4_0);
    REQUIRE(format != nullptr);
    format->quantize(nybl::quant::block_kernels(NYBL_ISA_SCALAR), NYBL_LEVEL_PLAIN, weights, nullptr, block,
                     1);
    CHECK((block[2] & 15) == 0);
    CHECK((block[3] & 15) == 13);
}
