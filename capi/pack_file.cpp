// Files of packed weights: mapped, checked as the untrusted bytes they are, and handed out as weights in
// place.
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "base/checksum.h"
#include "base/pack_format.h"
#include "checks.h"
#include "weights.h"

using namespace nybl;
using namespace nybl::capi;

struct nybl_pack {
    nybl_context *ctx; // held
    const uint8_t *bytes;
    size_t size;
    pack::Header header;
    std::atomic<uint32_t> holders; // the host, and every weights handle made from it

    const uint8_t *names() const noexcept {
        return bytes + header.table.offset + header.count * sizeof(pack::Record);
    }
    size_t names_bytes() const noexcept { return header.table.bytes - header.count * sizeof(pack::Record); }
    pack::Record record(uint64_t index) const noexcept {
        pack::Record out;
        std::memcpy(&out, bytes + header.table.offset + index * sizeof out, sizeof out);
        return out;
    }
    const char *name(const pack::Record &record) const noexcept {
        return reinterpret_cast<const char *>(names() + record.name_offset);
    }
};

namespace {

// What the system says of an error.
struct Why {
    char bytes[80] = "";
    const char *text;
    explicit Why(int error) noexcept : text(strerror_r(error, bytes, sizeof bytes)) {}
};

// A mapping that goes unless a handle takes it.
class Mapping {
  public:
    ~Mapping() {
        if (size_ != 0)
            munmap(data_, size_);
    }
    Mapping() = default;
    Mapping(const Mapping &) = delete;
    Mapping &operator=(const Mapping &) = delete;

    nybl_status map(const char *path) noexcept {
        const int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0)
            return fail(NYBL_INVALID_ARGUMENT, "%s: cannot be opened: %s", path, Why(errno).text);
        const nybl_status status = map(path, file);
        close(file);
        return status;
    }
    const uint8_t *bytes() const noexcept { return static_cast<const uint8_t *>(data_); }
    size_t size() const noexcept { return size_; }
    pack::Header header() const noexcept {
        pack::Header header{};
        if (data_)
            std::memcpy(&header, data_, sizeof header);
        return header;
    }
    void hand_over() noexcept { size_ = 0; }

  private:
    nybl_status map(const char *path, int file) noexcept {
        struct stat status {};
        if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode))
            return fail(NYBL_INVALID_ARGUMENT, "%s: not a regular file", path);
        if (status.st_size < static_cast<off_t>(sizeof(pack::Header)))
            return fail(NYBL_INVALID_DATA, "%s: %lld bytes are no file of packed weights", path,
                        static_cast<long long>(status.st_size));
        const auto size = static_cast<size_t>(status.st_size);
        void *data = mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
        if (data == MAP_FAILED)
            return fail(errno == ENOMEM ? NYBL_OUT_OF_MEMORY : NYBL_INVALID_ARGUMENT,
                        "%s: cannot be mapped: %s", path, Why(errno).text);
        data_ = data;
        size_ = size;
        return NYBL_OK;
    }

    void *data_ = nullptr;
    size_t size_ = 0;
};

nybl_status check_section(const nybl_pack &pack, const pack::Section &section, const char *what) noexcept {
    const Checked end = Checked(section.offset) + section.bytes;
    if (!end.valid() || section.offset < sizeof(pack::Header) || end.value() > pack.size)
        return fail(NYBL_INVALID_DATA,
                    "%s: bytes %" PRIu64 " to +%" PRIu64 " are not inside the file's %zu bytes", what,
                    section.offset, section.bytes, pack.size);
    return NYBL_OK;
}

nybl_status check_sum(const nybl_pack &pack, const pack::Section &section, const char *what) noexcept {
    if (checksum(pack.bytes + section.offset, section.bytes) == section.checksum)
        return NYBL_OK;
    return fail(NYBL_INVALID_DATA, "%s: the checksum differs: the file is damaged", what);
}

