// Public functions in any order with any arguments that keep the caller's side of the contract: pointers are
// NULL or lead to memory as large as the other arguments say. Handles are used by whoever comes, hooks fail,
// throw and cancel. A failure has words and changes no output; at the end nothing is left.
#include <array>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <memory>
#include <stdexcept>
#include <vector>

#include "capi/weights.h"
#include "fuzz/heap.h"
#include "fuzz/input.h"

using namespace nybl::fuzz;

namespace {

// Wide enough for products that the library must refuse.
__extension__ typedef unsigned __int128 Wide;

constexpr size_t kArena = size_t{1} << 17; // of inputs, and of outputs
constexpr uint8_t kUntouched = 0xA5;
constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

class Session {
  public:
    explicit Session(Input &input) : input_(input), in_(inputs()), out_(outputs()) {}
    ~Session() {
        for (const Held &held : weights_)
            nybl_weights_destroy(held.w);
        for (nybl_context *ctx : contexts_)
            nybl_context_destroy(ctx);
        require(heap_.live == 0, "memory of the host's heap is left");
    }
    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;

    void step() {
        using Call = void (Session::*)();
        static constexpr Call kCalls[] = {
            &Session::create_context,   &Session::destroy_context, &Session::create_weights,
            &Session::quantize_weights, &Session::from_packed,     &Session::destroy_weights,
            &Session::matmul,           &Session::matmul,          &Session::matmul_multi,
            &Session::matmul_part,      &Session::matmul_id,       &Session::encode,
            &Session::decode,           &Session::validate,        &Session::export_affine,
            &Session::vec_dot,          &Session::unpack,          &Session::ask,
        };
        (this->*input_.one_of(kCalls))();
    }

  private:
    // The arenas, allocated once. Inputs are activations that are ordinary numbers, and blocks with small
    // scales.
    static uint8_t *inputs() {
        static const std::unique_ptr<uint8_t[]> bytes = [] {
            std::unique_ptr<uint8_t[]> made(new uint8_t[kArena]);
            Input(nullptr, 0).fill(made.get(), kArena);
            for (size_t i = 1; i < kArena; i += 2)
                made[i] = static_cast<uint8_t>((made[i] & 0x80) | 0x30 | (made[i] & 0x07));
            return made;
        }();
        return bytes.get();
    }
    static uint8_t *outputs() {
        static const std::unique_ptr<uint8_t[]> bytes = [] {
            std::unique_ptr<uint8_t[]> made(new uint8_t[kArena]);
            std::memset(made.get(), kUntouched, kArena);
            return made;
        }();
        return bytes.get();
    }

    // A failure has words; nothing was written then.
    void check(nybl_status status, bool may_write = false) {
        require(status >= NYBL_OK && status <= NYBL_CANCELLED, "a status that is none");
        require(status != NYBL_INTERNAL || throwing_, "an internal error");
        require(status == NYBL_OK || nybl_last_error()[0] != '\0', "a failure without words");
        if (status != NYBL_OK && !may_write)
            require(written_ == 0 ||
                        (out_[0] == kUntouched && std::memcmp(out_, out_ + 1, written_ - 1) == 0),
                    "a failure changed the output");
        std::memset(out_, kUntouched, written_);
        written_ = 0;
        throwing_ = false;
    }
    void expect(size_t bytes) { written_ = bytes < kArena ? bytes : kArena; }

