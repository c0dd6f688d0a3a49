// A stand-in for oneDNN's C++ API: the part that src/gpu/onednn uses, and static_sbzp, which no release has.
// It computes in f64, and refuses whatever oneDNN's documentation does not allow or a GPU would not run fast.
// Engines: GPU 0 has a matrix engine, GPU 1 has none, GPU 2 knows reference implementations only.
#pragma once

#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

enum dnnl_status_t {
    dnnl_success,
    dnnl_out_of_memory,
    dnnl_invalid_arguments,
    dnnl_unimplemented,
    dnnl_runtime_error = 5
};

#define DNNL_ARG_SRC 1
#define DNNL_ARG_DST 17
#define DNNL_ARG_WEIGHTS 33
#define DNNL_ARG_SCRATCHPAD 80
#define DNNL_ARG_ATTR_SCALES 4096
#define DNNL_ARG_ATTR_ZERO_POINTS 8192

namespace dnnl {

struct error : std::exception {
    error(dnnl_status_t code, const char *text) : status(code), message(text) {}
    const char *what() const noexcept override { return message; }
    dnnl_status_t status;
    const char *message;
};

// What tests look at and set.
namespace fake {
inline size_t live_bytes = 0, peak_bytes = 0; // of memory objects that own theirs
inline size_t calls = 0;                      // of functions that can fail
inline size_t failing_call = 0;               // the one that fails; 0: none
inline size_t primitives = 0;                 // alive
inline size_t executed_sbzp = 0, executed_plain = 0, executed_sums = 0;

inline void count_call() {
    if (++calls == failing_call)
        throw error(dnnl_runtime_error, "the test says so");
}
inline void require(bool right, const char *what) {
    if (!right)
        throw error(dnnl_invalid_arguments, what);
}
} // namespace fake

enum class fpmath_mode { strict, bf16, f16, any };
enum class scratchpad_mode { library, user };
enum class quantization_mode { undef, static_sazp, dynamic_mx, dynamic_fp, static_sbzp };
enum class algorithm { undef, eltwise_linear };

struct engine {
    enum class kind { any, cpu, gpu };
    static size_t get_count(kind which) { return which == kind::gpu ? 3 : 0; }

    engine(kind which, size_t number) : index(number) {
        fake::count_call();
        fake::require(number < get_count(which), "no such engine");
    }
    size_t index;
};

struct stream {
    explicit stream(const engine &) { fake::count_call(); }
    void wait() { fake::count_call(); }
};

class memory {
  public:
    using dim = int64_t;
    using dims = std::vector<dim>;
    enum class data_type { undef, f16, bf16, f32, s32, s8, u8, s4, u4 };

    struct desc {
        desc() = default;
        desc(const dims &shape, data_type of, const dims &strides) : sizes(shape), type(of), steps(strides) {
            fake::require(shape.size() == strides.size() && of != data_type::undef, "a broken description");
        }
        bool operator==(const desc &) const = default;
        size_t elements() const {
            size_t count = sizes.empty() ? 0 : 1;
            for (const dim size : sizes)
                count *= static_cast<size_t>(size);
            return count;
        }
        size_t get_size() const {
            const size_t bits = type == data_type::f32 || type == data_type::s32    ? 32
                                : type == data_type::f16 || type == data_type::bf16 ? 16
                                : type == data_type::s4 || type == data_type::u4    ? 4
                                                                                    : 8;
            return (elements() * bits + 7) / 8;
        }
        dims sizes;
        data_type type = data_type::undef;
        dims steps;
    };

    memory() = default;
    memory(const desc &what, const engine &) : desc_(what), bytes_(std::make_shared<Bytes>(what.get_size())) {
        handle_ = bytes_->data;
    }
    memory(const desc &what, const engine &, void *handle) : desc_(what), handle_(handle) {
        fake::count_call();
        fake::require(handle != nullptr, "a view of nothing");
    }

