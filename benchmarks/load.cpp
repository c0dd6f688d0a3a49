// nybl-load-bench: how long until a model's first correct products over every page of it, and how much memory
// they take: packed at start from GGUF, and mapped from nybl-pack's file, cold and warm.
#include <nybl/nybl.hpp>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <random>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gguf/writer.h"
#include "nybl-pack/pack_model.h"

namespace {

using namespace nybl;
using Clock = std::chrono::steady_clock;

constexpr nybl_format kFormats[] = {NYBL_Q4_0, NYBL_Q4_1, NYBL_Q5_1, NYBL_Q4_K, NYBL_Q5_K, NYBL_IQ4_NL};
constexpr uint64_t kRows = 4096, kColumns = 4096, kDistinctRows = 64;

// What a child reports; the outputs' sum of bits says whether its products are right.
struct Result {
    double seconds, resident_mb, anonymous_mb;
    uint64_t outputs;
    bool done;
};

struct Files {
    std::string model, packed;
};

double megabytes(uint64_t bytes) {
    return static_cast<double>(bytes) / 1e6;
}

// A line of /proc/self/status in MB.
double status_mb(const char *field) {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with(field))
            return std::stod(line.substr(std::strlen(field) + 1)) * 1024 / 1e6;
    return 0;
}

std::vector<float> activations() {
    std::vector<float> x(kColumns);
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (float &value : x)
        value = normal(random);
    return x;
}

uint64_t product(const Weights &w, const std::vector<float> &x) {
    std::vector<float> y(kRows);
    w.matmul(1, x.data(), y.data());
    uint64_t sum = 0;
    for (const float value : y) {
        uint32_t bits;
        std::memcpy(&bits, &value, sizeof bits);
        sum = sum * 31 + bits;
    }
    return sum;
}

// Matrices of all formats in turn until `bytes` are reached; rows repeat, in another order in each matrix.
void write_model(const std::string &path, uint64_t bytes) {
    std::vector<std::vector<uint8_t>> rows;
    std::mt19937 random(2);
    std::normal_distribution<float> normal;
    std::vector<float> values(kDistinctRows * kColumns);
    for (float &value : values)
        value = normal(random);
    for (const nybl_format format : kFormats)
        rows.push_back(quantize(format, kDistinctRows, kColumns, values.data()));

    gguf::Writer head;
    size_t count = 0;
    for (uint64_t size = 0; size < bytes; ++count) {
        const nybl_format format = kFormats[count % std::size(kFormats)];
        const uint64_t tensor = kRows * row_bytes(format, kColumns);
        head.tensor("blk." + std::to_string(count) + ".weight", {kColumns, kRows}, format, tensor);
        size += tensor;
    }
    std::ofstream file(path, std::ios::binary);
    const auto put = [&file](const uint8_t *from, size_t size) {
        file.write(reinterpret_cast<const char *>(from), static_cast<std::streamsize>(size));
    };
    const std::vector<uint8_t> bytes_of_head = head.head();
    put(bytes_of_head.data(), bytes_of_head.size());
    for (size_t i = 0; i < count; ++i) {
        const std::vector<uint8_t> &source = rows[i % std::size(kFormats)];
        const size_t row = source.size() / kDistinctRows; // times kRows is a multiple of GGUF's alignment
        for (uint64_t r = 0; r < kRows; ++r)
            put(&source[(r * 7 + r / kDistinctRows + i) % kDistinctRows * row], row);
    }
    if (!file.flush())
        throw std::runtime_error(path + " cannot be written");
}

gguf::MappedFile open_model(const std::string &path) {
    std::string error;
    auto model = gguf::MappedFile::open(path, error);
    if (!model)
        throw std::runtime_error(error);
    return std::move(*model);
}

std::string name_of(size_t i) {
    return "blk." + std::to_string(i) + ".weight";
}

// What an engine without packed files does at every start.
uint64_t pack_at_start(const Files &files, double &anonymous_mb) {
    const Context context;
    const gguf::MappedFile model = open_model(files.model);
    const std::vector<float> x = activations();
    std::vector<Weights> all;
    uint64_t outputs = 0;
    for (const gguf::Tensor &tensor : model.contents().tensors) {
        auto desc = make<nybl_weights_desc>();
        desc.format = static_cast<nybl_format>(tensor.type);
        desc.n = kRows;
        desc.k = kColumns;
        desc.data = tensor.data.data();
        all.emplace_back(context, desc);
        outputs = outputs * 31 + product(all.back(), x);
    }
    anonymous_mb = status_mb("RssAnon:"); // while the weights live
    return outputs;
}

uint64_t map_packed(const Files &files, double &anonymous_mb) {
    const Context context;
    const Pack file(context, files.packed.c_str());
    const std::vector<float> x = activations();
    uint64_t outputs = 0;
    for (size_t i = 0; i < file.count(); ++i)
        outputs = outputs * 31 + product(file.weights(name_of(i).c_str()), x);
    anonymous_mb = status_mb("RssAnon:");
    return outputs;
}

uint64_t write_packed(const Files &files, double &anonymous_mb) {
    const Context context;
    pack::pack_model(context, open_model(files.model), files.packed, {});
    anonymous_mb = status_mb("RssAnon:");
    return 0;
}