    // Mostly right enumerators, sizes and pointers; now and then anything.
    template <class T>
    T odd(T right) {
        return input_.below(32) == 0 ? static_cast<T>(input_.take<int32_t>()) : right;
    }
    template <class T>
    T *maybe(T *right) {
        return input_.below(32) == 0 ? nullptr : right;
    }
    template <class Struct>
    Struct make() {
        Struct value{};
        value.struct_size = sizeof value;
        if (input_.below(16) == 0) // shorter, but no pointer is cut: members past it are defaults
            value.struct_size = input_.below(sizeof value + 1) / 8 * 8;
        return value;
    }
    nybl_format format() {
        return odd(input_.one_of({NYBL_Q4_0, NYBL_Q4_1, NYBL_Q5_0, NYBL_Q5_1, NYBL_Q8_0, NYBL_Q8_1, NYBL_Q4_K,
                                  NYBL_Q5_K, NYBL_Q6_K, NYBL_Q8_K, NYBL_IQ4_NL, NYBL_IQ4_NL_ROW}));
    }
    nybl_format type() { return odd(input_.one_of({NYBL_F32, NYBL_F16, NYBL_BF16})); }
    // Small, 0, or so large that no memory could hold it.
    uint64_t count(uint32_t most) {
        const uint32_t kind = input_.below(24);
        return kind == 0   ? 0
               : kind == 1 ? kMax - input_.below(300)
               : kind == 2 ? kMax / (1 + input_.below(70))
                           : 1 + input_.below(most);
    }
    uint64_t k() { return input_.below(8) == 0 ? count(512) : 256 * uint64_t{1 + input_.below(2)}; }
    size_t stride(size_t row) {
        switch (input_.below(8)) {
        case 0:
            return row + 4 * input_.below(8);
        case 1:
            return row - 1 - input_.below(8);
        case 2:
            return kMax - input_.below(300);
        case 3:
            return row + input_.below(8);
        default:
            return 0;
        }
    }
    // Whether `rows` of them fit the arena, or no address space at all: then the library has to refuse.
    static bool fits(uint64_t rows, size_t stride, size_t row, uint64_t outer = 1, size_t outer_stride = 0) {
        const Wide one = rows == 0 ? Wide{0} : Wide{rows - 1} * (stride ? stride : row) + row;
        const Wide all =
            outer == 0 ? Wide{0} : Wide{outer - 1} * (outer_stride ? Wide{outer_stride} : one) + one;
        return all <= kArena || all > Wide{kMax} - Wide{kMax} / 4;
    }
    nybl_context *any_context() { return contexts_[input_.below(std::size(contexts_))]; }
    // A handle, and what it was made from.
    struct Held {
        nybl_weights *w = nullptr;
        uint64_t n = 0, k = 0;
    };
    nybl_weights *any_weights() { return weights_[input_.below(std::size(weights_))].w; }
    // A handle whose rows are as few and short as products below assume; or NULL.
    static constexpr uint64_t kMaxN = 48, kMaxK = 512;
    nybl_weights *modest_weights() {
        const Held &held = weights_[input_.below(std::size(weights_))];
        return held.n <= kMaxN && held.k <= kMaxK ? held.w : nullptr;
    }

    static void *allocate(void *user, size_t size, size_t alignment) {
        return static_cast<Heap *>(user)->allocate(size, alignment);
    }
    static void deallocate(void *user, void *block, size_t) {
        --static_cast<Heap *>(user)->live;
        std::free(block);
    }
    static void parallel_for(void *, uint32_t tasks, void (*task)(void *, uint32_t), void *data) {
        for (uint32_t i = tasks; i-- > 0;)
            task(data, i);
    }
    static int progress(void *user, uint64_t, uint64_t) {
        if (!user) // options as short as to end between callback and user: the rest is zero
            return 0;
        auto &self = *static_cast<Session *>(user);
        if (self.progress_ == 2)
            throw std::runtime_error("a host's own fault");
        return self.progress_;
    }

    void create_context() {
        auto desc = make<nybl_context_desc>();
        auto allocator = make<nybl_allocator>();
        auto pool = make<nybl_threadpool>();
        allocator.user = &heap_, allocator.allocate = allocate, allocator.deallocate = maybe(deallocate);
        pool.n_threads = input_.below(5), pool.parallel_for = maybe(parallel_for);
        desc.max_isa = odd(static_cast<nybl_isa>(input_.below(6)));
        desc.n_threads = input_.below(4);
        desc.allocator = &allocator;
        desc.threadpool = input_.flag() ? &pool : nullptr;
        if (input_.below(16) == 0)
            desc.log = [](void *, int, const char *) { throw std::runtime_error("a log that fails"); };
        heap_.refuse_one_in = input_.below(4) == 0 ? 1 + input_.below(9) : 0;
        heap_.throws = input_.flag();
        nybl_context *&slot = contexts_[input_.below(std::size(contexts_))];
        nybl_context_destroy(slot);
        slot = nullptr;
        check(nybl_context_create(maybe(&desc), maybe(&slot)));
    }
    void destroy_context() {
        nybl_context *&slot = contexts_[input_.below(std::size(contexts_))];
        nybl_context_destroy(slot);
        slot = nullptr;
    }

