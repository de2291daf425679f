/* dnn.cc - the double of cuDNN. The installed library describes, checks and plans for the device of a recorded file; the double
 * executes the plans. */
#include "tests/cuda/double/dnn.h"
#include "tests/cuda/double/inner.h"
#include "tests/cuda/double/rt.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <memory>
#include <vector>

/* The type of a handle. */
struct cudnnContext {
    cudaStream_t stream;
};

namespace {

using Status = cudnnStatus_t;

Status refuse(Status status, const char *why)
{
    double_refuse("%s", why);
    return status;
}

/* Engines compiled at run time look for a driver. They find this one, because it is already loaded. */
Status create(cudnnHandle_t *handle)
{
    static void *driver = dlopen(AMPC_DOUBLE_DRIVER, RTLD_NOW | RTLD_LOCAL);
    if (!driver) return refuse(CUDNN_STATUS_INTERNAL_ERROR, "the double of the driver cannot be loaded");
    *handle = new cudnnContext{nullptr};
    rt::enter(*handle, "cuDNN handle", rt::drop_as<cudnnContext>);
    return CUDNN_STATUS_SUCCESS;
}

Status destroy(cudnnHandle_t handle)
{
    if (!rt::known(handle, "cuDNN handle")) return refuse(CUDNN_STATUS_BAD_PARAM, "not a handle");
    rt::leave(handle);
    delete handle;
    return CUDNN_STATUS_SUCCESS;
}

Status set_stream(cudnnHandle_t handle, cudaStream_t stream)
{
    if (!rt::known(handle, "cuDNN handle")) return refuse(CUDNN_STATUS_BAD_PARAM, "not a handle");
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- the device ------------------------------------------------------------------------------ */

/* Returns the recorded properties; empty if they cannot be read. */
const std::string &device_json()
{
    static const std::string text = [] {
        const char *path = getenv("AMPC_DOUBLE_DEVICE");
        std::string all;
        char block[4096];
        FILE *f = fopen(path ? path : AMPC_DEVICE_JSON, "re");
        for (size_t n; f && (n = fread(block, 1, sizeof block, f)) > 0;) all.append(block, n);
        if (f) fclose(f);
        return all;
    }();
    return text;
}

/* Returns the function of the installed library that one of ours wraps. */
template <class F> F real(const char *name)
{
    char file[64];
    cuda_library_file(CUDA_DNN, file, sizeof file);
    static void *library = dlopen(file, RTLD_NOW | RTLD_NOLOAD);
    return reinterpret_cast<F>(library ? dlsym(library, name) : nullptr);
}

/* The attributes of a variant pack, which the library accepts but cannot return. */
struct Pack {
    std::vector<int64_t> uids;
    std::vector<void *> data;
    void *workspace = nullptr;
};

std::map<cudnnBackendDescriptor_t, Pack> packs;

void remember(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, int64_t count, const void *values)
{
    auto *numbers = static_cast<const int64_t *>(values);
    auto *addresses = static_cast<void *const *>(values);
    if (name == CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS) packs[descriptor].uids.assign(numbers, numbers + count);
    if (name == CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS) packs[descriptor].data.assign(addresses, addresses + count);
    if (name == CUDNN_ATTR_VARIANT_PACK_WORKSPACE) packs[descriptor].workspace = *addresses;
}

Status destroy_descriptor(cudnnBackendDescriptor_t descriptor)
{
    static const auto behind = real<decltype(&cudnnBackendDestroyDescriptor)>("cudnnBackendDestroyDescriptor");
    packs.erase(descriptor);
    return behind(descriptor);
}

/* Plans are always for the described device; device queries are replaced. Traces distinguish plans created by an engine from plans
 * read from JSON. */
Status set_attribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                     cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    static const auto behind = real<decltype(&cudnnBackendSetAttribute)>("cudnnBackendSetAttribute");
    if (!behind) return refuse(CUDNN_STATUS_INTERNAL_ERROR, "the installed library is not open");
    if (name != CUDNN_ATTR_DEVICEPROP_DEVICE_ID) {
        Status status = behind(descriptor, name, type, count, values);
        if (!status) remember(descriptor, name, count, values);
        if (name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG) double_note("engine");
        if (name == CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION) double_note("plan");
        return status;
    }
    if (type != CUDNN_TYPE_INT32 || count != 1 || *static_cast<const int32_t *>(values) != 0)
        return refuse(CUDNN_STATUS_BAD_PARAM, "there is device 0 only");
    const std::string &json = device_json();
    if (json.empty()) return refuse(CUDNN_STATUS_INTERNAL_ERROR, "the file of the device cannot be read");
    return behind(descriptor, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                  static_cast<int64_t>(json.size() + 1), json.c_str());
}

/* ---- execution ------------------------------------------------------------------------------- */

struct Execution {
    dnn::Program program;
    void *workspace;
    size_t workspace_bytes;
};

Status ask(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
           int64_t room, void *values, int64_t *n)
{
    return double_inner.cudnnBackendGetAttribute(d, name, type, room, n, values);
}

Status read_plan(cudnnBackendDescriptor_t plan, Execution &e)
{
    int64_t n = 0, bytes = 0;
    if (Status s = ask(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes, &n)) return s;
    e.workspace_bytes = static_cast<size_t>(bytes);
    if (Status s = ask(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 0, nullptr, &n)) return s;
    std::string json(static_cast<size_t>(n), 0);
    if (Status s = ask(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, n, &json[0], &n)) return s;
    return e.program.parse(json.c_str()) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

/* Assigns an address to a tensor; it must be aligned and cover all of the tensor. */
Status place_tensor(dnn::Program &program, int64_t uid, void *data)
{
    auto found = program.tensors.find(std::to_string(uid));
    if (found == program.tensors.end() || found->second.is_virtual)
        return refuse(CUDNN_STATUS_BAD_PARAM, "the pack has an address for a tensor that is not data");
    if (found->second.by_value) {
        found->second.values.assign(1, *static_cast<const float *>(data));
        return CUDNN_STATUS_SUCCESS;
    }
    if (reinterpret_cast<uintptr_t>(data) % 16 || !double_on_device(data, found->second.bytes()))
        return refuse(CUDNN_STATUS_BAD_PARAM, "a tensor is not whole and aligned on the device");
    found->second.data = data;
    return CUDNN_STATUS_SUCCESS;
}

Status read_pack(const Pack &pack, Execution &e)
{
    if (pack.uids.size() != pack.data.size())
        return refuse(CUDNN_STATUS_BAD_PARAM, "not as many addresses as tensors");
    for (size_t i = 0; i < pack.uids.size(); i++)
        if (Status s = place_tensor(e.program, pack.uids[i], pack.data[i])) return s;
    for (const auto &t : e.program.tensors)
        if (!t.second.is_virtual && !t.second.data && t.second.values.empty())
            return refuse(CUDNN_STATUS_BAD_PARAM, "the pack lacks the address of a tensor");
    e.workspace = pack.workspace;
    if (e.workspace_bytes && !double_on_device(e.workspace, e.workspace_bytes))
        return refuse(CUDNN_STATUS_BAD_PARAM, "the workspace is smaller than the plan needs");
    return CUDNN_STATUS_SUCCESS;
}

/* Overwrites the workspace, because its old content is undefined. */
cudaError_t run(void *state)
{
    auto *e = static_cast<Execution *>(state);
    if (e->workspace_bytes) memset(e->workspace, 0xff, e->workspace_bytes);
    e->program.run();
    return cudaSuccess;
}

Status execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack)
{
    if (!rt::known(handle, "cuDNN handle")) return refuse(CUDNN_STATUS_BAD_PARAM, "not a handle");
    auto e = std::make_unique<Execution>();
    if (Status s = read_plan(plan, *e)) return s;
    if (Status s = read_pack(packs[pack], *e)) return s;
    double_note(e->program.nodes[0].operation.c_str());
    cudaError_t error = double_enqueue(handle->stream, "cuDNN", run, e.get(),
                                       [](void *state) { delete static_cast<Execution *>(state); });
    if (error) return refuse(CUDNN_STATUS_EXECUTION_FAILED, "the stream rejects it");
    e.release();
    return CUDNN_STATUS_SUCCESS;
}

template <class F> double_function own(const char *name, F *function)
{
    return {name, reinterpret_cast<void (*)(void)>(function)};
}

const double_function functions[] = {
    own<decltype(cudnnCreate)>("cudnnCreate", create),
    own<decltype(cudnnDestroy)>("cudnnDestroy", destroy),
    own<decltype(cudnnSetStream)>("cudnnSetStream", set_stream),
    own<decltype(cudnnBackendSetAttribute)>("cudnnBackendSetAttribute", set_attribute),
    own<decltype(cudnnBackendDestroyDescriptor)>("cudnnBackendDestroyDescriptor", destroy_descriptor),
    own<decltype(cudnnBackendExecute)>("cudnnBackendExecute", execute),
    {nullptr, nullptr},
};

} // namespace

const double_library double_dnn = {true, functions};
