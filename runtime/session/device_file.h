/* device_file.h - a GPU that a file describes: enough to plan for it, where the device itself is not there.
 *
 * The file is a JSON object with the properties of the device in the form that cuDNN reads and writes
 * (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION). */
#ifndef RT_DEVICE_FILE_H
#define RT_DEVICE_FILE_H

#include "ir/diag.h"

typedef struct rt_device_file {
    char *text; /* as it was read */
    int multiprocessors;
} rt_device_file;

/* AMPC_IO; AMPC_REJECTED for what is not such a description, naming line or property. Clear `out` in any case. */
ampc_status rt_device_file_read(const char *path, diag *d, rt_device_file *out);
void rt_device_file_clear(rt_device_file *f);

#endif
