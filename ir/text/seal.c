/* seal.c - the checksum in the last line of a sealed text. */
#include "ir/text/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <xxhash.h>

void ir_seal(const char *text, size_t length, char out[IR_SEAL_DIGITS + 1])
{
    snprintf(out, IR_SEAL_DIGITS + 1, "%016" PRIx64, (uint64_t)XXH3_64bits(text, length));
}
