/* device_file.h - describes a GPU by a file, which suffices to plan for a device that is not present.
 *
 * The file is a JSON object with the properties of the device, in the format that cuDNN reads and writes
 * (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION). */
#ifndef RT_DEVICE_FILE_H
#define RT_DEVICE_FILE_H

#include "ir/base/diag.h"

typedef struct rt_device_file {
    char *text; /* contents of the file */
    int multiprocessors;
} rt_device_file;

/* Reads and checks a description. AMPC_IO; AMPC_NO_MEMORY; AMPC_REJECTED if it is not valid, with the line or property
 * in the message. The caller clears `out` in any case. */
ampc_status rt_device_file_read(const char *path, diag *d, rt_device_file *out);
void rt_device_file_clear(rt_device_file *f);

#endif
