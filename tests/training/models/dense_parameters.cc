#include "tests/training/models/dense_parameters.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/runtime/common/bfloat16.h"
#include "training/models/initialization.h"

namespace geminid::trainer {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr int kNanByte = 0xFF;

// Storage of one tensor, 64-byte aligned within its vector.
struct Tensor {
  std::vector<std::byte> bytes;
  std::byte* data() {
    const auto address = reinterpret_cast<uintptr_t>(bytes.data());
    return bytes.data() + (kAlignment - address % kAlignment) % kAlignment;
  }
};

}  // namespace

StackWorkspace::StackWorkspace(uint64_t capacity_bytes)
    : capacity_(capacity_bytes / kAlignment * kAlignment),
      memory_(new std::byte[capacity_ + kAlignment]) {
  const auto address = reinterpret_cast<uintptr_t>(memory_.get());
  base_ = memory_.get() + (kAlignment - address % kAlignment) % kAlignment;
}

absl::StatusOr<zero::Workspace::Block> StackWorkspace::Allocate(uint64_t bytes) {
  const uint64_t rounded =
      (std::max<uint64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  uint64_t top = capacity_;
  for (const auto& [offset, size] : blocks_) {
    if (top - (offset + size) >= rounded) break;
    top = offset;
  }
  if (top < rounded) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no room for ", bytes, " bytes in ", capacity_));
  }
  const uint64_t offset = top - rounded;
  blocks_.emplace(offset, rounded);
  peak_bytes_ = std::max(peak_bytes_, capacity_ - offset);
  std::memset(base_ + offset, kNanByte, rounded);
  return MakeBlock(base_ + offset, rounded);
}

uint64_t StackWorkspace::in_use_bytes() const {
  uint64_t sum = 0;
  for (const auto& [offset, size] : blocks_) sum += size;
  return sum;
}

void StackWorkspace::Free(std::byte* data, uint64_t) {
  blocks_.erase(static_cast<uint64_t>(data - base_));
}

class DenseUse final : public ParameterUse {
 public:
  DenseUse(DenseParameters* owner, zero::Pass pass, std::span<const ParameterId> ids)
      : owner_(owner), pass_(pass) {
    for (const ParameterId id : ids) Load(static_cast<size_t>(id));
  }

  const std::byte* Weight(ParameterId id) const override {
    const auto found = tensors_.find(static_cast<size_t>(id));
    return found == tensors_.end() ? nullptr : found->second->data();
  }
  std::byte* Gradient(ParameterId id) override {
    const auto index = static_cast<size_t>(id);
    if (pass_ != zero::Pass::kBackward || Weight(id) == nullptr) return nullptr;
    if (!owner_->specs_[index].trainable) return nullptr;
    const auto separate = separate_.find(index);
    return separate != separate_.end() ? separate->second->data()
                                       : const_cast<std::byte*>(Weight(id));
  }
  bool GradientAccumulates(ParameterId id) const override {
    return owner_->partial_.contains(static_cast<size_t>(id));
  }

  absl::Status GradientWritten(ParameterId id) override {
    const auto index = static_cast<size_t>(id);
    if (Gradient(id) == nullptr) {
      return absl::FailedPreconditionError(absl::StrCat("no gradient of ", index, " expected"));
    }
    if (!written_.insert({index, true}).second || owner_->uses_left_[index] == 0) {
      return absl::FailedPreconditionError(absl::StrCat("gradient of ", index, " written twice"));
    }
    const std::byte* data = Gradient(id);
    const size_t bytes = owner_->values_[index].size() * zero::SizeOf(owner_->TypeOf(index));
    if (--owner_->uses_left_[index] > 0) {
      owner_->partial_[index].assign(data, data + bytes);
      return absl::OkStatus();
    }
    owner_->partial_.erase(index);
    for (size_t i = 0; i < owner_->values_[index].size(); ++i) {
      owner_->gradients_[index][i] += static_cast<double>(Element(index, data, i));
    }
    return absl::OkStatus();
  }

  absl::Status Finish() override {
    const auto trained = std::count_if(
        tensors_.begin(), tensors_.end(),
        [this](const auto& tensor) { return owner_->specs_[tensor.first].trainable; });
    if (pass_ == zero::Pass::kBackward && written_.size() != static_cast<size_t>(trained)) {
      return absl::FailedPreconditionError("a gradient was not written");
    }
    return absl::OkStatus();
  }

 private:
  float Element(size_t index, const std::byte* data, size_t i) const {
    if (owner_->TypeOf(index) == zero::DataType::kFloat32) {
      return reinterpret_cast<const float*>(data)[i];
    }
    return reinterpret_cast<const kernels::BFloat16*>(data)[i].ToFloat();
  }

  void Load(size_t index) {
    const std::vector<float>& values = owner_->values_[index];
    const size_t bytes = values.size() * zero::SizeOf(owner_->TypeOf(index));
    auto tensor = std::make_unique<Tensor>();
    tensor->bytes.resize(bytes + kAlignment);
    std::byte* data = tensor->data();
    if (const auto partial = owner_->partial_.find(index); partial != owner_->partial_.end()) {
      std::copy(partial->second.begin(), partial->second.end(), data);
    } else if (owner_->TypeOf(index) == zero::DataType::kFloat32) {
      std::memcpy(data, values.data(), bytes);
    } else {
      for (size_t i = 0; i < values.size(); ++i) {
        reinterpret_cast<kernels::BFloat16*>(data)[i] = kernels::BFloat16::FromFloat(values[i]);
      }
    }
    tensors_.emplace(index, std::move(tensor));
    if (!owner_->specs_[index].separate_gradient) return;
    auto gradient = std::make_unique<Tensor>();
    gradient->bytes.assign(bytes + kAlignment, std::byte{0xff});  // NaNs
    separate_.emplace(index, std::move(gradient));
  }

  DenseParameters* owner_;
  const zero::Pass pass_;
  std::map<size_t, std::unique_ptr<Tensor>> tensors_;
  std::map<size_t, std::unique_ptr<Tensor>> separate_;  // gradients
  std::map<size_t, bool> written_;
};

DenseParameters::DenseParameters(const std::vector<ParameterSpec>& specs, zero::DataType data_type,
                                 uint64_t seed, uint64_t workspace_bytes)
    : specs_(specs), data_type_(data_type), workspace_(workspace_bytes) {
  for (const ParameterSpec& spec : specs_) {
    std::vector<float>& values = values_.emplace_back(spec.elements());
    Fill(spec, seed, 0, values);
    gradients_.emplace_back(spec.elements(), 0.0);
  }
}

absl::Status DenseParameters::BeginMicroBatch() {
  operations_.clear();
  partial_.clear();
  uses_left_.clear();
  for (const ParameterSpec& spec : specs_) uses_left_.push_back(spec.backward_uses);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ParameterUse>> DenseParameters::Use(
    zero::Pass pass, std::span<const ParameterId> parameters) {
  std::string operation = pass == zero::Pass::kBackward ? "backward" : "forward";
  for (const ParameterId id : parameters) {
    const auto index = static_cast<size_t>(id);
    if (index >= specs_.size()) return absl::InvalidArgumentError("no such parameter");
    absl::StrAppend(&operation, " ", index);
  }
  operations_.push_back(std::move(operation));
  return std::make_unique<DenseUse>(this, pass, parameters);
}

void DenseParameters::ClearGradients() {
  for (std::vector<double>& gradient : gradients_) std::fill(gradient.begin(), gradient.end(), 0.0);
}

}  // namespace geminid::trainer
