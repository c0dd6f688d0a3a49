// Cuts a job into blocks (segment of rows x chunk of panels), hands them to threads, and quantises the
// activations into the tiles that the blocks read.
#include "cpu/matmul.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "cpu/block.h"
#include "cpu/jit/quantize_kernel.h"
#include "cpu/jit/weight_generator.h"

namespace nybl::cpu {
namespace {

// Rows that meet the same weights: all of them, or those of one expert.
struct Segment {
    size_t product; // which of the job's: in a host's region each thread has a job of its own, on its stack
    size_t n_panels;
    const uint8_t *weights;
    size_t row_begin, rows; // in the order of the quantised activations
    Strategy strategy;
    size_t block_rows, chunk_panels; // of one unit
    size_t unit_begin;

    size_t panels() const noexcept { return n_panels; }
    size_t row_blocks() const noexcept { return (rows + block_rows - 1) / block_rows; }
    size_t chunks() const noexcept { return (panels() + chunk_panels - 1) / chunk_panels; }
    size_t units() const noexcept { return row_blocks() * chunks(); }
};

constexpr size_t align_up(size_t bytes) noexcept {
    return (bytes + 63) / 64 * 64;
}

size_t output_rows(const Job &job) noexcept {
    return job.experts ? job.experts->n_tokens * job.experts->n_slots : job.m;
}
size_t max_segments(const Job &job) noexcept {
    return job.experts ? std::min(job.experts->n_experts, output_rows(job)) : job.n_products;
}
// Products of one job share the activations: those with kernels are of one dot family, and the reference
// reads either. What quantises for AMX is the code of AVX-512.
nybl_isa job_isa(const Job &job) noexcept {
    nybl_isa isa = NYBL_ISA_SCALAR;
    for (size_t p = 0; p < job.n_products; ++p)
        isa = std::max(isa, job.products[p].kernel.isa);
    return std::min(isa, NYBL_ISA_AVX512_VNNI);
}
// Bytes of the activations of m rows x k that phase 2 prepares.
size_t prepared_bytes(const Job &job, size_t m, size_t k) noexcept {
    const KernelChoice &kernel = job.products[0].kernel;
    if (kernel.strategy != Strategy::F32)
        return activation_bytes(m, k);
    return has_f32_kernels(kernel) ? f32_activation_bytes(m, k) : 0;
}

// How scratch is divided. Everything is a function of the job, so each thread finds the pieces for itself.
struct Scratch {
    std::atomic<size_t> *next_unit;
    size_t *n_segments;
    Segment *segments;
    uint32_t *order;    // experts: output row of sorted row i
    uint32_t *position; // experts: sorted row of output row i
    uint32_t *counts;   // experts: rows of each expert, then where its next row goes
    uint8_t *acts;
    uint8_t *workspaces;
    size_t workspace_bytes; // of one thread
    size_t total;

