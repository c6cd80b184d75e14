#include "kernels/optimizers/step/parameter_arrays.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "kernels/runtime/common/buffers.h"

namespace geminid::kernels {
namespace {

constexpr size_t kMaxArrays = 2 + kMaxStateArrays;  // two hold the weights

// The arrays that a form has, in one order.
struct ArrayList {
  std::array<Buffer, kMaxArrays> buffers;
  size_t size = 0;

  template <typename T>
  void Add(const T* begin, size_t count) {
    buffers[size++] = Buffer::Of(begin, count);
  }
  std::span<const Buffer> Span() const { return {buffers.data(), size}; }
};

ArrayList ListArrays(const ConstParameterArrays& a, size_t count, int state_arrays) {
  ArrayList list;
  switch (a.form) {
    case WeightForm::kFloat:
      list.Add(a.master, count);
      break;
    case WeightForm::kSplit:
      list.Add(a.bfloat16, count);
      list.Add(a.remainder, count);
      break;
  }
  for (int i = 0; i < state_arrays; ++i) {
    if (a.state_form == StateForm::kFloat) list.Add(a.state[i], count);
    if (a.state_form == StateForm::kBFloat16) list.Add(a.small_state[i], count);
  }
  return list;
}

Buffer GradientBuffer(const GradientArray& gradient, size_t count) {
  if (gradient.type == GradientType::kFloat) {
    return Buffer::Of(static_cast<const float*>(gradient.data), count);
  }
  return Buffer::Of(static_cast<const uint16_t*>(gradient.data), count);
}

bool SameArrays(const ArrayList& a, const ArrayList& b) {
  for (size_t i = 0; i < a.size; ++i) {
    if (a.buffers[i].begin != b.buffers[i].begin) return false;
  }
  return true;
}

// False for values outside the enumerations.
bool Known(WeightForm form) { return form <= WeightForm::kSplit; }
bool Known(const ConstParameterArrays& a) {
  return Known(a.form) && a.state_form <= StateForm::kBFloat16;
}
bool SameForms(const ConstParameterArrays& a, const ParameterArrays& b) {
  return a.form == b.form && a.state_form == b.state_form;
}
bool Known(GradientType type) { return type <= GradientType::kBFloat16; }

Status CheckUpdate(const ArrayList& from, const Buffer* gradient, const ArrayList& to) {
  std::array<Buffer, kMaxArrays + 1> inputs;
  size_t size = 0;
  if (gradient != nullptr) inputs[size++] = *gradient;
  if (!SameArrays(from, to)) {
    for (const Buffer& buffer : from.Span()) inputs[size++] = buffer;
  }
  return CheckBuffers({inputs.data(), size}, to.Span());
}

}  // namespace

template <class Arrays>
Arrays Advanced(Arrays a, size_t offset) {
  if (a.master != nullptr) a.master += offset;
  if (a.bfloat16 != nullptr) a.bfloat16 += offset;
  if (a.remainder != nullptr) a.remainder += offset;
  for (auto& state : a.state) {
    if (state != nullptr) state += offset;
  }
  for (auto& state : a.small_state) {
    if (state != nullptr) state += offset;
  }
  if constexpr (requires { a.rounding; }) a.rounding.first_element += offset;
  return a;
}

ConstParameterArrays Advance(const ConstParameterArrays& arrays, size_t offset) {
  return Advanced(arrays, offset);
}

ParameterArrays Advance(const ParameterArrays& arrays, size_t offset) {
  return Advanced(arrays, offset);
}

GradientArray Advance(const GradientArray& gradient, size_t offset) {
  GradientArray result = gradient;
  const size_t bytes = gradient.type == GradientType::kFloat ? sizeof(float) : sizeof(uint16_t);
  if (result.data != nullptr) {
    result.data = static_cast<const std::byte*>(gradient.data) + offset * bytes;
  }
  return result;
}

Status CheckStepArrays(const ConstParameterArrays& old_arrays, const GradientArray& gradient,
                       size_t count, int state_arrays, const ParameterArrays& new_arrays) {
  if (!Known(old_arrays) || !Known(gradient.type)) return Status::kUnsupported;
  if (!SameForms(old_arrays, new_arrays)) return Status::kInvalidShape;
  const Buffer gradient_buffer = GradientBuffer(gradient, count);
  return CheckUpdate(ListArrays(old_arrays, count, state_arrays), &gradient_buffer,
                     ListArrays(new_arrays.View(), count, state_arrays));
}

Status CheckReadArrays(const ConstParameterArrays& arrays, const GradientArray& gradient,
                       size_t count, int state_arrays) {
  if (!Known(arrays) || !Known(gradient.type)) return Status::kUnsupported;
  const ArrayList list = ListArrays(arrays, count, state_arrays);
  const Status status = CheckBuffer(GradientBuffer(gradient, count));
  return status == Status::kOk ? CheckBuffers(list.Span(), {}) : status;
}

Status CopyParameters(const ConstParameterArrays& old_arrays, size_t count, int state_arrays,
                      const ParameterArrays& new_arrays) {
  if (!Known(old_arrays)) return Status::kUnsupported;
  if (!SameForms(old_arrays, new_arrays)) return Status::kInvalidShape;
  const ArrayList from = ListArrays(old_arrays, count, state_arrays);
  const ArrayList to = ListArrays(new_arrays.View(), count, state_arrays);
  const Status status = CheckUpdate(from, nullptr, to);
  if (status != Status::kOk || count == 0 || SameArrays(from, to)) return status;
  for (size_t i = 0; i < from.size; ++i) {
    std::memcpy(const_cast<void*>(to.buffers[i].begin), from.buffers[i].begin,
                count * from.buffers[i].element_bytes);
  }
  return Status::kOk;
}

}  // namespace geminid::kernels
