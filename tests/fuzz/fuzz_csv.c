/* fuzz_csv.c - arbitrary bytes as a CSV file, with and without a header. */
#include "tests/fuzz/whole_data.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    whole_data_read("csv:%s", data, size);
    whole_data_read("csv:%s,header=no,missing=mean,encode=one-hot", data, size);
    whole_data_read("csv:%s,missing=drop", data, size);
    whole_data_read("csv:%s,header=no,label=column2,columns=column1,delimiter=;", data, size);
    return 0;
}
