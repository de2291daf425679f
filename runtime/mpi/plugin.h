/* plugin.h - what ampc needs of an MPI library, as a table of functions that depends on no MPI.
 *
 * The binary interfaces of MPI libraries differ, so each has a plug-in of its own, built from plugin.c. This is for a
 * cluster:     mpicc -O2 -shared -fPIC plugin.c -o libampc-mpi.so
 * It is found in folder ampc-mpi next to libampc.so, or where AMPC_MPI says.
 *
 * Each function but `name` and `text` returns 0 or the code of an MPI error. One thread at a time calls them. */
#ifndef AMPC_MPI_PLUGIN_H
#define AMPC_MPI_PLUGIN_H

#define AMPC_MPI_VERSION 1
#define AMPC_MPI_SYMBOL "ampc_mpi_table"

enum {
    AMPC_MPI_TEXT = 512,        /* bytes of a text */
    AMPC_MPI_LARGEST = 1 << 30, /* bytes of a message */
};

typedef void *ampc_mpi_request; /* of a message; its contents are those of the plug-in */

typedef struct ampc_mpi {
    int version;
    void (*name)(char *text); /* of the library, "Open MPI v4.1.4" */
    void (*text)(int code, char *text);
    int (*open)(int *index, int *count);
    int (*close)(void); /* all ranks call it */
    /* Begin a message, whose bytes must stay until `test` has set *done. Those between two ranks with the same tag
     * arrive in order. from: -1 is any rank. */
    int (*send)(const void *data, int bytes, int to, int tag, ampc_mpi_request *request);
    int (*receive)(void *data, int bytes, int from, int tag, ampc_mpi_request *request);
    int (*test)(ampc_mpi_request *request, int *done);
} ampc_mpi;

typedef const ampc_mpi *ampc_mpi_opener(void); /* the function AMPC_MPI_SYMBOL of a plug-in */

#endif
