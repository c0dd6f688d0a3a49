// The table of calls. What cannot fail says NYBL_OK.
#include "faults/calls.h"

#include <cstring>

using namespace capi_test;

namespace nybl::fault {
namespace {

nybl::Context open_context(nybl_isa max_isa, const nybl_allocator *allocator) {
    auto desc = nybl::make<nybl_context_desc>();
    desc.n_threads = Stage::kThreads;
    desc.max_isa = max_isa;
    desc.allocator = allocator;
    return nybl::Context(desc);
}

// Creates, keeps a sign of it in the output, and destroys.
template <class Handle, class Create, class Destroy>
nybl_status made_and_gone(Stage &s, const Create &create, const Destroy &destroy) {
    Handle *handle = nullptr;
    const nybl_status status = create(&handle);
    if ((status == NYBL_OK) != (handle != nullptr))
        return NYBL_INTERNAL;
    if (handle)
        s.out[0] = 1;
    destroy(handle);
    return status;
}

template <class Create>
nybl_status weights(Stage &s, const Create &create) {
    return made_and_gone<nybl_weights>(s, create, nybl_weights_destroy);
}

nybl_codec_options options(const Stage &s) {
    auto made = nybl::make<nybl_codec_options>();
    made.ctx = s.context.get();
    return made;
}

nybl_status keep(Stage &s, nybl_status status, const void *value, size_t bytes) {
    if (status == NYBL_OK)
        std::memcpy(s.out.data(), value, bytes);
    return status;
}

nybl_status affine(Stage &s) {
    auto desc = nybl::make<nybl_affine_desc>();
    desc.param_type = NYBL_F32;
    desc.ctx = s.context.get();
    if (const nybl_status status = nybl_affine_sizes(NYBL_Q4_1, Stage::kN, Stage::kK, &desc);
        status != NYBL_OK)
        return status;
    desc.codes = s.out.data();
    desc.scales = s.out.data() + desc.codes_size;
    desc.zeros = s.out.data() + desc.codes_size + desc.scales_size;
    return nybl_affine_export(NYBL_Q4_1, Stage::kN, Stage::kK, s.d.q4_1.data(), 0, &desc);
}

nybl_status product(Stage &s, const nybl::Weights &w, size_t m, nybl_compute compute = NYBL_COMPUTE_DEFAULT) {
    auto args = s.args(m);
    args.compute = compute;
    return nybl_matmul(w.get(), &args);
}

// Two products on one X.
struct Two {
    const nybl_weights *w[2];
    nybl_matmul_args args[2];

