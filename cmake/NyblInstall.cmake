# Install rules: headers, libraries, programs, the CMake package (relocatable) and the pkg-config file. The components runtime,
# development and tools are the Debian packages of NyblDebian.cmake.
include(CMakePackageConfigHelpers)

set(nybl_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/nybl)

# A header whose functions this build does not have would be missed by the linker only.
set(nybl_absent_headers "")
if(NOT NYBL_GPU OR NOT NYBL_OPENCL_INCLUDE_DIR)
    set(nybl_absent_headers PATTERN nybl_opencl.h EXCLUDE)
endif()
install(DIRECTORY include/nybl DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp" ${nybl_absent_headers})

set(nybl_targets nybl)
if(BUILD_SHARED_LIBS)
    list(APPEND nybl_targets nybl_static)
endif()
install(TARGETS ${nybl_targets} EXPORT nyblTargets
        LIBRARY COMPONENT runtime NAMELINK_COMPONENT development
        ARCHIVE COMPONENT development)
if(NYBL_BUILD_TOOLS)
    install(TARGETS nybl-pack COMPONENT tools)
endif()
install(EXPORT nyblTargets NAMESPACE nybl:: DESTINATION ${nybl_package_dir} COMPONENT development)

configure_package_config_file(cmake/nyblConfig.cmake.in ${PROJECT_BINARY_DIR}/nyblConfig.cmake
    INSTALL_DESTINATION ${nybl_package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/nyblConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/nyblConfig.cmake ${PROJECT_BINARY_DIR}/nyblConfigVersion.cmake
        DESTINATION ${nybl_package_dir} COMPONENT development)

# pkg-config: paths relative to the file itself, so that a moved prefix works.
set(nybl_pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
cmake_path(IS_ABSOLUTE CMAKE_INSTALL_LIBDIR nybl_absolute_libdir)
if(nybl_absolute_libdir)
    set(nybl_pc_prefix ${CMAKE_INSTALL_PREFIX})
    set(nybl_pc_libdir ${CMAKE_INSTALL_LIBDIR})
else()
    file(RELATIVE_PATH nybl_pc_up /x/${nybl_pc_dir} /x)
    string(REGEX REPLACE "/$" "" nybl_pc_up "${nybl_pc_up}")
    set(nybl_pc_prefix "\${pcfiledir}/${nybl_pc_up}")
    set(nybl_pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
endif()
list(TRANSFORM nybl_cxx_runtime PREPEND "-l" OUTPUT_VARIABLE nybl_pc_private)
if(NYBL_LIBRARIES)
    list(APPEND nybl_pc_private -ldnnl)
endif()
list(JOIN nybl_pc_private " " nybl_pc_private)
if(BUILD_SHARED_LIBS)
    set(nybl_pc_libs "-lnybl")
    set(nybl_pc_libs_private "-lpthread ${nybl_pc_private}")
else()
    set(nybl_pc_libs "-lnybl -lpthread ${nybl_pc_private}")
    set(nybl_pc_libs_private "")
endif()
configure_file(cmake/nybl.pc.in ${PROJECT_BINARY_DIR}/nybl.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/nybl.pc DESTINATION ${nybl_pc_dir} COMPONENT development)
