/* predict.h - writes the outputs of a model for every sample of a data set. */
#ifndef RT_PREDICT_H
#define RT_PREDICT_H

#include "runtime/data/data.h"
#include "runtime/session/session.h"

/* @infer, or @eval if there is none; NULL: neither. */
const ir_graph *rt_predicted_graph(const ir_module *m);

/* Runs the predicted graph on every sample in stored order and replaces the file atomically; its suffix selects the
 * format.
 *   .npz  "output/NAME": the output for all samples, joined along its sample axis; "label": the labels, if the data
 *         have a field for them; "class_names": those of the classes by number, if known, as strings. Memory for all
 *         outputs is needed.
 *   .csv  if the loss is of classes, a line per label with its sample, its position if a sample has several, the label
 *         if known, the class with the highest score (empty if all are NaN), its name if known, and the scores.
 *         Otherwise a line per sample with its labels and the elements of all outputs. Memory for one batch is needed.
 * The outputs are those of the model without a loss; outputs without a sample axis are left out. `batch` 0: the fixed
 * batch, or 256. Fails with AMPC_USAGE for another suffix, AMPC_UNSUPPORTED if the size of an output is not
 * proportional to the number of samples or if there is no output, AMPC_IO, AMPC_NO_MEMORY, otherwise like
 * rt_loader_open and rt_session_run; the file is then unchanged. */
ampc_status rt_predict(rt_session *s, const ir_module *m, rt_dataset *data, int64_t batch, const char *path, diag *d);

#endif
