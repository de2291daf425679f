/* fuzz_tokens.c - arbitrary bytes as a text and as a file of tokens. */
#include "tests/fuzz/whole_data.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    whole_data_read("text:%s,context=5", data, size);
    whole_data_read("tokens:%s,dtype=u16,context=3,stride=1", data, size);
    whole_data_read("tokens:%s,dtype=u32,context=2,stride=3,order=file", data, size);
    return 0;
}
