// nybl.hpp: the C API of nybl.h with owners and exceptions. Header-only, C++17.
//
// Context, Weights and Pack own a handle: they move, do not copy, and destroy it at the end of their life. A
// function that fails throws nybl::Error with the status and the sentence of nybl_last_error(). Everything
// else, structs included, is the C headers': make<T>() gives one with its struct_size set and the rest zero.
#ifndef NYBL_HPP
#define NYBL_HPP

#include <nybl/nybl_pack.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

namespace nybl {

class Error : public std::runtime_error {
  public:
    explicit Error(nybl_status status) : std::runtime_error(nybl_last_error()), status_(status) {}
    nybl_status status() const noexcept { return status_; }

  private:
    nybl_status status_;
};

// Throws where the call failed: check(nybl_row_bytes(format, k, &bytes)).
inline void check(nybl_status status) {
    if (status != NYBL_OK)
        throw Error(status);
}

// A struct of nybl.h, ready to fill in: auto args = nybl::make<nybl_matmul_args>();
template <class Struct>
Struct make() noexcept {
    Struct value{};
    value.struct_size = sizeof(Struct);
    return value;
}

inline std::size_t row_bytes(nybl_format format, std::uint64_t k) {
    std::size_t bytes = 0;
    check(nybl_row_bytes(format, k, &bytes));
    return bytes;
}

class Context {
  public:
    Context() { check(nybl_context_create(nullptr, &handle_)); }
    explicit Context(const nybl_context_desc &desc) { check(nybl_context_create(&desc, &handle_)); }
    ~Context() { nybl_context_destroy(handle_); }
    Context(Context &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Context &operator=(Context &&other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }

    nybl_context *get() const noexcept { return handle_; }
    nybl_isa isa() const noexcept { return nybl_context_isa(handle_); }
    nybl_memory_stats memory() const {
        auto stats = make<nybl_memory_stats>();
        check(nybl_context_memory(handle_, &stats));
        return stats;
    }

  private:
    nybl_context *handle_ = nullptr;
};

// Holds its context: the Context object may go first.
class Weights {
  public:
    Weights(const Context &context, const nybl_weights_desc &desc) {
        check(nybl_weights_create(context.get(), &desc, &handle_));
    }
    // Takes a handle over, from nybl_weights_quantize or nybl_weights_from_packed.
    explicit Weights(nybl_weights *handle) noexcept : handle_(handle) {}
    ~Weights() { nybl_weights_destroy(handle_); }
    Weights(Weights &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Weights &operator=(Weights &&other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }

    nybl_weights *get() const noexcept { return handle_; }

    void matmul(const nybl_matmul_args &args) const { check(nybl_matmul(handle_, &args)); }
    void matmul_id(const nybl_matmul_id_args &args) const { check(nybl_matmul_id(handle_, &args)); }
    // y[m, n] = x[m, k] * W^T, all f32 and contiguous.
    void matmul(std::uint64_t m, const float *x, float *y) const {
        auto args = make<nybl_matmul_args>();
        args.m = m;
        args.x = x;
        args.y = y;
        matmul(args);
    }
    nybl_kernel_info explain(std::uint64_t m) const {
        auto info = make<nybl_kernel_info>();
        check(nybl_matmul_explain(handle_, m, &info));
        return info;
    }

  private:
    nybl_weights *handle_ = nullptr;
};

// A file of packed weights, mapped. Weights made from it hold it: the Pack object may go first.
class Pack {
  public:
    Pack(const Context &context, const char *path) {
        check(nybl_pack_open(context.get(), path, nullptr, &handle_));
    }
    Pack(const Context &context, const char *path, const nybl_pack_options &options) {
        check(nybl_pack_open(context.get(), path, &options, &handle_));
    }
    ~Pack() { nybl_pack_close(handle_); }
    Pack(Pack &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Pack &operator=(Pack &&other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }

    nybl_pack *get() const noexcept { return handle_; }
    std::uint64_t count() const {
        std::uint64_t count = 0;
        check(nybl_pack_count(handle_, &count));
        return count;
    }
    nybl_pack_tensor at(std::uint64_t index) const {
        auto tensor = make<nybl_pack_tensor>();
        check(nybl_pack_at(handle_, index, &tensor));
        return tensor;
    }
    nybl_pack_tensor find(const char *name) const {
        auto tensor = make<nybl_pack_tensor>();
        check(nybl_pack_find(handle_, name, &tensor));
        return tensor;
    }
    Weights weights(const char *name) const {
        nybl_weights *made = nullptr;
        check(nybl_pack_weights(handle_, name, &made));
        return Weights(made);
    }

  private:
    nybl_pack *handle_ = nullptr;
};

// rows x k floats as rows of blocks, contiguous, on the calling thread at the default level.
inline std::vector<std::uint8_t> quantize(nybl_format format, std::uint64_t rows, std::uint64_t k,
                                          const float *src, const float *importance = nullptr) {
    std::vector<std::uint8_t> blocks(rows * row_bytes(format, k));
    check(nybl_quantize(format, rows, k, src, 0, importance, blocks.data(), 0));
    return blocks;
}

inline std::vector<float> dequantize(nybl_format format, std::uint64_t rows, std::uint64_t k,
                                     const void *src) {
    std::vector<float> values(rows * k);
    check(nybl_dequantize(format, rows, k, src, 0, values.data(), 0));
    return values;
}

} // namespace nybl
#endif
