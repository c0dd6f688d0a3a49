// A GPU that runs out of memory or fails at every call in turn, played by fake_opencl.c: a status in words or
// the CPU's result, no object lost, and the next call works.
#include <catch2/catch_test_macros.hpp>

#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <cstdlib>
#include <dlfcn.h>
#include <nybl/nybl_opencl.h>

#include "capi/support.h"
#include "faults/fake_opencl.h"
#include "kernels/child_process.h"

using namespace capi_test;

namespace {

// The library that nybl loads in this process from here on.
struct Fake {
    fake_refuse_fn *refuse;
    fake_end_fn *end;
    fake_live_fn *live;
    decltype(&clCreateBuffer) create_buffer;
    decltype(&clCreateContext) create_context;
    decltype(&clCreateCommandQueue) create_queue;
    decltype(&clReleaseMemObject) release;
    decltype(&clReleaseContext) release_context;
    decltype(&clReleaseCommandQueue) release_queue;

    Fake() {
        setenv("NYBL_OPENCL_LIBRARY", NYBL_FAKE_OPENCL, 1);
        void *library = dlopen(NYBL_FAKE_OPENCL, RTLD_NOW | RTLD_LOCAL);
        const auto find = [&](const char *name, auto &function) {
            function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
        };
        find("fake_refuse", refuse);
        find("fake_end", end);
        find("fake_live", live);
        find("clCreateBuffer", create_buffer);
        find("clCreateContext", create_context);
        find("clCreateCommandQueue", create_queue);
        find("clReleaseMemObject", release);
        find("clReleaseContext", release_context);
        find("clReleaseCommandQueue", release_queue);
    }
};

constexpr size_t kN = 40, kK = 256, kM = 3, kExperts = 2;
constexpr int kErrors[] = {CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_RESOURCES, CL_OUT_OF_HOST_MEMORY,
                           CL_DEVICE_NOT_AVAILABLE};
constexpr unsigned kMostCalls = 300;

// Everything that a GPU context does for a host.
struct Session {
    std::vector<uint8_t> blocks = random_blocks(NYBL_Q4_1, kExperts *kN, kK, 1);
    std::vector<float> x = random_floats(kM * kK, 2), bias = random_floats(kN, 3);
    std::vector<int32_t> ids{1, -1, 0};
    std::vector<float> y, pair, slots;
    uint64_t warnings = 0;

    void run(nybl_device device) {
        for (std::vector<float> *out : {&y, &pair, &slots})
            *out = unwritten(kM * kN);
        auto desc = nybl::make<nybl_context_desc>();
        desc.device = device;
        desc.n_threads = 1;
        desc.log = [](void *user, int level, const char *) {
            static_cast<Session *>(user)->warnings += level == 1;
        };
        desc.log_user = this;
        const nybl::Context ctx(desc);
        const nybl::Weights w(ctx, describe(NYBL_Q4_1, kN, kK, blocks.data()));
        const nybl::Weights same(ctx, describe(NYBL_Q4_1, kN, kK, blocks.data()));
        const nybl::Weights experts(ctx, describe(NYBL_Q4_1, kN, kK, blocks.data(), kExperts));
        auto args = f32_args(kM, x.data(), y.data());
        args.bias = bias.data();
        args.compute = NYBL_COMPUTE_INT8;
        nybl::check(nybl_matmul(w.get(), &args));
        std::vector<float> first(kM * kN);
        const nybl_weights *both[2] = {w.get(), same.get()};
        nybl_matmul_args two[2] = {args, args};
        two[0].y = first.data();
        two[1].y = pair.data();
        nybl::check(nybl_matmul_multi(2, both, two));
        auto id_args = nybl::make<nybl_matmul_id_args>();
        id_args.n_tokens = kM;
        id_args.n_slots = 1;
        id_args.ids = ids.data();
        id_args.x = x.data();
        id_args.y = slots.data();
        id_args.compute = NYBL_COMPUTE_INT8;
        nybl::check(nybl_matmul_id(experts.get(), &id_args));
    }
};

bool all_zero(const std::vector<float> &values) {
    return bits(values) == std::vector<uint32_t>(values.size());
}

// The fake's device computes zeros, so a result tells who computed it.
std::string who_computed(const Session &got, const Session &cpu) {
    const auto who = [](const std::vector<float> &a, const std::vector<float> &b) {
        return bits(a) == bits(b) ? "c" : all_zero(a) ? "g" : "?";
    };
    return std::string(who(got.y, cpu.y)) + who(got.pair, cpu.pair) + who(got.slots, cpu.slots);
}

std::string check_failures(int error, unsigned count, const Session &cpu, unsigned *failures) {
    const Fake fake;
    for (unsigned first = 0; first < kMostCalls; ++first) {
        Session session;
        const std::string where = "call " + std::to_string(first) + ": ";
        fake.refuse(first, count, error);
        try {
            session.run(NYBL_DEVICE_GPU);
        } catch (const nybl::Error &failed) {
            const bool right = failed.status() == NYBL_OUT_OF_MEMORY ||
                               failed.status() == NYBL_DEVICE_ERROR ||
                               failed.status() == NYBL_UNSUPPORTED_HARDWARE;
            if (!right || std::string(failed.what()).find("GPU: ") != 0)
                return where + failed.what();
        }
        const char *function = fake.end();
        if (fake.live() != 0)
            return where + "left " + std::to_string(fake.live()) + " objects after " +
                   (function ? function : "nothing");
        if (!function)
            return "";
        ++*failures;
        if (!session.y.empty() && bits(session.y) != bits(unwritten(kM * kN))) {
            const std::string who = who_computed(session, cpu);
            if (who.find('?') != std::string::npos)
                return where + "neither device nor CPU computed a result after " + function;
            if (who == "ggg" && std::string(function) != "clEnqueueUnmapMemObject" &&
                std::string(function) != "clEnqueueMapBuffer")
                return where + "nothing came of a failing " + function;
            if (who != "ggg" && session.warnings == 0)
                return where + "no word in the log after " + function;
        }
        session.run(NYBL_DEVICE_GPU);
        if (who_computed(session, cpu) != "ggg")
            return where + "the next session is not on the device after " + function;
        if (fake.live() != 0)
            return where + "the next session left objects";
    }
    return "more calls than expected";
}

} // namespace

