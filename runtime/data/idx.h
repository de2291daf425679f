/* idx.h - the IDX files of MNIST and its kin: big-endian magic 0 0 8 RANK, dims, unsigned bytes. */
#ifndef RT_IDX_H
#define RT_IDX_H

#include "ir/diag.h"
#include "runtime/data/array.h"

typedef enum rt_split { RT_TRAIN, RT_TEST } rt_split;

/* Plain or gzip (told by content). dtype u8; rank 1..4. Refused with the file's name: wrong magic, any
 * other rank than `rank`, fewer or more bytes than the dims say. */
ampc_status rt_idx_read(const char *path, int rank, diag *d, rt_array *out);

/* Images [N,H,W] and labels [N] of one split from a folder with the standard names
 * (train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-..., each also with .gz; plain first), named
 * "images" and "labels". Different counts are refused. */
ampc_status rt_idx_read_folder(const char *folder, rt_split split, diag *d, rt_array *images,
                               rt_array *labels);

#endif