nybl_status check_header(const nybl_pack &pack) noexcept {
    const pack::Header &header = pack.header;
    if (std::memcmp(header.magic, pack::kMagic, sizeof header.magic) != 0)
        return fail(NYBL_INVALID_DATA, "not a file of packed weights: it does not start with \"NYBLPACK\"");
    if (header.version != pack::kVersion || header.header_bytes != sizeof header)
        return fail(NYBL_UNSUPPORTED,
                    "version %u of the file format, where this library reads %u: pack the model again",
                    header.version, pack::kVersion);
    if (checksum(pack.bytes, offsetof(pack::Header, checksum)) != header.checksum)
        return fail(NYBL_INVALID_DATA, "header: the checksum differs: the file is damaged");
    if (header.file_bytes != pack.size)
        return fail(NYBL_INVALID_DATA, "the file has %zu bytes and was written with %" PRIu64 ": %s",
                    pack.size, header.file_bytes,
                    pack.size < header.file_bytes ? "it is cut short" : "it has grown");
    for (const auto &[section, what] :
         {std::pair(header.metadata, "metadata"), std::pair(header.table, "table of tensors")}) {
        if (const nybl_status status = check_section(pack, section, what); status != NYBL_OK)
            return status;
        if (const nybl_status status = check_sum(pack, section, what); status != NYBL_OK)
            return status;
    }
    if (header.count > header.table.bytes / sizeof(pack::Record))
        return fail(NYBL_INVALID_DATA,
                    "table of tensors: %" PRIu64 " tensors do not fit in %" PRIu64 " bytes", header.count,
                    header.table.bytes);
    return NYBL_OK;
}

nybl_weights_desc describe(const nybl_pack &pack, const pack::Record &record) noexcept {
    nybl_weights_desc desc{};
    desc.struct_size = sizeof desc;
    desc.format = static_cast<nybl_format>(record.format);
    desc.n = record.n;
    desc.k = record.k;
    desc.n_experts = record.n_experts;
    desc.storage = record.layout_id != 0 ? NYBL_STORAGE_PACKED : NYBL_STORAGE_ORIGINAL;
    if (desc.storage == NYBL_STORAGE_ORIGINAL) {
        desc.data = pack.bytes + record.data.offset;
        desc.data_size = record.data.bytes;
    }
    return desc;
}

nybl_status fail_size(const pack::Record &record, const char *name, size_t expected) noexcept {
    return fail(NYBL_INVALID_DATA, "tensor '%.80s': %" PRIu64 " bytes, where its shape needs %zu", name,
                record.data.bytes, expected);
}

nybl_status check_packed(const nybl_pack &pack, const pack::Record &record, const char *name) noexcept {
    const nybl_weights_desc desc = describe(pack, record);
    WeightsShape shape;
    if (const nybl_status status = check_weights_desc(&desc, LastBlock::Whole, &shape); status != NYBL_OK)
        return status;
    if (record.layout_id != packed_layout_id(desc.format))
        return fail(NYBL_UNSUPPORTED,
                    "tensor '%.80s': layout %#" PRIx64 " is not this version's %#" PRIx64
                    ": pack the model again",
                    name, record.layout_id, packed_layout_id(desc.format));
    return record.data.bytes == shape.packed_bytes ? NYBL_OK : fail_size(record, name, shape.packed_bytes);
}

// Formats that this build does not know are bytes to it.
nybl_status check_original(const pack::Record &record, const char *name) noexcept {
    size_t row = 0;
    const nybl_status known = nybl_row_bytes(static_cast<nybl_format>(record.format), record.k, &row);
    if (known != NYBL_OK)
        return NYBL_OK;
    const Checked size = Checked(record.n) * record.n_experts * row;
    if (const nybl_status status = check_size(size, name); status != NYBL_OK)
        return status;
    return record.data.bytes == size.value() ? NYBL_OK : fail_size(record, name, size.value());
}

