/* idx.h - IDX files as used by MNIST: big-endian magic 0 0 8 RANK, dims, unsigned bytes. */
#ifndef RT_IDX_H
#define RT_IDX_H

#include "ir/base/diag.h"
#include "runtime/data/array.h"

typedef enum rt_split { RT_TRAIN, RT_TEST } rt_split;

/* Reads a plain or gzip-compressed file, distinguished by content, as u8 of rank 1..4. Rejects, naming the file:
 * wrong magic, a rank other than `rank`, fewer or more bytes than the dims imply. */
ampc_status rt_idx_read(const char *path, int rank, diag *d, rt_array *out);

/* Reads images [N,H,W] and labels [N] of one split from a folder with the standard file names
 * (train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-...). The plain file is preferred to one with suffix .gz.
 * The arrays are named "images" and "labels". Different counts are rejected. */
ampc_status rt_idx_read_folder(const char *folder, rt_split split, diag *d, rt_array *images, rt_array *labels);

#endif
