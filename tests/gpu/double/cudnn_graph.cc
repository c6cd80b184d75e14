#include "tests/gpu/double/cudnn_graph.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/runtime/common/bfloat16.h"

namespace geminid::gpu_double {
namespace {

using gpu::DnnData;
using gpu::DnnKind;
using gpu::DnnPointwise;
using Dims = std::array<int64_t, 4>;
using Values = std::vector<float>;  // dense, in the order of the dimensions

size_t BytesOf(DnnData type) { return type == DnnData::kBf16 ? 2 : 4; }

float Rounded(DnnData type, float value) {
  return type == DnnData::kBf16 ? kernels::BFloat16::FromFloat(value).ToFloat() : value;
}

// Calls `work` with each element's index in dense order, and its index by dimension.
template <class Work>
void ForEach(const Dims& dims, const Work& work) {
  size_t at = 0;
  for (int64_t b = 0; b < dims[0]; ++b) {
    for (int64_t h = 0; h < dims[1]; ++h) {
      for (int64_t m = 0; m < dims[2]; ++m) {
        for (int64_t n = 0; n < dims[3]; ++n) work(at++, Dims{b, h, m, n});
      }
    }
  }
}

int64_t Offset(const Dims& index, const Dims& strides) {
  int64_t offset = 0;
  for (size_t i = 0; i < index.size(); ++i) offset += index[i] * strides[i];
  return offset;
}

// The bytes from the first to the last element.
size_t SpanBytes(const DnnTensor& tensor) {
  Dims last = tensor.dims;
  for (int64_t& index : last) --index;
  return static_cast<size_t>(Offset(last, tensor.strides) + 1) * BytesOf(tensor.type);
}

// The place in an operand with fewer elements in some dimensions: one for all, or for several.
size_t Shared(const Dims& index, const Dims& whole, const Dims& dims) {
  size_t at = 0;
  for (size_t i = 0; i < index.size(); ++i) {
    const int64_t shared = whole[i] / dims[i];
    at = at * static_cast<size_t>(dims[i]) + static_cast<size_t>(index[i] / shared);
  }
  return at;
}

class Evaluation {
 public:
  Evaluation(const DnnRun& run, const Hooks& hooks) : run_(run), hooks_(hooks) {}

