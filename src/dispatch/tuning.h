// How each instruction set is used: the thresholds and tile shapes that `./dev tune` measures. A table is
// built in; a file that the environment variable NYBL_TUNING names may override its numbers (docs/tuning.md).
// Speed depends on them, results do not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nybl/nybl.h>
#include <string_view>

namespace nybl::dispatch {

// One number, and where it comes from.
struct Setting {
    uint32_t value = 0;
    bool from_file = false;

    constexpr Setting(uint32_t number) noexcept : value(number) {}
    constexpr operator uint32_t() const noexcept { return value; }
    const char *source() const noexcept { return from_file ? "file" : "table"; }
};

struct KernelSet {
    nybl_isa isa;
    nybl_isa stream_isa;   // whose kernels read packed panels: AMX has none of its own
    Setting stream_max_m;  // above this many tokens, unpacking a panel once for all of them pays
    Setting stream_tokens; // tokens per tile, at most
    Setting tiled_tokens;
    Setting tiled_panels;
};

constexpr size_t kKernelSetCount = 4;

struct Tuning {
    KernelSet sets[kKernelSetCount]; // best last
    uint32_t from_file = 0;          // settings that a file gave
    char refusal[128] = "";          // why a file is ignored: "line 3: ..."; "" where it is not

    // The best one that an instruction set allows; NULL: scalar.
    const KernelSet *find(nybl_isa isa) const noexcept;
};

extern const Tuning kBuiltInTuning;

// The settings by their names in files, and what kernels accept.
struct SettingKey {
    const char *name;
    Setting KernelSet::*member;
    uint32_t least, most;
};
constexpr size_t kSettingKeyCount = 4;
extern const SettingKey kSettingKeys[kSettingKeyCount];
// The range's end for this instruction set: AMX has one kernel, over one panel.
uint32_t most_allowed(const SettingKey &key, nybl_isa isa) noexcept;

// First line of a file, and the length beyond which one is not read.
constexpr std::string_view kTuningVersionLine = "nybl-tuning 1";
constexpr size_t kMaxTuningFileBytes = 4096;

// The table with the numbers of a file's text, if all of it is right and it was made for this CPU; else the
// table alone, with the reason.
Tuning parse_tuning(std::string_view text, std::string_view cpu) noexcept;
// The same from a file, which may be missing.
Tuning read_tuning(const char *path, std::string_view cpu) noexcept;

// What this process uses: read once, from the file that NYBL_TUNING names, if it names one.
const Tuning &host_tuning() noexcept;

} // namespace nybl::dispatch