    Scratch(const Job &job, void *base, size_t nth) noexcept {
        size_t offset = 0;
        const auto take = [&](size_t bytes) {
            const size_t at = offset;
            offset += align_up(bytes);
            return base ? static_cast<uint8_t *>(base) + at : nullptr; // no base: only the total is asked for
        };
        const size_t rows = output_rows(job), sorted_rows = job.experts ? rows : 0;
        next_unit = reinterpret_cast<std::atomic<size_t> *>(take(64));
        n_segments = reinterpret_cast<size_t *>(take(64));
        segments = reinterpret_cast<Segment *>(take(sizeof(Segment) * max_segments(job)));
        order = reinterpret_cast<uint32_t *>(take(4 * sorted_rows));
        position = reinterpret_cast<uint32_t *>(take(4 * sorted_rows));
        counts = reinterpret_cast<uint32_t *>(take(job.experts ? 4 * job.experts->n_experts : 0));
        acts = take(prepared_bytes(job, rows, job.k));
        workspace_bytes = align_up(activation_bytes(1, job.k));
        for (size_t p = 0; p < job.n_products; ++p)
            workspace_bytes = std::max(workspace_bytes, align_up(block_workspace_bytes(job.products[p])));
        workspaces = take(workspace_bytes * nth);
        total = offset;
    }
};

// Chooses the strategy of a segment and the size of its units; their number.
size_t plan_segment(const Job &job, size_t nth, Segment *segment) noexcept {
    const Product &product = job.products[segment->product];
    const KernelChoice &kernel = product.kernel;
    segment->n_panels = panel_count(product.w.n);
    segment->strategy = kernel.strategy;
    if (job.experts && kernel.strategy == Strategy::Tiled && segment->rows <= kernel.stream_max_m)
        segment->strategy = Strategy::Stream;
    // Units small enough that a slow core does not hold up the rest, and large enough to stream.
    constexpr size_t kMinChunkBytes = 32 << 10, kUnitsPerThread = 10;
    const bool few_panels = segment->panels() * kPanelRows < nth * kUnitsPerThread * kernel.nr;
    segment->block_rows = rows_per_block(product, segment->strategy, segment->rows, nth > 1 && few_panels);
    const Matrix &w = product.w;
    const size_t panel_size = w.k / w.format->block_size * w.format->block_bytes * kPanelRows;
    const size_t min_panels = std::max<size_t>(1, kMinChunkBytes / panel_size);
    const size_t total =
        segment->panels() * segment->row_blocks() * (job.experts ? max_segments(job) : job.n_products);
    const size_t share = nth == 1 ? segment->panels() : total / (nth * kUnitsPerThread);
    size_t panels = std::clamp(share, std::min(min_panels, segment->panels()), segment->panels());
    // Whole kernel's heights where every thread still gets some: what is left over runs panel by panel, at
    // half the speed.
    const size_t height = std::max<size_t>(1, kernel.nr / kPanelRows);
    if (panels > height)
        panels -= panels % height;
    else if (total >= 2 * nth * height)
        panels = std::min(height, segment->panels());
    segment->chunk_panels = panels;
    return segment->units();
}

// Sorts output rows by expert (stable, so that a row's place depends on the ids alone).
size_t sort_by_expert(const Job &job, Scratch &scratch) noexcept {
    const Experts &experts = *job.experts;
    const size_t rows = output_rows(job);
    std::memset(scratch.counts, 0, 4 * experts.n_experts);
    for (size_t i = 0; i < rows; ++i)
        if (experts.id(i) >= 0)
            ++scratch.counts[experts.id(i)];
    size_t n_segments = 0, row_begin = 0;
    for (size_t e = 0; e < experts.n_experts; ++e) {
        const size_t count = scratch.counts[e];
        scratch.counts[e] = uint32_t(row_begin);
        if (count == 0)
            continue;
        Segment &segment = scratch.segments[n_segments++];
        segment.product = 0;
        segment.weights = job.products->w.data + e * job.products->w.expert_stride;
        segment.row_begin = row_begin;
        segment.rows = count;
        row_begin += count;
    }
    for (size_t i = 0; i < rows; ++i)
        if (experts.id(i) >= 0) {
            scratch.position[i] = scratch.counts[experts.id(i)]++;
            scratch.order[scratch.position[i]] = uint32_t(i);
        }
    return n_segments;
}

// Where quantised rows of a job go: a generated quantizer writes into the tiles itself, the plain one by way
// of a buffer.
struct Quantizer {
    const Job &job;
    const Scratch &scratch;
    ActivationGroup *buffer;
    jit::QuantizeFn kernel;

    Quantizer(const Job &of, const Scratch &in, size_t ith) noexcept
        : job(of), scratch(in),
          buffer(reinterpret_cast<ActivationGroup *>(in.workspaces + ith * in.workspace_bytes)),
          kernel(unquantised() || job_isa(of) == NYBL_ISA_SCALAR
                     ? nullptr
                     : jit::quantize_kernel(of.x.type, job_isa(of), fields(of))) {}

    // What is made of a group: what some product's kernel reads. The reference asks for no more.
    static uint8_t fields(const Job &of) noexcept {
        uint8_t all = 0;
        for (size_t p = 0; p < of.n_products; ++p)
            all |= of.products[p].w.layout ? jit::activation_fields(*of.products[p].w.layout)
                                           : kAllActivationFields;
        return all;
    }

    bool unquantised() const noexcept { return job.products[0].kernel.strategy == Strategy::F32; }

