# The library itself, from the objects of nybl_core: nybl (the kind that BUILD_SHARED_LIBS says) and, beside a shared one,
# nybl_static.

add_library(nybl_headers INTERFACE)
target_include_directories(nybl_headers INTERFACE
    $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

# A program in C that links the static library needs the C++ runtime by name: its own linker driver does not add it.
set(nybl_cxx_runtime ${CMAKE_CXX_IMPLICIT_LINK_LIBRARIES})
list(REMOVE_ITEM nybl_cxx_runtime ${CMAKE_C_IMPLICIT_LINK_LIBRARIES})

function(nybl_make_library target kind)
    add_library(${target} ${kind} $<TARGET_OBJECTS:nybl_core>)
    add_library(nybl::${target} ALIAS ${target})
    set_target_properties(${target} PROPERTIES OUTPUT_NAME nybl LINKER_LANGUAGE CXX)
    target_link_libraries(${target} PUBLIC $<BUILD_INTERFACE:nybl_headers>
                                    PRIVATE Threads::Threads ${NYBL_LIBRARIES})
    target_include_directories(${target} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endfunction()

if(BUILD_SHARED_LIBS)
    nybl_make_library(nybl SHARED)
    nybl_make_library(nybl_static STATIC)
    set(nybl_map ${CMAKE_CURRENT_SOURCE_DIR}/cmake/nybl.map)
    set_target_properties(nybl PROPERTIES
        VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} LINK_DEPENDS ${nybl_map})
    target_link_libraries(nybl PRIVATE $<BUILD_INTERFACE:nybl_hardening>)
    # Own calls stay inside: a second build of the library in one process must not answer for this one.
    target_link_options(nybl PRIVATE LINKER:--version-script=${nybl_map} LINKER:-Bsymbolic-functions)
    # dlclose leaves the library in place and dlopen finds it again: generated kernels, which live as long as the process,
    # are then neither lost nor freed under a thread that runs one.
    target_link_options(nybl PRIVATE LINKER:-z,nodelete)
    target_link_libraries(nybl_static PRIVATE ${nybl_cxx_runtime})
else()
    nybl_make_library(nybl STATIC)
    add_library(nybl::nybl_static ALIAS nybl)
    target_link_libraries(nybl PRIVATE ${nybl_cxx_runtime})
endif()
