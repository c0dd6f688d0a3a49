// The same products through ggml, loaded at run time: its plain path and every path that repacks the weights.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "arena.h"

namespace nybl::bench {

struct Case;
struct Source;

// One way in which a peer computes a case. The closure owns what it needs and reports success.
struct PeerPath {
    std::string name;
    std::function<bool()> call;
};

class GgmlPeer {
  public:
    // Of a library libggml-cpu.so. Throws std::runtime_error, naming what is missing.
    explicit GgmlPeer(const std::string &library);
    ~GgmlPeer();

    // Paths for a product, weights cycled through about `bytes` of memory (0: one copy), x and the expected
    // output for a check: a path whose output is far from it throws. Valid until the next call.
    std::vector<PeerPath> prepare(const Case &of, const Source &source, size_t bytes, Pages pages,
                                  std::span<const float> x, std::span<const float> expected);

  private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace nybl::bench