    size_t row_bytes(nybl_format of, uint64_t columns) {
        size_t bytes = 0;
        if (nybl_row_bytes(of, columns, &bytes) != NYBL_OK)
            return 1;
        return bytes;
    }
    bool describe(nybl_weights_desc *desc) {
        *desc = make<nybl_weights_desc>();
        desc->format = format(), desc->n = count(48), desc->k = k();
        desc->n_experts = input_.below(4) == 0 ? count(4) : 1;
        const size_t row = row_bytes(desc->format, desc->k);
        desc->row_stride = stride(row);
        desc->data = maybe(in_);
        desc->data_size = input_.below(4) == 0 ? kArena - input_.below(1000) : 0;
        desc->storage = odd(input_.flag() ? NYBL_STORAGE_ORIGINAL : NYBL_STORAGE_PACKED);
        desc->validate = input_.below(2);
        return fits(desc->n, desc->row_stride, row, desc->n_experts);
    }
    nybl_weights **empty_slot(uint64_t n = 0, uint64_t k = 0) {
        Held &held = weights_[input_.below(std::size(weights_))];
        nybl_weights_destroy(held.w);
        held = {nullptr, n, k};
        return maybe(&held.w);
    }
    void create_weights() {
        nybl_weights_desc desc;
        if (describe(&desc))
            check(nybl_weights_create(any_context(), maybe(&desc), empty_slot(desc.n, desc.k)));
    }
    nybl_codec_options options() {
        auto made = make<nybl_codec_options>();
        made.ctx = any_context();
        made.level = odd(static_cast<nybl_level>(input_.below(3))); // not the slow one
        progress_ = input_.below(8) == 0 ? 1 + input_.below(2) : 0;
        throwing_ = progress_ == 2;
        made.progress = input_.flag() ? progress : nullptr;
        made.user = this;
        return made;
    }
    const float *floats() { return reinterpret_cast<const float *>(in_); }
    void quantize_weights() {
        nybl_weights_desc desc;
        const bool right = describe(&desc);
        const size_t src_stride = stride(desc.k * 4);
        const auto with = options();
        if (right && desc.k < kMax / 4 && fits(desc.n, src_stride, desc.k * 4, desc.n_experts) &&
            desc.n < 100 && desc.n_experts < 5)
            check(nybl_weights_quantize(any_context(), &desc, maybe(floats()), src_stride,
                                        input_.flag() ? nullptr : floats(), maybe(&with),
                                        empty_slot(desc.n, desc.k)));
    }
    void from_packed() {
        nybl_weights_desc desc;
        describe(&desc);
        size_t bytes = 0;
        check(nybl_weights_bytes(any_context(), &desc, &bytes));
        if (bytes > kArena)
            return;
        auto *panels = in_ + (64 - reinterpret_cast<uintptr_t>(in_) % 64) % 64;
        check(nybl_weights_from_packed(any_context(), &desc, panels, bytes < kArena - 64 ? odd(bytes) : 0,
                                       odd(nybl::capi::packed_layout_id(desc.format)),
                                       empty_slot(desc.n, desc.k)));
    }
    void destroy_weights() { empty_slot(); }

