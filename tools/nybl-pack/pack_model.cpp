// One tensor at a time: packed (or taken as it is), written, forgotten, so that memory stays at the largest
// tensor.
#include "pack_model.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/pack_format.h"
#include "gguf/writer.h"
#include "output_file.h"

namespace nybl::pack {
namespace {

nybl_weights_desc describe(const gguf::Tensor &tensor, nybl_storage storage) {
    auto desc = make<nybl_weights_desc>();
    desc.format = static_cast<nybl_format>(tensor.type);
    desc.k = tensor.dims[0];
    desc.n = tensor.dims[1];
    desc.n_experts = tensor.dims[2] * tensor.dims[3];
    desc.data = tensor.data.data();
    desc.data_size = tensor.data.size();
    desc.storage = storage;
    return desc;
}

// Matrices in a format that has panels; vectors and unknown formats are kept as bytes.
bool can_pack(const Context &context, const gguf::Tensor &tensor) {
    size_t bytes = 0;
    const nybl_weights_desc desc = describe(tensor, NYBL_STORAGE_PACKED);
    return tensor.n_dims >= 2 && nybl_weights_bytes(context.get(), &desc, &bytes) == NYBL_OK && bytes != 0;
}

void validate_original(const gguf::Tensor &tensor) {
    const auto format = static_cast<nybl_format>(tensor.type);
    auto info = make<nybl_format_info>();
    const uint64_t rows = tensor.dims[1] * tensor.dims[2] * tensor.dims[3];
    if (nybl_format_get_info(format, &info) == NYBL_OK && info.block_size > 1 && !tensor.data.empty())
        check(nybl_validate(format, rows, tensor.dims[0], tensor.data.data(), 0, tensor.data.size()));
}

// A GGUF file with the model's entries and no tensor.
std::vector<uint8_t> metadata_of(const gguf::Contents &contents) {
    gguf::Writer writer;
    for (const gguf::Entry &entry : contents.entries)
        writer.entry(entry.key, entry.type, entry.value);
    return writer.head();
}

Section append(OutputFile &file, const void *bytes, size_t count) {
    file.pad_to(kDataAlign);
    const Section section{file.size(), count, checksum(bytes, count)};
    file.append(bytes, count);
    return section;
}

// Tells the kernel that a part of the model file is done with, so that packing does not keep it resident.
void drop_pages(std::span<const uint8_t> bytes) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const auto begin = (reinterpret_cast<uintptr_t>(bytes.data()) + page - 1) / page * page;
    const auto end = reinterpret_cast<uintptr_t>(bytes.data() + bytes.size()) / page * page;
    if (begin < end)
        madvise(reinterpret_cast<void *>(begin), end - begin, MADV_DONTNEED);
}

struct Named {
    std::string name;
    Record record;
};

class ModelPacker {
  public:
    ModelPacker(const Context &context, const std::string &out, const Options &options)
        : context_(context), options_(options), file_(out) {}

    Summary pack(const gguf::MappedFile &model) {
        const gguf::Contents &contents = model.contents();
        Header header{};
        file_.append(&header, sizeof header);
        uint64_t total = 0, done = 0;
        for (const gguf::Tensor &tensor : contents.tensors)
            total += tensor.data.size();
        for (const gguf::Tensor &tensor : contents.tensors) {
            add(tensor);
            drop_pages(tensor.data);
            done += tensor.data.size();
            if (options_.progress)
                options_.progress(tensor.name, done, total);
        }
        const std::vector<uint8_t> metadata = metadata_of(contents);
        header.metadata = append(file_, metadata.data(), metadata.size());
        header.table = append_table();
        finish(header);
        summary_.model_bytes = model.bytes().size();
        summary_.file_bytes = file_.size();
        return summary_;
    }

  private:
    void add(const gguf::Tensor &tensor) {
        try {
            const auto &kept = options_.keep_original;
            const bool packed =
                can_pack(context_, tensor) && std::find(kept.begin(), kept.end(), tensor.name) == kept.end();
            tensors_.push_back(
                {std::string(tensor.name), packed ? add_packed(tensor) : add_original(tensor)});
        } catch (const Error &error) {
            throw std::runtime_error("tensor '" + std::string(tensor.name) + "': " + error.what());
        }
    }

    Record add_packed(const gguf::Tensor &tensor) {
        nybl_weights_desc desc = describe(tensor, NYBL_STORAGE_PACKED);
        desc.validate = options_.validate;
        const Weights weights(context_, desc);
        const void *bytes = nullptr;
        size_t count = 0;
        uint64_t layout_id = 0;
        check(nybl_weights_packed(weights.get(), &bytes, &count, &layout_id));
        ++summary_.packed;
        return record(desc, append(file_, bytes, count), layout_id);
    }

    Record add_original(const gguf::Tensor &tensor) {
        if (options_.validate)
            validate_original(tensor);
        ++summary_.original;
        return record(describe(tensor, NYBL_STORAGE_ORIGINAL),
                      append(file_, tensor.data.data(), tensor.data.size()), 0);
    }

    static Record record(const nybl_weights_desc &desc, const Section &data, uint64_t layout_id) {
        return {data, 0, desc.n, desc.k, desc.n_experts, layout_id, static_cast<uint32_t>(desc.format), 0};
    }

    Section append_table() {
        std::sort(tensors_.begin(), tensors_.end(),
                  [](const Named &a, const Named &b) { return a.name < b.name; });
        std::vector<uint8_t> table(tensors_.size() * sizeof(Record));
        for (size_t i = 0; i < tensors_.size(); ++i) {
            Named &named = tensors_[i];
            if (named.name.find('\0') != std::string::npos)
                throw std::runtime_error("tensor '" + named.name + "': a zero byte in its name");
            if (i > 0 && named.name == tensors_[i - 1].name)
                throw std::runtime_error("tensor '" + named.name + "': the model has two of that name");
            named.record.name_offset = table.size() - tensors_.size() * sizeof(Record);
            std::memcpy(&table[i * sizeof(Record)], &named.record, sizeof(Record));
            table.insert(table.end(), named.name.c_str(), named.name.c_str() + named.name.size() + 1);
        }
        return append(file_, table.data(), table.size());
    }

    void finish(Header &header) {
        std::memcpy(header.magic, kMagic, sizeof kMagic);
        header.version = kVersion;
        header.header_bytes = sizeof header;
        header.file_bytes = file_.size();
        header.count = tensors_.size();
        header.checksum = checksum(&header, offsetof(Header, checksum));
        file_.overwrite(0, &header, sizeof header);
        file_.commit();
    }

    const Context &context_;
    const Options &options_;
    OutputFile file_;
    std::vector<Named> tensors_;
    Summary summary_;
};

} // namespace

Summary pack_model(const Context &context, const gguf::MappedFile &model, const std::string &out,
                   const Options &options) {
    return ModelPacker(context, out, options).pack(model);
}

} // namespace nybl::pack
