/* loader.h - maps the fields of a data set to the inputs of an entry graph, and fills their buffers.
 *
 * An input reads the field of the same name. Otherwise the label input of the loss reads a field "labels", "label" or
 * "y", the first float input reads "images" or "x", and the first integer input "tokens". The shape of an input is that
 * in the graph with the batch symbol bound to the number of samples (sizing.h), and the samples must fill it exactly:
 * 28x28 images can feed f32[N,1,28,28], and labels of 128 tokens per sample can feed i64[128*N]. States of [2,32] per
 * sample fill f32[2,N,32], whose sample axis is the second dimension. An input without samples is filled with the whole
 * field. Unbound symbols other than the batch are determined by the data. */
#ifndef RT_LOADER_H
#define RT_LOADER_H

#include "runtime/data/data.h"
#include "runtime/session/session.h"

#include <signal.h>

typedef struct rt_loader rt_loader;

/* The only batch size that the graph accepts if symbols have these `sizes`, by index (-1: unbound); 0: any. */
int64_t rt_loader_fixed_batch(const ir_graph *g, const int64_t *sizes);
/* `sizes`: symbol sizes of the session (rt_session_sizes), or NULL. `batch` 0: the fixed batch of the graph. Fails
 * with AMPC_REJECTED if an input has no field or one of the wrong shape (all such inputs are reported); with
 * AMPC_USAGE if the graph has no fixed batch and `batch` is 0, or its fixed batch differs from `batch`. */
ampc_status rt_loader_open(const ir_graph *g, rt_dataset *data, const int64_t *sizes, int64_t batch, diag *d,
                           rt_loader **out);
/* NULL allowed. If a thread of a program that stops still waits for a file, the loader and its data are not freed. */
void rt_loader_close(rt_loader *f);

int64_t rt_loader_batch(const rt_loader *f);
int rt_loader_count(const rt_loader *f);
/* The inputs as filled by the last call of a function below, [rt_loader_count]. */
const rt_tensor *rt_loader_inputs(const rt_loader *f);
/* True if an integer input reads the field. */
bool rt_loader_reads_integers(const rt_loader *f, int field);
/* The sample axis of a value of the graph; -1: none. */
int rt_loader_axis(const rt_loader *f, const ir_value *v);
/* True unless an input reads the field with a sample axis other than the first. */
bool rt_loader_packs(const rt_loader *f, int field);

/* Makes rt_loader_next read batches ahead in so many threads; 0: one if the data are decoded, none if they are in
 * memory; -1: none. Data that may only be read by the calling thread are not read ahead. A batch is a function of its
 * position, so results do not depend on the number of threads. Needs memory for `workers` + 1 further batches. If fewer
 * threads can be started, fewer are used. Fails with AMPC_NO_MEMORY. */
ampc_status rt_loader_read_ahead(rt_loader *f, int workers, diag *d);

/* For a program that a signal may ask to stop, which sets *stop: from then on, a batch is not waited for, and a slice
 * only for half a second. The inputs have no samples if rt_loader_stopped. Files are read by another thread, since a
 * file system may never answer. AMPC_NO_MEMORY. */
ampc_status rt_loader_watch(rt_loader *f, const volatile sig_atomic_t *stop, diag *d);
bool rt_loader_stopped(const rt_loader *f);

/* Makes rt_loader_next fill the inputs with the samples from `first` on of batches that have `whole` samples: the share
 * of one rank. Which samples these are does not depend on the number of ranks. */
void rt_loader_share(rt_loader *f, int64_t whole, int64_t first);
/* Fills the inputs with one training batch. A batch that could not be read ahead is read again here, so its error is
 * reported when the batch is due. Fails like rt_dataset_read. */
ampc_status rt_loader_next(rt_loader *f, const rt_position *p, diag *d);
/* Fills the inputs with samples first .. first+count-1 in stored order, 0 < count <= batch. A fixed batch is padded
 * with copies of the last sample. Fails like rt_dataset_read, and with AMPC_REJECTED if `count` samples do not fill an
 * input whose size is not proportional to the number of samples. */
ampc_status rt_loader_slice(rt_loader *f, int64_t first, int64_t count, diag *d);
/* Writes where the sample is in the data (rt_dataset_locate) that element `element` of a value belongs to, with the
 * current inputs. `t` has the shape of the value. False if the value is not known to have samples. */
bool rt_loader_locate(const rt_loader *f, const ir_value *v, const rt_tensor *t, int64_t element, char *text, size_t n);
/* Number of samples in the inputs, including padding. */
int64_t rt_loader_samples(const rt_loader *f);

/* The number that the first loss which reads the labels leaves out; INT64_MIN: none. */
int64_t rt_loader_ignored_label(const ir_graph *g);
/* Index of the label field, or -1. */
int rt_loader_label_field(const ir_graph *g, const rt_dataset *data);

/* Opens the data that a graph of the session's module reads (NULL: any). A training step derives the codes of the
 * session; other graphs read by those that the session has. Fails like rt_dataset_open. */
ampc_status rt_loader_open_data(rt_session *s, const ir_graph *g, const char *spec, rt_split split, uint64_t seed,
                                diag *d, rt_dataset **out);
/* Makes the codes of the data those of the session. AMPC_NO_MEMORY. */
ampc_status rt_loader_keep_codes(rt_session *s, const rt_dataset *data, diag *d);

/* Describes a synthetic field for each input of the graph. `sizes`: sizes of symbols by index; an unbound symbol (-1,
 * or `sizes` NULL) has size 1. The module owns the names; *fields is malloced. */
ampc_status rt_loader_fields(const ir_graph *g, const int64_t *sizes, diag *d, rt_field **fields, size_t *n);

#endif
