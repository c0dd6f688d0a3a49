// nybl-pack: packs a GGUF model once, so that loading it again is a mapping; lists and verifies such files.
#include <nybl/nybl.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <getopt.h>
#include <optional>
#include <stdexcept>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include "pack_model.h"

namespace {

using namespace nybl;

constexpr char kUsage[] = R"(usage: nybl-pack [OPTIONS] MODEL.gguf OUT
       nybl-pack --list FILE
       nybl-pack --verify FILE

Packs the matrices of a GGUF model into the layout that Nybl's kernels read, so that nybl_pack_open() maps them
instead of packing them at every start. Other tensors and the metadata come along as they are. OUT appears when it
is complete; a run that is interrupted leaves what was there before.

  --original NAME   keep this tensor's original blocks (may be repeated). token_embd.weight is kept so by default,
                    because engines look its rows up one by one
  --pack-all        keep none but those named with --original
  --no-validate     do not look for blocks with non-finite scales
  --threads N       default: the cores this process may use
  --quiet           no progress
  --list            the tensors of a packed file
  --verify          read a packed file and compare every checksum
  --version         this program's version
)";

struct Arguments {
    enum class Mode { kPack, kList, kVerify, kVersion, kHelp } mode = Mode::kPack;
    pack::Options options;
    uint32_t threads = 0;
    bool quiet = false;
    std::vector<std::string> originals; // the names given with --original
    std::string input, output;
};

// Says what is wrong with the command line.
struct UsageError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

uint32_t number(const char *text) {
    uint32_t value = 0;
    const char *end = text + std::strlen(text);
    if (const auto [at, error] = std::from_chars(text, end, value); error != std::errc() || at != end)
        throw UsageError(std::string("--threads: '") + text + "' is not a number");
    return value;
}

Arguments parse(int argc, char **argv) {
    using Mode = Arguments::Mode;
    Arguments arguments;
    bool pack_all = false;
    const option long_options[] = {
        {"original", required_argument, nullptr, 'o'}, {"pack-all", no_argument, nullptr, 'a'},
        {"no-validate", no_argument, nullptr, 'n'},    {"threads", required_argument, nullptr, 't'},
        {"quiet", no_argument, nullptr, 'q'},          {"list", no_argument, nullptr, 'l'},
        {"verify", no_argument, nullptr, 'v'},         {"version", no_argument, nullptr, 'V'},
        {"help", no_argument, nullptr, 'h'},           {nullptr, 0, nullptr, 0}};
    opterr = 0; // one sentence, ours
    for (int c; (c = getopt_long(argc, argv, ":h", long_options, nullptr)) != -1;)
        switch (c) {
        case 'o':
            arguments.originals.emplace_back(optarg);
            break;
        case 'a':
            pack_all = true;
            break;
        case 'n':
            arguments.options.validate = false;
            break;
        case 't':
            arguments.threads = number(optarg);
            break;
        case 'q':
            arguments.quiet = true;
            break;
        case 'l':
            arguments.mode = Mode::kList;
            break;
        case 'v':
            arguments.mode = Mode::kVerify;
            break;
        case 'V':
            arguments.mode = Mode::kVersion;
            return arguments;
        case 'h':
            arguments.mode = Mode::kHelp;
            return arguments;
        case ':':
            throw UsageError(std::string(argv[optind - 1]) + " wants a value; nybl-pack --help says which");
        default:
            throw UsageError(std::string(argv[optind - 1]) +
                             " is no option, or is not written so; nybl-pack --help lists them");
        }
    const int files = argc - optind, wanted = arguments.mode == Mode::kPack ? 2 : 1;
    if (files != wanted)
        throw UsageError("expected " + std::to_string(wanted) + " file name(s), not " +
                         std::to_string(files) + "; nybl-pack --help says how it is called");
    arguments.input = argv[optind];
    if (wanted == 2)
        arguments.output = argv[optind + 1];
    if (pack_all)
        arguments.options.keep_original.clear();
    arguments.options.keep_original.insert(arguments.options.keep_original.end(), arguments.originals.begin(),
                                           arguments.originals.end());
    return arguments;
}

double megabytes(uint64_t bytes) {
    return static_cast<double>(bytes) / 1e6;
}

