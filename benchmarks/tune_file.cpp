// The tuning file's text, its usual place, and how it gets there.
#include "tune_file.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "cpu/isa.h"

namespace nybl::bench {

std::string tuning_text(const dispatch::Tuning &tuning, std::string_view cpu) {
    std::string text(dispatch::kTuningVersionLine);
    text.append("\n# Written by `./dev tune`. The library reads it where NYBL_TUNING names it.\ncpu ")
        .append(cpu);
    text += '\n';
    for (const dispatch::KernelSet &set : tuning.sets)
        for (const dispatch::SettingKey &key : dispatch::kSettingKeys)
            if (const dispatch::Setting &setting = set.*key.member; setting.from_file)
                text.append(cpu::isa_name(set.isa))
                    .append(".")
                    .append(key.name)
                    .append(" ")
                    .append(std::to_string(setting.value))
                    .append("\n");
    return text;
}

std::string default_tuning_path() {
    const auto variable = [](const char *name) {
        const char *value = std::getenv(name);
        return std::string(value ? value : "");
    };
    if (const std::string named = variable("NYBL_TUNING"); !named.empty())
        return named;
    const std::string config = variable("XDG_CONFIG_HOME");
    return (config.empty() ? variable("HOME") + "/.config" : config) + "/nybl/tuning";
}

void write_tuning_file(const std::string &path, const std::string &text) {
    const std::filesystem::path target(path);
    std::error_code error;
    // The rename would take the place of a device as well, where the user is root.
    if (std::filesystem::exists(target, error) && !std::filesystem::is_regular_file(target, error))
        throw std::runtime_error("cannot write " + path + ": it is there, and no regular file");
    if (target.has_parent_path())
        std::filesystem::create_directories(target.parent_path(), error);
    const std::string fresh = path + ".new";
    std::ofstream file(fresh, std::ios::binary | std::ios::trunc);
    file << text;
    file.close();
    if (!file)
        throw std::runtime_error("cannot write " + fresh);
    std::filesystem::rename(fresh, target, error);
    if (error)
        throw std::runtime_error("cannot write " + path + ": " + error.message());
}

} // namespace nybl::bench
