/* session.h - finds the storage of a session by name, for tests. */
#ifndef TESTS_SESSION_H
#define TESTS_SESSION_H

#include "runtime/session/session.h"

#include <string.h>

/* Returns the index of the storage, or -1. */
static inline int test_storage_find(const rt_session *s, const char *name)
{
    for (int i = 0; i < rt_session_storage_count(s); i++) {
        rt_tensor t;
        rt_session_storage_at(s, i, &t, NULL);
        if (strcmp(t.name, name) == 0) return i;
    }
    return -1;
}

static inline ampc_status test_storage(rt_session *s, const char *name, diag *d, rt_tensor *out)
{
    const int i = test_storage_find(s, name);
    return i < 0 ? AMPC_REJECTED : rt_session_read(s, i, d, out);
}

#endif
