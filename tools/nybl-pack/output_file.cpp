// Temporary file, fsync, rename, fsync of the folder: after a crash at any point the old file or the new one
// is there, never a part.
#include "output_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <stdexcept>
#include <sys/stat.h>
#include <unistd.h>

namespace nybl::pack {

OutputFile::OutputFile(std::string path, Temporary temporary)
    : path_(std::move(path)), temporary_(path_ + "." + std::to_string(getpid()) + ".tmp") {
    // A rename takes the place of whatever is there: of a device, too, where the user is root.
    struct stat there {};
    if (stat(path_.c_str(), &there) == 0 && !S_ISREG(there.st_mode))
        throw std::runtime_error(path_ + ": is there, and no regular file");
    const size_t slash = path_.rfind('/');
    folder_ = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
#ifdef O_TMPFILE
    if (temporary == Temporary::kUnnamed)
        file_ = open(folder_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
#endif
    if (file_ < 0) {
        file_ = open(temporary_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
        named_ = file_ >= 0;
    }
    if (file_ < 0)
        fail("cannot be created");
}

OutputFile::~OutputFile() {
    if (file_ >= 0)
        close(file_);
    if (named_)
        unlink(temporary_.c_str());
}

void OutputFile::append(const void *bytes, size_t count) {
    write_at(size_, bytes, count);
    size_ += count;
}

void OutputFile::pad_to(size_t alignment) {
    constexpr char kZeros[64] = {};
    while (size_ % alignment != 0)
        append(kZeros, std::min(sizeof kZeros, alignment - size_ % alignment));
}

void OutputFile::overwrite(uint64_t offset, const void *bytes, size_t count) {
    write_at(offset, bytes, count);
}

void OutputFile::commit() {
    if (fsync(file_) != 0)
        fail("cannot be written to the disk");
    if (!named_) {
        const std::string self = "/proc/self/fd/" + std::to_string(file_);
        if (linkat(AT_FDCWD, self.c_str(), AT_FDCWD, temporary_.c_str(), AT_SYMLINK_FOLLOW) != 0)
            fail("cannot be given its name");
        named_ = true;
    }
    if (std::rename(temporary_.c_str(), path_.c_str()) != 0)
        fail("cannot be put in place");
    named_ = false;
    if (const int folder = open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); folder >= 0) {
        fsync(folder);
        close(folder);
    }
}

void OutputFile::write_at(uint64_t offset, const void *bytes, size_t count) {
    const auto *at = static_cast<const uint8_t *>(bytes);
    while (count > 0) {
        const ssize_t written = pwrite(file_, at, count, static_cast<off_t>(offset));
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            fail("cannot be written");
        at += written;
        offset += static_cast<uint64_t>(written);
        count -= static_cast<size_t>(written);
    }
}

void OutputFile::fail(const char *what) const {
    throw std::runtime_error(path_ + ": " + what + ": " + std::strerror(errno));
}

} // namespace nybl::pack