    bool fill(nybl_matmul_args *args) {
        *args = make<nybl_matmul_args>();
        args->m = count(20), args->batch = input_.below(4) == 0 ? count(3) : 0;
        args->x_type = type(), args->y_type = type();
        args->x_stride = stride(4 * kMaxK), args->y_stride = stride(4 * kMaxN);
        args->x_batch_stride = input_.below(4) == 0 ? stride(4 * kMaxK * 20) : 0;
        args->y_batch_stride = input_.below(4) == 0 ? stride(4 * kMaxN * 20) : 0;
        args->x = maybe(in_), args->y = maybe(out_);
        args->bias = input_.flag() ? floats() : nullptr;
        args->compute = odd(static_cast<nybl_compute>(input_.below(4)));
        args->n_threads = input_.below(4);
        expect(kArena);
        const uint64_t batch = args->batch ? args->batch : 1;
        return fits(args->m, args->x_stride, kMaxK * 4, batch, args->x_batch_stride) &&
               fits(args->m, args->y_stride, kMaxN * 4, batch, args->y_batch_stride) && small(args->m, batch);
    }
    static bool small(uint64_t m, uint64_t batch) {
        return (m <= 20 && batch <= 3) || m > kMax / 128 || batch > kMax / 128;
    }
    void matmul() {
        nybl_matmul_args args;
        if (fill(&args))
            check(nybl_matmul(modest_weights(), maybe(&args)));
        written_ = 0;
    }
    void matmul_multi() {
        std::array<nybl_matmul_args, 3> args;
        bool right = true;
        for (auto &each : args)
            right &= fill(&each);
        args[1] = args[2] = args[0];
        if (input_.flag())
            right &= fill(&args[2]);
        const nybl_weights *w[3] = {modest_weights(), modest_weights(), modest_weights()};
        const uint32_t count = input_.below(4);
        const auto *given = maybe(static_cast<const nybl_weights *const *>(w));
        if (input_.below(4) == 0)
            in_region(
                right,
                [&](uint32_t nth, size_t *bytes) {
                    return nybl_matmul_multi_scratch_bytes(count, given, args.data(), nth, bytes);
                },
                [&](uint32_t ith, uint32_t nth, void *scratch, size_t size) {
                    return nybl_matmul_multi_part(count, given, args.data(), ith, nth, scratch, size, nullptr,
                                                  nullptr);
                });
        else if (right)
            check(nybl_matmul_multi(count, given, maybe(args.data())));
        written_ = 0;
    }
    // A region of one thread, with the memory that it asks for or a byte less. `right`: to run it is safe.
    template <class Plan, class Join>
    void in_region(bool right, const Plan &plan, const Join &join) {
        const uint32_t nth = odd(uint32_t{1}), ith = odd(uint32_t{0});
        size_t bytes = 0;
        if (plan(nth, &bytes) != NYBL_OK || !right || nth != 1 || bytes >= kArena)
            return;
        const std::unique_ptr<uint8_t[]> scratch(new uint8_t[bytes + 1]);
        check(join(ith, nth, maybe(scratch.get() + 1), bytes - input_.below(2) % (bytes + 1)));
    }
    void matmul_part() {
        nybl_matmul_args args;
        const bool right = fill(&args);
        const nybl_weights *w = modest_weights();
        in_region(
            right,
            [&](uint32_t nth, size_t *bytes) { return nybl_matmul_scratch_bytes(w, &args, nth, bytes); },
            [&](uint32_t ith, uint32_t nth, void *scratch, size_t size) {
                return nybl_matmul_part(w, &args, ith, nth, scratch, size, nullptr, nullptr);
            });
        written_ = 0;
    }
    void matmul_id() {
        auto args = make<nybl_matmul_id_args>();
        std::array<int32_t, 64> ids;
        for (int32_t &id : ids)
            id = static_cast<int32_t>(input_.below(5)) - (input_.below(64) == 0 ? 3 : 1);
        args.n_tokens = count(12), args.n_slots = count(4);
        args.ids = maybe(ids.data());
        args.ids_stride = input_.below(8) == 0 ? 4 * input_.below(6) : 0;
        args.x = maybe(in_), args.y = maybe(out_);
        args.x_type = type(), args.y_type = type();
        args.compute = odd(static_cast<nybl_compute>(input_.below(4)));
        args.y_slot_stride = input_.below(4) == 0 ? stride(4 * kMaxN) : 0;
        args.x_slot_stride = input_.below(4) == 0 ? stride(4 * kMaxK) : 0;
        const uint64_t ids_row = args.ids_stride ? args.ids_stride : args.n_slots * 4;
        const bool right = ((args.n_tokens <= 12 && args.n_slots <= 4 && ids_row * 12 <= sizeof ids) ||
                            args.n_tokens > kMax / 128) &&
                           fits(args.n_tokens * args.n_slots, args.y_slot_stride, kMaxN * 4) &&
                           fits(args.n_tokens * args.n_slots, args.x_slot_stride, kMaxK * 4);
        const nybl_weights *w = modest_weights();
        expect(kArena);
        if (input_.below(4) == 0)
            in_region(
                right,
                [&](uint32_t nth, size_t *bytes) {
                    return nybl_matmul_id_scratch_bytes(w, &args, nth, bytes);
                },
                [&](uint32_t ith, uint32_t nth, void *scratch, size_t size) {
                    return nybl_matmul_id_part(w, &args, ith, nth, scratch, size, nullptr, nullptr);
                });
        else if (right)
            check(nybl_matmul_id(w, maybe(&args)));
        written_ = 0;
    }

