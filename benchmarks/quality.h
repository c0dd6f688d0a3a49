// What quantizing costs a model: errors of every format on its own matrices, beside ggml's.
#pragma once

#include "options.h"

namespace nybl::bench {

// Prints the table, and progress on stderr. The program's exit status; throws ApiError.
int report_quality(const Options &options);

} // namespace nybl::bench
