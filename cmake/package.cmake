# Packages: `cpack -G DEB` writes a package of Debian for each component, `cpack -G TGZ` one archive that runs wherever it
# is unpacked. tools/packages runs both. With AMPC_DEBIAN the installation has what Debian's policy wants.
set(CPACK_PACKAGE_NAME ampc)
set(CPACK_PACKAGE_VENDOR "${PROJECT_NAME}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_FILE_NAME ampc-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR})
string(TOLOWER ${CPACK_PACKAGE_FILE_NAME} CPACK_PACKAGE_FILE_NAME)
set(CPACK_COMPONENTS_ALL runtime development programs)

set(AMPC_MAINTAINER "ampc" CACHE STRING "Maintainer of packages: NAME <ADDRESS>")
set(AMPC_DATE "Thu, 01 Jan 1970 00:00:00 +0000" CACHE STRING "Date in the change log of packages (RFC 5322)")
set(CPACK_PACKAGE_CONTACT "${AMPC_MAINTAINER}")
if(AMPC_DEBIAN)
    # A package of Debian's own, which begins with 1, replaces this one.
    set(CPACK_DEBIAN_PACKAGE_RELEASE 0upstream1)
    set(debian_version ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})
    set(CPACK_PACKAGING_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
    set(CPACK_DEB_COMPONENT_INSTALL ON)
    set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
    set(CPACK_DEBIAN_PACKAGE_SOURCE ampc)
    set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
    set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_BINARY_DIR}/package_dependencies.cmake)
    set(package_runtime libampc0)
    set(package_development libampc-dev)
    set(package_programs ampc)
    set(section_runtime libs)
    set(section_development libdevel)
    set(section_programs science)
    set(what_runtime "shared library"
        "This package has the shared library, and plug-ins for Open MPI and\nMPICH. oneDNN is used where it is installed.")
    set(what_development "development files"
        "This package has the headers, the static library, files for pkg-config\nand CMake, and example programs.")
    set(what_programs "programs"
        "This package has the programs ampc, ampc-run and ampc-opt, with manual\npages, documents and shell completion.")
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/debian)
    configure_file(cmake/debian/copyright debian/copyright COPYONLY)
    configure_file(cmake/debian/changelog.in debian/changelog @ONLY)
    execute_process(COMMAND gzip -9nc debian/changelog OUTPUT_FILE debian/changelog.Debian.gz
        WORKING_DIRECTORY ${CMAKE_BINARY_DIR} COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND gzip -9nc CHANGES.md OUTPUT_FILE ${CMAKE_BINARY_DIR}/debian/changelog.gz
        WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} COMMAND_ERROR_IS_FATAL ANY)
    install(FILES ${CMAKE_BINARY_DIR}/debian/changelog.gz DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT programs)
    file(WRITE ${CMAKE_BINARY_DIR}/debian/triggers "activate-noawait ldconfig\n")
    file(WRITE ${CMAKE_BINARY_DIR}/debian/shlibs "libampc 0 libampc0 (>= ${PROJECT_VERSION})\n")
    foreach(component ${CPACK_COMPONENTS_ALL})
        string(TOUPPER ${component} C)
        list(GET what_${component} 0 title)
        list(GET what_${component} 1 what)
        set(CPACK_DEBIAN_${C}_DESCRIPTION "mixed-precision training of ONNX models - ${title}
ampc turns an ONNX model into a network that is trained and run in fp16
or bf16, in C and without Python: operator lists in the style of
PaddlePaddle, loss scaling, automatic differentiation, and runtimes for
CPUs and GPUs.
.
${what}")
        set(CPACK_DEBIAN_${C}_PACKAGE_NAME ${package_${component}})
        set(CPACK_DEBIAN_${C}_PACKAGE_SECTION ${section_${component}})
        install(FILES ${CMAKE_BINARY_DIR}/debian/copyright ${CMAKE_BINARY_DIR}/debian/changelog.Debian.gz
                DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package_${component}} COMPONENT ${component})
    endforeach()
    # Compilers that use the library find their own OpenMP.
    set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libampc0 (= ${debian_version}), libprotobuf-c-dev, libjansson-dev, \
libxxhash-dev, libzip-dev, libbz2-dev, libssl-dev, libpng-dev, libjpeg-dev, zlib1g-dev, libcsv-dev")
    set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS "pkg-config, cmake")
    set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS "libdnnl3 | libdnnl2, libarchive13")
    set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${CMAKE_BINARY_DIR}/debian/shlibs ${CMAKE_BINARY_DIR}/debian/triggers)
    # Opened at run time are oneDNN and libarchive; MPI is needed by who has started ranks with it.
    list(TRANSFORM mpi_plugins REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE plugin_files)
    set(program_files ${programs})
    list(TRANSFORM program_files REPLACE "(.+)" "$<TARGET_FILE:\\1>")
    file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/package_dependencies.cmake CONTENT "
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY) # would precede the description of each package
set(folder \"${CMAKE_BINARY_DIR}/shlibdeps\")
file(WRITE \${folder}/debian/control \"Source: ampc\\n\\nPackage: libampc0\\nArchitecture: any\\n\")
file(WRITE \${folder}/debian/shlibs.local \"libampc 0 libampc0 (= ${debian_version})\\n\")
# depends(COMPONENT FIELD FILE..): Depends or Suggests of the packages that have the libraries of these files.
function(depends component field)
    list(TRANSFORM ARGN PREPEND -e)
    execute_process(COMMAND dpkg-shlibdeps -O --ignore-missing-info -l${CMAKE_BINARY_DIR} \${ARGN} WORKING_DIRECTORY \${folder}
        OUTPUT_VARIABLE line ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    string(REGEX REPLACE \"^shlibs:Depends=\" \"\" line \"\${line}\")
    if(field STREQUAL SUGGESTS)
        string(REGEX REPLACE \"libc6 [^,]*, \" \"\" line \"\${line}\")
    endif()
    set(CPACK_DEBIAN_\${component}_PACKAGE_\${field} \"\${line}\" PARENT_SCOPE)
endfunction()
depends(RUNTIME DEPENDS $<TARGET_FILE:ampc_shared>)
if(NOT \"${plugin_files}\" STREQUAL \"\")
    depends(RUNTIME SUGGESTS ${plugin_files})
endif()
depends(PROGRAMS DEPENDS ${program_files})
")
    # Manual pages are compressed where they are installed.
    install(CODE "
file(GLOB pages \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_MANDIR}/man?/*.[0-9]\")
execute_process(COMMAND gzip -9nf \${pages} COMMAND_ERROR_IS_FATAL ANY)" COMPONENT programs)
else()
    set(CPACK_ARCHIVE_COMPONENT_INSTALL OFF)
endif()
include(CPack)
