// Refusals on request in the program that links interpose.cpp: of heap memory, mappings, page protections and
// threads. Not for sanitized builds, whose runtimes take the same functions over.
#pragma once

#include <cstdint>

namespace nybl::fault {

enum class Point {
    Heap,    // malloc and its kin, operator new included
    Map,     // mmap
    Protect, // mprotect
    Thread,  // pthread_create
};

// From now on, on every thread, `count` requests at this point fail, beginning with number `first` (from 0).
void refuse(Point point, uint64_t first, uint64_t count);
// Ends that; how many requests were refused.
uint64_t end_refusals();

// Blocks of heap memory and mappings that are held now.
int64_t live_blocks();
int64_t live_mappings();

} // namespace nybl::fault
