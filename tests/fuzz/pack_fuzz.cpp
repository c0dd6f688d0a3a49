// Any bytes as a file of packed weights: refused in words, or tensors inside of the file that multiply. Most
// inputs get their checksums put right, so that the checks behind them meet wrong sizes and offsets.
#include <cstddef>
#include <memory>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include <nybl/nybl_pack.h>

#include "base/checksum.h"
#include "base/pack_format.h"
#include "fuzz/input.h"
#include "tools/gguf/gguf.h"

using namespace nybl;
using fuzz::open_context;
using fuzz::require;

namespace {

nybl_context *context() {
    static nybl_context *const ctx = open_context(1);
    return ctx;
}

void correct(const std::vector<uint8_t> &file, pack::Section *section) {
    if (section->offset <= file.size() && section->bytes <= file.size() - section->offset)
        section->checksum = checksum(file.data() + section->offset, section->bytes);
}

// The magic, the sizes and the checksums that a writer of these bytes would have given.
void put_right(std::vector<uint8_t> &file) {
    pack::Header header;
    if (file.size() < sizeof header)
        return;
    std::memcpy(&header, file.data(), sizeof header);
    std::memcpy(header.magic, pack::kMagic, sizeof header.magic);
    header.version = pack::kVersion;
    header.header_bytes = sizeof header;
    header.file_bytes = file.size();
    for (uint64_t i = 0; i < header.count && i < 64; ++i) {
        const uint64_t at = header.table.offset + i * sizeof(pack::Record);
        if (at > file.size() || file.size() - at < sizeof(pack::Record))
            break;
        pack::Record record;
        std::memcpy(&record, file.data() + at, sizeof record);
        correct(file, &record.data);
        std::memcpy(file.data() + at, &record, sizeof record);
    }
    correct(file, &header.metadata);
    correct(file, &header.table);
    header.checksum = checksum(&header, offsetof(pack::Header, checksum));
    std::memcpy(file.data(), &header, sizeof header);
}

void multiply(nybl_weights *w, const nybl_pack_tensor &tensor) {
    const uint64_t m = tensor.n_experts > 1 ? 1 : 2;
    const std::vector<float> x(m * tensor.k, 0.5f);
    std::vector<float> y(m * tensor.n);
    if (tensor.n_experts > 1) {
        const auto last = static_cast<int32_t>(tensor.n_experts - 1);
        auto args = make<nybl_matmul_id_args>();
        args.n_tokens = args.n_slots = 1, args.ids = &last, args.x = x.data(), args.y = y.data();
        require(nybl_matmul_id(w, &args) == NYBL_OK, "experts of a file do not multiply");
    } else {
        auto args = make<nybl_matmul_args>();
        args.m = m, args.x = x.data(), args.y = y.data();
        require(nybl_matmul(w, &args) == NYBL_OK, "weights of a file do not multiply");
    }
}

void use(nybl_pack *file) {
    uint64_t count = 0;
    require(nybl_pack_count(file, &count) == NYBL_OK, "an open file has no count");
    for (uint64_t i = 0; i < count && i < 16; ++i) {
        auto tensor = make<nybl_pack_tensor>(), found = tensor;
        require(nybl_pack_at(file, i, &tensor) == NYBL_OK, "a tensor is not there");
        require(nybl_pack_find(file, tensor.name, &found) == NYBL_OK && found.data == tensor.data,
                "a tensor is not found by its name");
        volatile uint8_t sum = 0;
        for (size_t at = 0; at < tensor.data_size; ++at)
            sum = static_cast<uint8_t>(sum + static_cast<const uint8_t *>(tensor.data)[at]);
        nybl_weights *w = nullptr;
        const nybl_status status = nybl_pack_weights(file, tensor.name, &w);
        constexpr uint64_t kMost = 1 << 16; // a shape without bytes may be any
        if (status == NYBL_OK && tensor.n < kMost && tensor.k < kMost && tensor.n_experts < kMost)
            multiply(w, tensor);
        require(status == NYBL_OK || nybl_last_error()[0] != '\0', "a tensor was refused without a word");
        nybl_weights_destroy(w);
    }
    const void *metadata = nullptr;
    size_t bytes = 0;
    require(nybl_pack_metadata(file, &metadata, &bytes) == NYBL_OK, "an open file has no metadata");
    std::string error;
    if (bytes != 0)
        gguf::parse({static_cast<const uint8_t *>(metadata), bytes}, error);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0)
        return 0;
    const uint8_t mode = data[size - 1];
    std::vector<uint8_t> bytes(data, data + size);
    if (mode % 8 != 0)
        put_right(bytes);
    const int memory = memfd_create("fuzz", MFD_CLOEXEC);
    require(memory >= 0 && write(memory, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
            "no file in memory");
    char path[64];
    std::snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
    auto options = make<nybl_pack_options>();
    options.verify = mode / 8 % 2;
    nybl_pack *file = nullptr;
    const nybl_status status = nybl_pack_open(context(), path, &options, &file);
    require(status == NYBL_OK || nybl_last_error()[0] != '\0', "a file was refused without a word");
    require((status == NYBL_OK) == (file != nullptr), "status and handle disagree");
    if (file)
        use(file);
    nybl_pack_close(file);
    close(memory);
    return 0;
}