nybl_status check_record(const nybl_pack &pack, uint64_t index) noexcept {
    const pack::Record record = pack.record(index);
    const size_t limit = pack.names_bytes();
    if (record.name_offset >= limit ||
        !std::memchr(pack.names() + record.name_offset, 0, limit - record.name_offset))
        return fail(NYBL_INVALID_DATA, "tensor %" PRIu64 ": its name is not inside the table", index);
    const char *name = pack.name(record);
    if (index > 0 && std::strcmp(pack.name(pack.record(index - 1)), name) >= 0)
        return fail(NYBL_INVALID_DATA, "tensor %" PRIu64 ": names are not in ascending order", index);
    if (const nybl_status status = check_section(pack, record.data, "tensor data"); status != NYBL_OK)
        return status;
    if (record.data.offset % pack::kDataAlign != 0 || record.n_experts == 0)
        return fail(NYBL_INVALID_DATA, "tensor '%.80s': data not aligned to %zu bytes, or no matrix", name,
                    pack::kDataAlign);
    return record.layout_id != 0 ? check_packed(pack, record, name) : check_original(record, name);
}

nybl_status verify_data(const nybl_pack &pack, const nybl_pack_options &options) noexcept {
    uint64_t total = 0, done = 0;
    for (uint64_t i = 0; i < pack.header.count; ++i)
        total += pack.record(i).data.bytes;
    for (uint64_t i = 0; i < pack.header.count; ++i) {
        const pack::Record record = pack.record(i);
        if (const nybl_status status = check_sum(pack, record.data, pack.name(record)); status != NYBL_OK)
            return status;
        done += record.data.bytes;
        if (options.progress && options.progress(options.user, done, total) != 0)
            return fail(NYBL_CANCELLED, "the progress callback stopped the check of tensors");
    }
    return NYBL_OK;
}

nybl_status check_all(const nybl_pack &pack, const nybl_pack_options &options) {
    if (const nybl_status status = check_header(pack); status != NYBL_OK)
        return status;
    for (uint64_t i = 0; i < pack.header.count; ++i)
        if (const nybl_status status = check_record(pack, i); status != NYBL_OK)
            return status;
    return options.verify ? verify_data(pack, options) : NYBL_OK;
}

nybl_status open_pack(nybl_context *ctx, const char *path, const nybl_pack_options *given, nybl_pack **out) {
    if (!ctx)
        return null_argument("ctx");
    if (!path)
        return null_argument("path");
    if (!out)
        return null_argument("pack");
    nybl_pack_options options{};
    if (given)
        if (const nybl_status status = read_struct(given, "options", &options); status != NYBL_OK)
            return status;
    Mapping mapping;
    if (const nybl_status status = mapping.map(path); status != NYBL_OK)
        return status;
    nybl_pack opened{ctx, mapping.bytes(), mapping.size(), mapping.header(), 1};
    if (const nybl_status status = check_all(opened, options); status != NYBL_OK) {
        char why[400];
        std::snprintf(why, sizeof why, "%s", last_error());
        return fail(status, "%.100s: %s", path, why);
    }
    void *storage = nullptr;
    if (const nybl_status status =
            ctx->memory.allocate(sizeof(nybl_pack), alignof(nybl_pack), "pack handle", &storage);
        status != NYBL_OK)
        return status;
    *out = ::new (storage) nybl_pack{ctx, opened.bytes, opened.size, opened.header, 1};
    retain(ctx);
    mapping.hand_over();
    return NYBL_OK;
}

nybl_status find(const nybl_pack &pack, const char *name, pack::Record *found) noexcept {
    uint64_t begin = 0, end = pack.header.count;
    while (begin < end) {
        const uint64_t middle = begin + (end - begin) / 2;
        const pack::Record record = pack.record(middle);
        const int order = std::strcmp(pack.name(record), name);
        if (order == 0) {
            *found = record;
            return NYBL_OK;
        }
        (order < 0 ? begin : end) = order < 0 ? middle + 1 : middle;
    }
    return fail(NYBL_INVALID_ARGUMENT, "name: the file has no tensor '%.200s'", name);
}

