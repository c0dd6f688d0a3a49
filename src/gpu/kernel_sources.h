// The OpenCL sources of src/gpu/kernels as text (kernel_sources.cpp is made from them at build time).
#pragma once

namespace nybl::gpu {

extern const char kPanelSource[], kRowsSource[], kPrepareSource[], kGemvSource[], kGemmSource[];

} // namespace nybl::gpu