    // Groups from g_begin on of row i of a segment that starts at `begin`.
    struct Place {
        uint8_t *tile;
        size_t tile_rows, t;
    };
    Place place(size_t begin, size_t rows, size_t i, size_t g_begin) const noexcept {
        const size_t mr = job.products[0].kernel.mr, first = i / mr * mr;
        const size_t tile_rows = std::min(mr, rows - first);
        return {scratch.acts + prepared_bytes(job, begin + first, job.k) +
                    prepared_bytes(job, tile_rows, 32 * g_begin),
                tile_rows, i - first};
    }
    Place expert_place(size_t output_row, size_t g_begin) const noexcept {
        const size_t position = scratch.position[output_row];
        const Segment *segment =
            std::upper_bound(scratch.segments, scratch.segments + *scratch.n_segments, position,
                             [](size_t p, const Segment &s) { return p < s.row_begin; }) -
            1;
        return place(segment->row_begin, segment->rows, position - segment->row_begin, g_begin);
    }

    void run(size_t row, size_t g_begin, size_t n_groups, const Place &to) const noexcept {
        const size_t end = (job.k - job.pad) / 32;
        const size_t in_x = g_begin < end ? std::min(n_groups, end - g_begin) : 0;
        if (in_x > 0)
            run_in_x(row, g_begin, in_x, to);
        for (size_t g = in_x; g < n_groups; ++g)
            put_zeros(to, g);
    }

  private:
    // Group g behind a place, where x has ended: what a group of zeros is quantised to.
    void put_zeros(const Place &to, size_t g) const noexcept {
        uint8_t *tile = to.tile + prepared_bytes(job, to.tile_rows, 32 * g);
        constexpr ActivationGroup kZero{};
        constexpr uint8_t kZeros[32 * sizeof(float)] = {};
        if (unquantised())
            scatter_f32_row(NYBL_F32, kZeros, 32, to.t, to.tile_rows, tile);
        else
            scatter_row(&kZero, 1, to.t, to.tile_rows, tile);
    }

