# Embeds the built-in list files passes/profiles/NAME.amplist in the library, byte for byte.
#
# The text of each file is between the symbols pass_profile_ID and pass_profile_ID_end (ID is NAME with '-' and '.'
# replaced by '_') and is followed by a NUL. <passes/builtin_profiles.h> declares the symbols and lists them as rows
# X("NAME", ID) of PASS_BUILTIN_PROFILE_MAP.
file(GLOB profiles CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/passes/profiles/*.amplist)
set(header "/* Generated from passes/profiles/. */\n#pragma once\n")
set(rows "#define PASS_BUILTIN_PROFILE_MAP(X)")
set(source "/* Generated from passes/profiles/. */\n")
foreach(profile ${profiles})
    string(REGEX REPLACE ".*/(.*)\\.amplist$" "\\1" name ${profile})
    string(REGEX REPLACE "[-.]" "_" id ${name})
    string(APPEND header "extern const char pass_profile_${id}[], pass_profile_${id}_end[];\n")
    string(APPEND rows " \\\n    X(\"${name}\", ${id})")
    embed(source pass_profile_${id} ${profile})
endforeach()
string(APPEND source "extern const char pass_profiles_embedded[];\n"
       "const char pass_profiles_embedded[] = \"yes\";\n")
file(CONFIGURE OUTPUT ${generated}/passes/builtin_profiles.h CONTENT "${header}${rows}\n" @ONLY)
file(CONFIGURE OUTPUT ${generated}/passes/builtin_profiles.c CONTENT "${source}" @ONLY)
add_library(pass_profiles OBJECT ${generated}/passes/builtin_profiles.c)
set_source_files_properties(${generated}/passes/builtin_profiles.c
                            PROPERTIES OBJECT_DEPENDS "${profiles}")