  CUresult Run() {
    for (const DnnOperation& operation : run_.operations) {
      if (!Evaluate(operation)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    return CUDA_SUCCESS;
  }

 private:
  // Null: the tensor's memory may not be read.
  const Values* Read(const DnnTensor& tensor) {
    const auto known = values_.find(tensor.id);
    if (known != values_.end()) return &known->second;
    Values& values = values_[tensor.id];
    if (tensor.by_value) {
      values = {run_.values.at(tensor.id)};
      return &values;
    }
    const auto* const data = static_cast<const std::byte*>(
        hooks_.mirror(run_.places.at(tensor.id), SpanBytes(tensor), false));
    if (data == nullptr) return nullptr;
    values.resize(static_cast<size_t>(tensor.elements()));
    ForEach(tensor.dims, [&](size_t at, const Dims& index) {
      const auto offset = static_cast<size_t>(Offset(index, tensor.strides));
      if (tensor.type == DnnData::kBf16) {
        kernels::BFloat16 value;
        std::memcpy(&value, data + offset * sizeof(value), sizeof(value));
        values[at] = value.ToFloat();
      } else {
        std::memcpy(&values[at], data + offset * sizeof(float), sizeof(float));
      }
    });
    return &values;
  }

  bool Write(const DnnTensor& tensor, Values values) {
    for (float& value : values) value = Rounded(tensor.type, value);
    if (!tensor.is_virtual) {
      if (tensor.id == run_.wrong_tensor) values.back() += 0.5F;
      if (tensor.id == run_.drifting_tensor) Drift(&values.front());
      auto* const data = static_cast<std::byte*>(
          hooks_.mirror(run_.places.at(tensor.id), SpanBytes(tensor), true));
      if (data == nullptr) return false;
      ForEach(tensor.dims, [&](size_t at, const Dims& index) {
        const auto offset = static_cast<size_t>(Offset(index, tensor.strides));
        if (tensor.type == DnnData::kBf16) {
          const auto value = kernels::BFloat16::FromFloat(values[at]);
          std::memcpy(data + offset * sizeof(value), &value, sizeof(value));
        } else {
          std::memcpy(data + offset * sizeof(float), &values[at], sizeof(float));
        }
      });
    }
    values_[tensor.id] = std::move(values);
    return true;
  }

  // Adds a unit in the last place of bf16, in every second run, but not in the first.
  static void Drift(float* value) {
    static std::atomic<int> runs = 0;
    if (runs++ % 2 == 1) *value = *value == 0 ? 0x1p-20F : *value * (1 + 0x1p-7F);
  }

  bool Evaluate(const DnnOperation& operation) {
    const Values* const x = Read(operation.x);
    const Values* const b = operation.b.id == 0 ? x : Read(operation.b);
    const Values* const choose = operation.choose.id == 0 ? x : Read(operation.choose);
    if (x == nullptr || b == nullptr || choose == nullptr) return false;
    switch (operation.kind) {
      case DnnKind::kMatmulOperation:
        return Write(operation.y, Multiply(operation, *x, *b));
      case DnnKind::kReductionOperation:
        return Write(operation.y, Reduce(operation, *x));
      case DnnKind::kReshapeOperation:
        return Write(operation.y, Transpose(operation, *x));
      default:
        return Write(operation.y, Apply(operation, *x, *b, *choose));
    }
  }

  static Values Multiply(const DnnOperation& operation, const Values& a, const Values& b) {
    const Dims& dims = operation.y.dims;
    const auto rows = static_cast<size_t>(dims[2]), columns = static_cast<size_t>(dims[3]);
    const auto depth = static_cast<size_t>(operation.x.dims[3]);
    Values c(static_cast<size_t>(operation.y.elements()));
    for (int64_t batch = 0; batch < dims[0]; ++batch) {
      for (int64_t head = 0; head < dims[1]; ++head) {
        const auto matrix = [&](const DnnTensor& tensor) {
          const int64_t own = head / (dims[1] / tensor.dims[1]);
          return static_cast<size_t>((batch * tensor.dims[1] + own) * tensor.dims[2] *
                                     tensor.dims[3]);
        };
        const float* const left = a.data() + matrix(operation.x);
        const float* const right = b.data() + matrix(operation.b);
        float* const to = c.data() + matrix(operation.y);
        for (size_t row = 0; row < rows; ++row) {
          for (size_t e = 0; e < depth; ++e) {
            const float factor = left[row * depth + e];
            if (factor == 0) continue;
            for (size_t col = 0; col < columns; ++col) {
              to[row * columns + col] += factor * right[e * columns + col];
            }
          }
        }
      }
    }
    return c;
  }

  static Values Reduce(const DnnOperation& operation, const Values& x) {
    const bool adds = operation.reduce == gpu::DnnReduce::kAdd;
    Values y(static_cast<size_t>(operation.y.elements()),
             adds ? 0.0F : -std::numeric_limits<float>::infinity());
    ForEach(operation.x.dims, [&](size_t at, const Dims& index) {
      float& to = y[Shared(index, operation.x.dims, operation.y.dims)];
      to = adds ? to + x[at] : std::max(to, x[at]);
    });
    return y;
  }

  static Values Transpose(const DnnOperation& operation, const Values& x) {
    const DnnTensor& from = operation.x;
    Values y(x.size());
    ForEach(operation.y.dims, [&](size_t at, const Dims& i) {
      const int64_t matrix = i[0] * from.dims[1] + i[1];
      y[at] = x[static_cast<size_t>((matrix * from.dims[2] + i[3]) * from.dims[3] + i[2])];
    });
    return y;
  }

  static Values Apply(const DnnOperation& operation, const Values& x, const Values& b,
                      const Values& choose) {
    const Dims& dims = operation.y.dims;
    Values y(static_cast<size_t>(operation.y.elements()));
    const auto of = [&](const Values& values, const DnnTensor& tensor, const Dims& index) {
      return tensor.id == 0 ? 0.0F : values[Shared(index, dims, tensor.dims)];
    };
    ForEach(dims, [&](size_t at, const Dims& index) {
      y[at] = ValueOf(operation, index, of(x, operation.x, index), of(b, operation.b, index),
                      of(choose, operation.choose, index));
    });
    return y;
  }

  static float ValueOf(const DnnOperation& operation, const Dims& index, float x, float b,
                       float choose) {
    switch (operation.pointwise) {
      case DnnPointwise::kAdd:
        return x + b;
      case DnnPointwise::kMul:
        return x * b;
      case DnnPointwise::kDiv:
        return x / b;
      case DnnPointwise::kSub:
        return x - b;
      case DnnPointwise::kExp:
        return std::exp(x);
      case DnnPointwise::kLog:
        return std::log(x);
      case DnnPointwise::kGreaterOrEqual:
        return x >= b ? 1.0F : 0.0F;
      case DnnPointwise::kIndex:
        return static_cast<float>(index[static_cast<size_t>(operation.axis)]);
      case DnnPointwise::kSelect:
        return choose != 0 ? x : b;
    }
    return 0;
  }

  const DnnRun& run_;
  const Hooks& hooks_;
  std::map<int64_t, Values> values_;
};

// Each dimension of `part` divides that of `whole`.
bool Divides(const Dims& part, const Dims& whole) {
  for (size_t i = 0; i < part.size(); ++i) {
    if (part[i] <= 0 || whole[i] % part[i] != 0) return false;
  }
  return true;
}

}  // namespace

bool Fits(const DnnOperation& operation) {
  const Dims &x = operation.x.dims, &b = operation.b.dims, &y = operation.y.dims;
  switch (operation.kind) {
    case DnnKind::kMatmulOperation:
      return operation.b.id != 0 && x[3] == b[2] && x[2] == y[2] && b[3] == y[3] &&
             Divides({x[0], x[1], 1, 1}, y) && Divides({b[0], b[1], 1, 1}, y);
    case DnnKind::kReductionOperation:
      return Divides(y, x);
    case DnnKind::kReshapeOperation:  // two dimensions are exchanged, and nothing moves
      return x[0] == y[0] && x[1] == y[1] && x[2] == y[3] && x[3] == y[2] &&
             operation.x.strides[2] == operation.y.strides[3] &&
             operation.x.strides[3] == operation.y.strides[2];
    default:
      return Divides(x, y) && (operation.b.id == 0 || Divides(b, y)) &&
             (operation.choose.id == 0 || Divides(operation.choose.dims, y));
  }
}

CUresult RunGraph(const DnnRun& run, const Hooks& hooks) { return Evaluation(run, hooks).Run(); }

}  // namespace geminid::gpu_double
