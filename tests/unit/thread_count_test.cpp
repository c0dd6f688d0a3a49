// The cgroup quota as a pure function of file texts.
#include "cpu/thread_count.h"

#include <catch2/catch_test_macros.hpp>

#include <cstring>
#include <map>
#include <sched.h>
#include <string>

namespace {

using Files = std::map<std::string, std::string>;

uint32_t cores(const Files &files) {
    return nybl::cpu::quota_cores(
        [](void *user, const char *path, char *text, size_t size) {
            const auto &known = *static_cast<const Files *>(user);
            const auto found = known.find(path);
            if (found == known.end())
                return false;
            std::strncpy(text, found->second.c_str(), size - 1);
            text[size - 1] = '\0';
            return true;
        },
        const_cast<Files *>(&files));
}

} // namespace

TEST_CASE("C22: the cgroup v2 quota counts whole cores, the tightest of a group and its ancestors") {
    const std::string here = "/sys/fs/cgroup/user.slice/app/cpu.max";
    const Files base{{"/proc/self/cgroup", "0::/user.slice/app\n"}};
    const auto with = [&](Files more) {
        more.insert(base.begin(), base.end());
        return cores(more);
    };
    CHECK(with({}) == 0);
    CHECK(with({{here, "max 100000\n"}}) == 0);
    CHECK(with({{here, "190000 100000\n"}}) == 1);
    CHECK(with({{here, "50000 100000\n"}}) == 1);
    CHECK(with({{here, "400000 100000\n"}}) == 4);
    CHECK(with({{here, "800000 100000\n"}, {"/sys/fs/cgroup/user.slice/cpu.max", "300000 100000\n"}}) == 3);
    CHECK(with({{here, "max 100000\n"}, {"/sys/fs/cgroup/cpu.max", "250000 100000\n"}}) == 2);
    CHECK(with({{here, ""}}) == 0);
    CHECK(with({{here, "garbage"}}) == 0);
    CHECK(with({{here, "100000 0\n"}}) == 0);
    CHECK(with({{here, "99999999999999999999999 100000\n"}}) == 0);
    CHECK(cores({}) == 0);
    CHECK(cores({{"/proc/self/cgroup", "nonsense\n:\n\n"}}) == 0);
    // In a container the mount point itself is the group.
    CHECK(cores({{"/proc/self/cgroup", "0::/\n"}, {"/sys/fs/cgroup/cpu.max", "200000 100000\n"}}) == 2);
}

TEST_CASE("C22: the cgroup v1 quota, under either name of its mount, and mixed with v2") {
    const std::string v1 = "12:pids:/x\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/\n";
    const auto directory = [](const char *mount, const char *quota, const char *period) {
        return Files{{std::string(mount) + "/docker/abc/cpu.cfs_quota_us", quota},
                     {std::string(mount) + "/docker/abc/cpu.cfs_period_us", period}};
    };
    for (const char *mount : {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"}) {
        Files files = directory(mount, "190000\n", "100000\n");
        files["/proc/self/cgroup"] = v1;
        CHECK(cores(files) == 1);
        files = directory(mount, "-1\n", "100000\n");
        files["/proc/self/cgroup"] = v1;
        CHECK(cores(files) == 0);
        files = directory(mount, "600000\n", "200000\n");
        files["/proc/self/cgroup"] = v1 + "0::/other\n";
        CHECK(cores(files) == 3);
        files["/sys/fs/cgroup/unified/other/cpu.max"] = "200000 100000\n";
        CHECK(cores(files) == 2);
    }
    // cpuset is another controller.
    Files files = directory("/sys/fs/cgroup/cpu", "100000\n", "100000\n");
    files["/proc/self/cgroup"] = "3:cpuset:/docker/abc\n";
    CHECK(cores(files) == 0);
}

TEST_CASE("the default thread count obeys the affinity mask") {
    cpu_set_t all, one;
    REQUIRE(sched_getaffinity(0, sizeof all, &all) == 0);
    CHECK(nybl::cpu::affinity_cores() == uint32_t(CPU_COUNT(&all)));
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
        if (CPU_ISSET(cpu, &all))
            CPU_SET(cpu, &one);
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
    const uint32_t count = nybl::cpu::default_thread_count();
    REQUIRE(sched_setaffinity(0, sizeof all, &all) == 0);
    CHECK(count == 1);
}
