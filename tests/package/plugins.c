/* plugins.c - plug-ins that ampc_operators_load refuses, one for each macro (run-program). */
#include <ampc.h>

#if defined VERSION
static const ampc_plugin plugin = {sizeof plugin, AMPC_PLUGIN_VERSION + 1, 0, NULL};
#elif defined TABLE
static const ampc_operator bad = {.struct_size = sizeof bad, .domain = "com.example", .name = "Bad"};
static const ampc_operator *const operators[] = {&bad};
static const ampc_plugin plugin = {sizeof plugin, AMPC_PLUGIN_VERSION, 1, operators};
#elif defined MEMBER
static const struct {
    ampc_operator table;
    int member, more;
} later = {{.struct_size = sizeof later, .domain = "com.example", .name = "Later"}, 0, 1};
static const ampc_operator *const operators[] = {&later.table};
static const ampc_plugin plugin = {sizeof plugin, AMPC_PLUGIN_VERSION, 1, operators};
#else
static const ampc_plugin plugin = {sizeof plugin, AMPC_PLUGIN_VERSION, 0, NULL};
#endif

extern ampc_plugin_opener ampc_plugin_open;
extern void ampc_missing(void);

const ampc_plugin *ampc_plugin_open(void)
{
#ifdef UNDEFINED
    ampc_missing();
#endif
    return &plugin;
}
