// The OpenCL sources of src/gpu/kernels as text (kernel_sources.cpp is made from them at build time).
#pragma once

namespace nybl::gpu {

extern const char kPanelSource[], kRowsSource[], kFinishSource[], kPrepareSource[], kPrepareInt8Source[],
    kGemvSource[], kGemvInt8Source[], kGemmSource[];

} // namespace nybl::gpu
