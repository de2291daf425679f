# Installs programs, library, headers, manual pages, documents and examples. No installed file contains the prefix, so
# `cmake --install --prefix`, DESTDIR and moving the installed tree all work. Each of the three components can be installed alone:
# `runtime` (library and plug-ins), `development` (what compiles against it), `programs` (with manual pages and documents).
set(examples ${CMAKE_INSTALL_DOCDIR}/examples)
set(zsh_functions ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
set(licence LICENSE)
set(not_documents)
if(AMPC_DEBIAN)
    set(examples ${CMAKE_INSTALL_DATADIR}/doc/libampc-dev/examples)
    set(zsh_functions ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
    set(licence)                   # is in the file copyright
    set(not_documents CHANGES.md)  # is changelog.gz (cmake/package.cmake)
    set(CMAKE_SKIP_INSTALL_RPATH ON)
endif()
set(ampc_package ${CMAKE_INSTALL_LIBDIR}/cmake/ampc)
file(RELATIVE_PATH pc_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
foreach(dir LIBDIR INCLUDEDIR)
    set(pc_${dir} ${CMAKE_INSTALL_${dir}})
    if(NOT IS_ABSOLUTE "${pc_${dir}}")
        set(pc_${dir} "\${prefix}/${pc_${dir}}")
    endif()
endforeach()
# What a program that contains libampc.a links: packages with a .pc file, and the rest.
set(pc_private)
if(AMPC_STATIC)
    list(TRANSFORM OpenMP_C_LIB_NAMES PREPEND -l OUTPUT_VARIABLE openmp_libraries)
    list(JOIN openmp_libraries " " openmp_libraries)
    set(pc_private "
Requires.private: libprotobuf-c jansson libxxhash libzip libpng libjpeg zlib
Libs.private: -lcsv ${openmp_libraries} -lm -ldl")
endif()
configure_file(cmake/ampc.pc.in ampc.pc @ONLY)
configure_package_config_file(cmake/ampc-config.cmake.in ampc-config.cmake
                              INSTALL_DESTINATION ${ampc_package})
write_basic_package_version_file(ampc-config-version.cmake COMPATIBILITY SameMajorVersion)

# A part that has not been built is named before anything is installed.
function(installs_built component)
    install(CODE "
foreach(file ${ARGN})
    if(NOT EXISTS \"${CMAKE_BINARY_DIR}/\${file}\")
        message(FATAL_ERROR \"\${file} has not been built: first 'cmake --build ${CMAKE_BINARY_DIR}'\")
    endif()
endforeach()" COMPONENT ${component})
endfunction()
set(static)
if(AMPC_STATIC)
    set(static libampc.a)
endif()
installs_built(runtime libampc.so)
installs_built(programs ${programs} completions/ampc-run documents/README.md)
installs_built(development libampc.so ${static})

# The programs find the library by its path relative to them.
file(RELATIVE_PATH to_library ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
set_target_properties(${programs} PROPERTIES INSTALL_RPATH "\$ORIGIN/${to_library}")
install(TARGETS ampc_shared EXPORT ampc_targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        COMPONENT runtime NAMELINK_COMPONENT development)
# The static library is one object whose only global names are those of the public API, so that internal names and those
# of the program cannot collide.
if(static)
    set(static ${CMAKE_BINARY_DIR}/libampc)
    file(GENERATE OUTPUT ${static}.objects CONTENT "$<JOIN:${objects},\n>\n")
    add_custom_command(OUTPUT ${static}.a
        COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -o ${static}.o @${static}.objects
        COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=ampc_* ${static}.o
        COMMAND ${CMAKE_COMMAND} -E rm -f ${static}.a
        COMMAND ${CMAKE_AR} crs ${static}.a ${static}.o
        COMMAND ${CMAKE_COMMAND} -E rm ${static}.o
        DEPENDS ${objects} COMMAND_EXPAND_LISTS VERBATIM)
    add_custom_target(ampc_static ALL DEPENDS ${static}.a)
    install(FILES ${static}.a DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
endif()
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME programs)
install(TARGETS ${programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)
install(EXPORT ampc_targets NAMESPACE ampc:: FILE ampc-targets.cmake DESTINATION ${ampc_package})
install(FILES ${CMAKE_BINARY_DIR}/ampc-config.cmake ${CMAKE_BINARY_DIR}/ampc-config-version.cmake
        DESTINATION ${ampc_package})
install(FILES ${CMAKE_BINARY_DIR}/ampc.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(mpi_plugins)
    install(TARGETS ${mpi_plugins} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/ampc-mpi COMPONENT runtime)
endif()
install(FILES runtime/mpi/plugin.c runtime/mpi/plugin.h DESTINATION ${CMAKE_INSTALL_DATADIR}/ampc)
install(FILES runtime/api/ampc.h ir/ops/ampc_operator.h ir/base/ampc_status.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME programs)
foreach(chapter 1 5)
    file(GLOB man_pages CONFIGURE_DEPENDS docs/*.${chapter})
    install(FILES ${man_pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${chapter})
endforeach()
# Each program prints its own completion scripts.
set(completions ${CMAKE_BINARY_DIR}/completions)
set(without_leak_check ${CMAKE_COMMAND} -E env ASAN_OPTIONS=detect_leaks=0)
file(MAKE_DIRECTORY ${completions})
foreach(program ${programs})
    add_custom_command(OUTPUT ${completions}/${program} ${completions}/_${program} ${completions}/${program}.fish
        COMMAND ${without_leak_check} $<TARGET_FILE:${program}> --help=bash > ${completions}/${program}
        COMMAND ${without_leak_check} $<TARGET_FILE:${program}> --help=zsh > ${completions}/_${program}
        COMMAND ${without_leak_check} $<TARGET_FILE:${program}> --help=fish > ${completions}/${program}.fish
        DEPENDS ${program} ${program_library} VERBATIM)
    list(APPEND completion_files ${completions}/${program} ${completions}/_${program} ${completions}/${program}.fish)
    install(FILES ${completions}/${program} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
    install(FILES ${completions}/_${program} DESTINATION ${zsh_functions})
    install(FILES ${completions}/${program}.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endforeach()
add_custom_target(completions ALL DEPENDS ${completion_files})

# Documents, without links to what is not installed.
file(GLOB documents CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} *.md docs/*.md)
file(GLOB_RECURSE pictures CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} docs/*.png docs/*.svg)
list(REMOVE_ITEM documents ${not_documents} "")
list(JOIN documents " " names)
list(JOIN pictures " " picture_names)
set(documents_copied ${CMAKE_BINARY_DIR}/documents)
file(MAKE_DIRECTORY ${documents_copied}/docs)
add_custom_command(OUTPUT ${documents_copied}/README.md
    COMMAND awk -v out=${documents_copied} -v "installed=${names} ${picture_names} ${licence}"
            -f ${PROJECT_SOURCE_DIR}/cmake/documents.awk ${documents}
    DEPENDS cmake/documents.awk ${documents} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} VERBATIM)
add_custom_target(documents ALL DEPENDS ${documents_copied}/README.md)
foreach(file ${documents} ${pictures} ${licence})
    get_filename_component(folder ${file} DIRECTORY)
    set(from ${PROJECT_SOURCE_DIR}/${file})
    if(file IN_LIST documents)
        set(from ${documents_copied}/${file})
    endif()
    install(FILES ${from} DESTINATION ${CMAKE_INSTALL_DOCDIR}/${folder})
endforeach()

set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)
# The first example is extracted from the comment at the top of ampc.h, its only source.
file(READ runtime/api/ampc.h header)
string(REGEX MATCH "#include <ampc.h>.*\n \\*     }\n" train "${header}")
string(REPLACE "\n *     " "\n" train "${train}")
file(CONFIGURE OUTPUT examples/train.c CONTENT "${train}" @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/examples/train.c docs/examples/infer.c docs/examples/custom.c docs/examples/custom.onnx
        docs/examples/scaled_tanh.h docs/examples/plugin.c
        docs/examples/accumulate.c docs/examples/penalty.c docs/examples/fit.c docs/examples/finetune.c
        docs/examples/gradients.c docs/examples/language.c docs/examples/language.onnx docs/examples/gan.c
        docs/examples/memory.c docs/examples/convert.c docs/examples/borrow.c docs/examples/threads.c
        docs/examples/data.c docs/examples/check.c docs/examples/metrics.c
        docs/examples/CMakeLists.txt tests/models/mlp.onnx
        DESTINATION ${examples})
install(DIRECTORY docs/examples/gan DESTINATION ${examples})
