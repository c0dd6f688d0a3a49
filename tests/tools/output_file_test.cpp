// Output files appear whole or not at all.
#include "nybl-pack/output_file.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>

#include <stdexcept>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/support.h"

using namespace tools_test;
using nybl::pack::OutputFile;

TEST_CASE("an output file has its name after commit only, and replaces what was there") {
    using Names = std::vector<std::string>;
    for (const auto temporary : {OutputFile::Temporary::kUnnamed, OutputFile::Temporary::kNamed}) {
        const Folder folder;
        const std::string path = folder.file("out");
        write_file(path, {1, 2, 3});
        {
            OutputFile file(path, temporary);
            file.append("abcdef", 6);
            CHECK(read_file(path) == std::vector<uint8_t>{1, 2, 3});
        }
        CHECK(folder.names() == Names{"out"});
        CHECK(read_file(path) == std::vector<uint8_t>{1, 2, 3});

        OutputFile file(path, temporary);
        file.append("abc", 3);
        file.pad_to(64);
        CHECK(file.size() == 64);
        file.pad_to(64);
        CHECK(file.size() == 64);
        file.overwrite(1, "X", 1);
        file.commit();
        CHECK(folder.names() == Names{"out"});
        std::vector<uint8_t> expected(64);
        expected[0] = 'a', expected[1] = 'X', expected[2] = 'c';
        CHECK(read_file(path) == expected);
    }
}

TEST_CASE("an output file that cannot be made says where and why") {
    const Folder folder;
    try {
        const OutputFile file(folder.file("missing/out"));
        FAIL("made in a folder that does not exist");
    } catch (const std::runtime_error &error) {
        CHECK(std::string(error.what()).find("missing/out: cannot be created: No such file") !=
              std::string::npos);
    }
}

TEST_CASE("an output file does not take the place of a folder, a pipe or a device") {
    const Folder folder;
    const std::string pipe = folder.file("pipe"), link = folder.file("link"), inner = folder.file("inner");
    REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
    REQUIRE(symlink(pipe.c_str(), link.c_str()) == 0);
    REQUIRE(mkdir(inner.c_str(), 0700) == 0);
    for (const std::string &path : {pipe, link, inner}) {
        INFO(path);
        CHECK_THROWS_WITH(OutputFile(path), path + ": is there, and no regular file");
    }
    CHECK(folder.names() == std::vector<std::string>{"inner", "link", "pipe"});
}