void write_tensor(const nybl_pack &pack, const pack::Record &record, nybl_pack_tensor *tensor) noexcept {
    const nybl_weights_desc desc = describe(pack, record);
    write_struct(nybl_pack_tensor{sizeof(nybl_pack_tensor), pack.name(record), desc.format, desc.storage,
                                  record.n, record.k, record.n_experts, pack.bytes + record.data.offset,
                                  record.data.bytes, record.layout_id},
                 tensor);
}

nybl_status make(nybl_pack *pack, const char *name, nybl_weights **w) {
    if (!pack)
        return null_argument("pack");
    if (!name)
        return null_argument("name");
    if (!w)
        return null_argument("w");
    pack::Record record{};
    if (const nybl_status status = find(*pack, name, &record); status != NYBL_OK)
        return status;
    const nybl_weights_desc desc = describe(*pack, record);
    nybl_weights *made = nullptr;
    const nybl_status status =
        desc.storage == NYBL_STORAGE_PACKED
            ? nybl_weights_from_packed(pack->ctx, &desc, pack->bytes + record.data.offset, record.data.bytes,
                                       record.layout_id, &made)
            : nybl_weights_create(pack->ctx, &desc, &made);
    if (status != NYBL_OK)
        return status;
    pack->holders.fetch_add(1, std::memory_order_relaxed);
    made->pack = pack;
    *w = made;
    return NYBL_OK;
}

} // namespace

void nybl::capi::release(nybl_pack *pack) noexcept {
    if (!pack || pack->holders.fetch_sub(1, std::memory_order_acq_rel) != 1)
        return;
    nybl_context *ctx = pack->ctx;
    munmap(const_cast<uint8_t *>(pack->bytes), pack->size);
    ctx->memory.deallocate(pack, sizeof *pack);
    release(ctx);
}

nybl_status nybl_pack_open(nybl_context *ctx, const char *path, const nybl_pack_options *options,
                           nybl_pack **pack) {
    return guarded("nybl_pack_open", [&] { return open_pack(ctx, path, options, pack); });
}

void nybl_pack_close(nybl_pack *pack) {
    release(pack);
}

nybl_status nybl_pack_count(const nybl_pack *pack, uint64_t *count) {
    if (!pack)
        return null_argument("pack");
    if (!count)
        return null_argument("count");
    *count = pack->header.count;
    return NYBL_OK;
}

nybl_status nybl_pack_at(const nybl_pack *pack, uint64_t index, nybl_pack_tensor *tensor) {
    if (!pack)
        return null_argument("pack");
    if (const nybl_status status = check_struct(tensor, sizeof *tensor, "tensor"); status != NYBL_OK)
        return status;
    if (index >= pack->header.count)
        return fail(NYBL_INVALID_ARGUMENT, "index %" PRIu64 ": the file has %" PRIu64 " tensors", index,
                    pack->header.count);
    write_tensor(*pack, pack->record(index), tensor);
    return NYBL_OK;
}

nybl_status nybl_pack_find(const nybl_pack *pack, const char *name, nybl_pack_tensor *tensor) {
    if (!pack)
        return null_argument("pack");
    if (!name)
        return null_argument("name");
    if (const nybl_status status = check_struct(tensor, sizeof *tensor, "tensor"); status != NYBL_OK)
        return status;
    pack::Record record;
    const nybl_status status = find(*pack, name, &record);
    if (status == NYBL_OK)
        write_tensor(*pack, record, tensor);
    return status;
}

nybl_status nybl_pack_weights(nybl_pack *pack, const char *name, nybl_weights **w) {
    return guarded("nybl_pack_weights", [&] { return make(pack, name, w); });
}

nybl_status nybl_pack_metadata(const nybl_pack *pack, const void **data, size_t *bytes) {
    if (!pack)
        return null_argument("pack");
    if (!data)
        return null_argument("data");
    if (!bytes)
        return null_argument("bytes");
    *data = pack->header.metadata.bytes == 0 ? nullptr : pack->bytes + pack->header.metadata.offset;
    *bytes = pack->header.metadata.bytes;
    return NYBL_OK;
}
