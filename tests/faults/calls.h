// Every public function as a call on one set of handles and buffers, for tests that make each of
// them fail.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "capi/support.h"
#include "tools/support.h"

namespace nybl::fault {

// Inputs of the calls, the same in every stage and made once.
struct Data {
    std::vector<float> x, source;
    std::vector<uint8_t> q4_1, q4_k, q8_0_row;
    std::shared_ptr<tools_test::Folder> folder;
    std::string pack; // a file of packed weights in the folder, with one tensor, "w"
};

// What calls work on, complete before any of them runs. Calls allocate nothing of their own.
class Stage {
  public:
    static const Data &data();

    explicit Stage(nybl_isa max_isa = NYBL_ISA_BEST, const nybl_allocator *allocator = nullptr);

    static constexpr size_t kN = 80, kK = 512, kM = 3, kPrefillM = 70, kExperts = 3, kSlots = 2;
    static constexpr uint32_t kThreads = 3;

    const Data &d = data();
    nybl::Context context;
    std::vector<int32_t> ids{0, 2, -1, 1, 1, 2};
    nybl::Weights packed, original, other, experts;
    nybl::Pack pack;
    const void *panels = nullptr;
    size_t panels_bytes = 0;
    uint64_t layout_id = 0;
    std::vector<uint8_t> scratch;
    std::vector<uint8_t> out; // what a call writes; filled with kUntouched before it

    static constexpr uint8_t kUntouched = 0xa5;

    nybl_weights_desc q4_1_desc() const;
    nybl_matmul_args args(size_t m) const;
    nybl_matmul_id_args id_args() const;
    float *y() const { return reinterpret_cast<float *>(const_cast<uint8_t *>(out.data())); }
    void forget() { std::fill(out.begin(), out.end(), kUntouched); }
};

struct PublicCall {
    const char *name; // of the function, then what is special: "nybl_matmul, decode"
    std::function<nybl_status(Stage &)> call;
};
const std::vector<PublicCall> &public_calls();

// What every call writes, in the order of the table; empty where it fails. Contexts and instruction sets all
// give the same.
using Results = std::vector<std::vector<uint8_t>>;
Results run_all(Stage &stage);
std::string first_difference(const Results &got, const Results &expected); // "" or the name of a call

} // namespace nybl::fault