    void *get_data_handle() const { return handle_; }
    const desc &get_desc() const { return desc_; }
    template <class T = void>
    T *map_data() const {
        fake::count_call();
        return static_cast<T *>(handle_);
    }
    void unmap_data(void *mapped) const {
        fake::count_call();
        fake::require(mapped == handle_, "unmapping what is not mapped");
    }

  private:
    struct Bytes {
        explicit Bytes(size_t count) : size(count) {
            fake::count_call();
            data = new uint8_t[count];
            std::memset(data, 0xff, count); // NaN in every type
            fake::live_bytes += size;
            fake::peak_bytes = fake::live_bytes > fake::peak_bytes ? fake::live_bytes : fake::peak_bytes;
        }
        ~Bytes() {
            fake::live_bytes -= size;
            delete[] data;
        }
        Bytes(const Bytes &) = delete;
        Bytes &operator=(const Bytes &) = delete;
        uint8_t *data = nullptr;
        size_t size;
    };
    desc desc_;
    std::shared_ptr<Bytes> bytes_;
    void *handle_ = nullptr;
};

struct post_ops {
    void append_eltwise(algorithm which, float alpha, float beta) {
        fake::require(which == algorithm::eltwise_linear && beta == 0.0f && !sum,
                      "this post-op is not known");
        factor = alpha;
    }
    void append_sum(float scale) {
        fake::require(scale == 1.0f && !sum, "sums have scale 1 here");
        sum = true;
    }
    float factor = 1.0f;
    bool sum = false;
};

struct primitive_attr {
    void set_fpmath_mode(fpmath_mode mode, bool apply_to_int) { math = mode, math_of_int = apply_to_int; }
    void set_scales(int arg, int mask, const memory::dims &groups, memory::data_type type,
                    bool on_host = false, quantization_mode how = quantization_mode::static_sazp) {
        fake::require(arg == DNNL_ARG_WEIGHTS && mask == 3 && groups.size() == 2 && groups[1] == 1 &&
                          (groups[0] == 16 || groups[0] == 32) && !on_host,
                      "scales of weights, one for each group of 16 or 32 and row");
        scales = type, mode = how, group = groups[0];
    }
    void set_zero_points(int arg, int mask, const memory::dims &groups, memory::data_type type) {
        fake::require(arg == DNNL_ARG_WEIGHTS && mask == 3 && groups == memory::dims{32, 1},
                      "zero points of weights, one for each group of 32 and row");
        zeros = type;
    }
    void set_post_ops(const post_ops &appended) { ops = appended; }
    void set_scratchpad_mode(scratchpad_mode mode) { scratchpad = mode; }

    fpmath_mode math = fpmath_mode::strict;
    bool math_of_int = false;
    memory::dim group = 32;
    memory::data_type scales = memory::data_type::undef, zeros = memory::data_type::undef;
    quantization_mode mode = quantization_mode::undef;
    post_ops ops;
    scratchpad_mode scratchpad = scratchpad_mode::library;
};

class matmul {
  public:
    class primitive_desc {
      public:
        primitive_desc() = default;
        primitive_desc(const engine &on, const memory::desc &source, const memory::desc &weights,
                       const memory::desc &target, const primitive_attr &how);
        const char *impl_info_str() const { return name; }
        memory::desc scratchpad_desc() const { return {{kScratchpad}, memory::data_type::u8, {1}}; }

        static constexpr memory::dim kScratchpad = 100;
        memory::desc x, w, y;
        primitive_attr attr;
        const char *name = "";
    };

    matmul() = default;
    explicit matmul(const primitive_desc &what) : desc_(what), alive_(std::make_shared<Alive>()) {
        fake::count_call();
    }
    void execute(const stream &, const std::unordered_map<int, memory> &arguments) const;

  private:
    struct Alive {
        Alive() { ++fake::primitives; }
        ~Alive() { --fake::primitives; }
        Alive(const Alive &) = delete;
        Alive &operator=(const Alive &) = delete;
    };
    primitive_desc desc_;
    std::shared_ptr<Alive> alive_;
};

} // namespace dnnl
