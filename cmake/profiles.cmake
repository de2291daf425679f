# Embeds the built-in list files passes/profiles/NAME.amplist and the descriptions passes/consumers/NAME.consumer in the
# library, byte for byte.
#
# The text of each file is between the symbols pass_KIND_ID and pass_KIND_ID_end (KIND is profile or consumer, ID is NAME
# with '-' and '.' replaced by '_') and is followed by a NUL. <passes/builtin_profiles.h> declares the symbols and lists
# them as rows X("NAME", ID) of PASS_BUILTIN_PROFILE_MAP and PASS_BUILTIN_CONSUMER_MAP.
set(header "/* Generated from passes/profiles/ and passes/consumers/. */\n#pragma once\n")
set(source "/* Generated from passes/profiles/ and passes/consumers/. */\n")
set(embedded)
function(embed_kind kind suffix)
    file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/passes/${kind}s/*.${suffix})
    string(TOUPPER ${kind} map)
    set(rows "#define PASS_BUILTIN_${map}_MAP(X)")
    foreach(file ${files})
        string(REGEX REPLACE ".*/(.*)\\.${suffix}$" "\\1" name ${file})
        string(REGEX REPLACE "[-.]" "_" id ${name})
        set(symbol pass_${kind}_${id})
        string(APPEND header "extern const char ${symbol}[], ${symbol}_end[];\n")
        string(APPEND rows " \\\n    X(\"${name}\", ${id})")
        embed(source ${symbol} ${file})
    endforeach()
    set(header "${header}${rows}\n" PARENT_SCOPE)
    set(source "${source}" PARENT_SCOPE)
    set(embedded ${embedded} ${files} PARENT_SCOPE)
endfunction()
embed_kind(profile amplist)
embed_kind(consumer consumer)
string(APPEND source "extern const char pass_profiles_embedded[];\n"
       "const char pass_profiles_embedded[] = \"yes\";\n")
file(CONFIGURE OUTPUT ${generated}/passes/builtin_profiles.h CONTENT "${header}" @ONLY)
file(CONFIGURE OUTPUT ${generated}/passes/builtin_profiles.c CONTENT "${source}" @ONLY)
add_library(pass_profiles OBJECT ${generated}/passes/builtin_profiles.c)
set_source_files_properties(${generated}/passes/builtin_profiles.c
                            PROPERTIES OBJECT_DEPENDS "${embedded}")
