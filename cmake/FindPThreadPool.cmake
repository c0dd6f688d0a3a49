# pthreadpool, which comes without a package config on Debian and Ubuntu: target PThreadPool::pthreadpool.
find_path(PThreadPool_INCLUDE_DIR pthreadpool.h)
find_library(PThreadPool_LIBRARY pthreadpool)
mark_as_advanced(PThreadPool_INCLUDE_DIR PThreadPool_LIBRARY)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(PThreadPool REQUIRED_VARS PThreadPool_LIBRARY PThreadPool_INCLUDE_DIR
    REASON_FAILURE_MESSAGE "Debian and Ubuntu have it as libpthreadpool-dev")
if(PThreadPool_FOUND AND NOT TARGET PThreadPool::pthreadpool)
    add_library(PThreadPool::pthreadpool UNKNOWN IMPORTED)
    set_target_properties(PThreadPool::pthreadpool PROPERTIES
        IMPORTED_LOCATION "${PThreadPool_LIBRARY}"
        INTERFACE_INCLUDE_DIRECTORIES "${PThreadPool_INCLUDE_DIR}")
endif()