    void encode() {
        const auto with = options();
        const nybl_format to = format();
        const uint64_t rows = count(12), columns = k();
        const size_t row = row_bytes(to, columns), src_stride = stride(columns * 4), dst_stride = stride(row);
        if (columns > kMax / 8 || !fits(rows, src_stride, columns * 4) || !fits(rows, dst_stride, row) ||
            (rows > 12 && rows < kMax / 128))
            return;
        expect(kArena);
        const float *importance = input_.below(4) == 0 ? floats() : nullptr;
        const nybl_status status = input_.below(4) == 0
                                       ? nybl_quantize(to, rows, columns, maybe(floats()), src_stride,
                                                       importance, maybe(out_), dst_stride)
                                       : nybl_quantize_with(maybe(&with), to, rows, columns, maybe(floats()),
                                                            src_stride, importance, maybe(out_), dst_stride);
        check(status, status == NYBL_CANCELLED || status == NYBL_INTERNAL);
    }
    void decode() {
        const auto with = options();
        const nybl_format from = format();
        const uint64_t rows = count(12), columns = k();
        const size_t row = row_bytes(from, columns), src_stride = stride(row),
                     dst_stride = stride(columns * 4);
        if (columns > kMax / 8 || !fits(rows, dst_stride, columns * 4) || !fits(rows, src_stride, row) ||
            (rows > 12 && rows < kMax / 128))
            return;
        expect(kArena);
        const nybl_status status =
            nybl_dequantize_with(maybe(&with), from, rows, columns, maybe(in_), src_stride,
                                 reinterpret_cast<float *>(maybe(out_)), dst_stride);
        check(status, status == NYBL_CANCELLED || status == NYBL_INTERNAL);
    }
    void validate() {
        const nybl_format of = format();
        const uint64_t rows = count(40), columns = k();
        const size_t row = row_bytes(of, columns), src_stride = stride(row);
        if (fits(rows, src_stride, row))
            check(nybl_validate(of, rows, columns, maybe(in_), src_stride,
                                input_.flag() ? 0 : rows * row + input_.below(3) - 1));
    }
    void export_affine() {
        auto desc = make<nybl_affine_desc>();
        const nybl_format of = format();
        const uint64_t rows = count(40), columns = k();
        desc.param_type = type(), desc.layout = odd(input_.flag() ? NYBL_N_MAJOR : NYBL_GROUP_MAJOR);
        desc.codes_k_major = input_.below(3);
        desc.ctx = any_context();
        const size_t row = row_bytes(of, columns), src_stride = stride(row);
        const nybl_status sized = nybl_affine_sizes(of, rows, columns, &desc);
        check(sized);
        if (sized != NYBL_OK || !fits(rows, src_stride, row) ||
            Wide{desc.codes_size} + desc.scales_size + desc.zeros_size > kArena ||
            desc.struct_size != sizeof desc)
            return;
        desc.codes = maybe(out_);
        desc.scales = maybe(out_ + desc.codes_size);
        desc.zeros = maybe(out_ + desc.codes_size + desc.scales_size);
        desc.scales_size -= input_.below(16) == 0;
        expect(kArena);
        check(nybl_affine_export(of, rows, columns, maybe(in_), src_stride, &desc));
    }
    void vec_dot() {
        const nybl_format of = format();
        const uint64_t columns = k();
        const size_t row = row_bytes(of, columns);
        expect(4);
        if (row < kArena / 8 && columns < kArena / 16)
            check(nybl_vec_dot(of, columns, maybe(in_ + input_.below(5)), maybe(in_ + input_.below(5)),
                               reinterpret_cast<float *>(maybe(out_))));
        nybl_vec_dot_fn fn = nullptr;
        check(nybl_get_vec_dot(of, maybe(&fn)));
    }
    void unpack() {
        const nybl_weights *w = modest_weights();
        const void *panels = nullptr;
        size_t bytes = 0;
        uint64_t id = 0;
        check(nybl_weights_packed(w, maybe(&panels), &bytes, &id));
        expect(kArena);
        if (w && panels)
            check(nybl_weights_unpack(w, maybe(out_), 0));
        written_ = 0;
    }
    void ask() {
        require(nybl_version() != 0 && nybl_build_info()[0], "no version");
        auto info = make<nybl_kernel_info>();
        check(nybl_matmul_explain(any_weights(), count(600), maybe(&info)));
        auto stats = make<nybl_memory_stats>();
        check(nybl_context_memory(any_context(), maybe(&stats)));
        auto facts = make<nybl_format_info>();
        check(nybl_format_get_info(format(), maybe(&facts)));
        size_t bytes = 0;
        check(nybl_row_bytes(format(), k(), maybe(&bytes)));
        nybl_weights_desc desc;
        describe(&desc);
        check(nybl_weights_bytes(any_context(), &desc, maybe(&bytes)));
        require(nybl_isa_string(odd(nybl_context_isa(any_context()))) && nybl_status_string(odd(NYBL_OK)),
                "no string");
    }

    Input &input_;
    Heap heap_{.most = kArena};
    uint8_t *const in_, *const out_;
    size_t written_ = 0; // bytes of out_ that a call may write
    int progress_ = 0;
    bool throwing_ = false;
    nybl_context *contexts_[2] = {};
    Held weights_[4];
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Input input(data, size);
    Session session(input);
    for (int steps = 0; steps < 40 && input.size() > 0; ++steps)
        session.step();
    return 0;
}