// On a terminal one line that is rewritten; in a log a line per tenth.
class ProgressLine {
  public:
    explicit ProgressLine(bool quiet) : quiet_(quiet), terminal_(isatty(STDERR_FILENO) != 0) {}
    void show(std::string_view what, uint64_t done, uint64_t total) {
        const auto percent =
            static_cast<int>(total == 0 ? 100 : 100 * static_cast<double>(done) / static_cast<double>(total));
        const int step = terminal_ ? percent : percent / 10 * 10;
        if (quiet_ || (!terminal_ && step == shown_))
            return;
        shown_ = step;
        std::fprintf(stderr,
                     terminal_ ? "\r\x1b[K%3d %%  %.0f of %.0f MB  %.*s" : "%3d %%  %.0f of %.0f MB  %.*s\n",
                     percent, megabytes(done), megabytes(total), static_cast<int>(what.size()), what.data());
        if (terminal_ && done == total)
            std::fputc('\n', stderr);
    }

  private:
    const bool quiet_, terminal_;
    int shown_ = -1;
};

Context make_context(uint32_t threads) {
    auto desc = make<nybl_context_desc>();
    desc.n_threads = threads;
    return Context(desc);
}

bool same_file(const std::string &a, const std::string &b) {
    struct stat first {
    }, second{};
    return stat(a.c_str(), &first) == 0 && stat(b.c_str(), &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

void pack(Arguments &arguments) {
    if (same_file(arguments.input, arguments.output))
        throw UsageError(arguments.output + ": this is the model itself");
    std::string error;
    const std::optional<gguf::MappedFile> model = gguf::MappedFile::open(arguments.input, error);
    if (!model)
        throw std::runtime_error(error);
    // A name with a slip in it would be packed, and missed by the engine only.
    for (const std::string &name : arguments.originals)
        if (std::ranges::none_of(model->contents().tensors,
                                 [&](const auto &tensor) { return tensor.name == name; }))
            throw UsageError("--original: the model has no tensor '" + name + "'");
    ProgressLine line(arguments.quiet);
    arguments.options.progress = [&line](std::string_view name, uint64_t done, uint64_t total) {
        line.show(name, done, total);
    };
    const auto start = std::chrono::steady_clock::now();
    const pack::Summary summary =
        pack_model(make_context(arguments.threads), *model, arguments.output, arguments.options);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::printf("%s: %zu tensors packed, %zu kept as they are; %.0f MB, of a model of %.0f MB, in %.1f s\n",
                arguments.output.c_str(), summary.packed, summary.original, megabytes(summary.file_bytes),
                megabytes(summary.model_bytes), seconds.count());
}

void list(const Arguments &arguments) {
    const Context context;
    const Pack file(context, arguments.input.c_str());
    for (uint64_t i = 0; i < file.count(); ++i) {
        const nybl_pack_tensor tensor = file.at(i);
        auto info = make<nybl_format_info>();
        const bool known = nybl_format_get_info(tensor.format, &info) == NYBL_OK;
        std::printf(
            "%-40s %-7s %-8s %llu x %llu x %llu, %zu bytes\n", tensor.name, known ? info.name : "other",
            tensor.storage == NYBL_STORAGE_PACKED ? "packed" : "original",
            static_cast<unsigned long long>(tensor.n_experts), static_cast<unsigned long long>(tensor.n),
            static_cast<unsigned long long>(tensor.k), tensor.data_size);
    }
}

int show_verified(void *line, uint64_t done, uint64_t total) {
    static_cast<ProgressLine *>(line)->show("verified", done, total);
    return 0;
}

void verify(const Arguments &arguments) {
    const Context context;
    ProgressLine line(arguments.quiet);
    auto options = make<nybl_pack_options>();
    options.verify = 1;
    options.progress = show_verified;
    options.user = &line;
    const Pack file(context, arguments.input.c_str(), options);
    std::printf("%s: %llu tensors, all checksums right\n", arguments.input.c_str(),
                static_cast<unsigned long long>(file.count()));
}

void run(Arguments &arguments) {
    using Mode = Arguments::Mode;
    switch (arguments.mode) {
    case Mode::kPack:
        return pack(arguments);
    case Mode::kList:
        return list(arguments);
    case Mode::kVerify:
        return verify(arguments);
    case Mode::kVersion:
        std::puts(nybl_build_info());
        break;
    case Mode::kHelp:
        std::fputs(kUsage, stdout);
    }
}

} // namespace

int main(int argc, char **argv) {
    try {
        Arguments arguments = parse(argc, argv);
        run(arguments);
        return 0;
    } catch (const UsageError &error) {
        std::fprintf(stderr, "nybl-pack: %s\n", error.what());
        return 2;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "nybl-pack: %s\n", error.what());
        return 1;
    }
}
