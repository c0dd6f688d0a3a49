/* fake_i915.c: LD_PRELOAD this and the Intel Compute Runtime finds an Intel GPU that is not there. Kernels
 * compile (IGC), buffers exist, enqueues complete as no-ops: for tests of device choice, program builds and
 * oneDNN primitive creation, never of results. Knobs: SHIM_DEV (PCI id), SHIM_REV, SHIM_SLICES, SHIM_SS,
 * SHIM_EU, SHIM_LMEM, SHIM_ENGINES, SHIM_GTT, SHIM_DEBUG. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include "drm.h"
#include "i915_drm.h"
static int fds[256], nfd;
static int is(int fd) {
    for (int i = 0; i < nfd; i++)
        if (fds[i] == fd)
            return 1;
    return 0;
}
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static uint64_t top = 1 << 20;
static uint32_t nh = 1;
static struct { uint64_t off, size; } bo[1 << 16];
static int dbg(void) {
    static int d = -1;
    if (d < 0)
        d = getenv("SHIM_DEBUG") != 0;
    return d;
}
static long ev(const char *k, long d) {
    const char *s = getenv(k);
    return s ? strtol(s, 0, 0) : d;
}
static int isnode(const char *p) {
    return p && !strcmp(p, "/dev/dri/renderD128");
}
static int mkfd(void) {
    int fd = memfd_create("drmshim", MFD_CLOEXEC);
    if (ftruncate(fd, 1ll << 38))
        perror("ftruncate");
    pthread_mutex_lock(&mu);
    fds[nfd++] = fd;
    pthread_mutex_unlock(&mu);
    return fd;
}
typedef int (*open_t)(const char *, int, ...);
#define OPEN(nm)                                                                                             \
    int nm(const char *p, int fl, ...) {                                                                     \
        va_list a;                                                                                           \
        va_start(a, fl);                                                                                     \
        int m = va_arg(a, int);                                                                              \
        va_end(a);                                                                                           \
        if (isnode(p)) {                                                                                     \
            if (dbg())                                                                                       \
                fprintf(stderr, "shim: open %s\n", p);                                                       \
            return mkfd();                                                                                   \
        }                                                                                                    \
        static open_t r;                                                                                     \
        if (!r)                                                                                              \
            r = (open_t)dlsym(RTLD_NEXT, #nm);                                                               \
        return r(p, fl, m);                                                                                  \
    }
OPEN(open)
OPEN(open64)
#define OPEN2(nm)                                                                                            \
    int nm(const char *p, int fl) {                                                                          \
        if (isnode(p)) {                                                                                     \
            if (dbg())                                                                                       \
                fprintf(stderr, "shim: open %s\n", p);                                                       \
            return mkfd();                                                                                   \
        }                                                                                                    \
        static int (*r)(const char *, int);                                                                  \
        if (!r)                                                                                              \
            r = dlsym(RTLD_NEXT, #nm);                                                                       \
        return r(p, fl);                                                                                     \
    }
OPEN2(__open_2) OPEN2(__open64_2) static uint32_t newbo(uint64_t size) {
    pthread_mutex_lock(&mu);
    uint32_t h = nh++;
    bo[h & 0xffff].off = top;
    bo[h & 0xffff].size = size;
    top += (size + 0x1fffff) & ~0x1fffffull;
    pthread_mutex_unlock(&mu);
    return h;
}
static int64_t q(struct drm_i915_query_item *it) {
    uint8_t buf[4096];
    memset(buf, 0, sizeof buf);
    size_t n = 0;
    switch (it->query_id) {
    case DRM_I915_QUERY_TOPOLOGY_INFO: {
        struct drm_i915_query_topology_info *t = (void *)buf;
        int S = ev("SHIM_SLICES", 8), SS = ev("SHIM_SS", 4), EU = ev("SHIM_EU", 16);
        t->max_slices = S;
        t->max_subslices = SS;
        t->max_eus_per_subslice = EU;
        t->subslice_offset = (S + 7) / 8;
        t->subslice_stride = (SS + 7) / 8;
        t->eu_offset = t->subslice_offset + S * t->subslice_stride;
        t->eu_stride = (EU + 7) / 8;
        for (int s = 0; s < S; s++)
            t->data[s / 8] |= 1 << (s % 8);
        for (int s = 0; s < S; s++)
            for (int x = 0; x < SS; x++) {
                t->data[t->subslice_offset + s * t->subslice_stride + x / 8] |= 1 << (x % 8);
                for (int e = 0; e < EU; e++)
                    t->data[t->eu_offset + (s * SS + x) * t->eu_stride + e / 8] |= 1 << (e % 8);
            }
        n = sizeof *t + t->eu_offset + S * SS * t->eu_stride;
        break;
    }
    case DRM_I915_QUERY_ENGINE_INFO: {
        struct drm_i915_query_engine_info *e = (void *)buf;
        int k = 0;
        int cls[] = {0, 1, 4, 4, 4, 4};
        int inst[] = {0, 0, 0, 1, 2, 3};
        int ne = ev("SHIM_ENGINES", 3);
        for (int i = 0; i < ne; i++) {
            e->engines[k].engine.engine_class = cls[i];
            e->engines[k].engine.engine_instance = inst[i];
            e->engines[k].flags = 1;
            k++;
        }
        e->num_engines = k;
        n = sizeof *e + k * sizeof e->engines[0];
        break;
    }
    case DRM_I915_QUERY_MEMORY_REGIONS: {
        struct drm_i915_query_memory_regions *m = (void *)buf;
        int nr = ev("SHIM_LMEM", 1) ? 2 : 1;
        m->num_regions = nr;
        for (int i = 0; i < nr; i++) {
            m->regions[i].region.memory_class = i;
            m->regions[i].probed_size = 16ull << 30;
            m->regions[i].unallocated_size = 16ull << 30;
            m->regions[i].probed_cpu_visible_size = 16ull << 30;
            m->regions[i].unallocated_cpu_visible_size = 16ull << 30;
        }
        n = sizeof *m + nr * sizeof m->regions[0];
        break;
    }
    default:
        it->length = -EINVAL;
        return 0;
    }
    if (it->length == 0) {
        it->length = n;
        return 0;
    }
    if ((size_t)it->length < n) {
        it->length = -EINVAL;
        return 0;
    }
    memcpy((void *)it->data_ptr, buf, n);
    it->length = n;
    return 0;
}
static int handle(int fd, unsigned long req, void *arg) {
    unsigned nr = _IOC_NR(req);
    if (nr < 0x40) {
        if (nr == 0x00) {
            struct drm_version *v = arg;
            v->version_major = 1;
            v->version_minor = 6;
            if (v->name && v->name_len >= 4)
                memcpy(v->name, "i915", 4);
            v->name_len = 4;
            v->date_len = v->desc_len = 0;
            return 0;
        }
        if (nr == 0x09) {
            struct drm_gem_close *c = arg;
            uint32_t h = c->handle & 0xffff;
            if (bo[h].off)
                fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, bo[h].off, bo[h].size);
            return 0;
        }
        return 0;
    }
    switch (nr - 0x40) {
    case DRM_I915_GETPARAM: {
        struct drm_i915_getparam *g = arg;
        int v = 1;
        switch (g->param) {
        case I915_PARAM_CHIPSET_ID:
            v = ev("SHIM_DEV", 0x56a0);
            break;
        case I915_PARAM_REVISION:
            v = ev("SHIM_REV", 8);
            break;
        case I915_PARAM_EU_TOTAL:
            v = ev("SHIM_SLICES", 8) * ev("SHIM_SS", 4) * ev("SHIM_EU", 16);
            break;
        case I915_PARAM_SUBSLICE_TOTAL:
            v = ev("SHIM_SLICES", 8) * ev("SHIM_SS", 4);
            break;
        case I915_PARAM_CS_TIMESTAMP_FREQUENCY:
            v = 19200000;
            break;
        case I915_PARAM_HAS_SCHEDULER:
            v = 0x1f;
            break;
        case I915_PARAM_HAS_POOLED_EU:
            v = 0;
            break;
        case I915_PARAM_MMAP_GTT_VERSION:
            v = 4;
            break;
        }
        *g->value = v;
        return 0;
    }
    case DRM_I915_QUERY: {
        struct drm_i915_query *x = arg;
        struct drm_i915_query_item *it = (void *)x->items_ptr;
        for (unsigned i = 0; i < x->num_items; i++)
            q(it + i);
        return 0;
    }
    case DRM_I915_GEM_CREATE: {
        struct drm_i915_gem_create *c = arg;
        c->handle = newbo(c->size);
        return 0;
    } /* create_ext shares nr and first fields */
    case DRM_I915_GEM_USERPTR: {
        struct drm_i915_gem_userptr *c = arg;
        c->handle = newbo(4096);
        return 0;
    }
    case DRM_I915_GEM_MMAP_GTT: {
        struct drm_i915_gem_mmap_offset *c = arg;
        c->offset = bo[c->handle & 0xffff].off;
        return 0;
    }
    case DRM_I915_GEM_MMAP: {
        struct drm_i915_gem_mmap *c = arg;
        void *p =
            mmap(0, c->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, bo[c->handle & 0xffff].off + c->offset);
        if (p == MAP_FAILED) {
            errno = ENOMEM;
            return -1;
        }
        c->addr_ptr = (uintptr_t)p;
        return 0;
    }
    case DRM_I915_GEM_CONTEXT_CREATE: {
        struct drm_i915_gem_context_create *c = arg;
        static int id = 1;
        c->ctx_id = id++;
        return 0;
    }
    case DRM_I915_GEM_VM_CREATE: {
        struct drm_i915_gem_vm_control *c = arg;
        static int id = 1;
        c->vm_id = id++;
        return 0;
    }
    case DRM_I915_GEM_CONTEXT_GETPARAM: {
        struct drm_i915_gem_context_param *c = arg;
        if (c->param == I915_CONTEXT_PARAM_GTT_SIZE)
            c->value = 1ull << ev("SHIM_GTT", 48);
        else if (c->param == I915_CONTEXT_PARAM_PERSISTENCE)
            c->value = 1;
        else if (c->param == I915_CONTEXT_PARAM_SSEU) {
            errno = EINVAL;
            return -1;
        } else
            c->value = 1;
        return 0;
    }
    case DRM_I915_GET_RESET_STATS: {
        struct drm_i915_reset_stats *r = arg;
        r->reset_count = r->batch_active = r->batch_pending = 0;
        return 0;
    }
    case DRM_I915_REG_READ: {
        struct drm_i915_reg_read *r = arg;
        static uint64_t t;
        r->val = t += 1000;
        return 0;
    }
    default:
        return 0;
    }
}
int ioctl(int fd, unsigned long req, ...) {
    va_list a;
    va_start(a, req);
    void *arg = va_arg(a, void *);
    va_end(a);
    if (is(fd)) {
        int r = handle(fd, req, arg);
        if (dbg())
            fprintf(stderr, "shim: ioctl nr=0x%x -> %d\n", (unsigned)_IOC_NR(req), r);
        return r;
    }
    static int (*r)(int, unsigned long, ...);
    if (!r)
        r = dlsym(RTLD_NEXT, "ioctl");
    return r(fd, req, arg);
}