    explicit Two(const Stage &s)
        : w{s.packed.get(), s.other.get()}, args{s.args(Stage::kM), s.args(Stage::kM)} {
        args[1].y = s.y() + Stage::kM * Stage::kN;
    }
};

std::vector<PublicCall> table() {
    using S = Stage;
    return {
        {"nybl_status_string", [](S &) { return nybl_status_string(NYBL_OK) ? NYBL_OK : NYBL_INTERNAL; }},
        {"nybl_last_error", [](S &) { return nybl_last_error() ? NYBL_OK : NYBL_INTERNAL; }},
        {"nybl_version", [](S &) { return nybl_version() ? NYBL_OK : NYBL_INTERNAL; }},
        {"nybl_build_info", [](S &) { return nybl_build_info() ? NYBL_OK : NYBL_INTERNAL; }},
        {"nybl_isa_string", [](S &) { return nybl_isa_string(NYBL_ISA_AVX2) ? NYBL_OK : NYBL_INTERNAL; }},
        {"nybl_format_get_info",
         [](S &) {
             auto info = nybl::make<nybl_format_info>();
             return nybl_format_get_info(NYBL_Q4_K, &info);
         }},
        {"nybl_row_bytes",
         [](S &s) {
             size_t bytes = 0;
             return keep(s, nybl_row_bytes(NYBL_Q4_K, S::kK, &bytes), &bytes, sizeof bytes);
         }},
        {"nybl_quantize",
         [](S &s) {
             return nybl_quantize(NYBL_Q4_0, S::kM, S::kK, s.d.x.data(), 0, nullptr, s.out.data(), 0);
         }},
        {"nybl_quantize_with",
         [](S &s) {
             const auto with = options(s);
             return nybl_quantize_with(&with, NYBL_Q4_K, S::kPrefillM, S::kK, s.d.x.data(), 0, nullptr,
                                       s.out.data(), 0);
         }},
        {"nybl_dequantize",
         [](S &s) { return nybl_dequantize(NYBL_Q4_1, 8, S::kK, s.d.q4_1.data(), 0, s.y(), 0); }},
        {"nybl_dequantize_with",
         [](S &s) {
             const auto with = options(s);
             return nybl_dequantize_with(&with, NYBL_Q4_1, S::kN, S::kK, s.d.q4_1.data(), 0, s.y(), 0);
         }},
        {"nybl_validate", [](S &s) { return nybl_validate(NYBL_Q4_1, S::kN, S::kK, s.d.q4_1.data(), 0, 0); }},
        {"nybl_affine_sizes, nybl_affine_export", affine},
        {"nybl_vec_dot",
         [](S &s) {
             float dot = 0;
             return keep(s, nybl_vec_dot(NYBL_Q4_0, S::kK, s.d.q4_1.data(), s.d.q8_0_row.data(), &dot), &dot,
                         sizeof dot);
         }},
        {"nybl_get_vec_dot",
         [](S &s) {
             nybl_vec_dot_fn fn = nullptr;
             const nybl_status status = nybl_get_vec_dot(NYBL_Q4_K, &fn);
             float dot = 0;
             if (status == NYBL_OK)
                 fn(0, nullptr, nullptr, &dot);
             return keep(s, status, &dot, sizeof dot);
         }},
        {"nybl_context_create, nybl_context_destroy",
         [](S &s) {
             return made_and_gone<nybl_context>(
                 s, [](nybl_context **ctx) { return nybl_context_create(nullptr, ctx); },
                 nybl_context_destroy);
         }},
        {"nybl_context_isa",
         [](S &s) { return nybl_context_isa(s.context.get()) ? NYBL_OK : NYBL_INTERNAL; }},
        {"nybl_context_memory",
         [](S &s) {
             auto stats = nybl::make<nybl_memory_stats>();
             return nybl_context_memory(s.context.get(), &stats);
         }},
        {"nybl_weights_create, nybl_weights_destroy",
         [](S &s) {
             auto desc = s.q4_1_desc();
             desc.validate = 1;
             return weights(s,
                            [&](nybl_weights **w) { return nybl_weights_create(s.context.get(), &desc, w); });
         }},
        {"nybl_weights_create, original storage",
         [](S &s) {
             auto desc = s.q4_1_desc();
             desc.storage = NYBL_STORAGE_ORIGINAL;
             return weights(s,
                            [&](nybl_weights **w) { return nybl_weights_create(s.context.get(), &desc, w); });
         }},
        {"nybl_weights_quantize",
         [](S &s) {
             auto desc = s.q4_1_desc();
             desc.data = nullptr;
             return weights(s, [&](nybl_weights **w) {
                 return nybl_weights_quantize(s.context.get(), &desc, s.d.source.data(), 0, nullptr, nullptr,
                                              w);
             });
         }},
        {"nybl_weights_from_packed",
         [](S &s) {
             auto desc = s.q4_1_desc();
             desc.data = nullptr;
             desc.validate = 1;
             return weights(s, [&](nybl_weights **w) {
                 return nybl_weights_from_packed(s.context.get(), &desc, s.panels, s.panels_bytes,
                                                 s.layout_id, w);
             });
         }},
        {"nybl_weights_bytes",
         [](S &s) {
             const auto desc = s.q4_1_desc();
             size_t bytes = 0;
             return keep(s, nybl_weights_bytes(s.context.get(), &desc, &bytes), &bytes, sizeof bytes);
         }},
        {"nybl_weights_packed",
         [](S &s) {
             const void *panels = nullptr;
             size_t bytes = 0;
             uint64_t id = 0;
             return keep(s, nybl_weights_packed(s.packed.get(), &panels, &bytes, &id), &bytes, sizeof bytes);
         }},
        {"nybl_weights_unpack", [](S &s) { return nybl_weights_unpack(s.packed.get(), s.out.data(), 0); }},
        {"nybl_matmul, decode", [](S &s) { return product(s, s.packed, S::kM); }},
        {"nybl_matmul, prefill", [](S &s) { return product(s, s.packed, S::kPrefillM); }},
        {"nybl_matmul, original decode", [](S &s) { return product(s, s.original, 1); }},
        {"nybl_matmul, original prefill", [](S &s) { return product(s, s.original, S::kPrefillM); }},
        {"nybl_matmul, f32", [](S &s) { return product(s, s.packed, S::kM, NYBL_COMPUTE_F32); }},
        {"nybl_matmul_multi",
         [](S &s) {
             const Two two(s);
             return nybl_matmul_multi(2, two.w, two.args);
         }},
        {"nybl_matmul_multi_scratch_bytes, nybl_matmul_multi_part",
         [](S &s) {
             const Two two(s);
             size_t bytes = 0;
             const nybl_status status = nybl_matmul_multi_scratch_bytes(2, two.w, two.args, 1, &bytes);
             return status != NYBL_OK ? status
                                      : nybl_matmul_multi_part(2, two.w, two.args, 0, 1, s.scratch.data(),
                                                               s.scratch.size(), nullptr, nullptr);
         }},
        {"nybl_matmul_scratch_bytes, nybl_matmul_part",
         [](S &s) {
             const auto args = s.args(S::kM);
             size_t bytes = 0;
             const nybl_status status = nybl_matmul_scratch_bytes(s.packed.get(), &args, 1, &bytes);
             return status != NYBL_OK ? status
                                      : nybl_matmul_part(s.packed.get(), &args, 0, 1, s.scratch.data(),
                                                         s.scratch.size(), nullptr, nullptr);
         }},
        {"nybl_matmul_id",
         [](S &s) {
             const auto args = s.id_args();
             return nybl_matmul_id(s.experts.get(), &args);
         }},
        {"nybl_matmul_id_scratch_bytes, nybl_matmul_id_part",
         [](S &s) {
             const auto args = s.id_args();
             size_t bytes = 0;
             const nybl_status status = nybl_matmul_id_scratch_bytes(s.experts.get(), &args, 1, &bytes);
             return status != NYBL_OK ? status
                                      : nybl_matmul_id_part(s.experts.get(), &args, 0, 1, s.scratch.data(),
                                                            s.scratch.size(), nullptr, nullptr);
         }},
        {"nybl_matmul_explain",
         [](S &s) {
             auto info = nybl::make<nybl_kernel_info>();
             return nybl_matmul_explain(s.packed.get(), S::kM, &info);
         }},
        {"nybl_pack_open, nybl_pack_close",
         [](S &s) {
             auto with = nybl::make<nybl_pack_options>();
             with.verify = 1;
             return made_and_gone<nybl_pack>(
                 s,
                 [&](nybl_pack **pack) {
                     return nybl_pack_open(s.context.get(), s.d.pack.c_str(), &with, pack);
                 },
                 nybl_pack_close);
         }},
        {"nybl_pack_count",
         [](S &s) {
             uint64_t count = 0;
             return keep(s, nybl_pack_count(s.pack.get(), &count), &count, sizeof count);
         }},
        {"nybl_pack_at",
         [](S &s) {
             auto tensor = nybl::make<nybl_pack_tensor>();
             return keep(s, nybl_pack_at(s.pack.get(), 0, &tensor), &tensor.n, sizeof tensor.n);
         }},
        {"nybl_pack_find",
         [](S &s) {
             auto tensor = nybl::make<nybl_pack_tensor>();
             return keep(s, nybl_pack_find(s.pack.get(), "w", &tensor), &tensor.k, sizeof tensor.k);
         }},
        {"nybl_pack_weights",
         [](S &s) {
             return weights(s, [&](nybl_weights **w) { return nybl_pack_weights(s.pack.get(), "w", w); });
         }},
        {"nybl_pack_metadata",
         [](S &s) {
             const void *metadata = nullptr;
             size_t bytes = 0;
             return keep(s, nybl_pack_metadata(s.pack.get(), &metadata, &bytes), &bytes, sizeof bytes);
         }},
    };
}

} // namespace

const Data &Stage::data() {
    static const Data made = [] {
        Data d;
        d.x = random_floats(kPrefillM * kK, 1);
        d.source = random_floats(kExperts * kN * kK, 2);
        d.q4_1 = nybl::quantize(NYBL_Q4_1, kExperts * kN, kK, d.source.data());
        d.q4_k = nybl::quantize(NYBL_Q4_K, kN, kK, d.source.data());
        d.q8_0_row = nybl::quantize(NYBL_Q8_0, 1, kK, d.source.data());
        d.folder = std::make_shared<tools_test::Folder>();
        tools_test::Model model;
        model.tensor("w", {kK, kN}, NYBL_Q4_K, d.q4_k);
        d.pack = tools_test::pack(*d.folder, model.bytes());
        return d;
    }();
    return made;
}

Stage::Stage(nybl_isa max_isa, const nybl_allocator *allocator)
    : context(open_context(max_isa, allocator)), packed(context, describe(NYBL_Q4_1, kN, kK, d.q4_1.data())),
      original(context, describe(NYBL_Q4_K, kN, kK, d.q4_k.data(), 1, NYBL_STORAGE_ORIGINAL)),
      other(context, describe(NYBL_Q4_K, kN, kK, d.q4_k.data())),
      experts(context, describe(NYBL_Q4_1, kN, kK, d.q4_1.data(), kExperts)), pack(context, d.pack.c_str()),
      scratch(1 << 20), out(size_t{4} * kN * kK, kUntouched) {
    nybl::check(nybl_weights_packed(packed.get(), &panels, &panels_bytes, &layout_id));
}

nybl_weights_desc Stage::q4_1_desc() const {
    return describe(NYBL_Q4_1, kN, kK, d.q4_1.data());
}

nybl_matmul_args Stage::args(size_t m) const {
    return f32_args(m, d.x.data(), y());
}

nybl_matmul_id_args Stage::id_args() const {
    auto args = nybl::make<nybl_matmul_id_args>();
    args.n_tokens = ids.size() / kSlots;
    args.n_slots = kSlots;
    args.ids = ids.data();
    args.x = d.x.data();
    args.y = y();
    return args;
}

const std::vector<PublicCall> &public_calls() {
    static const std::vector<PublicCall> calls = table();
    return calls;
}

Results run_all(Stage &stage) {
    Results results;
    for (const PublicCall &call : public_calls()) {
        stage.forget();
        results.push_back(call.call(stage) == NYBL_OK ? stage.out : std::vector<uint8_t>());
    }
    return results;
}

std::string first_difference(const Results &got, const Results &expected) {
    for (size_t i = 0; i < expected.size(); ++i)
        if (got[i] != expected[i] || got[i].empty())
            return public_calls()[i].name;
    return "";
}

} // namespace nybl::fault
