// A file that appears under its name only when it is complete and on the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace nybl::pack {

// Functions throw std::runtime_error with the path and the reason. Where the file system can (O_TMPFILE) the
// unfinished file has no name at all, so that nothing is left behind by a run that is killed.
class OutputFile {
  public:
    enum class Temporary { kUnnamed, kNamed };
    explicit OutputFile(std::string path, Temporary temporary = Temporary::kUnnamed);
    ~OutputFile(); // an uncommitted file goes
    OutputFile(const OutputFile &) = delete;
    OutputFile &operator=(const OutputFile &) = delete;

    uint64_t size() const noexcept { return size_; }
    void append(const void *bytes, size_t count);
    void pad_to(size_t alignment);
    void overwrite(uint64_t offset, const void *bytes, size_t count);
    void commit();

  private:
    void write_at(uint64_t offset, const void *bytes, size_t count);
    [[noreturn]] void fail(const char *what) const;

    std::string path_, temporary_, folder_;
    bool named_ = false;
    int file_ = -1;
    uint64_t size_ = 0;
};

} // namespace nybl::pack
