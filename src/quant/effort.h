// How hard the encoders search, by level. The numbers were found by trying: error against time.
#pragma once

#include <nybl/nybl.h>

namespace nybl::quant {
namespace {

struct Effort {
    int candidates; // starts of a search
    int turns;      // of rounding to codes and refitting, from each start
    int rounds;     // of refining the best
};

// Below this share of the energy of the elements, differences of errors are rounding: the earlier candidate
// stays, so that groups alike get fits alike.
constexpr float kNoise = 4e-7f;

// BEST keeps what DEFAULT finds where that is better: more starts need not end in a better place.
struct Efforts {
    Effort fast, standard, best;

    constexpr Effort at(nybl_level level) const noexcept {
        return level == NYBL_LEVEL_DEFAULT || level == NYBL_LEVEL_BEST ? standard : fast;
    }
};
constexpr Efforts kScaleEfforts{{7, 1, 1}, {13, 1, 2}, {41, 1, 4}};
constexpr Efforts kAffineEfforts{{5, 1, 2}, {11, 2, 2}, {31, 4, 4}};
constexpr Efforts kKEfforts{{5, 1, 1}, {7, 2, 2}, {31, 4, 6}};
constexpr Efforts kQ6Efforts{{7, 1, 1}, {11, 1, 2}, {41, 1, 6}};

} // namespace
} // namespace nybl::quant
