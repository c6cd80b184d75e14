// A parameter source without chunks, ranks or a daemon: fp32 weights in memory, and a workspace
// that checks its use.
#ifndef GEMINID_TESTS_TRAINING_MODELS_DENSE_PARAMETERS_H_
#define GEMINID_TESTS_TRAINING_MODELS_DENSE_PARAMETERS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "geminid/zero.h"
#include "training/models/parameters.h"
#include "training/nn/parameter_source.h"

namespace geminid::trainer {

// Allocates blocks of one buffer from its top, at the highest address that fits. Fills every block
// with NaNs, so that reads of unwritten memory show in the results.
class StackWorkspace final : public zero::Workspace {
 public:
  explicit StackWorkspace(uint64_t capacity_bytes);

  absl::StatusOr<Block> Allocate(uint64_t bytes) override;

  // The bytes from the lowest byte ever in use to the top.
  uint64_t peak_bytes() const { return peak_bytes_; }
  uint64_t in_use_bytes() const;
  size_t blocks() const { return blocks_.size(); }

 protected:
  void Free(std::byte* data, uint64_t bytes) override;

 private:
  const uint64_t capacity_;
  std::unique_ptr<std::byte[]> memory_;
  std::byte* base_ = nullptr;                            // 64-byte aligned
  std::map<uint64_t, uint64_t, std::greater<>> blocks_;  // offset to bytes, highest first
  uint64_t peak_bytes_ = 0;
};

// Behaves like the engine: an operator's weights are copies that live while the operator runs. A
// gradient overwrites its weight. A parameter with two backward uses keeps its gradient in between.
class DenseParameters final : public ParameterSource {
 public:
  DenseParameters(const std::vector<ParameterSpec>& specs, zero::DataType data_type, uint64_t seed,
                  uint64_t workspace_bytes);

  absl::Status BeginMicroBatch() override;
  absl::StatusOr<std::unique_ptr<ParameterUse>> Use(
      zero::Pass pass, std::span<const ParameterId> parameters) override;
  StackWorkspace& workspace() override { return workspace_; }

  // The fp32 masters; writable, for finite differences.
  std::vector<float>& values(size_t parameter) { return values_[parameter]; }
  // The sum over the micro-batches since ClearGradients.
  const std::vector<double>& gradient(size_t parameter) const { return gradients_[parameter]; }
  size_t count() const { return specs_.size(); }
  void ClearGradients();
  // The operations since the last BeginMicroBatch, such as "forward 3,4".
  const std::vector<std::string>& operations() const { return operations_; }

 private:
  friend class DenseUse;
  zero::DataType TypeOf(size_t parameter) const {
    return specs_[parameter].data_type.value_or(data_type_);
  }

  const std::vector<ParameterSpec> specs_;
  const zero::DataType data_type_;
  StackWorkspace workspace_;
  std::vector<std::vector<float>> values_;
  std::vector<std::vector<double>> gradients_;
  std::vector<int> uses_left_;                        // of the current backward pass
  std::map<size_t, std::vector<std::byte>> partial_;  // gradients between two backward uses
  std::vector<std::string> operations_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TESTS_TRAINING_MODELS_DENSE_PARAMETERS_H_