uint64_t read_packed(const Files &files, double &anonymous_mb) {
    const int file = open(files.packed.c_str(), O_RDONLY | O_CLOEXEC);
    std::vector<char> buffer(1 << 20);
    uint64_t total = 0;
    for (ssize_t got; (got = read(file, buffer.data(), buffer.size())) > 0;)
        total += static_cast<uint64_t>(got);
    close(file);
    anonymous_mb = status_mb("RssAnon:");
    return total;
}

// In a process of its own, so that its memory is its own.
Result in_child(uint64_t (*body)(const Files &, double &), const Files &files) {
    void *shared = mmap(nullptr, sizeof(Result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        throw std::runtime_error("no shared memory");
    auto *result = static_cast<Result *>(shared);
    const pid_t child = fork();
    if (child == 0) {
        try {
            const double resident = status_mb("VmRSS:"), anonymous = status_mb("RssAnon:");
            const auto start = Clock::now();
            double anonymous_after = 0;
            result->outputs = body(files, anonymous_after);
            result->seconds = std::chrono::duration<double>(Clock::now() - start).count();
            result->resident_mb = status_mb("VmHWM:") - resident;
            result->anonymous_mb = anonymous_after - anonymous;
            result->done = true;
        } catch (const std::exception &error) {
            std::fprintf(stderr, "nybl-load-bench: %s\n", error.what());
        }
        _exit(0);
    }
    waitpid(child, nullptr, 0);
    const Result out = *result;
    munmap(shared, sizeof(Result));
    if (!out.done)
        throw std::runtime_error("a measurement failed");
    return out;
}

// Takes files out of the page cache, and knows how well that worked.
class Cold {
  public:
    void drop(const std::string &path) {
        const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
        const auto size = static_cast<size_t>(std::filesystem::file_size(path));
        fsync(file);
        posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
        void *mapping = mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
        close(file);
        std::vector<unsigned char> pages((size + 4095) / 4096);
        if (mapping == MAP_FAILED || mincore(mapping, size, pages.data()) != 0)
            throw std::runtime_error(path + ": the page cache cannot be looked at");
        munmap(mapping, size);
        double present = 0;
        for (const unsigned char page : pages)
            present += page & 1;
        most_left_ = std::max(most_left_, present / static_cast<double>(pages.size()));
    }
    double most_left() const { return most_left_; }

  private:
    double most_left_ = 0;
};

void run(const std::string &folder, uint64_t bytes) {
    const Files files{folder + "/model.gguf", folder + "/model.nybl"};
    write_model(files.model, bytes);
    Cold cold;
    cold.drop(files.model);
    const Result written = in_child(write_packed, files);
    const double packed_mb = megabytes(std::filesystem::file_size(files.packed));
    cold.drop(files.packed);
    const Result read = in_child(read_packed, files);
    cold.drop(files.model);
    const Result start_cold = in_child(pack_at_start, files);
    const Result start_warm = in_child(pack_at_start, files);
    cold.drop(files.packed);
    const Result mapped_cold = in_child(map_packed, files);
    const Result mapped_warm = in_child(map_packed, files);
    for (const Result *result : {&start_cold, &mapped_cold, &mapped_warm})
        if (result->outputs != start_warm.outputs)
            throw std::runtime_error("a mapped model's products differ from the packed one's");

    fmt::print(
        "model {:.0f} MB, packed file {:.0f} MB; cold: not in the page cache (at most {:.1f} % was)\n\n",
        megabytes(std::filesystem::file_size(files.model)), packed_mb, 100 * cold.most_left());
    fmt::print("{:44} {:>8} {:>9} {:>11} {:>10} {:>11}\n", "", "ms", "packing /", "resident", "of packed",
               "anonymous");
    const auto line = [&](const char *what, const Result &result) {
        fmt::print("{:44} {:8.0f} {:9.1f} {:8.0f} MB {:10.3f} {:8.0f} MB\n", what, 1e3 * result.seconds,
                   written.seconds / result.seconds, result.resident_mb, result.resident_mb / packed_mb,
                   result.anonymous_mb);
    };
    line("nybl-pack, cold: read, pack, write, sync", written);
    line("limit: plain read of the packed file, cold", read);
    line("GGUF packed at start, first products, cold", start_cold);
    line("GGUF packed at start, first products, warm", start_warm);
    line("mapped, first products, cold", mapped_cold);
    line("mapped, first products, warm", mapped_warm);
}

} // namespace

int main(int argc, char **argv) {
    CLI::App app("Time and memory until a model's first correct products over every page of it.");
    double megabytes = 512;
    std::string parent = std::filesystem::temp_directory_path();
    app.add_option("--mb", megabytes, "size of the synthetic model")
        ->check(CLI::Range(1., 1e6))
        ->capture_default_str();
    app.add_option("--folder", parent, "where the model and its packed file lie for a while")
        ->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    std::string folder = parent + "/nybl-load-XXXXXX";
    if (!mkdtemp(folder.data())) {
        std::fprintf(stderr, "nybl-load-bench: %s: no folder can be made there\n", parent.c_str());
        return 1;
    }
    int status = 0;
    try {
        run(folder, static_cast<uint64_t>(megabytes * 1e6));
    } catch (const std::exception &error) {
        std::fprintf(stderr, "nybl-load-bench: %s\n", error.what());
        status = 1;
    }
    std::filesystem::remove_all(folder);
    return status;
}
