/* scatter_mode.h - what a scatter does with an update and the element at its place, for all devices. */
#ifndef AMPC_SCATTER_MODE_H
#define AMPC_SCATTER_MODE_H

typedef enum k_scatter_mode {
    K_SCATTER_REPLACE, /* the last update of a place wins */
    K_SCATTER_ADD,
    K_SCATTER_MUL,
    K_SCATTER_MAX,
    K_SCATTER_MIN
} k_scatter_mode;

#endif
