/* dnn.h - a cuDNN plan as the double of cuDNN carries it out.
 *
 * What is computed is what the library understood: the plan's own JSON says dims, strides, pads and operations. */
#ifndef TESTS_CUDA_DOUBLE_DNN_H
#define TESTS_CUDA_DOUBLE_DNN_H

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dnn {

enum class Type { f32, f16, bf16 };

struct Tensor {
    Type type = Type::f32;
    bool is_virtual = false;
    std::vector<int64_t> dims, strides;
    void *data = nullptr;      /* on the device; of a virtual tensor NULL */
    std::vector<float> values; /* while the program runs: in the order of dims */

    size_t count() const;
    size_t bytes() const; /* from its first element to its last */
};

/* One operation; `tensors` by the names that the JSON has for their roles. */
struct Node {
    std::string operation, mode;
    std::map<std::string, Tensor *> tensors;
    std::vector<int64_t> before, after, stride, dilation;
    float alpha[2] = {1, 1};
};

struct Program {
    std::map<std::string, Tensor> tensors; /* by the number of the tensor, as text */
    std::vector<Node> nodes;

    /* Reads a plan. False, with the reason said to double_refuse: there is something in it that the double does not
     * know. */
    bool parse(const char *json);
    void run();
};

} // namespace dnn

#endif
