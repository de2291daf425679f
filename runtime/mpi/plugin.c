/* plugin.c - the functions of plugin.h in terms of the MPI whose headers it is compiled with. */
#include "plugin.h" /* so that a cluster's mpicc needs no options for its place */

#include <mpi.h>
#include <string.h>

_Static_assert(sizeof(MPI_Request) <= sizeof(ampc_mpi_request), "a request of MPI is a number or an address");

static MPI_Comm world = MPI_COMM_NULL;

static void copy_text(char *text, const char *from)
{
    const size_t n = strcspn(from, "\n,");
    memcpy(text, from, n < AMPC_MPI_TEXT ? n : AMPC_MPI_TEXT - 1);
    text[n < AMPC_MPI_TEXT ? n : AMPC_MPI_TEXT - 1] = 0;
}

static void name(char *text)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int n;
    MPI_Get_library_version(version, &n);
    copy_text(text, version);
    for (char *c = text; *c; c++)
        if (*c == '\t') *c = ' ';
}

static void text_of(int code, char *text)
{
    char message[MPI_MAX_ERROR_STRING] = "";
    int n;
    MPI_Error_string(code, message, &n);
    copy_text(text, message);
}

static int open_world(int *index, int *count)
{
    int is_open, provided, code = MPI_Initialized(&is_open);
    if (!code && !is_open) code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
    if (!code) code = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (!code) code = MPI_Comm_dup(MPI_COMM_WORLD, &world);
    if (!code) code = MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
    if (!code) code = MPI_Comm_rank(world, index);
    if (!code) code = MPI_Comm_size(world, count);
    return code;
}

static int close_world(void)
{
    const int code = MPI_Comm_free(&world);
    return code ? code : MPI_Finalize();
}

static int keep(int code, MPI_Request made, ampc_mpi_request *request)
{
    memcpy(request, &made, sizeof made);
    return code;
}

static int send_to(const void *data, int bytes, int to, int tag, ampc_mpi_request *request)
{
    MPI_Request made = MPI_REQUEST_NULL;
    const int code = MPI_Isend(data, bytes, MPI_BYTE, to, tag, world, &made);
    return keep(code, made, request);
}

static int receive_from(void *data, int bytes, int from, int tag, ampc_mpi_request *request)
{
    MPI_Request made = MPI_REQUEST_NULL;
    const int code = MPI_Irecv(data, bytes, MPI_BYTE, from < 0 ? MPI_ANY_SOURCE : from, tag, world, &made);
    return keep(code, made, request);
}

static int test(ampc_mpi_request *request, int *done)
{
    MPI_Request made;
    memcpy(&made, request, sizeof made);
    const int code = MPI_Test(&made, done, MPI_STATUS_IGNORE);
    return keep(code, made, request);
}

__attribute__((visibility("default"))) const ampc_mpi *ampc_mpi_table(void);
const ampc_mpi *ampc_mpi_table(void)
{
    static const ampc_mpi table = {.version = AMPC_MPI_VERSION,
                                   .name = name,
                                   .text = text_of,
                                   .open = open_world,
                                   .close = close_world,
                                   .send = send_to,
                                   .receive = receive_from,
                                   .test = test};
    return &table;
}
