// Size arithmetic that says when a result does not fit 64 bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nybl {

static_assert(sizeof(size_t) == 8, "sizes are 64-bit");

// A size that stays invalid once any step overflowed, so that one test at the end serves a whole formula.
class Checked {
  public:
    constexpr Checked(uint64_t value) noexcept : value_(value) {}

    constexpr bool valid() const noexcept { return valid_; }
    constexpr size_t value() const noexcept { return value_; } // meaningless unless valid

    friend constexpr Checked operator+(Checked a, Checked b) noexcept {
        Checked sum(0);
        sum.valid_ = !__builtin_add_overflow(a.value_, b.value_, &sum.value_) && a.valid_ && b.valid_;
        return sum;
    }
    friend constexpr Checked operator*(Checked a, Checked b) noexcept {
        Checked product(0);
        product.valid_ = !__builtin_mul_overflow(a.value_, b.value_, &product.value_) && a.valid_ && b.valid_;
        return product;
    }

  private:
    uint64_t value_;
    bool valid_ = true;
};

// Bytes from the first byte of row 0 to the last of row `rows` - 1; 0 where rows is 0.
constexpr Checked strided_bytes(uint64_t rows, Checked stride, Checked row_bytes) noexcept {
    return rows == 0 ? Checked(0) : Checked(rows - 1) * stride + row_bytes;
}

} // namespace nybl