TEST_CASE("faults: a device that fails at any call leaves the CPU's result or a status, and loses nothing",
          "[faults][gpu]") {
    Session cpu;
    cpu.run(NYBL_DEVICE_CPU);
    for (const int error : kErrors)
        for (const unsigned count : {1u, 1000u}) {
            INFO("OpenCL error " << error << ", " << count << " failures");
            unsigned failures = 0;
            CHECK(nybl::test::run_in_child([&] {
                      const std::string wrong = check_failures(error, count, cpu, &failures);
                      return !wrong.empty() ? wrong : failures < 40 ? "only a few calls failed" : "";
                  }) == "");
        }
}

TEST_CASE("faults: a device that fails under a host's own buffers is a status in words", "[faults][gpu]") {
    CHECK(nybl::test::run_in_child([]() -> std::string {
              const Fake fake;
              auto objects = nybl::make<nybl_opencl_desc>();
              cl_int error = CL_SUCCESS;
              int device = 0;
              objects.device = reinterpret_cast<cl_device_id>(&device);
              objects.context = fake.create_context(nullptr, 1, &objects.device, nullptr, nullptr, &error);
              objects.queue = fake.create_queue(objects.context, objects.device, 0, &error);
              const cl_mem x = fake.create_buffer(objects.context, 0, 4 * kM * kK, nullptr, &error);
              const cl_mem y = fake.create_buffer(objects.context, 0, 4 * kM * kN, nullptr, &error);
              const int hosts_own = fake.live();
              const auto blocks = random_blocks(NYBL_Q4_1, kN, kK, 1);
              for (const int code : kErrors)
                  for (unsigned first = 0;; ++first) {
                      if (first == kMostCalls)
                          return "more calls than expected";
                      nybl_context *ctx = nullptr;
                      nybl_weights *w = nullptr;
                      auto desc = describe(NYBL_Q4_1, kN, kK, blocks.data());
                      auto args = nybl::make<nybl_opencl_matmul_args>();
                      args.m = kM;
                      args.x = x, args.y = y;
                      fake.refuse(first, 1, code);
                      nybl_status status = nybl_opencl_context_create(&objects, nullptr, &ctx);
                      if (status == NYBL_OK)
                          status = nybl_weights_create(ctx, &desc, &w);
                      if (status == NYBL_OK)
                          status = nybl_opencl_matmul(w, &args);
                      const std::string words = nybl_last_error();
                      const char *failed = fake.end();
                      // The handle that creation left is whole, and the next product works where it is on the
                      // device.
                      const nybl_status next = w ? nybl_opencl_matmul(w, &args) : NYBL_OK;
                      nybl_weights_destroy(w);
                      nybl_context_destroy(ctx);
                      if (fake.live() != hosts_own)
                          return std::string("objects are left after ") + (failed ? failed : "nothing");
                      if (!failed && status == NYBL_OK)
                          break;
                      if (status == NYBL_OK || words.empty() || !failed)
                          return std::string("no status after a failing ") + (failed ? failed : "nothing") +
                                 words;
                      if (next != NYBL_OK && next != NYBL_UNSUPPORTED)
                          return std::string("the next product: ") + nybl_last_error();
                  }
              fake.release(x);
              fake.release(y);
              fake.release_queue(objects.queue);
              fake.release_context(objects.context);
              return fake.live() == 0 ? "" : "the host's own objects are held";
          }) == "");
}
