// Weights in oneDNN's memory: decoded from panels straight into their final layout, tile by tile.
#include "gpu/onednn/engine.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <utility>

#include "base/status.h"

namespace nybl::gpu {
namespace {

// F16 holds a normal number to 2^-11; one that is worse fell below its normal range.
constexpr float kMaxRoundingError = 0x1p-10f;

// Memory of the host for a while.
class Temporary {
  public:
    explicit Temporary(Memory &memory) noexcept : memory_(memory) {}
    ~Temporary() { memory_.deallocate(data_, size_); }
    Temporary(const Temporary &) = delete;
    Temporary &operator=(const Temporary &) = delete;

    nybl_status allocate(size_t size) noexcept {
        void *data = nullptr;
        const nybl_status status = memory_.allocate(size, 64, "decoding weights", &data);
        data_ = static_cast<uint8_t *>(data);
        size_ = status == NYBL_OK ? size : 0;
        return status;
    }
    uint8_t *data() const noexcept { return data_; }

  private:
    Memory &memory_;
    uint8_t *data_ = nullptr;
    size_t size_ = 0;
};

// Packed panels as rows of original blocks, a tile of rows at a time.
class PanelRows {
  public:
    PanelRows(Memory &memory, const cpu::Matrix &packed, cpu::Pool *pool) noexcept
        : packed_(packed), pool_(pool),
          row_bytes_(packed.k / packed.format->block_size * packed.format->block_bytes),
          tiles_((packed.n + kAffineTileRows - 1) / kAffineTileRows),
          parts_(static_cast<uint32_t>(std::min<size_t>(tiles_, pool ? pool->n_threads() : 1))),
          blocks_(memory) {}

    nybl_status allocate() noexcept { return blocks_.allocate(parts_ * tile_bytes()); }
    size_t tiles() const noexcept { return tiles_; }

    // Rows of tile i, in part p's share of the memory.
    AffineSource read(size_t tile, uint32_t part) const noexcept {
        const size_t begin = tile * kAffineTileRows, end = std::min(begin + kAffineTileRows, packed_.n);
        uint8_t *blocks = blocks_.data() + part * tile_bytes();
        for (size_t row = begin; row < end; row += cpu::kPanelRows)
            cpu::unpack_panel(*packed_.layout, packed_.k, std::min(cpu::kPanelRows, end - row),
                              packed_.data + row / cpu::kPanelRows * packed_.stride,
                              blocks + (row - begin) * row_bytes_, row_bytes_);
        return {blocks, row_bytes_, begin};
    }

    // body(tile, rows) for every tile, on the pool's threads.
    template <class Body>
    void for_each(const Body &body) noexcept {
        auto run = [&](uint32_t part) {
            for (size_t tile = part; tile < tiles_; tile += parts_)
                body(tile, read(tile, part));
        };
        using Run = decltype(run);
        if (pool_)
            pool_->parallel_for(
                parts_, [](void *data, uint32_t i) { (*static_cast<Run *>(data))(i); }, &run);
        else
            run(0);
    }

  private:
    size_t tile_bytes() const noexcept { return kAffineTileRows * row_bytes_; }