    void run_in_x(size_t row, size_t g_begin, size_t n_groups, const Place &to) const noexcept {
        const size_t element = job.x.type == NYBL_F32 ? 4 : 2;
        const uint8_t *x = job.x.row(row) + 32 * g_begin * element;
        if (unquantised())
            return scatter_f32_row(job.x.type, x, 32 * n_groups, to.t, to.tile_rows, to.tile);
        if (kernel) {
            const jit::QuantizeArgs args{.x = x,
                                         .q = to.tile + 32 * to.t,
                                         .fields = to.tile + 32 * to.tile_rows + 4 * to.t,
                                         .tile_rows = to.tile_rows,
                                         .groups = n_groups};
            return kernel(&args);
        }
        quantize_row(dot_family(job_isa(job)), job.x.type, x, 32 * n_groups, buffer);
        scatter_row(buffer, n_groups, to.t, to.tile_rows, to.tile);
    }
};

// Quantises groups [g_begin, g_end) of one activation row into the tiles of the output rows that read it.
void quantize_part_of_row(const Quantizer &quantizer, size_t row, size_t g_begin, size_t g_end) noexcept {
    const Job &job = quantizer.job;
    const size_t n_groups = g_end - g_begin;
    if (!job.experts)
        return quantizer.run(row, g_begin, n_groups, quantizer.place(0, job.m, row, g_begin));
    const Experts &experts = *job.experts;
    const size_t first = experts.shared_x ? row * experts.n_slots : row;
    Quantizer::Place done{};
    for (size_t i = first; i < first + (experts.shared_x ? experts.n_slots : 1); ++i) {
        if (experts.id(i) < 0)
            continue;
        const Quantizer::Place to = quantizer.expert_place(i, g_begin);
        if (done.tile && !quantizer.unquantised())
            copy_row({done.tile, done.tile_rows, done.t}, n_groups, to.t, to.tile_rows, to.tile);
        else
            quantizer.run(row, g_begin, n_groups, done = to);
    }
}

void zero_rows_without_expert(const Job &job, size_t ith, size_t nth) noexcept {
    const Product &product = job.products[0];
    const size_t bytes = product.w.n * (product.y.type == NYBL_F32 ? 4 : 2);
    for (size_t i = ith; i < output_rows(job); i += nth)
        if (job.experts->id(i) < 0)
            std::memset(product.y.row(i), 0, bytes);
}

void run_unit(const Job &job, const Scratch &scratch, const Segment &segment, size_t unit,
              uint8_t *workspace) noexcept {
    // Chunks of panels outermost: the rows of a chunk meet weights that are still in the cache.
    const size_t row_block = unit % segment.row_blocks(), chunk = unit / segment.row_blocks();
    Block block{};
    block.job = &job;
    block.product = job.products + segment.product;
    block.weights = segment.weights;
    block.acts = scratch.acts + prepared_bytes(job, segment.row_begin, job.k);
    block.order = job.experts ? scratch.order + segment.row_begin : nullptr;
    block.segment_rows = segment.rows;
    block.row_begin = row_block * segment.block_rows;
    block.row_end = std::min(segment.rows, block.row_begin + segment.block_rows);
    block.panel_begin = chunk * segment.chunk_panels;
    block.panel_end = std::min(segment.panels(), block.panel_begin + segment.chunk_panels);
    block.workspace = workspace;
    run_block(block, segment.strategy);
}

} // namespace

size_t scratch_bytes(const Job &job, size_t nth) noexcept {
    return Scratch(job, nullptr, nth).total;
}

void begin(const Job &job, void *base, size_t nth) noexcept {
    Scratch scratch(job, base, nth);
    if (job.experts) {
        *scratch.n_segments = sort_by_expert(job, scratch);
    } else {
        *scratch.n_segments = job.n_products;
        for (size_t p = 0; p < job.n_products; ++p) {
            scratch.segments[p].product = p;
            scratch.segments[p].weights = job.products[p].w.data;
            scratch.segments[p].row_begin = 0;
            scratch.segments[p].rows = job.m;
        }
    }
    size_t units = 0;
    for (size_t s = 0; s < *scratch.n_segments; ++s) {
        scratch.segments[s].unit_begin = units;
        units += plan_segment(job, nth, scratch.segments + s);
    }
    new (scratch.next_unit) std::atomic<size_t>(0);
}

void quantize(const Job &job, void *base, size_t ith, size_t nth) noexcept {
    const Scratch scratch(job, base, nth);
    if (job.experts)
        zero_rows_without_expert(job, ith, nth);
    if (prepared_bytes(job, 1, job.k) == 0)
        return;
    // An even share of all strips of rows, tile by tile and strip by strip, so that the lines which the rows
    // of a tile have in common stay close, and long enough to read x as a stream.
    constexpr size_t kStripBytes = 56 << 10, kMaxStripGroups = 128;
    const Quantizer quantizer(job, scratch, ith);
    const size_t mr = job.products[0].kernel.mr, groups = job.k / 32;
    const size_t strip = std::min(kMaxStripGroups, kStripBytes / (kActivationBytes * mr));
    const size_t strips = (groups + strip - 1) / strip, total = job.m * strips;
    for (size_t at = total * ith / nth; at < total * (ith + 1) / nth; ++at) {
        const size_t tile = at / (mr * strips), tile_rows = std::min(mr, job.m - tile * mr);
        const size_t in_tile = at % (mr * strips), g = in_tile / tile_rows * strip;
        quantize_part_of_row(quantizer, tile * mr + in_tile % tile_rows, g, std::min(groups, g + strip));
    }
}

void compute(const Job &job, void *base, size_t ith, size_t nth) noexcept {
    const Scratch scratch(job, base, nth);
    uint8_t *workspace = scratch.workspaces + ith * scratch.workspace_bytes;
    const Segment *segment = scratch.segments, *end = scratch.segments + *scratch.n_segments;
    for (;;) {
        const size_t unit = scratch.next_unit->fetch_add(1, std::memory_order_relaxed);
        while (segment != end && unit >= segment->unit_begin + segment->units())
            ++segment;
        if (segment == end)
            return;
        run_unit(job, scratch, *segment, unit - segment->unit_begin, workspace);
    }
}

} // namespace nybl::cpu
