// Rates of short samples, and the two figures quoted from them.
#pragma once

#include <algorithm>
#include <vector>

namespace nybl::bench {

class Samples {
  public:
    void add(double rate) { rates_.push_back(rate); }
    bool empty() const { return rates_.empty(); }
    size_t size() const { return rates_.size(); }
    double median() const { return quantile(0.5); }
    // What the machine does when nobody disturbs it; the very best sample could be a clock's glitch.
    double quiet() const { return quantile(0.95); }

  private:
    double quantile(double share) const {
        if (rates_.empty())
            return 0;
        std::vector<double> sorted = rates_;
        const auto at = static_cast<size_t>(share * static_cast<double>(sorted.size() - 1) + 0.5);
        std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(at), sorted.end());
        return sorted[at];
    }

    std::vector<double> rates_;
};

} // namespace nybl::bench