    const cpu::Matrix &packed_;
    cpu::Pool *pool_;
    size_t row_bytes_, tiles_;
    uint32_t parts_;
    Temporary blocks_;
};

void raise_to(std::atomic<float> *largest, float value) noexcept {
    float seen = largest->load(std::memory_order_relaxed);
    while (seen < value && !largest->compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
    }
}

nybl_status make_plan(const cpu::Matrix &packed, nybl_format params, AffinePlan *plan) noexcept {
    return plan_affine(packed.format->id, packed.n, packed.k, params, NYBL_GROUP_MAJOR, false, plan);
}

bool all_fit(const AffinePlan &plan, PanelRows &rows) noexcept {
    std::atomic<bool> fit{true};
    rows.for_each([&](size_t tile, const AffineSource &source) {
        const size_t begin = tile * kAffineTileRows;
        if (check_affine(plan, source, begin, std::min(begin + kAffineTileRows, plan.n)) != NYBL_OK)
            fit.store(false, std::memory_order_relaxed);
    });
    return fit.load(std::memory_order_relaxed);
}

void release_all(OneDnn &dnn, OneDnnWeights *weights) noexcept {
    for (Allocation *allocation : {&weights->codes, &weights->scales, &weights->zeros})
        dnn.release(allocation);
}

// Allocates and fills; returns the largest relative error of a parameter.
float fill(OneDnn &dnn, PanelRows &rows, OneDnnWeights *weights) {
    const Shapes shapes(weights->plan(dnn, 1, NYBL_F16));
    weights->codes = dnn.allocate(shapes.codes);
    weights->scales = dnn.allocate(shapes.params);
    if (weights->affine.format->has_min)
        weights->zeros = dnn.allocate(shapes.params);
    Mapped codes(weights->codes.mem), scales(weights->scales.mem);
    const auto write = [&](uint8_t *zeros) {
        const AffineTarget target{codes.data(), scales.data(), zeros};
        std::atomic<float> worst{0.0f};
        rows.for_each([&](size_t tile, const AffineSource &source) {
            raise_to(&worst, export_affine(weights->affine, source, target, tile, tile + 1));
        });
        codes.unmap();
        scales.unmap();
        return worst.load(std::memory_order_relaxed);
    };
    if (!weights->affine.format->has_min)
        return write(nullptr);
    Mapped zeros(weights->zeros.mem);
    const float worst = write(zeros.data());
    zeros.unmap();
    return worst;
}

// What oneDNN would run for one row must be worth running; more rows have at least that.
nybl_status check_implementation(const OneDnn &dnn, const OneDnnWeights &weights) {
    char name[48];
    dnn.name_implementation(weights.plan(dnn, 1, NYBL_F16), name, sizeof name);
    if (dnn.is_fast(name))
        return NYBL_OK;
    return fail(NYBL_UNSUPPORTED, "oneDNN: this device gets its %s for %s", name,
                weights.affine.format->name);
}

nybl_status make(OneDnn &dnn, const cpu::Matrix &packed, cpu::Pool *pool, OneDnnWeights *weights) {
    if (const nybl_status status = make_plan(packed, dnn.settings.params, &weights->affine);
        status != NYBL_OK)
        return status;
    if (const nybl_status status = check_implementation(dnn, *weights); status != NYBL_OK)
        return status;
    PanelRows rows(dnn.memory, packed, pool);
    if (const nybl_status status = rows.allocate(); status != NYBL_OK)
        return status;
    // Parameters that F16 cannot hold, or only as subnormal numbers, stay F32.
    if (all_fit(weights->affine, rows) && fill(dnn, rows, weights) <= kMaxRoundingError)
        return NYBL_OK;
    release_all(dnn, weights);
    if (const nybl_status status = make_plan(packed, NYBL_F32, &weights->affine); status != NYBL_OK)
        return status;
    if (!all_fit(weights->affine, rows))
        return fail(NYBL_INVALID_DATA, "oneDNN: a scale or minimum of the weights is not finite");
    fill(dnn, rows, weights);
    return NYBL_OK;
}

// Rows of a tile that was decoded by itself, against the same rows of the whole tensor.
bool same_tile(const AffinePlan &whole, const AffinePlan &tile, size_t begin, const AffineTarget &have,
               const AffineTarget &want) noexcept {
    const size_t row_bytes = whole.k * code_bits(whole.codes) / 8,
                 param = affine_param_bytes(whole.param_type);
    bool same = std::memcmp(have.codes + begin * row_bytes, want.codes, tile.codes_size) == 0;
    for (size_t g = 0; same && g < whole.groups(); ++g) {
        const size_t at = (g * whole.n + begin) * param, from = g * tile.n * param, size = tile.n * param;
        same = std::memcmp(have.scales + at, want.scales + from, size) == 0 &&
               (!have.zeros || std::memcmp(have.zeros + at, want.zeros + from, size) == 0);
    }
    return same;
}

bool holds(OneDnn &dnn, const OneDnnWeights &weights, const cpu::Matrix &packed) {
    const AffinePlan &whole = weights.affine;
    PanelRows rows(dnn.memory, packed, nullptr);
    Temporary decoded(dnn.memory);
    const size_t codes_bytes = kAffineTileRows * whole.k;
    const size_t params_bytes = kAffineTileRows * whole.groups() * sizeof(float);
    if (rows.allocate() != NYBL_OK || decoded.allocate(codes_bytes + 2 * params_bytes) != NYBL_OK)
        return false;
    const AffineTarget want{decoded.data(), decoded.data() + codes_bytes,
                            decoded.data() + codes_bytes + params_bytes};
    const Mapped codes(weights.codes.mem), scales(weights.scales.mem);
    const auto all_same = [&](uint8_t *zeros) {
        const AffineTarget have{codes.data(), scales.data(), zeros};
        for (size_t i = 0; i < rows.tiles(); ++i) {
            AffineSource source = rows.read(i, 0);
            const size_t begin = std::exchange(source.first_row, 0);
            AffinePlan tile;
            if (plan_affine(whole.format->id, std::min(kAffineTileRows, whole.n - begin), whole.k,
                            whole.param_type, NYBL_GROUP_MAJOR, false, &tile) != NYBL_OK)
                return false;
            export_affine(tile, source, want, 0, 1);
            if (!same_tile(whole, tile, begin, have, want))
                return false;
        }
        return true;
    };
    if (!whole.format->has_min)
        return all_same(nullptr);
    const Mapped zeros(weights.zeros.mem);
    return all_same(zeros.data());
}

} // namespace

nybl_status upload_onednn(OneDnn &dnn, const cpu::Matrix &packed, cpu::Pool *pool,
                          OneDnnWeights **out) noexcept {
    void *storage = nullptr;
    if (const nybl_status status =
            dnn.memory.allocate(sizeof(OneDnnWeights), alignof(OneDnnWeights), "oneDNN weights", &storage);
        status != NYBL_OK)
        return status;
    OneDnnWeights *made = nullptr;
    nybl_status status = NYBL_OK;
    try {
        made = ::new (storage) OneDnnWeights;
        status = make(dnn, packed, pool, made);
    } catch (...) {
        status = fail_onednn("copying weights to the device");
    }
    if (status != NYBL_OK) {
        if (made)
            release_onednn(dnn, made);
        else
            dnn.memory.deallocate(storage, sizeof(OneDnnWeights));
        return status;
    }
    *out = made;
    return NYBL_OK;
}

void release_onednn(OneDnn &dnn, OneDnnWeights *weights) noexcept {
    release_all(dnn, weights);
    weights->~OneDnnWeights();
    dnn.memory.deallocate(weights, sizeof(OneDnnWeights));
}

void abandon_onednn_weights(OneDnn &dnn, OneDnnWeights *weights) noexcept {
    dnn.memory.deallocate(weights, sizeof(OneDnnWeights));
}

bool onednn_holds(OneDnn &dnn, const OneDnnWeights &weights, const cpu::Matrix &packed) noexcept {
    try {
        return holds(dnn, weights, packed);
    } catch (...) { // then there will be two copies
        return false;
    }
}

nybl_status name_onednn(const OneDnn &dnn, nybl_format format, size_t m, size_t n, size_t k,
                        OneDnnUse *use) noexcept {
    OneDnnWeights absent;
    if (const nybl_status status =
            plan_affine(format, n, k, dnn.settings.params, NYBL_GROUP_MAJOR, false, &absent.affine);
        status != NYBL_OK)
        return status;
    try {
        use->plan = absent.plan(dnn, m, NYBL_F16);
        dnn.name_implementation(use->plan, use->implementation, sizeof use->implementation);
        return NYBL_OK;
    } catch (...) {
        return fail_onednn("naming an implementation");
    }
}

size_t onednn_param_bytes(const OneDnnWeights &weights) noexcept {
    return weights.scales.bytes + weights.zeros.bytes;
}

} // namespace nybl::gpu
