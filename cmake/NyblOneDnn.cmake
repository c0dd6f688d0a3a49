# oneDNN for Intel GPUs: nybl_find_onednn() looks for it as NYBL_ONEDNN says, nybl_check_onednn() tries what a copy of its headers
# can do.
include(CheckCXXSourceCompiles)

set(NYBL_ONEDNN AUTO CACHE STRING "Multiply by oneDNN on Intel GPUs: AUTO (where it is found), ON or OFF")
set_property(CACHE NYBL_ONEDNN PROPERTY STRINGS AUTO ON OFF)

# nybl_check_onednn(NAME INCLUDE_DIR): NAME_USABLE, where 4-bit codes with grouped scales can be described, and NAME_STATIC_SBZP,
# where scaled zero points can.
function(nybl_check_onednn name include_dir)
    set(CMAKE_REQUIRED_INCLUDES ${include_dir} ${NYBL_OPENCL_INCLUDE_DIR})
    set(CMAKE_REQUIRED_QUIET ON)
    set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY) # compiled, not linked
    check_cxx_source_compiles("
        #include <oneapi/dnnl/dnnl.hpp>
        void use(dnnl::primitive_attr &attr) {
            attr.set_fpmath_mode(dnnl::fpmath_mode::f16, true);
            attr.set_scales(DNNL_ARG_WEIGHTS, 3, {32, 1}, dnnl::memory::data_type::f16);
            dnnl::memory::desc({32, 1}, dnnl::memory::data_type::u4, dnnl::memory::dims{1, 32});
        }" ${name}_USABLE)
    check_cxx_source_compiles("
        #include <oneapi/dnnl/dnnl.hpp>
        void use(dnnl::primitive_attr &attr) {
            attr.set_scales(DNNL_ARG_WEIGHTS, 3, {32, 1}, dnnl::memory::data_type::f16, false,
                            dnnl::quantization_mode::static_sbzp);
            attr.set_zero_points(DNNL_ARG_WEIGHTS, 3, {32, 1}, dnnl::memory::data_type::f16);
        }" ${name}_STATIC_SBZP)
endfunction()

# Sets NYBL_ONEDNN_FOUND, NYBL_ONEDNN_INCLUDE_DIR and NYBL_ONEDNN_LIBRARY. NYBL_ONEDNN_ROOT: where to look first.
macro(nybl_find_onednn)
    set(NYBL_ONEDNN_FOUND OFF)
    if(NYBL_ONEDNN)
        find_path(NYBL_ONEDNN_INCLUDE_DIR oneapi/dnnl/dnnl.hpp HINTS ${NYBL_ONEDNN_ROOT} PATH_SUFFIXES include
                  DOC "Folder of oneapi/dnnl/dnnl.hpp")
        find_library(NYBL_ONEDNN_LIBRARY dnnl HINTS ${NYBL_ONEDNN_ROOT} PATH_SUFFIXES lib DOC "oneDNN's library")
        if(NYBL_ONEDNN_INCLUDE_DIR AND NYBL_ONEDNN_LIBRARY)
            nybl_check_onednn(NYBL_ONEDNN ${NYBL_ONEDNN_INCLUDE_DIR})
            if(NYBL_ONEDNN_USABLE)
                set(NYBL_ONEDNN_FOUND ON)
            endif()
        endif()
        if(NYBL_ONEDNN STREQUAL "ON" AND NOT NYBL_ONEDNN_FOUND)
            message(FATAL_ERROR "NYBL_ONEDNN is ON, and there is no oneDNN 3.5 or newer: set NYBL_ONEDNN_ROOT "
                                "(headers: ${NYBL_ONEDNN_INCLUDE_DIR}, library: ${NYBL_ONEDNN_LIBRARY})")
        endif()
    endif()
endmacro()

# nybl_use_onednn(TARGET NAME INCLUDE_DIR): compiles the backend's sources in TARGET against checked headers.
function(nybl_use_onednn target name include_dir)
    target_sources(${target} PRIVATE ${NYBL_ONEDNN_SOURCES})
    target_include_directories(${target} SYSTEM PRIVATE ${include_dir})
    if(${name}_STATIC_SBZP)
        target_compile_definitions(${target} PRIVATE NYBL_ONEDNN_STATIC_SBZP=1)
    else()
        target_compile_definitions(${target} PRIVATE NYBL_ONEDNN_STATIC_SBZP=0)
    endif()
endfunction()
