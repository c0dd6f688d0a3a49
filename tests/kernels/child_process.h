// Runs a piece of a test in a forked child: for what lasts until a process ends (a seccomp filter, an
// environment that is read early) and for what may crash.
#pragma once

#include <functional>
#include <string>

namespace nybl::test {

// The sentence that `body` returned in the child ("" for success), or what killed the child.
std::string run_in_child(const std::function<std::string()> &body);

// From now on this process may not gain executable memory, by a seccomp filter on mmap and mprotect, or by
// PR_SET_MDWE. False where the system has no such thing.
bool refuse_executable_memory_by_seccomp();
bool refuse_executable_memory_by_mdwe();

} // namespace nybl::test
