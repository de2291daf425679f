/* dnn.h - a cuDNN plan, as executed by the double of cuDNN.
 *
 * The double computes what the library understood: dims, strides, paddings and operations come from the plan's own JSON. */
#ifndef TESTS_CUDA_DOUBLE_DNN_H
#define TESTS_CUDA_DOUBLE_DNN_H

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dnn
{

enum class Type { f32, f16, bf16 };

struct Tensor {
    Type type = Type::f32;
    bool is_virtual = false;
    bool by_value = false; /* `values` is set when the plan is executed */
    std::vector<int64_t> dims, strides;
    void *data = nullptr;      /* on the device; NULL if virtual */
    std::vector<float> values; /* while the program runs, in dims order */

    size_t count() const;
    size_t bytes() const; /* from the first element to the last */
};

/* One operation; `tensors` by role, as named in the JSON. */
struct Node {
    std::string operation, mode;
    std::map<std::string, Tensor *> tensors;
    std::vector<int64_t> before, after, stride, dilation;
    float alpha[2] = {1, 1};
    size_t axis = 0;
};

struct Program {
    std::map<std::string, Tensor> tensors; /* by UID, as text */
    std::vector<Node> nodes;

    /* Reads a plan. Returns false, after double_refuse with the reason, if it contains anything that the double does not
     * support. */
    bool parse(const char *json);
    void run();
};

} // namespace dnn

#endif
