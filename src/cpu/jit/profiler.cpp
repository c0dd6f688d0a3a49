// perf maps, jitdump records and raw dumps of generated kernels.
#include "cpu/jit/profiler.h"

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#ifdef __linux__
#include <ctime>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/environment.h"
#endif

namespace nybl::cpu::jit {
namespace {

// Raw bytes beside the command that disassembles them.
void dump_code(const char *directory, const char *name, const void *code, size_t bytes) noexcept {
    char path[512];
    std::snprintf(path, sizeof path, "%s/%s.bin", directory, name);
    if (std::FILE *file = std::fopen(path, "wb")) {
        std::fwrite(code, 1, bytes, file);
        std::fclose(file);
    }
    std::snprintf(path, sizeof path, "%s/%s.txt", directory, name);
    if (std::FILE *file = std::fopen(path, "w")) {
        std::fprintf(file,
                     "%s: %zu bytes, the code first, then its constants in units of 64 bytes\n"
                     "objdump -D -b binary -m i386:x86-64 -M intel --adjust-vma=0x%" PRIxPTR " %s.bin\n",
                     name, bytes, reinterpret_cast<uintptr_t>(code), name);
        std::fclose(file);
    }
}

#ifdef __linux__

// Opens a file that others may share a directory with: never through a link, readable by the owner alone.
int open_private(const char *path, int flags) noexcept {
    const int fd = open(path, flags | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    struct stat status;
    if (fd >= 0 && (fstat(fd, &status) != 0 || status.st_uid != geteuid() || !S_ISREG(status.st_mode))) {
        close(fd);
        return -1;
    }
    return fd;
}

// True when all of it went out.
bool write_all(int fd, const void *data, size_t bytes) noexcept {
    return write(fd, data, bytes) == static_cast<ssize_t>(bytes);
}

// Appends, since another generator in the process may use the same file.
void write_perf_map(const char *name, const void *code, size_t bytes) noexcept {
    char path[64];
    std::snprintf(path, sizeof path, "/tmp/perf-%d.map", static_cast<int>(getpid()));
    const int fd = open_private(path, O_WRONLY | O_APPEND);
    if (fd < 0) {
        return;
    }
    char line[160];
    const int length = std::snprintf(line, sizeof line, "%" PRIxPTR " %zx nybl:%s\n",
                                     reinterpret_cast<uintptr_t>(code), bytes, name);
    write_all(fd, line, static_cast<size_t>(length));
    close(fd);
}

// The jitdump format, version 1: a header, then one code-load record per kernel.
struct JitdumpHeader {
    uint32_t magic = 0x4A695444; // "JiTD", in the byte order of the machine
    uint32_t version = 1;
    uint32_t header_bytes = sizeof(JitdumpHeader);
    uint32_t elf_machine = 62; // x86-64
    uint32_t pad = 0;
    uint32_t pid = 0;
    uint64_t timestamp = 0;
    uint64_t flags = 0;
};
static_assert(sizeof(JitdumpHeader) == 40);

struct JitdumpCodeLoad {
    uint32_t id = 0; // JIT_CODE_LOAD
    uint32_t record_bytes = 0;
    uint64_t timestamp = 0;
    uint32_t pid = 0;
    uint32_t tid = 0;
    uint64_t address = 0;
    uint64_t code_address = 0;
    uint64_t code_bytes = 0;
    uint64_t index = 0;
};
static_assert(sizeof(JitdumpCodeLoad) == 56);

uint64_t monotonic_ns() noexcept {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

struct Jitdump {
    int fd = -1;
    uint32_t pid = 0; // a forked child starts a file of its own
    uint64_t kernels = 0;
};

bool open_jitdump(Jitdump &dump, uint32_t pid) noexcept {
    if (dump.pid == pid) {
        return dump.fd >= 0;
    }
    const char *directory = environment("JITDUMPDIR");
    char path[512];
    std::snprintf(path, sizeof path, "%s/jit-%u.dump", directory != nullptr ? directory : "/tmp", pid);
    dump = {open_private(path, O_RDWR | O_TRUNC), pid, 0};
    if (dump.fd < 0) {
        return false;
    }
    JitdumpHeader header;
    header.pid = pid;
    header.timestamp = monotonic_ns();
    if (!write_all(dump.fd, &header, sizeof header)) {
        return false;
    }
    // perf record notes executable mappings: this one tells it where the dump lies. It stays for good.
    [[maybe_unused]] const void *mark = mmap(nullptr, static_cast<size_t>(sysconf(_SC_PAGESIZE)),
                                             PROT_READ | PROT_EXEC, MAP_PRIVATE, dump.fd, 0);
    return true;
}

void write_jitdump(const char *name, const void *code, size_t bytes) noexcept {
    static Jitdump dump;
    const uint32_t pid = static_cast<uint32_t>(getpid());
    if (!open_jitdump(dump, pid)) {
        return;
    }
    char symbol[128];
    const size_t symbol_bytes =
        static_cast<size_t>(std::snprintf(symbol, sizeof symbol, "nybl:%s", name)) + 1; // with its NUL
    JitdumpCodeLoad record;
    record.record_bytes = static_cast<uint32_t>(sizeof record + symbol_bytes + bytes);
    record.timestamp = monotonic_ns();
    record.pid = pid;
    record.tid = static_cast<uint32_t>(syscall(SYS_gettid));
    record.address = record.code_address = reinterpret_cast<uintptr_t>(code);
    record.code_bytes = bytes;
    record.index = dump.kernels++;
    if (write_all(dump.fd, &record, sizeof record) && write_all(dump.fd, symbol, symbol_bytes)) {
        write_all(dump.fd, code, bytes);
    }
}

#endif

} // namespace

void announce_kernel(const char *name, const void *code, size_t bytes) noexcept {
    // Read here and not once: this runs once per kernel, and a host may set the variables after loading us.
    if (const char *directory = environment("NYBL_JIT_DUMP"); directory != nullptr && *directory != '\0') {
        dump_code(directory, name, code, bytes);
    }
#ifdef __linux__
    if (const char *perf = environment("NYBL_PERF")) {
        if (std::strcmp(perf, "map") == 0) {
            write_perf_map(name, code, bytes);
        } else if (std::strcmp(perf, "jitdump") == 0) {
            write_jitdump(name, code, bytes);
        }
    }
#endif
}

} // namespace nybl::cpu::jit
