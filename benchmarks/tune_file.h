// Writing the file that the library reads where NYBL_TUNING names it.
#pragma once

#include <string>
#include <string_view>

#include "dispatch/tuning.h"

namespace nybl::bench {

// The settings that came from a file or a measurement, as a file's text.
std::string tuning_text(const dispatch::Tuning &tuning, std::string_view cpu);

// $NYBL_TUNING, else nybl/tuning in the user's configuration folder.
std::string default_tuning_path();
// Replaces the file in one step, making its folder first. Throws std::runtime_error.
void write_tuning_file(const std::string &path, const std::string &text);

} // namespace nybl::bench
