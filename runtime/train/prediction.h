/* prediction.h - a prediction in progress and its file formats; private to predict*.c. */
#ifndef RT_PREDICTION_H
#define RT_PREDICTION_H

#include "runtime/train/predict.h"
#include "runtime/train/scoring.h"

typedef struct rt_predicted_output {
    const char *name;
    int axis; /* of the samples */
} rt_predicted_output;

typedef struct rt_prediction {
    rt_session *session;
    const ir_graph *graph;
    rt_dataset *data;
    rt_loader *feed;
    rt_scoring scoring;
    const char *path;
    rt_predicted_output *outputs; /* [count] */
    int count;
    void *file; /* of the format */
    diag *d;
} rt_prediction;

typedef struct rt_prediction_format {
    const char *suffix;
    ampc_status (*open)(rt_prediction *p);
    /* Adds the outputs of the last run, which are those of samples first .. first+count-1. */
    ampc_status (*add)(rt_prediction *p, int64_t first, int64_t count);
    ampc_status (*commit)(rt_prediction *p);
    void (*close)(rt_prediction *p); /* also after commit; an uncommitted file does not appear */
} rt_prediction_format;

extern const rt_prediction_format rt_predict_npz, rt_predict_csv;

/* The output of the last run; its sample axis has a whole number of rows per sample. Fails with AMPC_UNSUPPORTED. */
ampc_status rt_prediction_output(const rt_prediction *p, int index, const rt_tensor **out);
/* Elements after and before an axis. */
int64_t rt_prediction_inner(const rt_tensor *t, int axis);
int64_t rt_prediction_outer(const rt_tensor *t, int axis);

#endif
