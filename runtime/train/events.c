/* events.c - encodes Event messages and writes them as records. */
#include "runtime/train/events.h"

#include "runtime/backend/memory.h"
#include "runtime/files/growing_file.h"
#include "runtime/files/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct rt_events {
    char *path;
    rt_growing_file file;
};

/* ---- messages: the wire format of protocol buffers -------------------------------------------- */

typedef struct message {
    unsigned char *bytes;
    size_t count, capacity;
    bool failed; /* out of memory */
} message;

static void put(message *m, const void *src, size_t n)
{
    if (m->capacity - m->count < n) {
        const size_t capacity = 2 * (m->capacity + n);
        unsigned char *bytes = m->failed ? NULL : realloc(m->bytes, capacity);
        m->failed |= !bytes;
        if (!bytes) return;
        m->bytes = bytes;
        m->capacity = capacity;
    }
    memcpy(m->bytes + m->count, src, n);
    m->count += n;
}

static void put_varint(message *m, uint64_t v)
{
    unsigned char bytes[10];
    size_t n = 0;
    for (; v >= 0x80; v >>= 7) bytes[n++] = (unsigned char)(v | 0x80);
    bytes[n++] = (unsigned char)v;
    put(m, bytes, n);
}

typedef enum wire { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 } wire;

static void put_key(message *m, unsigned field, wire type) { put_varint(m, (uint64_t)field << 3 | type); }

static void put_bytes(message *m, unsigned field, const void *src, size_t n)
{
    put_key(m, field, BYTES);
    put_varint(m, n);
    put(m, src, n);
}

/* Appends `part` as a field and frees it. */
static void put_message(message *m, unsigned field, message *part)
{
    m->failed |= part->failed;
    put_bytes(m, field, part->bytes, part->count);
    free(part->bytes);
}

/* Fields of Event, Summary.Value and SessionLog. */
enum { EVENT_WALL_TIME = 1, EVENT_STEP = 2, EVENT_FILE_VERSION = 3, EVENT_SUMMARY = 5, EVENT_SESSION_LOG = 7 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, SESSION_STATUS = 1, SESSION_START = 1 };

static message new_event(uint64_t step)
{
    message m = {0};
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    const double seconds = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    put_key(&m, EVENT_WALL_TIME, FIXED64);
    put(&m, &seconds, sizeof seconds);
    put_key(&m, EVENT_STEP, VARINT);
    put_varint(&m, step);
    return m;
}

static void put_scalar(message *summary, const rt_scalar *s)
{
    message value = {0};
    const float number = (float)s->value;
    put_bytes(&value, VALUE_TAG, s->tag, strlen(s->tag));
    put_key(&value, VALUE_SIMPLE, FIXED32);
    put(&value, &number, sizeof number);
    put_message(summary, SUMMARY_VALUE, &value);
}

/* ---- records ---------------------------------------------------------------------------------- */

/* CRC32C (Castagnoli), bit by bit: a record has about 200 bytes. */
static uint32_t crc32c(const unsigned char *bytes, size_t n)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0x82f63b78 & (0 - (crc & 1)));
    }
    return ~crc;
}

static void put_checksum(message *record, const unsigned char *bytes, size_t n)
{
    const uint32_t crc = crc32c(bytes, n), masked = (crc >> 15 | crc << 17) + 0xa282ead8;
    put(record, &masked, sizeof masked);
}

/* Writes the event and frees it. */
static ampc_status write_record(rt_events *e, message *event)
{
    message record = {.failed = event->failed};
    const uint64_t length = event->count;
    put(&record, &length, sizeof length);
    put_checksum(&record, (const unsigned char *)&length, sizeof length);
    put(&record, event->bytes, event->count);
    put_checksum(&record, event->bytes, event->count);
    free(event->bytes);
    ampc_status s = record.failed ? rt_no_memory(e->file.d) : rt_growing_write(&e->file, record.bytes, record.count);
    free(record.bytes);
    return s;
}

/* ---- files ------------------------------------------------------------------------------------ */

/* Creates the first file of this process and second that does not exist yet. */
static ampc_status create(rt_events *e, const char *folder)
{
    enum { HOST = 256, NAME = HOST + 64 };
    char host[HOST] = "";
    const size_t capacity = strlen(folder) + NAME;
    const long long seconds = (long long)time(NULL);
    e->path = malloc(capacity);
    if (!e->path) return rt_no_memory(e->file.d);
    e->file.path = e->path;
    (void)gethostname(host, sizeof host - 1);
    bool created = false;
    for (int i = 0; !created && (i == 0 || errno == EEXIST); i++) {
        snprintf(e->path, capacity, "%s/events.out.tfevents.%010lld.%s.%ld.%d", folder, seconds, host, (long)getpid(),
                 i);
        created = rt_growing_create(&e->file);
    }
    return created ? AMPC_OK : rt_growing_fail(&e->file, "cannot create");
}

static ampc_status write_head(rt_events *e, uint64_t step)
{
    static const char version[] = "brain.Event:2";
    message first = new_event(0), start = new_event(step + 1), session = {0};
    put_bytes(&first, EVENT_FILE_VERSION, version, sizeof version - 1);
    put_key(&session, SESSION_STATUS, VARINT);
    put_varint(&session, SESSION_START);
    put_message(&start, EVENT_SESSION_LOG, &session);
    ampc_status s = write_record(e, &first), t = write_record(e, &start);
    return s == AMPC_OK ? t : s;
}

ampc_status rt_events_open(const char *folder, uint64_t step, diag *d, rt_events **out)
{
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return diag_errno(d, DIAG_FILE(folder), "cannot create the directory");
    rt_events *e = malloc(sizeof *e);
    if (!e) return rt_no_memory(d);
    *e = (rt_events){.file = {.d = d, .fd = -1}};
    ampc_status s = create(e, folder);
    if (s == AMPC_OK) s = write_head(e, step);
    if (s == AMPC_OK) *out = e;
    else rt_events_close(e);
    return s;
}

ampc_status rt_events_write(rt_events *e, uint64_t step, const rt_scalar *scalars, size_t n)
{
    message event = new_event(step), summary = {0};
    for (size_t i = 0; i < n; i++) put_scalar(&summary, &scalars[i]);
    put_message(&event, EVENT_SUMMARY, &summary);
    return write_record(e, &event);
}

ampc_status rt_events_sync(rt_events *e) { return rt_growing_sync(&e->file); }

ampc_status rt_events_close(rt_events *e)
{
    if (!e) return AMPC_OK;
    ampc_status s = rt_growing_close(&e->file);
    free(e->path);
    free(e);
    return s;
}
