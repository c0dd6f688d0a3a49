// What a person reads: the machine and its limits before the cases, one table after them.
#pragma once

#include <cstdio>

#include "cases.h"

namespace nybl::bench {

void print_machine(std::FILE *out, Shared &shared, const Arena &arena);
// The read limit and the instruction peaks for these thread counts, each measured for a moment.
void print_limits(std::FILE *out, Shared &shared, const std::vector<unsigned> &threads);
void print_table(std::FILE *out, const Shared &shared);

} // namespace nybl::bench
