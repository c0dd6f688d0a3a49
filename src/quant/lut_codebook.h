// The codebook of IQ4_NL for the search: the nearest of sixteen uneven values.
#pragma once

#include "quant/iq4_nl_table.h"
#include "quant/lanes.h"

namespace nybl::quant {
namespace {

constexpr float lut_middle(size_t i) {
    return 0.5f * static_cast<float>(kIq4NlTable[i] + kIq4NlTable[i + 1]);
}

struct LutCodebook {
    static constexpr float kFirst = kIq4NlTable[0], kLast = kIq4NlTable[15];
    static constexpr float kLeast = 0.85f, kMost = 1.2f; // as for other codebooks of sixteen
    static constexpr bool kFine = false;

    [[gnu::always_inline]] static Lanes nearest(Lanes v) noexcept {
        const Place place = find(v);
        // The upper value of a pair is the lower one plus a difference.
        const Lanes more = from_bits(bits_of(look_up(kTables.difference, place.pair)) &
                                     reinterpret_cast<BitLanes>(place.upper));
        return look_up(kTables.lower, place.pair) + more;
    }
    [[gnu::always_inline]] static IntLanes codes(Lanes v) noexcept {
        const Place place = find(v);
        return 2 * place.pair - place.upper;
    }

  private:
    // Midpoints between neighbours, in the order in which a binary search asks for them, and the values in
    // pairs.
    struct Tables {
        float second[8], third[8], fourth[8], lower[8], difference[8];
    };
    static constexpr Tables kTables = [] {
        Tables t{};
        for (size_t i = 0; i < 2; ++i)
            t.second[i] = lut_middle(8 * i + 3);
        for (size_t i = 0; i < 4; ++i)
            t.third[i] = lut_middle(4 * i + 1);
        for (size_t i = 0; i < 8; ++i) {
            t.fourth[i] = lut_middle(2 * i);
            t.lower[i] = kIq4NlTable[2 * i];
            t.difference[i] = static_cast<float>(kIq4NlTable[2 * i + 1] - kIq4NlTable[2 * i]);
        }
        return t;
    }();

    // Code 2 * pair, plus one where `upper` is -1.
    struct Place {
        IntLanes pair, upper;
    };
    [[gnu::always_inline]] static Place find(Lanes v) noexcept {
        IntLanes at = -(v >= splat(lut_middle(7)));
        at = 2 * at - (v >= look_up(kTables.second, at));
        at = 2 * at - (v >= look_up(kTables.third, at));
        return {at, v >= look_up(kTables.fourth, at)};
    }
};

} // namespace
} // namespace nybl::quant
