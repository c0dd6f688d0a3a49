// XXH64 as its specification describes it: four lanes of 8 bytes, merged, then the tail and a final mix.
#include "checksum.h"

#include <bit>
#include <cstring>

namespace nybl {
namespace {

constexpr uint64_t kPrime1 = 0x9e3779b185ebca87, kPrime2 = 0xc2b2ae3d27d4eb4f, kPrime3 = 0x165667b19e3779f9,
                   kPrime4 = 0x85ebca77c2b2ae63, kPrime5 = 0x27d4eb2f165667c5;
constexpr size_t kLanes = 4, kStripe = kLanes * sizeof(uint64_t);

template <class T>
T load(const uint8_t *from) noexcept {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

constexpr uint64_t mix_in(uint64_t lane, uint64_t word) noexcept {
    return std::rotl(lane + word * kPrime2, 31) * kPrime1;
}

uint64_t merge_stripes(const uint8_t *&at, const uint8_t *end) noexcept {
    uint64_t lanes[kLanes] = {kPrime1 + kPrime2, kPrime2, 0, 0 - kPrime1};
    for (; end - at >= static_cast<ptrdiff_t>(kStripe); at += kStripe)
        for (size_t i = 0; i < kLanes; ++i)
            lanes[i] = mix_in(lanes[i], load<uint64_t>(at + i * sizeof(uint64_t)));
    uint64_t hash =
        std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) + std::rotl(lanes[3], 18);
    for (const uint64_t lane : lanes)
        hash = (hash ^ mix_in(0, lane)) * kPrime1 + kPrime4;
    return hash;
}

} // namespace

uint64_t checksum(const void *bytes, size_t size) noexcept {
    if (size == 0)
        bytes = "";
    const auto *at = static_cast<const uint8_t *>(bytes);
    const uint8_t *end = at + size;
    uint64_t hash = size >= kStripe ? merge_stripes(at, end) : kPrime5;
    hash += size;
    for (; end - at >= 8; at += 8)
        hash = std::rotl(hash ^ mix_in(0, load<uint64_t>(at)), 27) * kPrime1 + kPrime4;
    if (end - at >= 4) {
        hash = std::rotl(hash ^ load<uint32_t>(at) * kPrime1, 23) * kPrime2 + kPrime3;
        at += 4;
    }
    for (; at != end; ++at)
        hash = std::rotl(hash ^ *at * kPrime5, 11) * kPrime1;
    hash = (hash ^ hash >> 33) * kPrime2;
    hash = (hash ^ hash >> 29) * kPrime3;
    return hash ^ hash >> 32;
}

} // namespace nybl
