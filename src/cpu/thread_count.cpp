// Affinity and cgroup quota of this process.
#include "cpu/thread_count.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <sched.h>
#include <string_view>

namespace nybl::cpu {
namespace {

constexpr size_t kPathMax = 1024;
constexpr size_t kTextMax = 8192;

struct Reader {
    ReadText read;
    void *user;
    bool operator()(const char *path, char *text, size_t size) const noexcept {
        return read(user, path, text, size);
    }
};

// The first number of `text`, and what follows it; false for "max", "-1" and anything else that is no count.
bool take_number(std::string_view &text, uint64_t &number) noexcept {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc())
        return false;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    while (!text.empty() && text.front() == ' ')
        text.remove_prefix(1);
    return true;
}

uint32_t whole_cores(uint64_t quota, uint64_t period) noexcept {
    return static_cast<uint32_t>(std::clamp<uint64_t>(quota / period, 1, UINT32_MAX));
}

// The quota that the directory itself sets; 0: none.
uint32_t directory_quota(const Reader &reader, const char *directory, bool v2) noexcept {
    char path[kPathMax + 32];
    char text[64];
    uint64_t quota = 0, period = 0;
    if (v2) {
        std::snprintf(path, sizeof path, "%s/cpu.max", directory);
        if (!reader(path, text, sizeof text))
            return 0;
        std::string_view rest(text);
        return take_number(rest, quota) && take_number(rest, period) && period > 0
                   ? whole_cores(quota, period)
                   : 0;
    }
    std::snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", directory);
    if (!reader(path, text, sizeof text))
        return 0;
    std::string_view rest(text);
    if (!take_number(rest, quota)) // -1: no quota
        return 0;
    std::snprintf(path, sizeof path, "%s/cpu.cfs_period_us", directory);
    if (!reader(path, text, sizeof text))
        return 0;
    rest = text;
    return take_number(rest, period) && period > 0 ? whole_cores(quota, period) : 0;
}

uint32_t tighter(uint32_t a, uint32_t b) noexcept {
    return a == 0 ? b : b == 0 ? a : std::min(a, b);
}

// `group` and all its ancestors below the mount point. Inside a container the group's path may not exist
// under the mount; then the mount point itself is the container's group, and its files hold the quota.
uint32_t hierarchy_quota(const Reader &reader, const char *mount, std::string_view group, bool v2) noexcept {
    uint32_t quota = 0;
    for (;;) {
        while (!group.empty() && group.back() == '/')
            group.remove_suffix(1);
        char directory[kPathMax];
        const int length = std::snprintf(directory, sizeof directory, "%s%.*s", mount,
                                         static_cast<int>(group.size()), group.data());
        if (length > 0 && static_cast<size_t>(length) < sizeof directory)
            quota = tighter(quota, directory_quota(reader, directory, v2));
        if (group.empty())
            return quota;
        group = group.substr(0, group.rfind('/') == group.npos ? 0 : group.rfind('/'));
    }
}

bool names_cpu_controller(std::string_view controllers) noexcept {
    while (!controllers.empty()) {
        const size_t comma = std::min(controllers.find(','), controllers.size());
        if (controllers.substr(0, comma) == "cpu")
            return true;
        controllers.remove_prefix(std::min(comma + 1, controllers.size()));
    }
    return false;
}

bool read_file(void *, const char *path, char *text, size_t size) noexcept {
    std::FILE *file = std::fopen(path, "re");
    if (!file)
        return false;
    const size_t length = std::fread(text, 1, size - 1, file);
    std::fclose(file);
    text[length] = '\0';
    return true;
}

} // namespace

uint32_t quota_cores(ReadText read, void *user) noexcept {
    const Reader reader{read, user};
    char text[kTextMax];
    if (!reader("/proc/self/cgroup", text, sizeof text))
        return 0;
    uint32_t quota = 0;
    // Each line is "id:controllers:/path"; id 0 without controllers is the v2 hierarchy.
    for (std::string_view rest(text); !rest.empty();) {
        const size_t end = std::min(rest.find('\n'), rest.size());
        const std::string_view line = rest.substr(0, end);
        rest.remove_prefix(std::min(end + 1, rest.size()));
        const size_t first = line.find(':');
        const size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
        if (second == line.npos)
            continue;
        const std::string_view controllers = line.substr(first + 1, second - first - 1);
        const std::string_view group = line.substr(second + 1);
        if (controllers.empty()) {
            quota = tighter(quota, hierarchy_quota(reader, "/sys/fs/cgroup", group, true));
            quota = tighter(quota, hierarchy_quota(reader, "/sys/fs/cgroup/unified", group, true));
        } else if (names_cpu_controller(controllers)) {
            quota = tighter(quota, hierarchy_quota(reader, "/sys/fs/cgroup/cpu", group, false));
            quota = tighter(quota, hierarchy_quota(reader, "/sys/fs/cgroup/cpu,cpuacct", group, false));
        }
    }
    return quota;
}

uint32_t affinity_cores() noexcept {
    // The kernel refuses a mask smaller than its own: room for 8192 cores.
    constexpr size_t kSets = 8;
    cpu_set_t sets[kSets];
    if (sched_getaffinity(0, sizeof sets, sets) != 0)
        return 1;
    return static_cast<uint32_t>(std::max(CPU_COUNT_S(sizeof sets, sets), 1));
}

uint32_t default_thread_count() noexcept {
    return std::max(tighter(affinity_cores(), quota_cores(read_file, nullptr)), 1u);
}

} // namespace nybl::cpu
