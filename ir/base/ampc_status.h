/* ampc_status.h - the status codes of all ampc calls, which are also the exit codes of its programs. Installed with
 * ampc.h; all layers use this type, so codes are never translated. */
#ifndef AMPC_STATUS_H
#define AMPC_STATUS_H

/*            name         code  sentence */
#define AMPC_STATUS_MAP(X) \
    X(AMPC_OK, 0, "success") \
    X(AMPC_REJECTED, 1, "the input (model, IR, list, data) was rejected") \
    X(AMPC_USAGE, 2, "wrong usage") \
    X(AMPC_UNSUPPORTED, 3, "an operator, gradient or feature is not supported") \
    X(AMPC_IO, 4, "reading or writing failed") \
    X(AMPC_NUMERIC, 5, "numeric failure") \
    X(AMPC_DEVICE, 6, "no usable device or driver, or a failed rank") \
    X(AMPC_NO_MEMORY, 7, "out of memory")

/* What a function returns, with the values of the table. */
typedef enum ampc_status {
#define AMPC_STATUS_ENUM(name, code, text) name = code,
    AMPC_STATUS_MAP(AMPC_STATUS_ENUM)
#undef AMPC_STATUS_ENUM
} ampc_status;

/* Marks symbols exported by the shared library; all others are hidden. */
#define AMPC_API __attribute__((visibility("default")))

#endif
