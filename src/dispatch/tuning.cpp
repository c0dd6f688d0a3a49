// The built-in table, and the parser of files that override it.
#include "dispatch/tuning.h"

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/environment.h"
#include "cpu/isa.h"
#include "cpu/jit/tile_kernel.h"

namespace nybl::dispatch {

// One line per set, measured by `./dev tune`: stream_max_m, stream_tokens, tiled_tokens, tiled_panels.
constexpr Tuning kBuiltInTuning = {{
    {NYBL_ISA_AVX2, NYBL_ISA_AVX2, 28, 16, 4, 1},
    {NYBL_ISA_AVX_VNNI, NYBL_ISA_AVX_VNNI, 48, 16, 6, 1},
    {NYBL_ISA_AVX512_VNNI, NYBL_ISA_AVX512_VNNI, 36, 16, 8, 3},
    {NYBL_ISA_AMX, NYBL_ISA_AVX512_VNNI, 48, 16, 16, 1},
}};

constexpr SettingKey kSettingKeys[kSettingKeyCount] = {
    {"stream_max_m", &KernelSet::stream_max_m, 1, 128},
    {"stream_tokens", &KernelSet::stream_tokens, 1, cpu::jit::kMaxTokens},
    {"tiled_tokens", &KernelSet::tiled_tokens, 1, cpu::jit::kMaxTokens},
    {"tiled_panels", &KernelSet::tiled_panels, 1, 4},
};

uint32_t most_allowed(const SettingKey &key, nybl_isa isa) noexcept {
    return isa == NYBL_ISA_AMX && key.member == &KernelSet::tiled_panels ? 1 : key.most;
}

const KernelSet *Tuning::find(nybl_isa isa) const noexcept {
    const KernelSet *best = nullptr;
    for (const KernelSet &set : sets)
        if (set.isa <= isa)
            best = &set;
    return best;
}

namespace {

// What a file says may be anything: only plain text of it, and little, is repeated.
struct Quoted {
    char text[64];

    explicit Quoted(std::string_view from) noexcept {
        size_t length = 0;
        for (; length < from.size() && length < sizeof text - 1; ++length)
            text[length] = from[length] >= ' ' && from[length] <= '~' ? from[length] : '?';
        text[length] = '\0';
    }
};

class Parser {
  public:
    explicit Parser(std::string_view cpu) noexcept : cpu_(cpu) {}

    Tuning parse(std::string_view text) noexcept {
        if (text.size() > kMaxTuningFileBytes) {
            std::snprintf(reason_, sizeof reason_, "it is longer than %zu bytes", kMaxTuningFileBytes);
            return refused();
        }
        bool right = true;
        for (line_ = 1; right && !text.empty(); ++line_) {
            const size_t end = text.find('\n');
            right = parse_line(text.substr(0, end));
            text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
        }
        if (!right)
            return refused();
        if (!seen_cpu_) {
            std::snprintf(reason_, sizeof reason_, "it has no line with the CPU's name");
            return refused();
        }
        return tuning_;
    }

  private:
    bool parse_line(std::string_view line) noexcept {
        if (line_ == 1) // no comment comes before the version
            return line == kTuningVersionLine || wrong("no \"nybl-tuning 1\" but \"%s\"", Quoted(line).text);
        if (line.empty() || line.front() == '#')
            return true;
        const size_t space = line.find(' ');
        if (space == std::string_view::npos)
            return wrong("\"%s\" is no key and value", Quoted(line).text);
        const std::string_view key = line.substr(0, space), value = line.substr(space + 1);
        return key == "cpu" ? parse_cpu(value) : parse_setting(key, value);
    }

    bool parse_cpu(std::string_view name) noexcept {
        if (seen_cpu_)
            return wrong("a second CPU");
        seen_cpu_ = true;
        return name == cpu_ || wrong("made for the CPU \"%s\"", Quoted(name).text);
    }

    bool parse_setting(std::string_view key, std::string_view value) noexcept {
        for (KernelSet &set : tuning_.sets)
            for (const SettingKey &known : kSettingKeys) {
                char name[48];
                std::snprintf(name, sizeof name, "%s.%s", cpu::isa_name(set.isa), known.name);
                if (key == name)
                    return parse_number(name, value, known.least, most_allowed(known, set.isa),
                                        &(set.*known.member));
            }
        return wrong("unknown key \"%s\"", Quoted(key).text);
    }

    bool parse_number(const char *name, std::string_view value, uint32_t least, uint32_t most,
                      Setting *setting) noexcept {
        uint32_t number = 0;
        const char *end = value.data() + value.size();
        const auto [stop, error] = std::from_chars(value.data(), end, number);
        if (error != std::errc() || stop != end || number < least || number > most)
            return wrong("%s %s: not in %u .. %u", name, Quoted(value).text, least, most);
        if (setting->from_file)
            return wrong("%s a second time", name);
        *setting = number;
        setting->from_file = true;
        ++tuning_.from_file;
        return true;
    }

    template <class... Values>
    bool wrong(const char *format, Values... values) noexcept {
        const int length = std::snprintf(reason_, sizeof reason_, "line %zu: ", line_);
        if constexpr (sizeof...(values) == 0)
            std::snprintf(reason_ + length, sizeof reason_ - size_t(length), "%s", format);
        else
            std::snprintf(reason_ + length, sizeof reason_ - size_t(length), format, values...);
        return false;
    }

    Tuning refused() const noexcept {
        Tuning table = kBuiltInTuning;
        std::memcpy(table.refusal, reason_, sizeof table.refusal);
        return table;
    }

    const std::string_view cpu_;
    Tuning tuning_ = kBuiltInTuning;
    bool seen_cpu_ = false;
    size_t line_ = 1;
    char reason_[sizeof Tuning::refusal] = "";
};

Tuning unreadable(const char *why) noexcept {
    Tuning table = kBuiltInTuning;
    std::snprintf(table.refusal, sizeof table.refusal, "%s", why);
    return table;
}

// Bytes of a regular file, at most `most`; -1 where it cannot be read. No stream, which would allocate.
ssize_t read_file(const char *path, char *bytes, size_t most) noexcept {
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); // a pipe must not stop us
    if (file < 0)
        return -1;
    struct stat about {};
    ssize_t size = fstat(file, &about) == 0 && S_ISREG(about.st_mode) ? 0 : -1;
    for (ssize_t got = 1; size >= 0 && got != 0 && size_t(size) < most;) {
        got = read(file, bytes + size, most - size_t(size));
        if (got < 0 && errno != EINTR)
            size = -1;
        else if (got > 0)
            size += got;
    }
    close(file);
    return size;
}

} // namespace

Tuning parse_tuning(std::string_view text, std::string_view cpu) noexcept {
    return Parser(cpu).parse(text);
}

Tuning read_tuning(const char *path, std::string_view cpu) noexcept {
    char text[kMaxTuningFileBytes + 1]; // one more: a longer file shows
    const int kept = errno;
    const ssize_t size = read_file(path, text, sizeof text);
    errno = kept;
    return size < 0 ? unreadable("it cannot be read") : parse_tuning({text, size_t(size)}, cpu);
}

const Tuning &host_tuning() noexcept {
    static const Tuning tuning = [] {
        const char *path = environment("NYBL_TUNING");
        return path && *path ? read_tuning(path, cpu::cpu_model().text) : kBuiltInTuning;
    }();
    return tuning;
}

} // namespace nybl::dispatch
