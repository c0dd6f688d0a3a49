// Runs a case under Google Benchmark: samples of the kernel and of its limits in turn.
#pragma once

#include "cases.h"

namespace nybl::bench {

void register_cases(Shared &shared, const std::vector<Case> &cases);

} // namespace nybl::bench
