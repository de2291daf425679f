/* safetensors_format.c - type names and hash digits of .safetensors files. */
#include "runtime/files/safetensors_format.h"

#include <stdio.h>
#include <xxhash.h>

/* clang-format off */
static const safetensors_type types[] = {
    {"BOOL", 8, IR_bool},               {"U8", 8, IR_u8},
    {"I8", 8, IR_i8},                   {"I16", 16, IR_i16},
    {"I32", 32, IR_i32},                {"I64", 64, IR_i64},
    {"F16", 16, IR_f16},                {"BF16", 16, IR_bf16},
    {"F32", 32, IR_f32},                {"F64", 64, IR_f64},
    {"U16", 16, IR_u16},                {"U32", 32, IR_u32},
    {"U64", 64, IR_u64},                {"C64", 64, IR_NO_DTYPE},
    {"F8_E4M3", 8, IR_NO_DTYPE},        {"F8_E5M2", 8, IR_NO_DTYPE},
    {"F8_E8M0", 8, IR_NO_DTYPE},        {"F8_E4M3FNUZ", 8, IR_NO_DTYPE},
    {"F8_E5M2FNUZ", 8, IR_NO_DTYPE},    {"F6_E2M3", 6, IR_NO_DTYPE},
    {"F6_E3M2", 6, IR_NO_DTYPE},        {"F4", 4, IR_NO_DTYPE},
};
/* clang-format on */
enum { TYPES = sizeof types / sizeof *types };

const safetensors_type *safetensors_type_by_name(const char *name)
{
    for (size_t i = 0; i < TYPES; i++)
        if (strcmp(types[i].name, name) == 0) return &types[i];
    return NULL;
}

const safetensors_type *safetensors_type_by_dtype(ir_dtype dtype)
{
    for (size_t i = 0; i < TYPES; i++)
        if (types[i].dtype == dtype) return &types[i];
    return NULL;
}

char *safetensors_header_hash(char *header, size_t n)
{
    /* Quotes inside a JSON string would be escaped, so only the member itself matches. */
    static const char mark[] = "\"" RT_ST_HASH_KEY "\":\"";
    char *at = memmem(header, n, mark, sizeof mark - 1);
    if (!at) return NULL;
    at += sizeof mark - 1;
    return (size_t)(header + n - at) > RT_ST_HASH_DIGITS && at[RT_ST_HASH_DIGITS] == '"' ? at : NULL;
}

void safetensors_hash64(uint64_t hash, char dst[17]) { snprintf(dst, 17, "%016llx", (unsigned long long)hash); }

void safetensors_hash128(const void *data, size_t n, char dst[33])
{
    XXH128_hash_t h = XXH3_128bits(data, n);
    safetensors_hash64(h.high64, dst);
    safetensors_hash64(h.low64, dst + 16);
}
