/* fault.h - faults: errors that a kernel can detect only while it runs on a device. For host and device code.
 *
 * The fault word is K_NO_FAULT or the smallest `step << K_FAULT_BITS | fault` that occurred, where `step` is the
 * position in the plan. Once it is set, nothing is committed to storage. */
#ifndef AMPC_FAULT_H
#define AMPC_FAULT_H

#define K_FAULT_MAP(X) \
    X(INDEX, "an index is outside of its axis") \
    X(LABEL, "a label is outside of the classes") \
    X(LENGTH, "a length is negative or above the number of steps")
typedef enum k_fault {
#define K_FAULT_ENUM(name, sentence) K_FAULT_##name,
    K_FAULT_MAP(K_FAULT_ENUM)
#undef K_FAULT_ENUM
} k_fault;
enum { K_NO_FAULT = 0x7f7f7f7f /* four equal bytes, for memset */, K_FAULT_BITS = 4 };

#endif
